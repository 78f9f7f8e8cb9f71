//! Scalar loads (SMEM): one access for the wave.

use super::fault::Stop;
use super::registers::NULL;
use super::salu::shortened;
use super::wave::Wave;
use super::{Access, AccessKind, FaultKind, LaneAccess, Memory, Space};
use crate::isa::{Inst, Op, Operand, Ty};

impl Wave {
    /// Refuses scalar registers that nobody wrote, where they make up an address.
    pub(super) fn check_scalar(&self, operand: Operand, dwords: u8) -> Result<(), Stop> {
        let Operand::Sgpr(number) = operand else { return Ok(()) };
        let first = usize::from(number);
        match (first..first + usize::from(dwords)).find(|&number| first != NULL && !self.registers.is_written(number)) {
            Some(number) => Err(Stop::unwritten(format!("s{number}"))),
            None => Ok(()),
        }
    }

    pub(super) fn load(&mut self, memory: &mut dyn Memory, access: Access, out: &mut [u8]) -> Result<(), Stop> {
        if self.observed {
            self.accesses.push(LaneAccess { access, kind: AccessKind::Load });
        }
        memory.load(&access, out).map_err(|fault| Stop::memory(fault, &access))
    }

    pub(super) fn scalar_memory(&mut self, inst: &Inst, memory: &mut dyn Memory) -> Result<(), Stop> {
        use Op::*;
        let (size, signed) = match inst.op {
            SLoadB32 => (4, false),
            SLoadB64 => (8, false),
            SLoadB96 => (12, false),
            SLoadB128 => (16, false),
            SLoadB256 => (32, false),
            SLoadB512 => (64, false),
            SLoadU8 => (1, false),
            SLoadI8 => (1, true),
            SLoadU16 => (2, false),
            SLoadI16 => (2, true),
            // Caches are not modelled.
            SDcacheInv | SGl1Inv | SPrefetchData | SPrefetchDataPcRel => return Ok(()),
            SMemtime | SMemrealtime => {
                let time = self.tick();
                self.registers.set_scalar(inst.dst, Ty::B64, time);
                return Ok(());
            }
            _ => return Err(Stop::new(FaultKind::NotImplemented)),
        };
        let Some(mem) = inst.mem else { return Err(Stop::new(FaultKind::NotImplemented)) };
        self.check_scalar(mem.saddr, 2)?;
        self.check_scalar(mem.soffset, 1)?;
        let base = self.registers.scalar(inst, mem.saddr, Ty::B64);
        let offset = self.registers.scalar(inst, mem.soffset, Ty::B32);
        let address = shortened(base.wrapping_add(offset).wrapping_add_signed(mem.offset.into()));
        // Loads of dwords ignore the two lowest bits of the address; compilers never set them.
        let access = Access { space: Space::Scalar, address, size, align: size.min(4), lane: None, pc: self.pc };
        let mut bytes = [0; 64];
        let bytes = &mut bytes[..size as usize];
        self.load(memory, access, bytes)?;
        let Operand::Sgpr(first) = inst.dst else { return Ok(()) };
        if size < 4 {
            let value = match (size, signed) {
                (1, false) => bytes[0].into(),
                (1, true) => bytes[0] as i8 as u32,
                (_, false) => u16::from_le_bytes([bytes[0], bytes[1]]).into(),
                (_, true) => i16::from_le_bytes([bytes[0], bytes[1]]) as u32,
            };
            self.registers.set_sgpr(first.into(), value);
            return Ok(());
        }
        for (index, dword) in bytes.as_chunks().0.iter().enumerate() {
            self.registers.set_sgpr(usize::from(first) + index, u32::from_le_bytes(*dword));
        }
        Ok(())
    }
}
