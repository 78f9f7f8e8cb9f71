//! FLAT, GLOBAL, SCRATCH, and MUBUF as RDNA2 reaches its private segment with: a lane at a time.

use super::atomics::{Change, apply, atomic};
use super::fault::Stop;
use super::salu::shortened;
use super::valu::each_lane;
use super::wave::Wave;
use super::{Access, AccessKind, FaultKind, LaneAccess, Memory, MemoryFaultKind, Space};
use crate::isa::{Encoding, Inst, Mem, Op, Operand, Ty};

/// How loaded bytes become registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// Whole dwords.
    Dwords(u32),
    /// A byte (1) or two (2), extended to a dword.
    Extended { bytes: u32, signed: bool },
    /// A byte or two in one half of a register; the other half stays.
    Half { bytes: u32, signed: bool, high: bool },
}

impl Width {
    pub fn bytes(self) -> u32 {
        match self {
            Self::Dwords(count) => 4 * count,
            Self::Extended { bytes, .. } | Self::Half { bytes, .. } => bytes,
        }
    }
}

/// What a load or store moves; none where the instruction is neither.
fn movement(op: Op) -> Option<(bool, Width)> {
    use Op::*;
    let extended = |bytes, signed| Width::Extended { bytes, signed };
    let half = |bytes, signed, high| Width::Half { bytes, signed, high };
    Some(match op {
        LoadU8 => (false, extended(1, false)),
        LoadI8 => (false, extended(1, true)),
        LoadU16 => (false, extended(2, false)),
        LoadI16 => (false, extended(2, true)),
        LoadB32 => (false, Width::Dwords(1)),
        LoadB64 => (false, Width::Dwords(2)),
        LoadB96 => (false, Width::Dwords(3)),
        LoadB128 => (false, Width::Dwords(4)),
        LoadD16U8 => (false, half(1, false, false)),
        LoadD16I8 => (false, half(1, true, false)),
        LoadD16B16 => (false, half(2, false, false)),
        LoadD16HiU8 => (false, half(1, false, true)),
        LoadD16HiI8 => (false, half(1, true, true)),
        LoadD16HiB16 => (false, half(2, false, true)),
        StoreB8 => (true, extended(1, false)),
        StoreB16 => (true, extended(2, false)),
        StoreB32 => (true, Width::Dwords(1)),
        StoreB64 => (true, Width::Dwords(2)),
        StoreB96 => (true, Width::Dwords(3)),
        StoreB128 => (true, Width::Dwords(4)),
        StoreD16HiB8 => (true, half(1, false, true)),
        StoreD16HiB16 => (true, half(2, false, true)),
        _ => return None,
    })
}

impl Wave {
    /// Refuses vector registers that nobody wrote in an active lane.
    pub(super) fn check_vector(&self, operand: Operand, dwords: u8) -> Result<(), Stop> {
        let Operand::Vgpr(number) = operand else { return Ok(()) };
        for number in usize::from(number)..usize::from(number) + usize::from(dwords) {
            let missing = self.registers.exec() & !self.registers.vgpr_written.get(number).copied().unwrap_or(0);
            if missing != 0 {
                let mut stop = Stop::unwritten(format!("v{number}"));
                stop.lane = Some(missing.trailing_zeros() as u8);
                return Err(stop);
            }
        }
        Ok(())
    }

    pub(super) fn store(&mut self, memory: &mut dyn Memory, access: Access, bytes: &[u8]) -> Result<(), Stop> {
        if self.observed {
            self.accesses.push(LaneAccess { access, kind: AccessKind::Store });
        }
        memory.store(&access, bytes).map_err(|fault| Stop::memory(fault, &access))
    }

    /// Applies the change; what was there before.
    pub(super) fn change(
        &mut self,
        memory: &mut dyn Memory,
        access: Access,
        change: Change,
        data: u64,
        second: u64,
    ) -> Result<u64, Stop> {
        if self.observed {
            self.accesses.push(LaneAccess { access, kind: AccessKind::Atomic });
        }
        let mut before = 0;
        let mut update = |bytes: &mut [u8]| {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            before = u64::from_le_bytes(value);
            let after = apply(change, access.size, before, data, second);
            let size = bytes.len();
            bytes.copy_from_slice(&after.to_le_bytes()[..size]);
        };
        memory.atomic(&access, &mut update).map_err(|fault| Stop::memory(fault, &access))?;
        Ok(before)
    }

