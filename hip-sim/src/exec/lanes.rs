//! Instructions that move data between lanes, or between lanes and scalar registers.

use super::FaultKind;
use super::fault::Stop;
use super::registers::M0;
use super::valu::each_lane;
use super::wave::Wave;
use crate::isa::{Inst, Op, Operand, Ty};

impl Wave {
    /// Runs the instruction, if it is one of these.
    pub(super) fn across_lanes(&mut self, inst: &Inst) -> Result<bool, Stop> {
        use Op::*;
        match inst.op {
            VReadfirstlaneB32 => {
                let exec = self.registers.exec();
                let lane = if exec == 0 { 0 } else { exec.trailing_zeros() as usize };
                self.read_lane(inst, lane);
            }
            VReadlaneB32 => {
                let lane = self.registers.scalar(inst, inst.src[1], Ty::B32) as usize & 31;
                self.read_lane(inst, lane);
            }
            VWritelaneB32 => {
                let lane = self.registers.scalar(inst, inst.src[1], Ty::B32) as usize & 31;
                let value = self.registers.scalar(inst, inst.src[0], Ty::B32) as u32;
                let Operand::Vgpr(number) = inst.dst else { return Err(Stop::new(FaultKind::NotImplemented)) };
                self.registers.set_dword(number.into(), lane, value);
            }
            VPermlane16B32 | VPermlanex16B32 => {
                let select = self.registers.scalar(inst, inst.src[1], Ty::B32)
                    | self.registers.scalar(inst, inst.src[2], Ty::B32) << 32;
                self.permlane(inst, |lane| (select >> (4 * (lane & 15)) & 15) as usize);
            }
            VPermlane16VarB32 | VPermlanex16VarB32 => {
                let select = self.registers.lanes(inst, 1);
                self.permlane(inst, |lane| select[lane] as usize & 15);
            }
            // Exchanges the halves of a wave of 64; with 32 lanes there is nothing to exchange.
            VPermlane64B32 => {}
            VSwapB32 | VSwapB16 => {
                let (Operand::Vgpr(a), Operand::Vgpr(b)) = (inst.dst, inst.src[0]) else {
                    return Err(Stop::new(FaultKind::NotImplemented));
                };
                let ty = inst.result();
                let (high_a, high_b) = (inst.is_high(3), inst.is_high(0));
                let of = |register: &[u32; 32], lane: usize, high: bool| {
                    if ty.is_half() && high { register[lane] >> 16 } else { register[lane] }
                };
                for lane in each_lane(self.registers.exec()) {
                    let x = of(&self.registers.vgpr[usize::from(a)], lane, high_a);
                    let y = of(&self.registers.vgpr[usize::from(b)], lane, high_b);
                    self.registers.set_lane(a, ty, high_a, lane, y.into());
                    self.registers.set_lane(b, ty, high_b, lane, x.into());
                }
            }
            VMovrelsB32 | VMovreldB32 | VMovrelsdB32 => {
                let offset = self.registers.sgpr[M0];
                let moved = |operand: Operand| match operand {
                    Operand::Vgpr(number) => u8::try_from(u32::from(number) + offset)
                        .ok()
                        .filter(|&number| usize::from(number) < self.registers.vgpr.len())
                        .map(Operand::Vgpr),
                    other => Some(other),
                };
                let mut shifted = inst.clone();
                let beyond = || Stop::new(FaultKind::BeyondRegisters);
                if inst.op != VMovreldB32 {
                    shifted.src[0] = moved(inst.src[0]).ok_or_else(beyond)?;
                }
                if inst.op != VMovrelsB32 {
                    shifted.dst = moved(inst.dst).ok_or_else(beyond)?;
                }
                let values = self.registers.lanes(&shifted, 0);
                self.write_lanes(&shifted, &values, self.registers.exec());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn read_lane(&mut self, inst: &Inst, lane: usize) {
        let values = self.registers.lanes(inst, 0);
        self.registers.set_scalar(inst.dst, Ty::B32, values[lane]);
    }

    /// Each lane reads a lane of its row of 16, or of the other row. The two bits of `op_sel` are flags: inactive lanes
    /// are read too, and lanes without source read 0 instead of keeping their value.
    fn permlane(&mut self, inst: &Inst, select: impl Fn(usize) -> usize) {
        let exec = self.registers.exec();
        let (fetch_inactive, bound_ctrl) = (inst.is_high(0), inst.is_high(1));
        let other_row = matches!(inst.op, Op::VPermlanex16B32 | Op::VPermlanex16VarB32);
        let old = self.registers.lanes(inst, 0);
        let Operand::Vgpr(number) = inst.dst else { return };
        for lane in each_lane(exec) {
            let row = if other_row { 16 - (lane & 16) } else { lane & 16 };
            let source = row | select(lane);
            if fetch_inactive || exec >> source & 1 == 1 {
                self.registers.set_dword(number.into(), lane, old[source] as u32);
            } else if bound_ctrl {
                self.registers.set_dword(number.into(), lane, 0);
            }
        }
    }
}
