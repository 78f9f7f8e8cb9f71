//! What single instructions do, against values derived by hand from the ISA documents.
//!
//! `semantics/*.txt` has a case a line, in columns: architecture, encoding, disassembly, `inputs -> outputs`, and why.
//! Registers that are not set hold zero; a vector register is set in all lanes, or in one: `v1.3=5 v1=0` is 5 in lane 3
//! and 0 elsewhere. Numbers are integers, or floats of a width: `1.5h`, `1.5f`, `1.5d`. `lane` is each lane's number. A
//! vector output without a lane is compared in all active lanes.

#[path = "semantics/machine.rs"]
mod machine;
#[path = "semantics/table.rs"]
mod table;

use std::path::Path;

use hip_sim::exec::{AccessKind, Event, FaultKind, MemoryFaultKind, Space};
use hip_sim::isa::Arch;
use machine::{Machine, Ram};
use table::Case;

#[test]
fn instructions_do_what_the_documents_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("tests/semantics is there")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    let (mut ran, mut failures) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("the file can be read");
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with("//")) {
            ran += 1;
            if let Err(why) = Case::parse(line).and_then(|case| case.run()) {
                failures.push(format!("{}:{}: {line}\n    {why}", file.display(), number + 1));
            }
        }
    }
    println!("semantics: {ran} cases");
    assert!(ran > 300, "{ran} cases");
    assert!(failures.is_empty(), "{} of {ran} cases:\n{}", failures.len(), failures.join("\n"));
}

/// s_endpgm of RDNA3 and later.
const END: u32 = 0xbfb0_0000;

fn machine(words: &[u32]) -> Machine {
    let mut code = words.to_vec();
    code.push(END);
    Machine::new(Arch::Gfx1151, &code)
}

#[test]
fn global_loads_address_by_lane() {
    // global_load_b64 v[2:3], v0, s[4:5] offset:8
    let mut machine = machine(&[0xdc56_0008, 0x0204_0000]);
    machine.wave.set_vgpr(0, std::array::from_fn(|lane| 16 * lane as u32));
    machine.wave.set_sgpr(4, 0x1000);
    machine.wave.set_sgpr(5, 0);
    machine.wave.set_sgpr(126, 0x8000_0001);
    machine.wave.set_vgpr(2, [7; 32]);
    machine.wave.set_vgpr(3, [7; 32]);
    let mut ram = Ram::new(0x1000, 1024);
    ram.put(0x1008, &0x1122_3344_5566_7788_u64.to_le_bytes());
    ram.put(0x1008 + 16 * 31, &1_u64.to_le_bytes());
    let seen = machine.run(&mut ram).expect("it runs");
    assert_eq!(machine.wave.vgpr(2)[..2], [0x5566_7788, 7]);
    assert_eq!((machine.wave.vgpr(3)[0], machine.wave.vgpr(2)[31], machine.wave.vgpr(3)[31]), (0x1122_3344, 1, 0));
    let places: Vec<_> = seen.iter().map(|seen| (seen.access.lane, seen.access.address, seen.kind)).collect();
    assert_eq!(places, [(Some(0), 0x1008, AccessKind::Load), (Some(31), 0x11f8, AccessKind::Load)]);
    assert_eq!((seen[0].access.space, seen[0].access.size, seen[0].access.align), (Space::Global, 8, 1));
}

#[test]
fn a_load_may_overwrite_its_address() {
    // global_load_b64 v[0:1], v[0:1], off
    let mut machine = machine(&[0xdc56_0000, 0x007c_0000]);
    machine.wave.set_vgpr(0, std::array::from_fn(|lane| 0x1000 + 8 * lane as u32));
    machine.wave.set_vgpr(1, [0; 32]);
    let mut ram = Ram::new(0x1000, 512);
    for lane in 0..32_u64 {
        ram.put(0x1000 + 8 * lane, &(lane << 32 | (100 + lane)).to_le_bytes());
    }
    machine.run(&mut ram).expect("it runs");
    assert_eq!((machine.wave.vgpr(0)[31], machine.wave.vgpr(1)[31]), (131, 31));
}

