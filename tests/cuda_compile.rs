//! The CUDA kernel compiles for every architecture that the port serves, for every key, and keeps everything in registers: by the
//! NVRTC that scripts/setup.sh fetches, on any machine. CUDA 13 no longer knows sm_70, so that two versions are used.
//!
//! Where an NVRTC is missing, its architectures are printed as NOT RUN; continuous integration (`CI`) has both.
#![cfg(feature = "cuda")]

#[path = "common/pairwise.rs"]
mod pairwise;

use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use pairwise::cover;
use rayon::prelude::*;
use ssm_update::ports::cuda::compiler::Compiler;
use ssm_update::ports::cuda::key::Key;
use ssm_update::{Dtype, switches};

/// Where scripts/setup.sh puts NVRTC, by CUDA's major version.
fn nvrtc(major: i32) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder of the target folder");
    let library = target.join("nvrtc").join(major.to_string()).join(format!("libnvrtc.so.{major}"));
    if library.exists() {
        return Some(library);
    }
    assert!(env::var_os("CI").is_none(), "CI is set, and {} is not there: run scripts/setup.sh", library.display());
    println!("NOT RUN: no NVRTC {major} at {}: run scripts/setup.sh", library.display());
    None
}

/// Architectures, with the major version of the NVRTC that compiles for them here.
const ARCHITECTURES: [(i32, i32); 8] =
    [(70, 12), (75, 13), (80, 13), (86, 13), (89, 13), (90, 13), (100, 13), (120, 13)];

/// x with B and C.
const X_AND_BC: [(Dtype, Dtype); 5] = [
    (Dtype::F32, Dtype::F32),
    (Dtype::F16, Dtype::F16),
    (Dtype::F16, Dtype::F32),
    (Dtype::Bf16, Dtype::Bf16),
    (Dtype::Bf16, Dtype::F32),
];

/// How rows of a state are spread: lanes (log2), pieces of a lane, whole rows. Every d_state from 16 to 512 has one of these.
fn spreads(state: Dtype) -> Vec<(u32, u32, bool)> {
    let mut spreads = Vec::new();
    for d_state in (16..=512).step_by(16) {
        let pieces = d_state * state.size() as u32 / 16;
        let lanes = pieces.min(32).next_power_of_two();
        let chunks = pieces.div_ceil(32).next_power_of_two();
        let spread = (lanes.ilog2(), chunks, lanes * chunks == pieces);
        if !spreads.contains(&spread) {
            spreads.push(spread);
        }
    }
    spreads
}

/// A key from a choice for each of its parts, in the order of [`LEVELS`].
fn key(choice: &[usize]) -> Key {
    let dtype = |part: usize| Dtype::ALL[choice[part]];
    let optional = |part: usize| Dtype::ALL.get(choice[part]).copied();
    let flag = |part: usize| choice[part] == 1;
    let state = dtype(1);
    let spreads = spreads(state);
    let (row_lanes_log2, chunks, whole_rows) = spreads[choice[6] % spreads.len()];
    Key {
        x: X_AND_BC[choice[0]].0,
        bc: X_AND_BC[choice[0]].1,
        state,
        dt: dtype(2),
        a_log: dtype(3),
        d: optional(4),
        dt_bias: optional(5),
        row_lanes_log2,
        chunks,
        whole_rows,
        z: flag(7),
        slots_in: flag(8),
        slots_out: flag(9),
        prepared_dt: flag(10),
        write_state: flag(11),
        aligned: flag(12),
    }
}

/// Values of each part of a key: x with B and C, state, dt, A_log, D, dt_bias, spread, and six flags.
fn levels() -> Vec<usize> {
    let most = Dtype::ALL.map(|state| spreads(state).len()).into_iter().max().expect("three dtypes");
    [vec![5, 3, 3, 3, 4, 4, most], vec![2; 6]].concat()
}

/// Few keys in which every value of each part meets every value of every other.
fn pairs() -> Vec<Key> {
    distinct(cover(&levels()).iter().map(|choice| key(choice)))
}

