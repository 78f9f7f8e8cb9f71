//! Vector arithmetic: operands with their modifiers, the choice of what computes a lane, and results.

use super::fault::Stop;
use super::float::{F16, F32, double};
use super::mode::Mode;
use super::registers::{Lanes, VCC};
use super::wave::Wave;
use super::{FaultKind, approximate, carry, compare, convert, valu_double, valu_half, valu_integer, valu_single};
use crate::isa::{Dpp, Encoding, Inst, Op, Operand, Sdwa, Ty};

/// What a lane's result depends on beside its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Env {
    pub mode: Mode,
    /// The instruction asks for clamping; integer instructions saturate.
    pub clamp: bool,
    /// The constant of `fmamk` and `fmaak`.
    pub constant: u32,
    /// The lane's number.
    pub lane: usize,
    /// The lane's bit of VCC.
    pub vcc: bool,
    pub hardware_error_ulp: u32,
}

/// Computes a lane; none where the instruction is of another family.
type LaneFunction = fn(Op, [u64; 3], &Env) -> Option<u64>;

const FAMILIES: [LaneFunction; 6] =
    [valu_integer::lane, valu_single::lane, valu_half::lane, valu_double::lane, convert::lane, approximate::lane];

/// Sources of an instruction with modifiers applied, and the lanes that it works on.
pub(super) struct Sources {
    pub values: [Lanes; 3],
    /// Active lanes that are written.
    pub lanes: u32,
}

/// The number of each set bit.
pub(super) fn each_lane(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        (lane < 32).then(|| {
            rest &= rest - 1;
            lane as usize
        })
    })
}

impl Wave {
    pub(super) fn vector(&mut self, inst: &Inst) -> Result<(), Stop> {
        if inst.encoding == Encoding::Vopd {
            return self.dual(inst);
        }
        if inst.encoding == Encoding::Vop3p {
            return self.packed(inst);
        }
        if self.across_lanes(inst)? {
            return Ok(());
        }
        let sources = self.sources(inst);
        if let Some(mask) = compare::mask(self, inst, &sources) {
            self.write_mask(inst, mask, sources.lanes);
            return Ok(());
        }
        if carry::execute(self, inst, &sources) {
            return Ok(());
        }
        let results = self.compute(inst, &sources)?;
        self.write_lanes(inst, &results, sources.lanes);
        Ok(())
    }

    /// Both halves read their operands before either writes.
    fn dual(&mut self, inst: &Inst) -> Result<(), Stop> {
        let Some(second) = inst.second.as_deref() else { return Err(Stop::new(FaultKind::NotImplemented)) };
        if !self.registers.has_vgprs(second) {
            return Err(Stop::new(FaultKind::BeyondRegisters));
        }
        let mut results = Vec::with_capacity(2);
        for half in [inst, second] {
            let sources = self.sources(half);
            results.push((self.compute(half, &sources)?, sources.lanes));
        }
        for (half, (values, lanes)) in [inst, second].into_iter().zip(&results) {
            self.write_lanes(half, values, *lanes);
        }
        Ok(())
    }

    /// Operands of all lanes, with DPP, SDWA, sign and absolute value.
    pub(super) fn sources(&self, inst: &Inst) -> Sources {
        self.operands(inst, true)
    }

    /// The same, with or without signs.
    pub(super) fn operands(&self, inst: &Inst, signs: bool) -> Sources {
        let registers = &self.registers;
        let mut values = [[0; 32]; 3];
        let mut lanes = registers.exec();
        for (slot, &ty) in inst.src_ty.iter().enumerate() {
            if inst.src[slot].is_some() {
                values[slot] = registers.lanes(inst, slot);
            }
            if let Some(dpp) = inst.dpp.filter(|_| slot == 0) {
                lanes &= permute(&mut values[0], dpp, registers.exec());
            }
            if let Some(sdwa) = inst.sdwa.filter(|_| slot < 2) {
                select(&mut values[slot], sdwa, slot);
            }
            if signs {
                sign(&mut values[slot], ty, inst.mods.neg >> slot & 1 == 1, inst.mods.abs >> slot & 1 == 1);
            }
        }
        if accumulates(inst.op) {
            values[2] = registers.accumulator(inst);
        }
        Sources { values, lanes }
    }

