//! Registers of a wave, and operands read from them.

use super::mode::Mode;
use super::wave::WaveSetup;
use crate::isa::{Generation, Inst, Operand, Ty, inline};

/// Values of an operand, a lane each; scalars are repeated.
pub(super) type Lanes = [u64; 32];

pub(super) const VCC: usize = 106;
pub(super) const TTMP: usize = 108;
pub(super) const NULL: usize = 124;
pub(super) const M0: usize = 125;
pub(super) const EXEC: usize = 126;

/// Everything that an instruction can read or write beside memory.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    pub generation: Generation,
    /// By operand number: SGPRs, VCC, TTMPs, null, M0, EXEC.
    pub sgpr: [u32; 128],
    /// Those that were written; a bit each.
    pub sgpr_written: u128,
    pub scc: bool,
    pub vgpr: Vec<[u32; 32]>,
    /// For each VGPR, the lanes that were written.
    pub vgpr_written: Vec<u32>,
    pub mode: Mode,
    /// Bits 63-32 of the flat addresses of LDS and scratch.
    pub apertures: [u32; 2],
    /// As in [`WaveSetup`].
    pub hardware_error_ulp: u32,
}

impl Registers {
    pub fn new(setup: &WaveSetup) -> Self {
        let generation = setup.arch.generation();
        let count = setup.vgpr_count.max(setup.vgprs.len());
        let mut registers = Self {
            generation,
            sgpr: [0; 128],
            sgpr_written: 0,
            scc: false,
            vgpr: vec![[0; 32]; count],
            vgpr_written: vec![0; count],
            mode: Mode::new(
                Mode::initial(setup.float_mode, setup.dx10_clamp, setup.ieee),
                generation != Generation::Rdna4,
            ),
            apertures: [setup.shared_base, setup.private_base],
            hardware_error_ulp: setup.hardware_error_ulp,
        };
        for (number, &value) in setup.sgprs.iter().enumerate() {
            registers.set_sgpr(number, value);
        }
        for (number, &value) in setup.ttmps.iter().enumerate() {
            registers.set_sgpr(TTMP + number, value);
        }
        registers.set_sgpr(EXEC, setup.exec);
        // The upper half of EXEC is not used by waves of 32 lanes; compilers save and restore the pair.
        registers.set_sgpr(EXEC + 1, 0);
        registers.set_sgpr(M0, 0);
        for (number, values) in setup.vgprs.iter().enumerate() {
            registers.vgpr[number] = *values;
            registers.vgpr_written[number] = u32::MAX;
        }
        registers
    }

    pub fn exec(&self) -> u32 {
        self.sgpr[EXEC]
    }

    pub fn set_exec(&mut self, mask: u32) {
        self.set_sgpr(EXEC, mask);
    }

    pub fn set_sgpr(&mut self, number: usize, value: u32) {
        if number == NULL || number >= 128 {
            return;
        }
        self.sgpr[number] = value;
        self.sgpr_written |= 1 << number;
    }

    pub fn is_written(&self, number: usize) -> bool {
        number == NULL || self.sgpr_written >> number & 1 == 1
    }

    /// A scalar operand. `inst` tells how a literal is widened.
    pub fn scalar(&self, inst: &Inst, operand: Operand, ty: Ty) -> u64 {
        let wide = ty.dwords() == 2;
        match operand {
            Operand::Sgpr(number) => {
                let number = usize::from(number);
                if number == NULL {
                    return 0;
                }
                let low = u64::from(self.sgpr[number]);
                if wide { low | u64::from(*self.sgpr.get(number + 1).unwrap_or(&0)) << 32 } else { low }
            }
            Operand::Inline(code) => inline(code, ty),
            Operand::Literal(value) => match ty {
                Ty::F64 => u64::from(value) << 32,
                Ty::B64 if inst.name.ends_with("i64") => value as i32 as i64 as u64,
                _ => value.into(),
            },
            Operand::Special(code) => match code {
                235 => u64::from(self.apertures[0]) << 32,
                236 => u64::from(self.apertures[0]) << 32 | 0xffff_ffff,
                237 => u64::from(self.apertures[1]) << 32,
                238 => u64::from(self.apertures[1]) << 32 | 0xffff_ffff,
                251 => (self.sgpr[VCC] == 0).into(),
                252 => (self.exec() == 0).into(),
                _ => self.scc.into(),
            },
            Operand::Vgpr(_) | Operand::None => 0,
        }
    }