    /// One or two dwords of a lane.
    pub(super) fn lane_data(&self, operand: Operand, skip: usize, size: u32, lane: usize) -> u64 {
        let Operand::Vgpr(number) = operand else { return 0 };
        let number = usize::from(number) + skip;
        let low = u64::from(self.registers.vgpr[number][lane]);
        if size == 8 { low | u64::from(self.registers.vgpr[number + 1][lane]) << 32 } else { low }
    }

    /// Writes one or two dwords of a lane.
    pub(super) fn set_lane_data(&mut self, operand: Operand, skip: usize, size: u32, lane: usize, value: u64) {
        let Operand::Vgpr(number) = operand else { return };
        let number = usize::from(number) + skip;
        self.registers.set_dword(number, lane, value as u32);
        if size == 8 {
            self.registers.set_dword(number + 1, lane, (value >> 32) as u32);
        }
    }

    /// Where a lane's access goes.
    fn lane_address(&self, inst: &Inst, mem: &Mem, lane: usize) -> u64 {
        let registers = &self.registers;
        let dword = |operand: Operand| match operand {
            Operand::Vgpr(number) => registers.vgpr[usize::from(number)][lane],
            _ => 0,
        };
        match inst.encoding {
            Encoding::Scratch => {
                let scalar = registers.scalar(inst, mem.saddr, Ty::B32) as u32;
                u64::from(scalar.wrapping_add(dword(mem.vaddr)).wrapping_add_signed(mem.offset))
            }
            // The scalar offset counts the bytes of all lanes, which are interleaved; the others those of one lane.
            Encoding::Mubuf => {
                let scalar = registers.scalar(inst, mem.soffset, Ty::B32) as u32 / 32;
                let vector = if mem.addressing & 1 == 1 { dword(mem.vaddr) } else { 0 };
                u64::from(scalar.wrapping_add(vector).wrapping_add_signed(mem.offset))
            }
            _ if mem.saddr.is_some() => shortened(
                registers
                    .scalar(inst, mem.saddr, Ty::B64)
                    .wrapping_add(dword(mem.vaddr).into())
                    .wrapping_add_signed(mem.offset.into()),
            ),
            _ => shortened(self.lane_data(mem.vaddr, 0, 8, lane).wrapping_add_signed(mem.offset.into())),
        }
    }

    /// Refuses addresses made of registers that nobody wrote.
    fn check_address(&self, inst: &Inst, mem: &Mem) -> Result<(), Stop> {
        let wide = !matches!(inst.encoding, Encoding::Scratch | Encoding::Mubuf);
        match inst.encoding {
            Encoding::Mubuf => {
                self.check_scalar(mem.soffset, 1)?;
                if mem.addressing & 1 == 1 { self.check_vector(mem.vaddr, 1) } else { Ok(()) }
            }
            _ if mem.saddr.is_some() => {
                self.check_scalar(mem.saddr, if wide { 2 } else { 1 })?;
                self.check_vector(mem.vaddr, 1)
            }
            _ => self.check_vector(mem.vaddr, if wide { 2 } else { 1 }),
        }
    }

    pub(super) fn vector_memory(&mut self, inst: &Inst, memory: &mut dyn Memory) -> Result<(), Stop> {
        let Some(mem) = inst.mem else { return Err(Stop::new(FaultKind::NotImplemented)) };
        // Write-back and invalidation of caches, which are not modelled.
        if matches!(inst.op, Op::Inv | Op::Wb | Op::Wbinv | Op::BufferGl0Inv | Op::BufferGl1Inv) {
            return Ok(());
        }
        // An index would need the buffer's stride; compilers only use offsets into the private segment.
        if mem.addressing & 2 != 0 {
            return Err(Stop::new(FaultKind::NotImplemented));
        }
        let space = match inst.encoding {
            Encoding::Global => Space::Global,
            Encoding::Flat => Space::Flat,
            _ => Space::Scratch,
        };
        self.check_address(inst, &mem)?;
        let pc = self.pc;
        let access = |lane: usize, address: u64, size: u32, align: u32| Access {
            space,
            address,
            size,
            align,
            lane: Some(lane as u8),
            pc,
        };
        let lanes = self.registers.exec();
        if let Some((change, size)) = atomic(inst.op) {
            let compares = matches!(change, Change::CompareSwap | Change::CompareSwapFloat);
            let dwords = (size / 4) as u8;
            self.check_vector(inst.src[0], if compares { 2 * dwords } else { dwords })?;
            for lane in each_lane(lanes) {
                let access = access(lane, self.lane_address(inst, &mem, lane), size, size);
                let data = self.lane_data(inst.src[0], 0, size, lane);
                let second = if compares { self.lane_data(inst.src[0], size as usize / 4, size, lane) } else { 0 };
                let before = self.change(memory, access, change, data, second)?;
                self.set_lane_data(inst.dst, 0, size, lane, before);
            }
            return Ok(());
        }
        let Some((stores, width)) = movement(inst.op) else { return Err(Stop::new(FaultKind::NotImplemented)) };
        let size = width.bytes();
        // Spills save whole registers, whoever wrote them.
        if stores && space != Space::Scratch {
            self.check_vector(inst.src[0], size.div_ceil(4) as u8)?;
        }
        // Addresses first: the destination may be one of their registers.
        let addresses: [u64; 32] =
            std::array::from_fn(|lane| if lanes >> lane & 1 == 1 { self.lane_address(inst, &mem, lane) } else { 0 });
        for lane in each_lane(lanes) {
            let access = access(lane, addresses[lane], size, 1);
            if stores {
                let bytes = self.gather(inst.src[0], width, lane);
                self.store(memory, access, &bytes[..size as usize])?;
            } else {
                let mut bytes = [0; 16];
                match self.load(memory, access, &mut bytes[..size as usize]) {
                    Ok(()) => self.scatter(inst.dst, width, lane, &bytes),
                    Err(stop) if space == Space::Scratch && stop.is_uninitialised() => {
                        self.reload(memory, inst.dst, width, lane, access)?;
                    }
                    Err(stop) => return Err(stop),
                }
            }
        }
        Ok(())
    }

