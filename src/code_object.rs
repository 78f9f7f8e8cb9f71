//! What can be known of an AMD GPU code object without running it. The driver's own loading call is not told how long an image
//! is and looks at little of it, so that everything is checked here first; the build script uses the same functions on what
//! the compiler wrote.
//!
//! A code object is an ELF file: the machine in its flags, kernels and their needs in a note of MessagePack
//! ("User Guide for AMDGPU Backend" of LLVM, sections "ELF Code Object" and "Code Object Metadata"). Several of them travel in a
//! bundle ("Clang Offload Bundler"). Nothing is executed and nothing unsafe is done here; a malformed image is a [`Fault`].

use std::fmt;

use object::Endianness;
use object::elf::{ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_AMDGPU, ET_DYN, FileHeader64, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use rmpv::Value;

/// Lanes of a wave that the kernel is made for.
pub const WAVEFRONT: u64 = 32;

/// Architectures by the number in an ELF header's flags (`EF_AMDGPU_MACH`): those with waves of 32 lanes, from gfx10 on, and a
/// few with 64, so that a message can name them.
const MACHINES: &[(u32, &str)] = &[
    (0x2c, "gfx900"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x3f, "gfx90a"),
    (0x4c, "gfx942"),
    (0x4f, "gfx950"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x42, "gfx1013"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3e, "gfx1034"),
    (0x3d, "gfx1035"),
    (0x45, "gfx1036"),
    (0x41, "gfx1100"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x44, "gfx1103"),
    (0x43, "gfx1150"),
    (0x4a, "gfx1151"),
    (0x55, "gfx1152"),
    (0x58, "gfx1153"),
    (0x48, "gfx1200"),
    (0x4e, "gfx1201"),
];

/// The part of the flags that names the machine.
const MACHINE_MASK: u32 = 0xff;
/// The parts of the flags that say what xnack and sramecc have to be: 0 and 1 load whatever the device's setting is.
const FEATURE_FIELDS: [(&str, u32); 2] = [("xnack", 8), ("sramecc", 10)];

/// ABI versions in the ELF header, and what people call them.
const VERSIONS: [(u8, u8); 2] = [(3, 5), (4, 6)];

/// The operating system of an ELF header that says ROCm (`ELFOSABI_AMDGPU_HSA`).
const OS_ABI: u8 = 64;

/// Type of the note that holds the metadata, under the owner "AMDGPU".
const NT_AMDGPU_METADATA: u32 = 32;

const BUNDLE_MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED_MAGIC: &[u8] = b"CCOB";
/// How a bundle names a code object, in front of the architecture.
const BUNDLE_ENTRY: &str = "amdgcn-amd-amdhsa--";

/// Why an image is not a code object that may be handed to the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No bytes at all.
    #[error("the image is empty")]
    Empty,
    /// A compressed bundle, as ROCm's compiler makes by default from 7.2 on.
    #[error("a compressed bundle (CCOB), which is not read here; compile with --no-offload-compress")]
    Compressed,
    /// A bundle where one code object is wanted.
    #[error("a bundle of {0:?}, not one code object; compile with --no-gpu-bundle-output")]
    Bundle(Vec<String>),
    /// A bundle that has no code object for the architecture.
    #[error("the bundle has no code object for {wanted}, but for {present:?}")]
    NotInBundle {
        /// The architecture.
        wanted: String,
        /// The bundle's entries.
        present: Vec<String>,
    },
    /// Neither an ELF file nor a bundle.
    #[error("not a code object: it begins with {0:02x?}")]
    Unknown(Vec<u8>),
    /// The image ends before its own headers say so.
    #[error("truncated: {0}")]
    Truncated(String),
    /// An ELF file, but not of this kind.
    #[error("{field} is {got}, expected {expected}")]
    Header {
        /// The header's field.
        field: &'static str,
        /// What a code object has there.
        expected: String,
        /// What this one has.
        got: String,
    },
    /// No metadata, or none that can be read.
    #[error("metadata note: {0}")]
    Note(String),
    /// Made for another architecture.
    #[error("made for {got}, not for {wanted}")]
    Target {
        /// The architecture asked for.
        wanted: String,
        /// The architecture in the flags.
        got: String,
    },
    /// Kernels whose waves do not have 32 lanes.
    #[error(
        "kernel {kernel} has waves of {} lanes, and this kernel is right for {WAVEFRONT} only: compile for gfx10 or later, \
         without -mwavefrontsize64",
        tell(.lanes)
    )]
    Wavefront {
        /// The kernel.
        kernel: String,
        /// What the note says, if anything.
        lanes: Option<u64>,
    },
    /// A kernel whose one argument is not the parameter struct.
    #[error("kernel {kernel} takes arguments of {got:?} bytes, expected one of {expected}")]
    Parameters {
        /// The kernel.
        kernel: String,
        /// Bytes of the parameter struct.
        expected: u64,
        /// Bytes of each argument.
        got: Vec<u64>,
    },
    /// The kernels are not the ones that belong here.
    #[error("kernels missing: {missing:?}; not known: {unknown:?}")]
    Kernels {
        /// Wanted and not there.
        missing: Vec<String>,
        /// There and not wanted.
        unknown: Vec<String>,
    },
}

