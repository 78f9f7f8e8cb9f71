//! Code objects with something wrong, made from the ones on board: what a loader must refuse, each with the fault that it is.

use ssm_update::code_object::Fault;
use ssm_update::ports::rocm::{BUILT, Image};

/// The code objects on board.
///
/// # Panics
///
/// Where the build found none: without any, nothing about loading can be tested.
pub fn on_board() -> &'static [Image<'static>] {
    assert!(!BUILT.images.is_empty(), "no code object on board: {BUILT}");
    BUILT.images
}

/// The code object that the edits below start from.
pub fn good() -> Image<'static> {
    on_board()[0]
}

/// Numbers that the ELF flags have for architectures, from LLVM's "User Guide for AMDGPU Backend".
pub const MACHINES: [(&str, u32); 12] = [
    ("gfx1030", 0x36),
    ("gfx1100", 0x41),
    ("gfx1101", 0x46),
    ("gfx1102", 0x47),
    ("gfx1103", 0x44),
    ("gfx1150", 0x43),
    ("gfx1151", 0x4a),
    ("gfx1152", 0x55),
    ("gfx1153", 0x58),
    ("gfx1200", 0x48),
    ("gfx1201", 0x4e),
    ("gfx90a", 0x3f),
];

/// Positions in an ELF header.
pub mod at {
    /// Class, data encoding, OS ABI, ABI version: one byte each.
    pub const CLASS: usize = 4;
    /// Byte order.
    pub const DATA: usize = 5;
    /// OS ABI.
    pub const OS_ABI: usize = 7;
    /// Version of the ABI.
    pub const ABI_VERSION: usize = 8;
    /// `e_type`, 2 bytes.
    pub const TYPE: usize = 16;
    /// `e_machine`, 2 bytes.
    pub const MACHINE: usize = 18;
    /// `e_phoff`, 8 bytes.
    pub const PROGRAM_HEADERS: usize = 32;
    /// `e_shoff`, 8 bytes.
    pub const SECTION_HEADERS: usize = 40;
    /// `e_flags`, 4 bytes.
    pub const FLAGS: usize = 48;
    /// `e_phentsize` and `e_phnum`, 2 bytes each.
    pub const PROGRAM_HEADER_SIZE: usize = 54;
    /// `e_shentsize` and `e_shnum`, 2 bytes each.
    pub const SECTION_HEADER_SIZE: usize = 58;
    /// Length of the header.
    pub const END: usize = 64;
}

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

fn u16_at(image: &[u8], at: usize) -> usize {
    u16::from_le_bytes(image[at..at + 2].try_into().expect("2 bytes")).into()
}

