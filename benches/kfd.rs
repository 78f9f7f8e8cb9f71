//! What the kernel's driver for AMD's compute devices, kfd, tells of the GPU: who holds it, and its caches.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where it tells.
pub const ROOT: &str = "/sys/class/kfd/kfd";

/// Level of the cache behind the second one, which AMD calls MALL or Infinity Cache.
const MALL: u32 = 3;

/// The folder of kfd.
#[derive(Clone, Debug)]
pub struct Kfd(pub PathBuf);

impl Kfd {
    /// Processes that hold a GPU. None where the driver is not there, or does not tell.
    pub fn processes(&self) -> BTreeSet<u32> {
        let entries = fs::read_dir(self.0.join("proc")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Bytes of the largest cache of a level that any GPU has.
    fn cache(&self, level: u32) -> Option<usize> {
        let folders = |path: PathBuf| {
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let is_gpu = |node: &PathBuf| property(&node.join("properties"), "gfx_target_version").is_some_and(|v| v != 0);
        let nodes = folders(self.0.join("topology/nodes")).into_iter().filter(is_gpu);
        let caches = nodes.flat_map(|node| folders(node.join("caches")));
        let sizes = caches.filter_map(|cache| {
            let file = cache.join("properties");
            (property(&file, "level")? == u64::from(level)).then(|| property(&file, "size"))?
        });
        // In KiB.
        sizes.max().and_then(|kib| usize::try_from(kib << 10).ok())
    }

    /// Bytes of the cache behind the second-level one.
    pub fn mall(&self) -> Option<usize> {
        self.cache(MALL)
    }

    /// Begins to watch, before this process opens the GPU.
    ///
    /// # Errors
    ///
    /// Other processes hold it, by their numbers.
    pub fn watch(self) -> Result<Watch, Busy> {
        let here = self.processes();
        if here.is_empty() { Ok(Watch { kfd: self, own: BTreeSet::new() }) } else { Err(Busy(here)) }
    }
}

/// A line `name value` of a file of properties.
fn property(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Processes that hold the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy(pub BTreeSet<u32>);

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        write!(f, "held by process {}", numbers.join(", "))
    }
}

impl std::error::Error for Busy {}

/// Nobody else held the GPU at the beginning.
#[derive(Debug)]
pub struct Watch {
    kfd: Kfd,
    own: BTreeSet<u32>,
}

impl Watch {
    /// This process has just opened the GPU. Its number may be another one there, seen from within a container.
    pub fn opened(&mut self) {
        self.own = self.kfd.processes();
    }

    /// Whether anybody came since.
    ///
    /// # Errors
    ///
    /// Who did.
    pub fn check(&self) -> Result<(), Busy> {
        let others: BTreeSet<u32> = self.kfd.processes().difference(&self.own).copied().collect();
        if others.is_empty() { Ok(()) } else { Err(Busy(others)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as the driver has it, with two GPUs beside the processor.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
            fs::write(path, text).expect("a file can be written");
        };
        fs::create_dir(folder.path().join("proc")).expect("a folder can be made");
        write("topology/nodes/0/properties", "cpu_cores_count 32\ngfx_target_version 0\n");
        write("topology/nodes/0/caches/0/properties", "level 3\nsize 65536\n");
        for (node, kib) in [(1, 32768), (2, 16384)] {
            write(&format!("topology/nodes/{node}/properties"), "simd_count 80\ngfx_target_version 110501\n");
            write(&format!("topology/nodes/{node}/caches/0/properties"), "level 2\nsize 2048\n");
            write(&format!("topology/nodes/{node}/caches/1/properties"), &format!("level 3\nsize {kib}\n"));
        }
        folder
    }

    #[test]
    fn the_cache_behind_the_second_one_is_that_of_a_gpu() {
        let folder = folder();
        assert_eq!(Kfd(folder.path().to_owned()).mall(), Some(32 << 20));
        assert_eq!(Kfd(folder.path().join("absent")).mall(), None);
    }

    #[test]
    fn others_are_seen_at_the_beginning_and_in_the_end() {
        let folder = folder();
        let kfd = Kfd(folder.path().to_owned());
        let process = |number: u32| folder.path().join("proc").join(number.to_string());
        let mut watch = kfd.clone().watch().expect("nobody holds it");
        fs::create_dir(process(17)).expect("a folder can be made");
        watch.opened();
        assert_eq!(watch.check(), Ok(()));
        fs::create_dir(process(23)).expect("a folder can be made");
        assert_eq!(watch.check(), Err(Busy([23].into())));
        let busy = kfd.watch().expect_err("two hold it");
        assert_eq!(busy.to_string(), "held by process 17, 23");
        let absent = Kfd(folder.path().join("absent")).watch();
        assert!(absent.expect("no driver, nobody").check().is_ok());
    }
}