/// Every combination of what decides on registers: dtypes of the large tensors, spread, alignment, gate. The rest goes round.
fn large() -> Vec<Key> {
    let levels = levels();
    let mut keys = Vec::new();
    for large in 0..levels[0] * levels[1] * levels[6] * 4 {
        let mut choice: Vec<usize> =
            levels.iter().enumerate().map(|(part, count)| (large / 7 + part) % count).collect();
        choice[0] = large % levels[0];
        choice[1] = large / levels[0] % levels[1];
        choice[6] = large / levels[0] / levels[1] % levels[6];
        choice[7] = large / levels[0] / levels[1] / levels[6] % 2;
        choice[12] = large / levels[0] / levels[1] / levels[6] / 2;
        // The usual step: the state is written.
        choice[11] = 1;
        keys.push(key(&choice));
    }
    distinct(keys)
}

fn distinct(keys: impl IntoIterator<Item = Key>) -> Vec<Key> {
    let mut seen = HashSet::new();
    keys.into_iter().filter(|key| seen.insert(*key)).collect()
}

/// What the assembler says of a kernel: registers, and whether something is in memory that should be in them.
fn registers(report: &str) -> Result<u32, String> {
    let number = |before: &str, after: &str| -> Option<u32> {
        let (head, _) = report[report.find(before)? + before.len()..].split_once(after)?;
        head.trim().parse().ok()
    };
    for (what, before, after) in [
        ("stack", "ptxas         .", " bytes stack frame"),
        ("spill stores", " bytes stack frame,", " bytes spill stores"),
        ("spill loads", " bytes spill stores,", " bytes spill loads"),
    ] {
        match number(before, after) {
            Some(0) => {}
            Some(bytes) => return Err(format!("{bytes} bytes of {what}")),
            None => return Err(format!("no word of {what}: {report}")),
        }
    }
    // None of it, so that there is nothing that warps could race on.
    if report.contains(" smem") {
        return Err(format!("shared memory: {report}"));
    }
    number("Used ", " registers").ok_or_else(|| format!("no word of registers: {report}"))
}

fn compile_all(architecture: i32, major: i32, keys: &[Key]) {
    let Some(library) = nvrtc(major) else { return };
    let switches =
        switches::Cuda { nvrtc: Some(library.into()), cache_dir: Some("".into()), ..switches::Cuda::default() };
    let compiler = Compiler::for_architecture(&switches, architecture).expect("the compiler knows the architecture");
    let most = AtomicUsize::new(0);
    keys.par_iter().for_each(|key| {
        let report = compiler.report(key).unwrap_or_else(|error| panic!("sm_{architecture}, {key:?}: {error}"));
        let registers = registers(&report).unwrap_or_else(|why| panic!("sm_{architecture}, {key:?}: {why}"));
        most.fetch_max(registers as usize, Ordering::Relaxed);
    });
    let most = most.into_inner();
    println!("sm_{architecture}: {} keys, at most {most} registers, by {compiler}", keys.len());
    // Two warps a block and 65,536 registers on a multiprocessor: 16 blocks and more.
    assert!(most <= 128, "sm_{architecture}: {most} registers");
}

#[test]
fn every_pair_of_key_parts_on_every_architecture() {
    let keys = pairs();
    for (architecture, major) in ARCHITECTURES {
        compile_all(architecture, major, &keys);
    }
}

#[test]
fn every_combination_of_the_large_tensors_on_hopper() {
    compile_all(90, 13, &large());
}

#[test]
fn the_report_is_read_right() {
    let report = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'ssm_update' for 'sm_90'\nptxas         .     \
                  0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 56 registers, used 0 barriers";
    assert_eq!(registers(report), Ok(56));
    assert_eq!(registers(&report.replace(" 0 bytes stack", " 16 bytes stack")), Err("16 bytes of stack".to_owned()));
    assert!(registers(&report.replace("0 bytes spill loads", "8 bytes spill loads")).is_err());
    assert!(registers(&format!("{report}, 1024 bytes smem")).is_err());
    assert!(registers("").is_err());
}
