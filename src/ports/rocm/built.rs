//! What the build script found or made: the code objects on board.

use std::fmt;

/// The code object of one architecture.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    /// The architecture, such as `gfx1151`.
    pub target: &'a str,
    /// The code object.
    pub bytes: &'a [u8],
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: &'a str,
    /// Name and version of the compiler.
    pub compiler: &'a str,
    /// The compiler's flags.
    pub flags: &'a str,
    /// The kernels within.
    pub kernels: &'a [&'a str],
}

impl fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes, {})", self.target, self.bytes.len(), self.compiler)
    }
}

/// Where the code objects come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Compiled when the crate was built.
    Compiled,
    /// The binaries that the crate ships.
    Prebuilt {
        /// Why nothing was compiled.
        why: &'static str,
    },
    /// None on board.
    Absent {
        /// Why.
        why: &'static str,
    },
}

/// The result of the build.
#[derive(Clone, Copy, Debug)]
pub struct Built {
    /// Where the images come from.
    pub origin: Origin,
    /// One per architecture.
    pub images: &'static [Image<'static>],
    /// Architectures that were wanted and not built, with the reason.
    pub passed_over: &'static [(&'static str, &'static str)],
}

impl fmt::Display for Built {
    /// One line: which code objects, and from where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<&str> = self.images.iter().map(|image| image.target).collect();
        let compiler = self.images.first().map_or("no compiler", |image| image.compiler);
        match self.origin {
            Origin::Compiled => write!(f, "compiled by {compiler} for {}", targets.join(", "))?,
            Origin::Prebuilt { why } => {
                write!(f, "prebuilt (by {compiler}) for {}, since {why}", targets.join(", "))?;
            }
            Origin::Absent { why } => write!(f, "none: {why}")?,
        }
        self.passed_over.iter().try_for_each(|(target, why)| write!(f, "; not {target}: {why}"))
    }
}

include!(concat!(env!("OUT_DIR"), "/code_objects.rs"));
