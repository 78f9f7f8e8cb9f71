//! Packed 16-bit arithmetic, mixed precision and dot products: VOP3P.

use super::FaultKind;
use super::convert::{narrow_half, widen_half};
use super::fault::Stop;
use super::float::{F16, F32};
use super::registers::Lanes;
use super::valu::{Env, Sources, each_lane};
use super::valu_half::dot2_f32_bf16;
use super::valu_integer::dot_add;
use super::valu_single::dot2_f32;
use super::wave::Wave;
use crate::isa::{Inst, Mods, Op, Operand, Ty, inline};

/// Both halves of an operand as a packed instruction selects them, negated as asked.
fn halves(bits: u32, slot: usize, mods: &Mods, float: bool) -> [u32; 2] {
    let part = |high: u8, negate: u8| {
        let half = if high >> slot & 1 == 1 { bits >> 16 } else { bits & 0xffff };
        if float && negate >> slot & 1 == 1 { half ^ 0x8000 } else { half }
    };
    [part(mods.op_sel, mods.neg), part(mods.op_sel_hi, mods.neg_hi)]
}

/// One half of a packed instruction.
fn half(op: Op, env: &Env, x: u32, y: u32, z: u32) -> Option<u32> {
    use Op::*;
    let mode = env.mode.other;
    let extremum = |max| F16.extremum(mode, env.mode.ieee, max, x, y);
    let result = match op {
        VPkFmaF16 | VPkFmacF16 => F16.fma(mode, x, y, z),
        VPkAddF16 => F16.add(mode, x, y),
        VPkMulF16 => F16.mul(mode, x, y),
        VPkMinF16 => extremum(false),
        VPkMaxF16 => extremum(true),
        VPkMinimumF16 => F16.extremum_nan(mode, false, x, y),
        VPkMaximumF16 => F16.extremum_nan(mode, true, x, y),
        _ => {
            // The integer ones are the same as their unpacked forms.
            let op = match op {
                VPkMadI16 => VMadI16,
                VPkMadU16 => VMadU16,
                VPkMulLoU16 => VMulLoU16,
                VPkAddI16 => VAddNcI16,
                VPkSubI16 => VSubNcI16,
                VPkAddU16 => VAddNcU16,
                VPkSubU16 => VSubNcU16,
                VPkLshlrevB16 => VLshlrevB16,
                VPkLshrrevB16 => VLshrrevB16,
                VPkAshrrevI16 => VAshrrevI16,
                VPkMaxI16 => VMaxI16,
                VPkMinI16 => VMinI16,
                VPkMaxU16 => VMaxU16,
                VPkMinU16 => VMinU16,
                _ => return None,
            };
            let result = super::valu_integer::lane(op, [x.into(), y.into(), z.into()], env)?;
            return Some(result as u32 & 0xffff);
        }
    };
    Some(F16.modify(result, 0, env.clamp, env.mode.dx10_clamp, mode))
}

/// A source of `v_fma_mix`: f32, or a half of a register as f16.
fn mixed(env: &Env, bits: u32, slot: usize, mods: &Mods) -> u32 {
    let value = match (mods.op_sel_hi >> slot & 1, mods.op_sel >> slot & 1) {
        (0, _) => bits,
        (_, 0) => widen_half(env.mode, bits & 0xffff),
        _ => widen_half(env.mode, bits >> 16),
    };
    // Of these, the bits of `neg_hi` are absolute values.
    let value = if mods.neg_hi >> slot & 1 == 1 { value & !F32.sign() } else { value };
    if mods.neg >> slot & 1 == 1 { value ^ F32.sign() } else { value }
}

