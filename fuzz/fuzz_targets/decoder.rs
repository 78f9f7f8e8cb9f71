//! The simulator's decoder on any words: an instruction or none, from the words that it says it has.
#![no_main]

use hip_sim::isa::{Arch, Dialect, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let words: Vec<u32> = input.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
    for arch in [Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1151, Arch::Gfx1201] {
        let mut at = 0;
        while at < words.len() {
            let Ok(inst) = decode(arch, &words[at..]) else {
                at += 1;
                continue;
            };
            let size = usize::from(inst.size) / 4;
            assert!(inst.size.is_multiple_of(4) && (1..=words.len() - at).contains(&size), "{size} words");
            assert!(!inst.text(Dialect::default()).to_string().is_empty());
            let _ = (inst.class(), inst.result());
            // Nothing behind it counts, and nothing less is enough.
            assert_eq!(decode(arch, &words[at..at + size]).as_ref(), Ok(&inst));
            assert!(decode(arch, &words[at..at + size - 1]).as_ref() != Ok(&inst));
            at += size;
        }
    }
});