#[test]
fn halves_of_registers_are_loaded_and_stored() {
    // global_load_d16_hi_b16 v2, v0, s[4:5]; global_load_i8 v3, v0, s[4:5]; global_store_d16_hi_b16 v0, v2, s[4:5]
    // offset:64
    let mut machine = machine(&[0xdc8e_0000, 0x0204_0000, 0xdc46_0000, 0x0304_0000, 0xdc96_0040, 0x0004_0200]);
    machine.wave.set_vgpr(0, [0; 32]);
    machine.wave.set_vgpr(2, [0xaaaa_bbbb; 32]);
    machine.wave.set_sgpr(4, 0x1000);
    machine.wave.set_sgpr(5, 0);
    machine.wave.set_sgpr(126, 1);
    let mut ram = Ram::new(0x1000, 128);
    ram.put(0x1000, &[0x85, 0x12]);
    machine.run(&mut ram).expect("it runs");
    assert_eq!((machine.wave.vgpr(2)[0], machine.wave.vgpr(3)[0]), (0x1285_bbbb, 0xffff_ff85));
    assert_eq!(ram.get(0x1040, 2), [0x85, 0x12]);
}

#[test]
fn atomics_return_what_was_there() {
    // global_atomic_add_u32 v2, v0, v1, s[4:5] glc; global_atomic_cmpswap_b32 v3, v0, v[6:7], s[4:5] glc
    let mut machine = machine(&[0xdcd6_4000, 0x0204_0100, 0xdcd2_4000, 0x0304_0600]);
    machine.wave.set_vgpr(0, [0; 32]);
    machine.wave.set_vgpr(1, [3; 32]);
    machine.wave.set_vgpr(6, [99; 32]);
    machine.wave.set_vgpr(7, [10 + 32 * 3; 32]);
    machine.wave.set_sgpr(4, 0x1000);
    machine.wave.set_sgpr(5, 0);
    let mut ram = Ram::new(0x1000, 16);
    ram.put(0x1000, &10_u32.to_le_bytes());
    let seen = machine.run(&mut ram).expect("it runs");
    assert_eq!((machine.wave.vgpr(2)[0], machine.wave.vgpr(2)[31]), (10, 10 + 31 * 3));
    assert_eq!((machine.wave.vgpr(3)[0], machine.wave.vgpr(3)[1]), (106, 99));
    assert_eq!(ram.get(0x1000, 4), 99_u32.to_le_bytes());
    assert_eq!((seen[0].kind, seen[0].access.align), (AccessKind::Atomic, 4));
}

#[test]
fn two_addresses_of_the_data_share() {
    // ds_store_2addr_stride64_b32 v0, v1, v2 offset1:1; ds_load_2addr_b64 v[4:7], v0 offset1:1
    let mut machine = machine(&[0xd83c_0100, 0x0002_0100, 0xd9dc_0100, 0x0400_0000]);
    machine.wave.set_vgpr(0, [16; 32]);
    machine.wave.set_vgpr(1, [1; 32]);
    machine.wave.set_vgpr(2, [2; 32]);
    machine.wave.set_sgpr(126, 1);
    let mut ram = Ram::new(0, 512);
    ram.put(16, &[0; 16]);
    let seen = machine.run(&mut ram).expect("it runs");
    assert_eq!((ram.get(16, 4), ram.get(16 + 256, 4)), (vec![1, 0, 0, 0], vec![2, 0, 0, 0]));
    assert_eq!(machine.wave.vgpr(4)[0], 1);
    let addresses: Vec<u64> = seen.iter().map(|seen| seen.access.address).collect();
    assert_eq!(addresses, [16, 272, 16, 24]);
    assert!(seen.iter().all(|seen| seen.access.space == Space::Lds));
}