fn tell(lanes: &Option<u64>) -> String {
    lanes.map_or_else(|| "unknown".to_owned(), |lanes| lanes.to_string())
}

/// A kernel as the metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Lanes of a wave. Absent where the note does not say.
    pub wavefront: Option<u64>,
    /// Bytes of each explicit argument.
    pub arguments: Vec<u64>,
    /// Vector registers per lane.
    pub vgprs: u64,
    /// Scalar registers per wave.
    pub sgprs: u64,
    /// Registers kept in memory for want of room, vector and scalar.
    pub spills: u64,
    /// Bytes of private memory per lane.
    pub scratch: u64,
    /// Bytes of memory that a work-group shares.
    pub lds: u64,
    /// Work-items of the largest work-group.
    pub work_group: u64,
}

/// A code object that is whole: every part that its headers name is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// The architecture, such as `gfx1151`.
    pub target: String,
    /// Version of the code object format.
    pub version: u8,
    /// The kernels, by name.
    pub kernels: Vec<Kernel>,
}

impl CodeObject {
    /// Reads an image: a single code object, complete, of a known machine, with metadata.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(image: &[u8]) -> Result<Self, Fault> {
        identify(image)?;
        let header = FileHeader64::<Endianness>::parse(image).map_err(truncated)?;
        let endian = header.endian().map_err(truncated)?;
        let ident = header.e_ident();
        let field = |field, expected: u64, got: u64| {
            if expected == got { Ok(()) } else { Err(header_fault(field, expected, got)) }
        };
        field("ELF class", ELFCLASS64.0.into(), ident.class.0.into())?;
        field("ELF data encoding", ELFDATA2LSB.0.into(), ident.data.0.into())?;
        field("ELF OS ABI", OS_ABI.into(), ident.os_abi.0.into())?;
        field("ELF machine", EM_AMDGPU.0.into(), header.e_machine(endian).0.into())?;
        field("ELF type", ET_DYN.0.into(), header.e_type(endian).0.into())?;
        let version = VERSIONS
            .iter()
            .find(|(abi, _)| *abi == ident.abi_version)
            .ok_or_else(|| header_fault("ELF ABI version", "3 or 4 (code object version 5 or 6)", ident.abi_version))?;
        let flags = header.e_flags(endian).0;
        let target = machine(flags)?;
        for (feature, shift) in FEATURE_FIELDS {
            let setting = flags >> shift & 3;
            if setting > 1 {
                let got = format!("{feature}{} in {flags:#x}", if setting == 2 { "-" } else { "+" });
                return Err(header_fault("ELF flags", format!("any setting of {feature}"), got));
            }
        }
        check_extents(header, endian, image)?;
        let kernels = kernels(&metadata(header, endian, image)?)?;
        Ok(Self { target: target.to_owned(), version: version.1, kernels })
    }

    /// What must hold before the driver gets it: the architecture is `target`, exactly; it has these `kernels` and no
    /// others; each runs in waves of 32 lanes and takes one argument of `parameters` bytes.
    ///
    /// # Errors
    ///
    /// The first of these that does not hold.
    pub fn check(&self, target: &str, kernels: &[impl AsRef<str>], parameters: u64) -> Result<(), Fault> {
        if self.target != target {
            return Err(Fault::Target { wanted: target.to_owned(), got: self.target.clone() });
        }
        for kernel in &self.kernels {
            if kernel.wavefront != Some(WAVEFRONT) {
                return Err(Fault::Wavefront { kernel: kernel.name.clone(), lanes: kernel.wavefront });
            }
            if kernel.arguments != [parameters] {
                let (kernel, got) = (kernel.name.clone(), kernel.arguments.clone());
                return Err(Fault::Parameters { kernel, expected: parameters, got });
            }
        }
        let has = |name: &str| self.kernels.iter().any(|kernel| kernel.name == name);
        let missing: Vec<String> =
            kernels.iter().map(AsRef::as_ref).filter(|name| !has(name)).map(str::to_owned).collect();
        let wanted = |name: &str| kernels.iter().any(|kernel| kernel.as_ref() == name);
        let unknown: Vec<String> =
            self.kernels.iter().map(|kernel| kernel.name.clone()).filter(|name| !wanted(name)).collect();
        if missing.is_empty() && unknown.is_empty() { Ok(()) } else { Err(Fault::Kernels { missing, unknown }) }
    }
}