    /// Surroundings of a lane.
    pub(super) fn env(&self, inst: &Inst) -> Env {
        Env {
            mode: self.registers.mode,
            clamp: inst.mods.clamp,
            constant: inst.imm,
            lane: 0,
            vcc: false,
            hardware_error_ulp: self.registers.hardware_error_ulp,
        }
    }

    /// Results of the active lanes, with output modifiers.
    fn compute(&self, inst: &Inst, sources: &Sources) -> Result<Lanes, Stop> {
        let mut results = [0; 32];
        let mut env = self.env(inst);
        let of = |lane: usize| [sources.values[0][lane], sources.values[1][lane], sources.values[2][lane]];
        if matches!(inst.op, Op::VCndmaskB32 | Op::VCndmaskB16) {
            let mask = self.registers.mask(inst.src[2]);
            return Ok(std::array::from_fn(|lane| sources.values[usize::from(mask >> lane & 1 == 1)][lane]));
        }
        if inst.op == Op::VNop {
            return Ok(results);
        }
        let family = FAMILIES.into_iter().find(|family| family(inst.op, of(0), &env).is_some());
        let Some(family) = family else { return Err(Stop::new(FaultKind::NotImplemented)) };
        let vcc = self.registers.sgpr[VCC];
        let modified = inst.mods.clamp || inst.mods.omod != 0;
        for lane in each_lane(sources.lanes) {
            env.lane = lane;
            env.vcc = vcc >> lane & 1 == 1;
            let value = family(inst.op, of(lane), &env).unwrap_or(0);
            results[lane] = if modified { modify(value, inst, &env) } else { value };
        }
        Ok(results)
    }

    /// Writes the destination of the given lanes.
    pub(super) fn write_lanes(&mut self, inst: &Inst, values: &Lanes, lanes: u32) {
        match inst.dst {
            Operand::Vgpr(number) => {
                let (ty, high) = (inst.result(), inst.is_high(3));
                if let Some(sdwa) = inst.sdwa {
                    for lane in each_lane(lanes) {
                        let old = self.registers.vgpr[usize::from(number)][lane];
                        self.registers.set_dword(number.into(), lane, deposit(old, values[lane] as u32, sdwa));
                    }
                    return;
                }
                for lane in each_lane(lanes) {
                    self.registers.set_lane(number, ty, high, lane, values[lane]);
                }
            }
            // `v_s_rcp_f32` and its like compute one value, of scalar operands.
            Operand::Sgpr(_) => {
                let lane = lanes.trailing_zeros().min(31) as usize;
                self.registers.set_scalar(inst.dst, Ty::B32, values[lane]);
            }
            _ => {}
        }
    }

    /// Writes a mask of comparison results: to a scalar register, or to EXEC.
    fn write_mask(&mut self, inst: &Inst, mask: u32, lanes: u32) {
        let mask = mask & lanes;
        if inst.dst_ty.is_empty() {
            self.registers.set_exec(mask);
        } else {
            self.registers.set_scalar(inst.dst, Ty::B32, mask.into());
        }
    }
}

/// Whether the destination is the third source.
fn accumulates(op: Op) -> bool {
    use Op::*;
    matches!(op, VFmacF32 | VFmacF16 | VFmacDx9ZeroF32 | VDot2cF32F16 | VDot4cI32I8 | VPkFmacF16)
}

