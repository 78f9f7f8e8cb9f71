//! What a launch is made of: partial work-groups, dynamic LDS, huge buffers, counters, refusals.

mod support;

use std::sync::Arc;

use hip_sim::device::{Config, Device, LaunchError, ModuleId};
use hip_sim::dispatch::Geometry;
use hip_sim::exec::{MemoryFaultKind, Space};
use hip_sim::isa::{Arch, Class};
use support::{bytes_of, compile, compilers, device, package, targets};

/// Without the second, kernels are compiled for grids of whole work-groups.
const OPTIONS: [&str; 2] = ["-O3", "-fno-offload-uniform-block"];

/// A device with the kernels of `launches/launches.hip`, for each target.
fn each(check: impl Fn(Device, ModuleId)) {
    for arch in targets() {
        if let Some((device, module)) = loaded(Config { arch, ..Config::default() }) {
            check(device, module);
        }
    }
}

fn loaded(config: Config) -> Option<(Device, ModuleId)> {
    let version = *compilers().first()?;
    let object = compile(version, config.arch, &package().join("tests/launches/launches.hip"), &OPTIONS)?;
    let mut device = Device::new(0, Arc::new(config));
    let module = device.load(&std::fs::read(object).expect("it was just written")).expect("the compiler made it");
    Some((device, module))
}

fn upload(device: &mut Device, words: &[u32]) -> u64 {
    let address = device.allocate(4 * words.len() as u64).expect("room");
    device.memory.write(address, &bytes_of(words)).expect("in bounds");
    address
}

fn download(device: &Device, address: u64, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; 4 * count];
    device.memory.read(address, &mut bytes).expect("in bounds");
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

/// Arguments of 64 bits, and one of 32 bits behind them.
fn arguments(wide: &[u64], narrow: Option<u32>) -> Vec<u8> {
    let mut bytes: Vec<u8> = wide.iter().flat_map(|value| value.to_le_bytes()).collect();
    bytes.extend(narrow.into_iter().flat_map(u32::to_le_bytes));
    bytes
}

fn line(blocks: u32, size: u32) -> Geometry {
    Geometry::of_blocks([blocks, 1, 1], [size, 1, 1]).expect("a legal shape")
}

fn memory_fault(result: &Result<hip_sim::counters::Counters, LaunchError>) -> Option<MemoryFaultKind> {
    match result {
        Err(LaunchError::Fault(report)) => report.problem.memory(),
        _ => None,
    }
}

#[test]
fn the_last_work_groups_of_a_grid_may_be_smaller() {
    each(|mut device, module| {
        let (width, height) = (41_u32, 10_u32);
        let out = device.allocate(4 * u64::from(width * height)).expect("room");
        let geometry = Geometry::of_items([width, height, 1], [16, 4, 1]).expect("a legal shape");
        let counters = device.launch(module, "places", geometry, 0, &arguments(&[out], Some(width)));
        assert_eq!(counters.expect("it runs").groups, 9);
        for (index, word) in download(&device, out, (width * height) as usize).into_iter().enumerate() {
            let (x, y) = (index as u32 % width, index as u32 / width);
            let size = (if x < 32 { 16 } else { 9 }, if y < 8 { 4 } else { 2 });
            assert_eq!(word.to_le_bytes().map(u32::from), [x % 16, y % 4, size.0, size.1], "{x}, {y}");
        }
    });
}

#[test]
fn lds_that_the_launch_adds() {
    each(|mut device, module| {
        let words: Vec<u32> = (0..96).collect();
        let data = upload(&mut device, &words);
        let arguments = arguments(&[data], Some(96));
        device.launch(module, "reverse", line(1, 96), 4 * 96, &arguments).expect("it runs");
        let mut reversed = words;
        reversed.reverse();
        assert_eq!(download(&device, data, 96), reversed);
        // One word too little is one word too little.
        let result = device.launch(module, "reverse", line(1, 96), 4 * 95, &arguments);
        assert_eq!(memory_fault(&result), Some(MemoryFaultKind::OutOfBounds));
        device.clear();
        let refused = device.launch(module, "reverse", line(1, 96), 65537, &arguments).expect_err("more than there is");
        assert!(refused.to_string().contains("65537 bytes of LDS"), "{refused}");
    });
}

