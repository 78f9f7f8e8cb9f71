//! Folders of a test.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// A folder of one test, empty at first and removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A name that no other test of the same program takes. Nobody else may write to it, whatever the user's umask is.
    pub fn new(name: &str) -> Self {
        let name = format!("{}-{name}-{}", env!("CARGO_CRATE_NAME"), std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("the test's folder can be made");
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
        Self(path)
    }

    /// Puts something that is no library under each of these names, so that the system does not look further for them.
    pub fn with_decoys(self, names: &[&str]) -> Self {
        for name in names {
            fs::write(self.0.join(name), vec![b'x'; 4096]).expect("a file can be written");
        }
        self
    }

    /// Puts a copy of a library at a path below.
    pub fn with(self, path: &str, library: impl AsRef<Path>) -> Self {
        let to = self.0.join(path);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder can be made");
        fs::copy(library, to).expect("a library can be copied");
        self
    }

    /// The files below it: path from here, and what tells their contents apart.
    pub fn everything(&self) -> BTreeMap<PathBuf, (usize, u64)> {
        fn walk(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, (usize, u64)>) {
            for entry in fs::read_dir(at).expect("a folder lists") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    walk(root, &path, found);
                } else {
                    let name = path.strip_prefix(root).expect("below").to_owned();
                    let (bytes, mut hasher) = (fs::read(&path).expect("a file reads"), DefaultHasher::new());
                    bytes.hash(&mut hasher);
                    found.insert(name, (bytes.len(), hasher.finish()));
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.0, &self.0, &mut found);
        found
    }

    /// The paths of the files below it.
    pub fn names(&self) -> BTreeSet<PathBuf> {
        self.everything().into_keys().collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("the test's folder can be removed");
    }
}
