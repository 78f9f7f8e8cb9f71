//! Code objects and bundles, as the library and the simulator read them: what is accepted is whole.
#![no_main]

use hip_sim::dispatch::{Geometry, Hidden, LoadedCode, pack};
use hip_sim::isa::Arch;
use hip_sim::memory::DeviceMemory;
use libfuzzer_sys::fuzz_target;
use ssm_update::code_object::{CodeObject, find_in_bundle};
use ssm_update_fuzz::{damaged, shipped};

fuzz_target!(|input: &[u8]| {
    let Some((&kind, rest)) = input.split_first() else { return read(input) };
    match kind & 3 {
        0 => read(rest),
        // One entry or none, and what the input has behind it.
        1 => read(&[b"__CLANG_OFFLOAD_BUNDLE__", rest].concat()),
        2 => read(&bundle(&damaged(shipped(), rest), rest)),
        _ => read(&damaged(shipped(), rest)),
    }
});

/// A bundle of one entry, whose header is damaged, too.
fn bundle(image: &[u8], input: &[u8]) -> Vec<u8> {
    let name = b"hipv4-amdgcn-amd-amdhsa--gfx1151";
    let offset = 24 + 8 + 24 + name.len() as u64;
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    for number in [1, offset, image.len() as u64, name.len() as u64] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(name);
    for &[at, value] in input.as_chunks::<2>().0.iter().take(2) {
        let at = usize::from(at) % bytes.len();
        bytes[at] = bytes[at].wrapping_add(value);
    }
    [&bytes[..], image].concat()
}

fn read(bytes: &[u8]) {
    if let Ok(object) = CodeObject::read(bytes) {
        assert!(!object.kernels.is_empty() && !object.target.is_empty());
        let names: Vec<&str> = object.kernels.iter().map(|kernel| &kernel.name[..]).collect();
        let _ = object.check("gfx1151", &names, 288);
    }
    if let Ok(entry) = find_in_bundle(bytes, "gfx1151") {
        assert!(bytes.as_ptr_range().start <= entry.as_ptr() && entry.as_ptr_range().end <= bytes.as_ptr_range().end);
        let _ = CodeObject::read(entry);
    }
    for arch in [Arch::Gfx1151, Arch::Gfx1100, Arch::Gfx1030] {
        if let Ok(object) = hip_sim::code_object::CodeObject::read(bytes, arch) {
            let geometry = Geometry::of_blocks([1, 1, 1], [32, 1, 1]).expect("a legal shape");
            for kernel in &object.kernels {
                let _ = pack(&kernel.metadata, &[0; 288], &Hidden { geometry, dynamic_lds: 0 });
                assert!(object.image.bytes_at(kernel.entry_offset, 1).is_some());
                assert!(object.image.bytes_at(kernel.descriptor_offset, 64).is_some());
            }
            for at in 0..64 {
                let _ = object.image.function_at(at << 10);
            }
            assert!(object.image.segments.iter().all(|part| part.range().end <= object.image.bytes.len() as u64));
            // More than the file has only where the headers ask for zeros: bounded by the device's memory.
            let _ = LoadedCode::load(&mut DeviceMemory::new(0, 1 << 22), object);
        }
    }
    if let Some(header) = bytes.get(..64) {
        let _ = hip_sim::code_object::elf_length(header);
    }
}