fn u32_at(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(image: &[u8], at: usize) -> usize {
    u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes")).try_into().expect("an offset")
}

/// Positions of the program headers.
fn program_headers(image: &[u8]) -> Vec<usize> {
    let (start, size) = (u64_at(image, at::PROGRAM_HEADERS), u16_at(image, at::PROGRAM_HEADER_SIZE));
    (0..u16_at(image, at::PROGRAM_HEADER_SIZE + 2)).map(|number| start + number * size).collect()
}

/// Positions of the section headers.
fn section_headers(image: &[u8]) -> Vec<usize> {
    let (start, size) = (u64_at(image, at::SECTION_HEADERS), u16_at(image, at::SECTION_HEADER_SIZE));
    (0..u16_at(image, at::SECTION_HEADER_SIZE + 2)).map(|number| start + number * size).collect()
}

/// Every position at which a part of the file begins or ends, as its headers say.
pub fn boundaries(image: &[u8]) -> Vec<usize> {
    let mut all = vec![at::END];
    for header in program_headers(image) {
        let (offset, size) = (u64_at(image, header + 8), u64_at(image, header + 32));
        all.extend([header, header + 56, offset, offset + size]);
    }
    for header in section_headers(image) {
        let (offset, size) = (u64_at(image, header + 24), u64_at(image, header + 32));
        all.extend([header, header + 64, offset, offset + size]);
    }
    all.retain(|&position| position <= image.len());
    all.sort_unstable();
    all.dedup();
    all
}

/// The segment of notes: where it is in the file.
pub fn note(image: &[u8]) -> std::ops::Range<usize> {
    let header = program_headers(image).into_iter().find(|&header| u32_at(image, header) == PT_NOTE);
    let header = header.expect("a code object has notes");
    let start = u64_at(image, header + 8);
    start..start + u64_at(image, header + 32)
}

/// A copy with one change.
pub fn edited(image: &[u8], edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut copy = image.to_vec();
    edit(&mut copy);
    assert_ne!(copy, image, "the edit changes something");
    copy
}

/// The same code object, said to be for another machine.
pub fn for_machine(image: &[u8], machine: u32) -> Vec<u8> {
    let mut copy = image.to_vec();
    copy[at::FLAGS] = machine.try_into().expect("one byte");
    copy
}

/// The number of an architecture in the ELF flags.
pub fn machine(architecture: &str) -> u32 {
    MACHINES.iter().find(|(name, _)| *name == architecture).expect("in the list").1
}

/// Replaces a text within the note by one of the same length, at its first place or at all of them.
fn replace_in_note(image: &mut [u8], find: &[u8], replace: &[u8], all: bool) {
    assert_eq!(find.len(), replace.len());
    let range = note(image);
    let mut position = range.start;
    let mut found = 0;
    while position + find.len() <= range.end {
        if image[position..].starts_with(find) {
            image[position..position + find.len()].copy_from_slice(replace);
            found += 1;
            if !all {
                break;
            }
        }
        position += 1;
    }
    assert!(found > 0, "the note has {:?}", String::from_utf8_lossy(find));
}

/// A bundle as `clang-offload-bundler` writes it, uncompressed.
pub fn bundle(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    let number = |value: usize| (value as u64).to_le_bytes();
    let header: usize = bytes.len() + 8 + entries.iter().map(|(name, _)| 24 + name.len()).sum::<usize>();
    bytes.extend(number(entries.len()));
    let mut offset = header;
    for (name, content) in entries {
        bytes.extend(number(offset));
        bytes.extend(number(content.len()));
        bytes.extend(number(name.len()));
        bytes.extend(name.as_bytes());
        offset += content.len();
    }
    for (_, content) in entries {
        bytes.extend(*content);
    }
    bytes
}

/// Name of a bundle's entry for an architecture.
pub fn entry(architecture: &str) -> String {
    format!("hipv4-amdgcn-amd-amdhsa--{architecture}")
}

/// An image that is not to be loaded.
pub struct Broken {
    /// What is wrong with it.
    pub what: &'static str,
    /// The image.
    pub bytes: Vec<u8>,
    /// Whether a fault is the right one.
    pub is: fn(&Fault) -> bool,
}

/// Whether a fault is about this header field.
macro_rules! header {
    ($name:literal) => {
        |fault| matches!(fault, Fault::Header { field, .. } if *field == $name)
    };
}

/// Every kind of image that is not to be loaded. The first faults are found when it is read, the last when it is checked against
/// what the port expects.
pub fn broken() -> Vec<Broken> {
    let good = good();
    let (bytes, target) = (good.bytes, good.target);
    let at_note = note(bytes).start;
    // The first note is the metadata: lengths of name and content, type, the name "AMDGPU\0\0", then MessagePack.
    let at_metadata = at_note + 20;
    assert_eq!(&bytes[at_note + 12..at_metadata], b"AMDGPU\0\0");
    let set = |position: usize, value: u8| edited(bytes, |image| image[position] = value);
    let patch = |position: usize, value: &[u8]| {
        edited(bytes, |image| image[position..position + value.len()].copy_from_slice(value))
    };
    let in_note = |find: &[u8], replace: &[u8], all| edited(bytes, |image| replace_in_note(image, find, replace, all));
    let other = if target == "gfx1100" { "gfx1151" } else { "gfx1100" };
    let flags = u32_at(bytes, at::FLAGS);
    let program = std::fs::read(std::env::current_exe().expect("a test knows its file")).expect("it can be read");
    let truncated: fn(&Fault) -> bool = |fault| matches!(fault, Fault::Truncated(_));
    let in_notes: fn(&Fault) -> bool = |fault| matches!(fault, Fault::Note(_));
    let unknown: fn(&Fault) -> bool = |fault| matches!(fault, Fault::Unknown(_));
    let compressed: fn(&Fault) -> bool = |fault| matches!(fault, Fault::Compressed);

    let row = |what, bytes, is| Broken { what, bytes, is };
    vec![
        row("nothing", Vec::new(), |fault| matches!(fault, Fault::Empty)),
        row("a compressed bundle", [&b"CCOB\x03\0\x01\0"[..], bytes].concat(), compressed),
        row("no more than the magic of a compressed bundle", b"CCOB".to_vec(), compressed),
        row(
            "a bundle",
            bundle(&[("host-x86_64-unknown-linux--", b""), (&entry(target), bytes)]),
            |fault| matches!(fault, Fault::Bundle(entries) if entries.len() == 2),
        ),
        row("the magic of a bundle", b"__CLANG_OFFLOAD_BUNDLE__".to_vec(), truncated),
        row("zeros", vec![0; bytes.len()], unknown),
        row("text", b"#!/bin/sh\nexit 0\n".to_vec(), unknown),
        row("part of the ELF magic", bytes[..3].to_vec(), unknown),
        row("the ELF magic", bytes[..4].to_vec(), truncated),
        row("the ELF header", bytes[..at::END].to_vec(), truncated),
        row("half a code object", bytes[..bytes.len() / 2].to_vec(), truncated),
        row("all but the last byte", bytes[..bytes.len() - 1].to_vec(), truncated),
        row("this test's own program", program, header!("ELF OS ABI")),
        row("32-bit ELF", set(at::CLASS, 1), |fault| matches!(fault, Fault::Header { .. } | Fault::Truncated(_))),
        row("big-endian ELF", set(at::DATA, 2), |fault| matches!(fault, Fault::Header { .. } | Fault::Truncated(_))),
        row("another OS ABI", set(at::OS_ABI, 0), header!("ELF OS ABI")),
        row("code object version 4", set(at::ABI_VERSION, 2), header!("ELF ABI version")),
        row("a version to come", set(at::ABI_VERSION, 5), header!("ELF ABI version")),
        row("x86-64 code", patch(at::MACHINE, &62_u16.to_le_bytes()), header!("ELF machine")),
        row("a relocatable file", patch(at::TYPE, &1_u16.to_le_bytes()), header!("ELF type")),
        row("a machine that nobody knows", set(at::FLAGS, 0xff), header!("ELF flags")),
        row("no machine", set(at::FLAGS, 0), header!("ELF flags")),
        row("xnack on", patch(at::FLAGS, &(flags | 3 << 8).to_le_bytes()), header!("ELF flags")),
        row("xnack off", patch(at::FLAGS, &(flags & !(3 << 8) | 2 << 8).to_le_bytes()), header!("ELF flags")),
        row("sramecc on", patch(at::FLAGS, &(flags | 3 << 10).to_le_bytes()), header!("ELF flags")),
        row("sramecc off", patch(at::FLAGS, &(flags & !(3 << 10) | 2 << 10).to_le_bytes()), header!("ELF flags")),
        row("program headers beyond the end", patch(at::PROGRAM_HEADERS, &u64::MAX.to_le_bytes()), truncated),
        row("section headers beyond the end", patch(at::SECTION_HEADERS, &u64::MAX.to_le_bytes()), truncated),
        row(
            "a segment that ends beyond 2^64",
            edited(bytes, |image| {
                let headers = program_headers(image);
                let load =
                    headers.into_iter().rfind(|&header| u32_at(image, header) == PT_LOAD).expect("code is loaded");
                image[load + 32..load + 40].copy_from_slice(&u64::MAX.to_le_bytes());
            }),
            truncated,
        ),
        row(
            "nothing to load",
            edited(bytes, |image| {
                for header in program_headers(image) {
                    if u32_at(image, header) == PT_LOAD {
                        image[header] = 0;
                    }
                }
            }),
            header!("ELF segments"),
        ),
        row(
            "no notes",
            edited(bytes, |image| {
                for header in program_headers(image) {
                    if u32_at(image, header) == PT_NOTE {
                        image[header] = 0;
                    }
                }
            }),
            in_notes,
        ),
        row("a note of another owner", set(at_note + 12, b'X'), in_notes),
        row("a note of another type", set(at_note + 8, 10), in_notes),
        row("a note longer than its segment", patch(at_note + 4, &u32::MAX.to_le_bytes()), in_notes),
        row("metadata that is no MessagePack", set(at_metadata, 0xc1), in_notes),
        row("metadata that is a number", set(at_metadata, 7), in_notes),
        row("metadata that ends early", patch(at_note + 4, &64_u32.to_le_bytes()), in_notes),
        row("metadata without kernels", in_note(b"amdhsa.kernels", b"amdhsa.colonel", false), in_notes),
        row("a kernel without name", in_note(b"\xa5.name", b"\xa5.nome", true), in_notes),
        row("an argument without size", in_note(b"\xa5.size", b"\xa5.sice", true), in_notes),
        row("a kernel without its registers", in_note(b".vgpr_count", b".vgpr_cound", false), in_notes),
        row("the code object of another machine", for_machine(bytes, machine(other)), |fault| {
            matches!(fault, Fault::Target { .. })
        }),
        row(
            "waves of 64 lanes in all kernels",
            in_note(b".wavefront_size\x20", b".wavefront_size\x40", true),
            |fault| matches!(fault, Fault::Wavefront { lanes: Some(64), .. }),
        ),
        row(
            "waves of 64 lanes in one kernel",
            in_note(b".wavefront_size\x20", b".wavefront_size\x40", false),
            |fault| matches!(fault, Fault::Wavefront { lanes: Some(64), .. }),
        ),
        row("waves of unknown lanes", in_note(b".wavefront_size", b".wavefront_sice", false), |fault| {
            matches!(fault, Fault::Wavefront { lanes: None, .. })
        }),
        row(
            "a parameter struct of another size",
            in_note(b"\xa5.size\xcc\xd0", b"\xa5.size\xcc\xc8", false),
            |fault| matches!(fault, Fault::Parameters { expected: 208, got, .. } if got[..] == [200]),
        ),
        row(
            "kernels of another name",
            in_note(b"ssm_update_", b"sam_update_", true),
            |fault| matches!(fault, Fault::Kernels { missing, unknown } if missing.len() == 35 && unknown.len() == 35),
        ),
    ]
}