/// Takes each lane's value from the lane that the primitive names. Returns the lanes that may be written.
fn permute(values: &mut Lanes, dpp: Dpp, exec: u32) -> u32 {
    let old = *values;
    let mut writable = 0;
    for lane in 0..32 {
        let (source, inactive, zero_without_source, enabled) = match dpp {
            Dpp::Eight { select, fetch_inactive } => {
                (Some(lane & !7 | usize::from(select[lane & 7])), fetch_inactive, true, true)
            }
            Dpp::Row { control, fetch_inactive, bound_ctrl, bank_mask, row_mask } => {
                let enabled = row_mask >> (lane / 16) & 1 == 1 && bank_mask >> (lane / 4 % 4) & 1 == 1;
                (source_lane(control, lane), fetch_inactive, bound_ctrl, enabled)
            }
        };
        let source = source.filter(|&source| inactive || exec >> source & 1 == 1);
        match source {
            Some(source) => values[lane] = old[source],
            None if zero_without_source => values[lane] = 0,
            None => continue,
        }
        if enabled {
            writable |= 1 << lane;
        }
    }
    writable
}

/// The lane that a lane reads within its row, as DPP_CTRL numbers it ("Data Parallel Primitives" of the ISA documents).
fn source_lane(control: u16, lane: usize) -> Option<usize> {
    let (row, place) = (lane & !15, lane & 15);
    let count = usize::from(control & 15);
    let place = match control {
        0..=0xff => place & !3 | usize::from(control >> (2 * (place & 3)) & 3),
        0x101..=0x10f => Some(place + count).filter(|&place| place < 16)?,
        0x111..=0x11f => place.checked_sub(count)?,
        0x121..=0x12f => (place + 16 - count) & 15,
        0x140 => 15 - place,
        0x141 => place & 8 | (7 - (place & 7)),
        0x150..=0x15f => count,
        0x160..=0x16f => place ^ count,
        _ => return None,
    };
    Some(row | place)
}

/// A part of each lane's register.
fn select(values: &mut Lanes, sdwa: Sdwa, slot: usize) {
    let signed = sdwa.sext >> slot & 1 == 1;
    let (shift, width) = match sdwa.src_sel[slot] {
        byte @ 0..=3 => (8 * u32::from(byte), 8),
        4 => (0, 16),
        5 => (16, 16),
        _ => return,
    };
    for value in values {
        let part = (*value as u32 >> shift) << (32 - width);
        *value = if signed { (part as i32 >> (32 - width)) as u32 } else { part >> (32 - width) }.into();
    }
}

/// A result in its part of the destination.
fn deposit(old: u32, value: u32, sdwa: Sdwa) -> u32 {
    let (shift, width) = match sdwa.dst_sel {
        byte @ 0..=3 => (8 * u32::from(byte), 8),
        4 => (0, 16),
        5 => (16, 16),
        _ => return value,
    };
    let mask = ((1u64 << width) - 1) as u32;
    let placed = (value & mask) << shift;
    match sdwa.dst_unused {
        2 => old & !(mask << shift) | placed,
        1 => (((value << (32 - width)) as i32 >> (32 - width)) as u32) << shift,
        _ => placed,
    }
}

/// Absolute value, then sign.
fn sign(values: &mut Lanes, ty: Ty, negate: bool, absolute: bool) {
    if !negate && !absolute {
        return;
    }
    let bit = match ty {
        Ty::F64 | Ty::B64 => 1 << 63,
        Ty::F16 | Ty::B16 | Ty::Bf16 => 1 << 15,
        _ => 1 << 31,
    };
    for value in values {
        if absolute {
            *value &= !bit;
        }
        if negate {
            *value ^= bit;
        }
    }
}

/// Output modifiers of float results. Integer instructions read `clamp` themselves.
fn modify(value: u64, inst: &Inst, env: &Env) -> u64 {
    let (omod, clamp, dx10) = (inst.mods.omod, inst.mods.clamp, env.mode.dx10_clamp);
    match inst.result() {
        Ty::F32 => F32.modify(value as u32, omod, clamp, dx10, env.mode.single).into(),
        Ty::F16 => F16.modify(value as u32, omod, clamp, dx10, env.mode.other).into(),
        Ty::F64 => double::modify(value, omod, clamp, dx10, env.mode.other),
        _ => value,
    }
}