#[test]
fn a_pool_of_40_gib_costs_the_slots_that_are_touched() {
    each(|mut device, module| {
        let (size, stride) = (40_u64 << 30, 1_u64 << 26);
        let pool = device.allocate(size).expect("room");
        device.memory.fill(pool, size, 0).expect("in bounds");
        let index = upload(&mut device, &[0, 159, 77]);
        let counters = device.launch(module, "slots", line(1, 3), 0, &arguments(&[pool, index, stride], None));
        let traffic = counters.expect("it runs").of_allocation(pool);
        assert_eq!((traffic.read, traffic.distinct_written), (12, 12));
        assert_eq!(download(&device, pool + 4 * 159 * stride, 2), [1, 0]);
        assert_eq!(download(&device, pool + 4 * 77 * stride, 1), [2]);
        let index = upload(&mut device, &[160, 0, 0]);
        let result = device.launch(module, "slots", line(1, 1), 0, &arguments(&[pool, index, stride], None));
        assert_eq!(memory_fault(&result), Some(MemoryFaultKind::OutOfBounds));
    });
}

#[test]
fn lines_tell_how_accesses_coalesce() {
    each(|mut device, module| {
        let from = upload(&mut device, &vec![3; 32 * 64]);
        let to = device.allocate(4 * 64).expect("room");
        for (stride, lines64, lines128) in [(1, 4, 2), (2, 8, 4), (32, 64, 64), (0, 2, 2)] {
            let counters = device.launch(module, "strided", line(1, 64), 0, &arguments(&[from, to], Some(stride)));
            let counters = counters.expect("it runs");
            let read = counters.of_space(Space::Global).read;
            assert_eq!((read.instructions, read.accesses, read.bytes), (2, 64, 256), "stride {stride}");
            assert_eq!((read.lines64, read.lines128), (lines64, lines128), "stride {stride}");
            assert_eq!((counters.groups, counters.waves), (1, 2));
            assert_eq!(counters.of_class(Class::Global), 4);
            let traffic = counters.of_allocation(from);
            assert_eq!((traffic.read, traffic.distinct_read), (256, if stride == 0 { 4 } else { 256 }));
        }
    });
}

/// What the first attempt did side by side is undone before the atomics are run in order.
#[test]
fn atomics_count_once() {
    each(|mut device, module| {
        let total = upload(&mut device, &[5]);
        let counters = device.launch(module, "count", line(40, 64), 0, &arguments(&[total], None)).expect("it runs");
        assert_eq!(download(&device, total, 1), [5 + 40 * 64]);
        assert_eq!(counters.groups, 40);
        // The second time they are in order from the start.
        let again = device.launch(module, "count", line(40, 64), 0, &arguments(&[total], None));
        assert_eq!(again.map(|again| again.instructions), Ok(counters.instructions));
        assert_eq!(download(&device, total, 1), [5 + 2 * 40 * 64]);
    });
}

#[test]
fn approximations_are_as_far_off_as_told() {
    let run = |error_ulp| {
        let (mut device, module) = loaded(Config { error_ulp, ..Config::default() })?;
        let values: Vec<u32> = (0..32).map(|index| (3.0 + index as f32).to_bits()).collect();
        let (from, to) = (upload(&mut device, &values), device.allocate(128).expect("room"));
        device.launch(module, "reciprocal", line(1, 32), 0, &arguments(&[from, to], None)).expect("it runs");
        Some(download(&device, to, 32))
    };
    let (Some(exact), Some(off)) = (run(0), run(1)) else { return };
    for (index, (exact, off)) in exact.iter().zip(&off).enumerate() {
        assert_eq!(f32::from_bits(*exact), 1.0 / (3.0 + index as f32));
        assert!(exact.abs_diff(*off) <= 1, "{index}");
    }
    assert_ne!(exact, off);
}