#[test]
fn scalar_loads_are_one_access() {
    // s_load_b128 s[4:7], s[0:1], 0x10
    let mut machine = machine(&[0xf408_0100, 0xf800_0010]);
    machine.wave.set_sgpr(0, 0x1000);
    machine.wave.set_sgpr(1, 0);
    let mut ram = Ram::new(0x1000, 64);
    ram.put(0x1010, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
    let seen = machine.run(&mut ram).expect("it runs");
    assert_eq!([4, 5, 6, 7].map(|number| machine.wave.sgpr(number)), [1, 2, 3, 4]);
    assert_eq!((seen.len(), seen[0].access.size, seen[0].access.lane), (1, 16, None));
}

#[test]
fn registers_that_nobody_wrote_are_no_address_and_no_data() {
    // global_store_b32 v0, v9, s[4:5]
    let code = [0xdc6a_0000, 0x0004_0900];
    let mut ram = Ram::new(0x1000, 256);
    let mut address = machine(&code);
    let fault = address.run(&mut ram).expect_err("s4 is not written");
    assert_eq!(fault.kind, FaultKind::Unwritten { register: "s4".to_owned() });
    assert!(fault.text.starts_with("global_store_b32"), "{fault}");

    let mut data = machine(&code);
    data.wave.set_sgpr(4, 0x1000);
    data.wave.set_sgpr(5, 0);
    data.wave.set_vgpr(0, [0; 32]);
    let fault = data.run(&mut ram).expect_err("v9 is not written");
    assert_eq!((fault.kind.clone(), fault.lane), (FaultKind::Unwritten { register: "v9".to_owned() }, Some(0)));
    // Inactive lanes do not matter.
    data.wave.set_sgpr(126, 0);
    data.run(&mut ram).expect("no lane is active");
}

#[test]
fn memory_faults_name_the_lane() {
    // global_load_b32 v2, v0, s[4:5]
    let mut machine = machine(&[0xdc52_0000, 0x0204_0000]);
    machine.wave.set_vgpr(0, std::array::from_fn(|lane| 4 * lane as u32));
    machine.wave.set_sgpr(4, 0x1000);
    machine.wave.set_sgpr(5, 0);
    let mut ram = Ram::new(0x1000, 20);
    ram.put(0x1000, &[0; 20]);
    let fault = machine.run(&mut ram).expect_err("lane 5 is beyond the end");
    assert_eq!((fault.lane, fault.address), (Some(5), Some(0x1014)));
    assert!(matches!(&fault.kind, FaultKind::Memory(fault) if fault.kind == MemoryFaultKind::OutOfBounds));
}

#[test]
fn unknown_encodings_are_shown() {
    let mut machine = machine(&[0xf000_0000, 0x1234_5678]);
    let fault = machine.run(&mut Ram::new(0, 0)).expect_err("an image instruction");
    assert_eq!((fault.kind, fault.text.as_str()), (FaultKind::Unknown, "f0000000 12345678"));
    let mut outside = Machine::new(Arch::Gfx1151, &[0xbf80_0000]);
    assert_eq!(outside.run(&mut Ram::new(0, 0)).expect_err("no end").kind, FaultKind::OutsideCode);
}

#[test]
fn waves_pause_at_barriers_and_when_their_budget_is_spent() {
    // s_nop 0; s_barrier; s_nop 0
    let mut machine = machine(&[0xbf80_0000, 0xbfbd_0000, 0xbf80_0000]);
    let mut ram = Ram::new(0, 0);
    assert_eq!(machine.step(&mut ram, 1), Ok(Event::Budget));
    assert_eq!(machine.step(&mut ram, 9), Ok(Event::Barrier));
    assert_eq!(machine.step(&mut ram, 9), Ok(Event::End));
}

#[test]
fn branches_count_dwords_from_the_next_instruction() {
    // s_cbranch_scc1 1; s_endpgm; s_mov_b32 s0, 7
    let mut machine = machine(&[0xbfa2_0001, END, 0xbe80_0087]);
    machine.wave.set_scc(true);
    machine.run(&mut Ram::new(0, 0)).expect("it runs");
    assert_eq!(machine.wave.sgpr(0), 7);
}

#[test]
fn approximations_move_by_what_is_asked_and_no_more() {
    // v_rcp_f32_e32 v0, v1
    let code = [0x7e00_5501, END];
    let operands: [u32; 32] = std::array::from_fn(|lane| (1.5_f32 + lane as f32).to_bits());
    let run = |ulp: u32| {
        let mut machine = Machine::with(Arch::Gfx1151, &code, |setup| setup.hardware_error_ulp = ulp);
        machine.wave.set_vgpr(1, operands);
        machine.run(&mut Ram::new(0, 0)).expect("it runs");
        *machine.wave.vgpr(0)
    };
    let (exact, moved) = (run(0), run(1));
    assert_eq!(exact, operands.map(|bits| (1.0 / f32::from_bits(bits)).to_bits()));
    assert_eq!(moved, run(1), "the same every time");
    let distances = exact.iter().zip(&moved).map(|(exact, moved)| i64::from(*moved) - i64::from(*exact));
    let mut seen: Vec<i64> = distances.collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [-1, 0, 1]);
    for (bits, moved) in operands.iter().zip(moved) {
        let (exact, moved) = (1.0 / f64::from(f32::from_bits(*bits)), f32::from_bits(moved));
        let (below, above) = (f64::from(moved.next_down()), f64::from(moved.next_up()));
        assert!(below < exact && exact < above, "{moved} is more than 1 ulp from {exact}");
    }
}