    /// A load from scratch of bytes that are not all written.
    ///
    /// Compilers spill registers in the lanes that are active, and bring them back when more are: the value is not used
    /// in the others. So the registers count as not written where the bytes are not, and whoever uses them for more is
    /// told then.
    fn reload(
        &mut self,
        memory: &mut dyn Memory,
        dst: Operand,
        width: Width,
        lane: usize,
        access: Access,
    ) -> Result<(), Stop> {
        let Operand::Vgpr(number) = dst else { return Ok(()) };
        let Width::Dwords(count) = width else {
            self.scatter(dst, width, lane, &[0; 16]);
            self.registers.vgpr_written[usize::from(number)] &= !(1 << lane);
            return Ok(());
        };
        for index in 0..count {
            let part = Access { address: access.address + u64::from(4 * index), size: 4, ..access };
            let mut bytes = [0; 4];
            let number = usize::from(number) + index as usize;
            match memory.load(&part, &mut bytes) {
                Ok(()) => self.registers.set_dword(number, lane, u32::from_le_bytes(bytes)),
                Err(fault) if fault.kind == MemoryFaultKind::Uninitialised => {
                    self.registers.vgpr[number][lane] = 0;
                    self.registers.vgpr_written[number] &= !(1 << lane);
                }
                Err(fault) => return Err(Stop::memory(fault, &part)),
            }
        }
        Ok(())
    }

    /// The bytes that a store writes.
    pub(super) fn gather(&self, operand: Operand, width: Width, lane: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        let Operand::Vgpr(number) = operand else { return bytes };
        let shift = if matches!(width, Width::Half { high: true, .. }) { 16 } else { 0 };
        for (index, out) in bytes.chunks_exact_mut(4).enumerate().take(width.bytes().div_ceil(4) as usize) {
            let dword = self.registers.vgpr[usize::from(number) + index][lane] >> shift;
            out.copy_from_slice(&dword.to_le_bytes());
        }
        bytes
    }

    /// Puts loaded bytes into registers.
    pub(super) fn scatter(&mut self, operand: Operand, width: Width, lane: usize, bytes: &[u8; 16]) {
        let Operand::Vgpr(number) = operand else { return };
        let value = |count: u32, signed: bool| match (count, signed) {
            (1, false) => bytes[0].into(),
            (1, true) => bytes[0] as i8 as u32,
            (_, false) => u16::from_le_bytes([bytes[0], bytes[1]]).into(),
            (_, true) => i16::from_le_bytes([bytes[0], bytes[1]]) as u32,
        };
        match width {
            Width::Dwords(count) => {
                for (index, dword) in bytes.as_chunks().0.iter().enumerate().take(count as usize) {
                    self.registers.set_dword(usize::from(number) + index, lane, u32::from_le_bytes(*dword));
                }
            }
            Width::Extended { bytes, signed } => self.registers.set_dword(number.into(), lane, value(bytes, signed)),
            Width::Half { bytes, signed, high } => {
                self.registers.set_lane(number, Ty::B16, high, lane, value(bytes, signed).into());
            }
        }
    }
}