/// The architecture's number for the flags, if it is known.
pub fn is_known_target(target: &str) -> bool {
    MACHINES.iter().any(|(_, name)| *name == target)
}

/// The code object for an architecture within an uncompressed bundle.
///
/// # Errors
///
/// The image is no such bundle, ends too early, or has none for this architecture.
pub fn find_in_bundle<'a>(image: &'a [u8], target: &str) -> Result<&'a [u8], Fault> {
    if !image.starts_with(BUNDLE_MAGIC) {
        identify(image)?;
        return Err(header_fault("magic", "a bundle", "a single code object"));
    }
    let entries = bundle_entries(image)?;
    let names = || entries.iter().map(|(name, _)| (*name).to_owned()).collect();
    // An entry is named `<offload kind>-<triple>--<architecture>`, with the features behind a colon.
    let found = entries.iter().find(|(name, _)| {
        name.split_once(BUNDLE_ENTRY).is_some_and(|(_, rest)| rest.split(':').next() == Some(target))
    });
    found.map(|(_, bytes)| *bytes).ok_or_else(|| Fault::NotInBundle { wanted: target.to_owned(), present: names() })
}

/// Name and bytes of each entry: the magic, the number of entries, then for each its offset, its length and its name.
fn bundle_entries(image: &[u8]) -> Result<Vec<(&str, &[u8])>, Fault> {
    let short = |what: &str| Fault::Truncated(format!("{what} of the bundle"));
    let mut at = BUNDLE_MAGIC.len();
    let mut take = |len: usize, what: &str| {
        let bytes = at.checked_add(len).and_then(|end| image.get(at..end)).ok_or_else(|| short(what))?;
        at += len;
        Ok::<_, Fault>(bytes)
    };
    let number = |bytes: &[u8], what: &str| {
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| short(what))?;
        usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| short(what))
    };
    let count = number(take(8, "number of entries")?, "number of entries")?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let offset = number(take(8, "entry offset")?, "entry offset")?;
        let size = number(take(8, "entry size")?, "entry size")?;
        let length = number(take(8, "entry name")?, "entry name")?;
        let name = std::str::from_utf8(take(length, "entry name")?)
            .map_err(|_| header_fault("bundle entry", "a name", "bytes that are no text"))?;
        let bytes = offset.checked_add(size).and_then(|end| image.get(offset..end)).ok_or_else(|| short(name))?;
        entries.push((name, bytes));
    }
    Ok(entries)
}

/// Refuses everything that is not an ELF file.
fn identify(image: &[u8]) -> Result<(), Fault> {
    match image {
        [] => Err(Fault::Empty),
        _ if image.starts_with(COMPRESSED_MAGIC) => Err(Fault::Compressed),
        _ if image.starts_with(BUNDLE_MAGIC) => {
            Err(Fault::Bundle(bundle_entries(image)?.into_iter().map(|(name, _)| name.to_owned()).collect()))
        }
        _ if image.starts_with(&ELFMAG) => Ok(()),
        _ => Err(Fault::Unknown(image[..image.len().min(8)].to_vec())),
    }
}

fn machine(flags: u32) -> Result<&'static str, Fault> {
    let number = flags & MACHINE_MASK;
    let row = MACHINES.iter().find(|(machine, _)| *machine == number);
    row.map(|(_, name)| *name)
        .ok_or_else(|| header_fault("ELF flags", "a machine that this version knows", format!("{flags:#x}")))
}

