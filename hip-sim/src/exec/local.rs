//! The local data share (DS), and the permutations of lanes that use its crossbar.

use super::atomics::{Change, atomic};
use super::fault::Stop;
use super::registers::Lanes;
use super::valu::each_lane;
use super::vector_memory::Width;
use super::wave::Wave;
use super::{Access, FaultKind, Memory, Space};
use crate::isa::{Inst, Mem, Op, Operand};

/// What a DS instruction with addresses does.
#[derive(Clone, Copy, Debug)]
enum Action {
    Load(Width),
    Store(Width),
    /// Two addresses, in units of the element times the stride.
    LoadTwo {
        size: u32,
        stride: u32,
    },
    StoreTwo {
        size: u32,
        stride: u32,
    },
    ExchangeTwo {
        size: u32,
        stride: u32,
    },
}

fn action(op: Op) -> Option<Action> {
    use Action::{ExchangeTwo, Load, LoadTwo, Store, StoreTwo};
    use Op::*;
    let extended = |bytes, signed| Width::Extended { bytes, signed };
    let half = |bytes, signed, high| Width::Half { bytes, signed, high };
    Some(match op {
        DsLoadU8 => Load(extended(1, false)),
        DsLoadI8 => Load(extended(1, true)),
        DsLoadU16 => Load(extended(2, false)),
        DsLoadI16 => Load(extended(2, true)),
        DsLoadB32 => Load(Width::Dwords(1)),
        DsLoadB64 => Load(Width::Dwords(2)),
        DsLoadB96 => Load(Width::Dwords(3)),
        DsLoadB128 => Load(Width::Dwords(4)),
        DsLoadU8D16 => Load(half(1, false, false)),
        DsLoadI8D16 => Load(half(1, true, false)),
        DsLoadU16D16 => Load(half(2, false, false)),
        DsLoadU8D16Hi => Load(half(1, false, true)),
        DsLoadI8D16Hi => Load(half(1, true, true)),
        DsLoadU16D16Hi => Load(half(2, false, true)),
        DsStoreB8 => Store(extended(1, false)),
        DsStoreB16 => Store(extended(2, false)),
        DsStoreB32 => Store(Width::Dwords(1)),
        DsStoreB64 => Store(Width::Dwords(2)),
        DsStoreB96 => Store(Width::Dwords(3)),
        DsStoreB128 => Store(Width::Dwords(4)),
        DsStoreB8D16Hi => Store(half(1, false, true)),
        DsStoreB16D16Hi => Store(half(2, false, true)),
        DsLoad2addrB32 => LoadTwo { size: 4, stride: 1 },
        DsLoad2addrB64 => LoadTwo { size: 8, stride: 1 },
        DsLoad2addrStride64B32 => LoadTwo { size: 4, stride: 64 },
        DsLoad2addrStride64B64 => LoadTwo { size: 8, stride: 64 },
        DsStore2addrB32 => StoreTwo { size: 4, stride: 1 },
        DsStore2addrB64 => StoreTwo { size: 8, stride: 1 },
        DsStore2addrStride64B32 => StoreTwo { size: 4, stride: 64 },
        DsStore2addrStride64B64 => StoreTwo { size: 8, stride: 64 },
        DsStorexchg2addrRtnB32 => ExchangeTwo { size: 4, stride: 1 },
        DsStorexchg2addrRtnB64 => ExchangeTwo { size: 8, stride: 1 },
        DsStorexchg2addrStride64RtnB32 => ExchangeTwo { size: 4, stride: 64 },
        DsStorexchg2addrStride64RtnB64 => ExchangeTwo { size: 8, stride: 64 },
        _ => return None,
    })
}

