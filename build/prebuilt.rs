//! The committed code objects, for machines without a compiler: `prebuilt/` holds one bundle per architecture and a manifest
//! that says what they were made from, how, and what they have to be.

use std::fmt::Write as _;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::code_object::find_in_bundle;
use super::failure::Failure;
use super::files;
use super::image::{Image, Origin};

/// The folder, within the package.
pub const FOLDER: &str = "prebuilt";
/// The manifest, within the folder.
pub const MANIFEST: &str = "manifest.toml";

/// `prebuilt/manifest.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Hash of the sources.
    pub sources: String,
    /// Name and version of the compiler.
    pub compiler: String,
    /// Its flags, architecture aside.
    pub flags: String,
    /// One per architecture.
    pub entries: Vec<Entry>,
}

/// A bundle as the manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The architecture.
    pub target: String,
    /// Bytes of the bundle.
    pub bundle_bytes: usize,
    /// SHA-256 of the bundle.
    pub bundle_sha256: String,
    /// Bytes of the code object in it.
    pub object_bytes: usize,
    /// SHA-256 of the code object.
    pub object_sha256: String,
}

impl Entry {
    /// The bundle's file, within the folder.
    pub fn file(&self) -> String {
        format!("ssm_update-{}.hipfb", self.target)
    }
}

impl Manifest {
    /// Reads the folder's manifest.
    ///
    /// # Errors
    ///
    /// It is not there, or not a manifest.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let file = folder.join(MANIFEST);
        let text = files::read_text(&file)?;
        Self::parse(&text).map_err(|why| Failure::Prebuilt { file, why })
    }

    /// Reads a manifest's text: exactly the keys that [`Self::render`] writes.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let root = DeTable::parse(text).map_err(|error| error.to_string())?;
        let root = Table { name: "the manifest", table: root.get_ref() };
        root.only(&["sources", "compiler", "flags", "bundle"])?;
        let bundles = root.get("bundle")?;
        let bundles = bundles.as_array().filter(|list| !list.is_empty()).ok_or("bundle is no list of tables")?;
        let entry = |value: &DeValue<'_>| {
            let table = value.as_table().ok_or("bundle is no list of tables")?;
            let bundle = Table { name: "a bundle", table };
            bundle.only(&["target", "bundle_bytes", "bundle_sha256", "object_bytes", "object_sha256"])?;
            Ok::<_, String>(Entry {
                target: bundle.text("target")?,
                bundle_bytes: bundle.number("bundle_bytes")?,
                bundle_sha256: bundle.text("bundle_sha256")?,
                object_bytes: bundle.number("object_bytes")?,
                object_sha256: bundle.text("object_sha256")?,
            })
        };
        Ok(Self {
            sources: root.text("sources")?,
            compiler: root.text("compiler")?,
            flags: root.text("flags")?,
            entries: bundles.iter().map(|value| entry(value.get_ref())).collect::<Result<_, _>>()?,
        })
    }

    /// The manifest as text.
    pub fn render(&self) -> String {
        let Self { sources, compiler, flags, entries } = self;
        let mut text = format!(
            "# Written by `make prebuilt`; `make verify-prebuilt` compares it with hip/, gpu/ and the files that it describes.\n\
             \n\
             # SHA-256 over the names and texts of gpu/*.h, hip/*.h and hip/*.hip.\n\
             sources = {sources:?}\n\
             compiler = {compiler:?}\n\
             flags = {flags:?}\n"
        );
        for Entry { target, bundle_bytes, bundle_sha256, object_bytes, object_sha256 } in entries {
            // cannot fail on a String
            let _ = write!(
                text,
                "\n[[bundle]]\n\
                 target = {target:?}\n\
                 bundle_bytes = {bundle_bytes}\n\
                 bundle_sha256 = {bundle_sha256:?}\n\
                 object_bytes = {object_bytes}\n\
                 object_sha256 = {object_sha256:?}\n"
            );
        }
        text
    }

    /// Who made the code objects.
    pub fn origin(&self) -> Origin {
        Origin { compiler: self.compiler.clone(), flags: self.flags.clone() }
    }

    /// Reads the bundle of an architecture and takes the code object out of it.
    ///
    /// # Errors
    ///
    /// It is not there, or not what the manifest says.
    pub fn load(&self, folder: &Path, entry: &Entry) -> Result<Image, Failure> {
        let file = folder.join(entry.file());
        let bundle = files::read(&file)?;
        let damaged = |why| Failure::Prebuilt { file: file.clone(), why };
        same("the bundle", &bundle, entry.bundle_bytes, &entry.bundle_sha256).map_err(damaged)?;
        let object = find_in_bundle(&bundle, &entry.target).map_err(|fault| damaged(fault.to_string()))?;
        same("the code object", object, entry.object_bytes, &entry.object_sha256).map_err(damaged)?;
        Image::check(&entry.target, object.to_vec(), &self.origin()).map_err(|failure| damaged(failure.to_string()))
    }
}

fn same(what: &str, bytes: &[u8], size: usize, sha256: &str) -> Result<(), String> {
    if bytes.len() != size {
        return Err(format!("{what} has {} bytes, {size} according to the manifest", bytes.len()));
    }
    let got = files::sha256(bytes);
    if got == sha256 {
        Ok(())
    } else {
        Err(format!("{what} has the SHA-256 {got}, {sha256} according to the manifest"))
    }
}

/// A table with the name that messages give it.
struct Table<'a, 'i> {
    name: &'static str,
    table: &'a DeTable<'i>,
}

impl<'a, 'i> Table<'a, 'i> {
    fn only(&self, keys: &[&str]) -> Result<(), String> {
        let unknown = self.table.keys().map(|key| key.get_ref().as_ref()).find(|key| !keys.contains(key));
        unknown.map_or(Ok(()), |key| Err(format!("{} has a key {key:?} that is not known", self.name)))
    }

    fn get(&self, key: &str) -> Result<&'a DeValue<'i>, String> {
        self.table.get(key).map(|value| value.get_ref()).ok_or_else(|| format!("{} has no {key}", self.name))
    }

    fn text(&self, key: &str) -> Result<String, String> {
        self.get(key)?.as_str().map(str::to_owned).ok_or_else(|| format!("{key} of {} is no text", self.name))
    }

    fn number(&self, key: &str) -> Result<usize, String> {
        let number = self.get(key)?.as_integer().and_then(|number| number.as_str().parse().ok());
        number.ok_or_else(|| format!("{key} of {} is no whole number", self.name))
    }
}