impl Wave {
    /// VOP3P.
    pub(super) fn packed(&mut self, inst: &Inst) -> Result<(), Stop> {
        use Op::*;
        // Signs are applied by half, below.
        let sources = self.packed_sources(inst);
        let mut env = self.env(inst);
        let mods = &inst.mods;
        let float = inst.src_ty.first() == Some(&Ty::Pf16);
        let mut results: Lanes = [0; 32];
        for lane in each_lane(sources.lanes) {
            env.lane = lane;
            let [x, y, z] = sources.values.map(|values| values[lane] as u32);
            let selected = |bits: u32, slot: usize| {
                let [low, high] = halves(bits, slot, mods, true);
                low | high << 16
            };
            let signs = |signed: bool| [signed, signed];
            let iu = [mods.neg & 1 == 1, mods.neg & 2 == 2];
            let dot_mods = |z: u32| {
                let z = if mods.neg_hi >> 2 & 1 == 1 { z & !F32.sign() } else { z };
                if mods.neg >> 2 & 1 == 1 { z ^ F32.sign() } else { z }
            };
            let clamped = |bits: u32| F32.modify(bits, 0, mods.clamp, env.mode.dx10_clamp, env.mode.single);
            let value = match inst.op {
                VFmaMixF32 | VFmaMixloF16 | VFmaMixhiF16 => {
                    let sum = F32.fma(
                        env.mode.single,
                        mixed(&env, x, 0, mods),
                        mixed(&env, y, 1, mods),
                        mixed(&env, z, 2, mods),
                    );
                    if inst.op == VFmaMixF32 {
                        clamped(sum)
                    } else {
                        let half = narrow_half(env.mode, sum, env.mode.other.round);
                        F16.modify(half, 0, mods.clamp, env.mode.dx10_clamp, env.mode.other)
                    }
                }
                VDot2F32F16 => clamped(dot2_f32(env.mode, [selected(x, 0), selected(y, 1)], dot_mods(z))),
                VDot2F32Bf16 => clamped(dot2_f32_bf16(selected(x, 0), selected(y, 1), dot_mods(z))),
                VDot2I32I16 => dot_add(x, y, z, 2, signs(true), env.clamp),
                VDot2U32U16 => dot_add(x, y, z, 2, signs(false), env.clamp),
                VDot4I32I8 => dot_add(x, y, z, 4, signs(true), env.clamp),
                VDot4U32U8 => dot_add(x, y, z, 4, signs(false), env.clamp),
                VDot4I32Iu8 => dot_signed(x, y, z, 4, iu, env.clamp),
                VDot8I32I4 => dot_add(x, y, z, 8, signs(true), env.clamp),
                VDot8U32U4 => dot_add(x, y, z, 8, signs(false), env.clamp),
                VDot8I32Iu4 => dot_signed(x, y, z, 8, iu, env.clamp),
                _ => {
                    let [a, b, c] = [(x, 0), (y, 1), (z, 2)].map(|(bits, slot)| halves(bits, slot, mods, float));
                    let low = half(inst.op, &env, a[0], b[0], c[0]);
                    let high = half(inst.op, &env, a[1], b[1], c[1]);
                    match (low, high) {
                        (Some(low), Some(high)) => low | high << 16,
                        _ => return Err(Stop::new(FaultKind::NotImplemented)),
                    }
                }
            };
            results[lane] = value.into();
        }
        match (inst.op, inst.dst) {
            (VFmaMixloF16 | VFmaMixhiF16, Operand::Vgpr(number)) => {
                let high = inst.op == VFmaMixhiF16;
                for lane in each_lane(sources.lanes) {
                    self.registers.set_lane(number, Ty::F16, high, lane, results[lane]);
                }
            }
            _ => self.write_lanes(inst, &results, sources.lanes),
        }
        Ok(())
    }

    /// Operands without signs, which depend on the half. Where a source of mixed precision is f16, so is its constant.
    fn packed_sources(&self, inst: &Inst) -> Sources {
        let mut sources = self.operands(inst, false);
        if matches!(inst.op, Op::VFmaMixF32 | Op::VFmaMixloF16 | Op::VFmaMixhiF16) {
            for (slot, values) in sources.values.iter_mut().enumerate() {
                if let (Operand::Inline(code), 1) = (inst.src[slot], inst.mods.op_sel_hi >> slot & 1) {
                    *values = [inline(code, Ty::F16); 32];
                }
            }
        }
        sources
    }
}

/// A dot product whose operands are signed each for itself; the sum is signed.
fn dot_signed(x: u32, y: u32, z: u32, count: u32, signed: [bool; 2], clamp: bool) -> u32 {
    if signed == [false, false] {
        // The accumulator is signed even then.
        let sum = i64::from(dot_add(x, y, 0, count, signed, false)) + i64::from(z as i32);
        return if clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32 } else { sum as u32 };
    }
    dot_add(x, y, z, count, signed, clamp)
}