/// The lane that a lane reads, as the offset of `ds_swizzle_b32` encodes it.
fn swizzled(pattern: u32, lane: usize) -> usize {
    let index = lane as u32;
    let source = if pattern >= 0xe000 {
        // Decomposition for a Fourier transform.
        let mask = pattern & 31;
        let reversed = index.reverse_bits() >> 27;
        reversed >> mask.count_ones() | index & mask
    } else if pattern >= 0xc000 {
        // Rotation within the bits that the mask leaves; bit 10 tells the direction.
        let (mask, count) = (pattern & 31, pattern >> 5 & 31);
        let turned = if pattern >> 10 & 1 == 0 { index.wrapping_add(count) } else { index.wrapping_sub(count) };
        index & mask | turned & !mask
    } else if pattern >> 15 == 1 {
        index & !3 | pattern >> (2 * (index & 3)) & 3
    } else {
        (index & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31
    };
    source as usize & 31
}

impl Wave {
    /// Lane permutations, which touch no memory. True where the instruction is one.
    fn crossbar(&mut self, inst: &Inst, mem: &Mem) -> Result<bool, Stop> {
        let exec = self.registers.exec();
        let of = |operand: Operand| match operand {
            Operand::Vgpr(number) => self.registers.vgpr[usize::from(number)],
            _ => [0; 32],
        };
        let (address, data) = (of(mem.vaddr), of(inst.src[0]));
        let lane_of = |lane: usize| (address[lane].wrapping_add(mem.offset as u32) / 4 % 32) as usize;
        let mut results: Lanes = [0; 32];
        match inst.op {
            Op::DsBpermuteB32 | Op::DsBpermuteFiB32 => {
                self.check_vector(mem.vaddr, 1)?;
                for lane in each_lane(exec) {
                    let source = lane_of(lane);
                    if exec >> source & 1 == 1 || inst.op == Op::DsBpermuteFiB32 {
                        results[lane] = data[source].into();
                    }
                }
            }
            Op::DsPermuteB32 => {
                self.check_vector(mem.vaddr, 1)?;
                // Of several lanes that write one, the highest wins.
                for lane in each_lane(exec) {
                    results[lane_of(lane)] = data[lane].into();
                }
            }
            Op::DsSwizzleB32 => {
                for lane in each_lane(exec) {
                    let source = swizzled(mem.offset as u32, lane);
                    if exec >> source & 1 == 1 {
                        results[lane] = address[source].into();
                    }
                }
            }
            _ => return Ok(false),
        }
        self.write_lanes(inst, &results, exec);
        Ok(true)
    }

    pub(super) fn local_memory(&mut self, inst: &Inst, memory: &mut dyn Memory) -> Result<(), Stop> {
        let Some(mem) = inst.mem.filter(|mem| !mem.gds) else { return Err(Stop::new(FaultKind::NotImplemented)) };
        if inst.op == Op::DsNop || self.crossbar(inst, &mem)? {
            return Ok(());
        }
        let lanes = self.registers.exec();
        let pc = self.pc;
        let access = |lane: usize, address: u32, size: u32, align: u32| Access {
            space: Space::Lds,
            address: address.into(),
            size,
            align,
            lane: Some(lane as u8),
            pc,
        };
        let Operand::Vgpr(number) = mem.vaddr else { return Err(Stop::new(FaultKind::NotImplemented)) };
        let bases = self.registers.vgpr[usize::from(number)];
        if let Some((change, size)) = atomic(inst.op) {
            self.check_vector(mem.vaddr, 1)?;
            let dwords = (size / 4) as u8;
            self.check_vector(inst.src[0], dwords)?;
            self.check_vector(inst.src[1], dwords)?;
            for lane in each_lane(lanes) {
                let access = access(lane, bases[lane].wrapping_add(mem.offset as u32), size, size);
                let first = self.lane_data(inst.src[0], 0, size, lane);
                let second = self.lane_data(inst.src[1], 0, size, lane);
                // RDNA2 has what is compared with first, the later ones second.
                let swapped = self.registers.generation == crate::isa::Generation::Rdna2
                    && matches!(change, Change::CompareSwap | Change::CompareSwapFloat);
                let (data, second) = if swapped { (second, first) } else { (first, second) };
                let before = self.change(memory, access, change, data, second)?;
                self.set_lane_data(inst.dst, 0, size, lane, before);
            }
            return Ok(());
        }
        let Some(action) = action(inst.op) else { return Err(Stop::new(FaultKind::NotImplemented)) };
        self.check_vector(mem.vaddr, 1)?;
        let two = |base: u32, size: u32, stride: u32| {
            mem.offsets.map(|offset| base.wrapping_add(u32::from(offset) * size * stride))
        };
        let data_dwords = |size: u32| size.div_ceil(4) as u8;
        match action {
            Action::Store(width) => self.check_vector(inst.src[0], data_dwords(width.bytes()))?,
            Action::StoreTwo { size, .. } | Action::ExchangeTwo { size, .. } => {
                self.check_vector(inst.src[0], data_dwords(size))?;
                self.check_vector(inst.src[1], data_dwords(size))?;
            }
            _ => {}
        }
        for lane in each_lane(lanes) {
            let address = bases[lane].wrapping_add(mem.offset as u32);
            match action {
                Action::Load(width) => {
                    let size = width.bytes();
                    let mut bytes = [0; 16];
                    self.load(memory, access(lane, address, size, size.min(4)), &mut bytes[..size as usize])?;
                    self.scatter(inst.dst, width, lane, &bytes);
                }
                Action::Store(width) => {
                    let size = width.bytes();
                    let bytes = self.gather(inst.src[0], width, lane);
                    self.store(memory, access(lane, address, size, size.min(4)), &bytes[..size as usize])?;
                }
                Action::LoadTwo { size, stride } => {
                    for (index, address) in two(bases[lane], size, stride).into_iter().enumerate() {
                        let mut bytes = [0; 8];
                        self.load(memory, access(lane, address, size, 4), &mut bytes[..size as usize])?;
                        self.set_lane_data(inst.dst, index * size as usize / 4, size, lane, u64::from_le_bytes(bytes));
                    }
                }
                Action::StoreTwo { size, stride } => {
                    for (index, address) in two(bases[lane], size, stride).into_iter().enumerate() {
                        let bytes = self.lane_data(inst.src[index], 0, size, lane).to_le_bytes();
                        self.store(memory, access(lane, address, size, 4), &bytes[..size as usize])?;
                    }
                }
                Action::ExchangeTwo { size, stride } => {
                    for (index, address) in two(bases[lane], size, stride).into_iter().enumerate() {
                        let data = self.lane_data(inst.src[index], 0, size, lane);
                        let access = access(lane, address, size, size);
                        let before = self.change(memory, access, Change::Swap, data, 0)?;
                        self.set_lane_data(inst.dst, index * size as usize / 4, size, lane, before);
                    }
                }
            }
        }
        Ok(())
    }
}