fn header_fault(field: &'static str, expected: impl fmt::Display, got: impl fmt::Display) -> Fault {
    Fault::Header { field, expected: expected.to_string(), got: got.to_string() }
}

fn truncated(error: object::Error) -> Fault {
    Fault::Truncated(error.to_string())
}

/// Every segment and section that the headers name lies within the image.
fn check_extents(header: &FileHeader64<Endianness>, endian: Endianness, image: &[u8]) -> Result<(), Fault> {
    let within = |(offset, size): (u64, u64), what: &dyn fmt::Display| {
        let fits = offset.checked_add(size).is_some_and(|end| end <= image.len() as u64);
        let text = || format!("{what} ends at {:#x}, the image at {:#x}", offset.saturating_add(size), image.len());
        if fits { Ok(()) } else { Err(Fault::Truncated(text())) }
    };
    let segments = header.program_headers(endian, image).map_err(truncated)?;
    for (number, segment) in segments.iter().enumerate() {
        within(segment.file_range(endian), &format_args!("segment {number}"))?;
    }
    if !segments.iter().any(|segment| segment.p_type(endian) == PT_LOAD) {
        return Err(header_fault("ELF segments", "at least one to load", "none"));
    }
    for (number, section) in header.section_headers(endian, image).map_err(truncated)?.iter().enumerate() {
        if let Some(range) = section.file_range(endian) {
            within(range, &format_args!("section {number}"))?;
        }
    }
    Ok(())
}

fn metadata(header: &FileHeader64<Endianness>, endian: Endianness, image: &[u8]) -> Result<Value, Fault> {
    let broken = |error: object::Error| Fault::Note(error.to_string());
    for segment in header.program_headers(endian, image).map_err(broken)? {
        if segment.p_type(endian) != PT_NOTE {
            continue;
        }
        let Some(mut notes) = segment.notes(endian, image).map_err(broken)? else { continue };
        while let Some(note) = notes.next().map_err(broken)? {
            if note.name() == b"AMDGPU" && note.n_type(endian).0 == NT_AMDGPU_METADATA {
                let mut bytes = note.desc();
                return rmpv::decode::read_value(&mut bytes).map_err(|error| Fault::Note(error.to_string()));
            }
        }
    }
    Err(Fault::Note("the image has none".to_owned()))
}

fn kernels(metadata: &Value) -> Result<Vec<Kernel>, Fault> {
    let list = field(metadata, "amdhsa.kernels").and_then(Value::as_array);
    let list = list.ok_or_else(|| Fault::Note("it has no list amdhsa.kernels".to_owned()))?;
    let mut kernels = list.iter().map(kernel).collect::<Result<Vec<_>, _>>()?;
    if kernels.is_empty() {
        return Err(Fault::Note("its list amdhsa.kernels is empty".to_owned()));
    }
    kernels.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(kernels)
}

fn kernel(value: &Value) -> Result<Kernel, Fault> {
    let name = field(value, ".name").and_then(Value::as_str);
    let name = name.ok_or_else(|| Fault::Note("a kernel has no .name".to_owned()))?.to_owned();
    let optional = |key: &str| field(value, key).and_then(Value::as_u64);
    let number = |key: &str| optional(key).ok_or_else(|| Fault::Note(format!("kernel {name} has no {key}")));
    let arguments = field(value, ".args").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    // What the compiler adds on its own is named `hidden_…`.
    let explicit = arguments.iter().filter(|argument| {
        !field(argument, ".value_kind").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("hidden_"))
    });
    let size = |argument| {
        field(argument, ".size")
            .and_then(Value::as_u64)
            .ok_or_else(|| Fault::Note(format!("an argument of kernel {name} has no .size")))
    };
    Ok(Kernel {
        wavefront: optional(".wavefront_size"),
        arguments: explicit.map(size).collect::<Result<_, _>>()?,
        vgprs: number(".vgpr_count")?,
        sgprs: number(".sgpr_count")?,
        spills: number(".vgpr_spill_count")?.saturating_add(number(".sgpr_spill_count")?),
        scratch: number(".private_segment_fixed_size")?,
        lds: number(".group_segment_fixed_size")?,
        work_group: number(".max_flat_workgroup_size")?,
        name,
    })
}

fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find_map(|(name, value)| (name.as_str() == Some(key)).then_some(value))
}
