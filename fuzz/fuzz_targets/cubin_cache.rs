//! Files in the folder of compiled kernels: a file is taken only if it is what the library wrote.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use ssm_update::ports::cuda::cache::Cache;
use ssm_update_fuzz::{damaged, folder};

const MAGIC: &[u8] = b"ssm-update cubin 1\n";

fn whole(image: &[u8]) -> Vec<u8> {
    [MAGIC, &Sha256::digest(image), image].concat()
}

fuzz_target!(|input: &[u8]| {
    let folder = folder().join("cache");
    let cache = Cache::new(Some(folder.as_os_str()));
    let path = folder.join("kernel.cubin");
    let Some((&kind, rest)) = input.split_first() else { return };
    // What is written comes back.
    cache.write("kernel", rest);
    assert_eq!(fs::read(&path).expect("it was written"), whole(rest));
    assert_eq!(cache.read("kernel").as_deref(), Some(rest));
    assert_eq!(fs::read_dir(&folder).expect("a folder lists").count(), 1, "nothing is left beside it");

    let bytes = match kind % 4 {
        0 => rest.to_vec(),
        1 => [MAGIC, rest].concat(),
        2 => whole(rest),
        _ => {
            let (image, changes) = rest.split_at(rest.len() / 2);
            damaged(&whole(image), changes)
        }
    };
    fs::write(&path, &bytes).expect("the folder can be written");
    if let Some(image) = cache.read("kernel") {
        assert_eq!(bytes, whole(&image));
    } else {
        assert!(kind % 4 != 2);
    }
});