#[test]
fn what_copies_carry_along() {
    each(|mut device, module| {
        let (full, part) = (upload(&mut device, &[1; 64]), device.allocate(256).expect("room"));
        let to = device.allocate(256).expect("room");
        device.memory.copy(part, full, 252).expect("in bounds");
        let result = device.launch(module, "strided", line(1, 63), 0, &arguments(&[part, to], Some(1)));
        assert!(result.is_ok());
        // The last word of the copy was not written either.
        let result = device.launch(module, "strided", line(1, 64), 0, &arguments(&[part, to], Some(1)));
        assert_eq!(memory_fault(&result), Some(MemoryFaultKind::Uninitialised));
    });
}

#[test]
fn devices_do_not_share_memory() {
    each(|mut device, module| {
        let mut other = Device::new(1, Arc::new(Config::default()));
        let theirs = upload(&mut other, &[0; 64]);
        let result = device.launch(module, "small", line(1, 32), 0, &arguments(&[theirs], None));
        assert_eq!(memory_fault(&result), Some(MemoryFaultKind::OutOfBounds));
    });
}

#[test]
fn launches_that_are_refused() {
    each(|mut device, module| {
        let source = package().join("tests/launches/launches.hip");
        let whole = compile(compilers()[0], device.config().arch, &source, &["-O3"]).expect("it was compiled before");
        let whole = std::fs::read(whole).expect("it was just written");
        let out = device.allocate(4096).expect("room");
        let mut refuse = |kernel: &str, geometry, arguments: &[u8]| {
            device.launch(module, kernel, geometry, 0, arguments).expect_err("it is refused").to_string()
        };
        let told = refuse("small", line(1, 65), &arguments(&[out], None));
        assert!(told.contains("compiled for at most 64"), "{told}");
        let told = refuse("small", line(1, 64), &[0; 4]);
        assert!(told.contains("4 bytes of arguments, 8 expected"), "{told}");
        let told = refuse("large", line(1, 64), &[]);
        assert!(told.contains("no kernel large"), "{told}");
        let items = Geometry::of_items([100, 1, 1], [64, 1, 1]).expect("a legal shape");
        let whole = device.load(&whole).expect("the compiler made it");
        let told = device.launch(whole, "small", items, 0, &arguments(&[out], None)).expect_err("a smaller group");
        assert!(told.to_string().contains("compiled for whole groups"), "{told}");
        let wide = compile(compilers()[0], device.config().arch, &source, &["-O3", "-mwavefrontsize64"]);
        let wide = std::fs::read(wide.expect("RDNA has both widths")).expect("it was just written");
        let wide = device.load(&wide).expect("the compiler made it");
        let told = device.launch(wide, "small", line(1, 64), 0, &arguments(&[out], None)).expect_err("waves of 64");
        assert!(told.to_string().contains("waves of 64 lanes, the simulator runs 32"), "{told}");
        // A refusal is no failure.
        assert!(device.launch(module, "small", line(1, 64), 0, &arguments(&[out], None)).is_ok());
        device.unload(module).expect("it is loaded");
        let refused = device.launch(module, "small", line(1, 64), 0, &arguments(&[out], None));
        assert_eq!(refused, Err(LaunchError::NoKernel("small".into())));
    });
}

#[test]
fn little_memory() {
    let Some((device, _)) = loaded(Config { memory: 1 << 20, ..Config::default() }) else { return };
    assert!(device.memory.sizes().1 < 1 << 20, "code takes room");
    let mut device = support::device(Arch::Gfx1151, 1);
    assert!(device.allocate(129 << 30).is_err());
}

#[test]
fn another_architecture_is_not_loaded() {
    let Some(&version) = compilers().first() else { return };
    let source = package().join("tests/launches/launches.hip");
    let Some(object) = compile(version, Arch::Gfx1100, &source, &["-O3"]) else { return };
    let mut device = device(Arch::Gfx1151, 1);
    let refused = device.load(&std::fs::read(object).expect("it was just written")).expect_err("for another device");
    assert!(refused.to_string().contains("no code for gfx1151: the code object has gfx1100"), "{refused}");
}