    /// Writes a scalar operand of one or two dwords.
    pub fn set_scalar(&mut self, operand: Operand, ty: Ty, value: u64) {
        if let Operand::Sgpr(number) = operand {
            let number = usize::from(number);
            if number == NULL {
                return;
            }
            self.set_sgpr(number, value as u32);
            if ty.dwords() == 2 {
                self.set_sgpr(number + 1, (value >> 32) as u32);
            }
        }
    }

    /// A mask of lanes.
    pub fn mask(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Sgpr(number) if usize::from(number) != NULL => self.sgpr[usize::from(number)],
            Operand::Inline(code) => inline(code, Ty::B32) as u32,
            Operand::Literal(value) => value,
            Operand::Special(251) => u32::from(self.sgpr[VCC] == 0),
            Operand::Special(252) => u32::from(self.exec() == 0),
            Operand::Special(253) => u32::from(self.scc),
            _ => 0,
        }
    }

    /// A vector operand, a source of `inst` in `slot`, before modifiers.
    pub fn lanes(&self, inst: &Inst, slot: usize) -> Lanes {
        self.operand(inst, inst.src[slot], inst.src_ty[slot], inst.is_high(slot))
    }

    /// The destination, as a source.
    pub fn accumulator(&self, inst: &Inst) -> Lanes {
        self.operand(inst, inst.dst, inst.result(), inst.is_high(3))
    }

    fn operand(&self, inst: &Inst, operand: Operand, ty: Ty, high: bool) -> Lanes {
        // A half of a 32-bit register; packed instructions select themselves.
        let shift = if ty.is_half() && high { 16 } else { 0 };
        match operand {
            Operand::Vgpr(number) => {
                let number = usize::from(number);
                let low = &self.vgpr[number];
                if ty.dwords() == 2 {
                    let high = &self.vgpr[number + 1];
                    std::array::from_fn(|lane| u64::from(low[lane]) | u64::from(high[lane]) << 32)
                } else {
                    std::array::from_fn(|lane| u64::from(low[lane] >> shift))
                }
            }
            _ => [self.scalar(inst, operand, ty) >> if matches!(operand, Operand::Sgpr(_)) { shift } else { 0 }; 32],
        }
    }

    /// Writes a lane of a vector register.
    pub fn set_lane(&mut self, number: u8, ty: Ty, high: bool, lane: usize, value: u64) {
        let number = usize::from(number);
        if ty.is_half() {
            let old = self.vgpr[number][lane];
            let value = value as u32 & 0xffff;
            self.vgpr[number][lane] = if high { old & 0xffff | value << 16 } else { old & 0xffff_0000 | value };
        } else {
            self.vgpr[number][lane] = value as u32;
            if ty.dwords() == 2 {
                self.vgpr[number + 1][lane] = (value >> 32) as u32;
                self.vgpr_written[number + 1] |= 1 << lane;
            }
        }
        self.vgpr_written[number] |= 1 << lane;
    }

    /// Writes one dword of a lane.
    pub fn set_dword(&mut self, number: usize, lane: usize, value: u32) {
        self.vgpr[number][lane] = value;
        self.vgpr_written[number] |= 1 << lane;
    }

    /// The highest VGPR that an instruction names, to be checked against those that the kernel has.
    pub fn has_vgprs(&self, inst: &Inst) -> bool {
        let most = self.vgpr.len();
        let fits = |operand: Operand, ty: Option<&Ty>| match operand {
            Operand::Vgpr(number) => usize::from(number) + usize::from(ty.map_or(1, |ty| ty.dwords())) <= most,
            _ => true,
        };
        fits(inst.dst, inst.dst_ty.first())
            && inst.src.iter().enumerate().all(|(slot, &src)| fits(src, inst.src_ty.get(slot)))
            && inst.mem.is_none_or(|mem| fits(mem.vaddr, None))
    }
}
