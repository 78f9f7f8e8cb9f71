//! Scalar integer instructions: SOP1, SOP2, SOPC, SOPK ("Scalar ALU Operations" of the ISA documents).

use super::fault::Stop;
use super::registers::{EXEC, M0, VCC};
use super::wave::{Flow, Wave};
use super::{FaultKind, mode::Mode};
use crate::isa::{Encoding, Generation, Inst, Op, Operand, Ty};

/// Hardware registers that a wave can ask for.
const HW_MODE: u32 = 1;
const HW_STATUS: u32 = 2;
const HW_FLAT_SCRATCH: [u32; 2] = [20, 21];
/// How instructions are scheduled, on RDNA4.
const HW_SCHEDULING: u32 = 26;
const HW_CYCLES: u32 = 29;
/// The message that is answered with the time.
const MESSAGE_REALTIME: u32 = 131;

/// A result, and SCC where the instruction writes it.
struct Done {
    value: u64,
    scc: Option<bool>,
}

fn plain(value: u64) -> Done {
    Done { value, scc: None }
}

/// SCC tells whether the result is not zero.
fn tested(value: u64) -> Done {
    Done { value, scc: Some(value != 0) }
}

fn with(value: u32, scc: bool) -> Done {
    Done { value: value.into(), scc: Some(scc) }
}

/// Bits from `offset` on, `width` of them; a field that reaches beyond the top ends there.
fn field(value: u64, offset: u32, width: u32, bits: u32, signed: bool) -> u64 {
    let value =
        if bits == 32 { if signed { value as u32 as i32 as i64 as u64 } else { value & 0xffff_ffff } } else { value };
    let shifted = if signed { ((value as i64) >> offset) as u64 } else { value >> offset };
    if width == 0 {
        0
    } else if width >= 64 {
        shifted
    } else if signed {
        ((shifted << (64 - width)) as i64 >> (64 - width)) as u64
    } else {
        shifted & ((1 << width) - 1)
    }
}

/// Leading bits that equal the sign, as `s_cls` counts: the position of the first that differs, or -1.
fn leading_signs(value: u64, bits: u32) -> u32 {
    let value = value << (64 - bits);
    let differing = if (value as i64) < 0 { !value } else { value } & (u64::MAX << (64 - bits));
    if differing == 0 { u32::MAX } else { differing.leading_zeros() }
}

/// For each aligned group of four bits, whether any is set.
fn quads(value: u64) -> u64 {
    (0..16).map(|quad| u64::from(value >> (4 * quad) & 15 != 0) << quad).sum()
}

/// An address without the sign that fills its upper 16 bits.
///
/// Addresses have 48 bits. RDNA4 code widens those of functions and constants by their sign; here devices use both
/// halves of the 48 bits alike.
pub(super) fn shortened(address: u64) -> u64 {
    if (address as i64) >> 47 == -1 { address & 0xffff_ffff_ffff } else { address }
}

impl Wave {
    pub(super) fn set_mode(&mut self, bits: u32) {
        self.registers.mode = Mode::new(bits, self.registers.generation != Generation::Rdna4);
    }

    fn read(&self, inst: &Inst, slot: usize) -> u64 {
        self.registers.scalar(inst, inst.src[slot], inst.src_ty.get(slot).copied().unwrap_or(Ty::B32))
    }

    pub(super) fn salu(&mut self, inst: &Inst) -> Result<Flow, Stop> {
        if let Some(flow) = self.jump(inst)? {
            return Ok(flow);
        }
        if inst.encoding == Encoding::Sopk {
            return self.sopk(inst).map(|()| Flow::Next);
        }
        if self.scalar_special(inst)? {
            return Ok(Flow::Next);
        }
        let (a, b) = (self.read(inst, 0), self.read(inst, 1));
        if inst.encoding == Encoding::Sopc {
            self.registers.scc = match integer_compare(inst.op, a, b) {
                Some(scc) => scc,
                None => self
                    .float_compare(inst.op, a as u32, b as u32)
                    .ok_or_else(|| Stop::new(FaultKind::NotImplemented))?,
            };
            return Ok(Flow::Next);
        }
        let done = match unary(inst.op, a).or_else(|| self.binary(inst.op, a, b)) {
            Some(done) => done,
            None => {
                plain(self.scalar_float(inst, a as u32, b as u32).ok_or_else(|| Stop::new(FaultKind::NotImplemented))?)
            }
        };
        self.registers.set_scalar(inst.dst, inst.result(), done.value);
        if let Some(scc) = done.scc {
            self.registers.scc = scc;
        }
        Ok(Flow::Next)
    }

    /// Instructions that move the program counter.
    fn jump(&mut self, inst: &Inst) -> Result<Option<Flow>, Stop> {
        let next = self.pc + u64::from(inst.size);
        Ok(Some(match inst.op {
            Op::SSetpcB64 => Flow::Jump(self.address_operand(inst)?),
            Op::SSwappcB64 => {
                let target = self.address_operand(inst)?;
                self.registers.set_scalar(inst.dst, Ty::B64, next);
                Flow::Jump(target)
            }
            Op::SCallB64 => {
                self.registers.set_scalar(inst.dst, Ty::B64, next);
                Flow::Jump(self.target(inst))
            }
            Op::SGetpcB64 => {
                self.registers.set_scalar(inst.dst, Ty::B64, next);
                Flow::Next
            }
            _ => return Ok(None),
        }))
    }

    fn address_operand(&self, inst: &Inst) -> Result<u64, Stop> {
        if let Operand::Sgpr(number) = inst.src[0] {
            let number = usize::from(number);
            if !self.registers.is_written(number) || !self.registers.is_written(number + 1) {
                return Err(Stop::unwritten(format!("s[{number}:{}]", number + 1)));
            }
        }
        Ok(shortened(self.registers.scalar(inst, inst.src[0], Ty::B64)))
    }

    /// Instructions that read or write more than source and destination. True where the instruction is one.
    fn scalar_special(&mut self, inst: &Inst) -> Result<bool, Stop> {
        use Op::*;
        let a = self.read(inst, 0);
        let wide = inst.result() == Ty::B64;
        let old = self.registers.scalar(inst, inst.dst, inst.result());
        match inst.op {
            SCmovB32 | SCmovB64 => {
                if self.registers.scc {
                    self.registers.set_scalar(inst.dst, inst.result(), a);
                }
            }
            SBitset0B32 | SBitset0B64 | SBitset1B32 | SBitset1B64 => {
                let bit = 1u64 << (a & if wide { 63 } else { 31 });
                let set = matches!(inst.op, SBitset1B32 | SBitset1B64);
                self.registers.set_scalar(inst.dst, inst.result(), if set { old | bit } else { old & !bit });
            }
            SMovrelsB32 | SMovrelsB64 => {
                let Operand::Sgpr(number) = inst.src[0] else { return Err(Stop::new(FaultKind::NotImplemented)) };
                let number = u32::from(number) + self.registers.sgpr[M0];
                let Some(number) = u8::try_from(number).ok().filter(|&number| number < 106) else {
                    return Err(Stop::new(FaultKind::BeyondRegisters));
                };
                let value = self.registers.scalar(inst, Operand::Sgpr(number), inst.result());
                self.registers.set_scalar(inst.dst, inst.result(), value);
            }
            SMovreldB32 | SMovreldB64 => {
                let Operand::Sgpr(number) = inst.dst else { return Err(Stop::new(FaultKind::NotImplemented)) };
                let number = u32::from(number) + self.registers.sgpr[M0];
                let Some(number) = u8::try_from(number).ok().filter(|&number| number < 106) else {
                    return Err(Stop::new(FaultKind::BeyondRegisters));
                };
                self.registers.set_scalar(Operand::Sgpr(number), inst.result(), a);
            }
            // Signalling a barrier wakes nobody by itself: the wave pauses where it waits.
            SBarrierSignal | SSleepVar => {}
            // Of the messages that are answered, the clock is the one that kernels ask for.
            SSendmsgRtnB32 | SSendmsgRtnB64 => {
                let value = if inst.imm == MESSAGE_REALTIME { self.tick() } else { 0 };
                self.registers.set_scalar(inst.dst, inst.result(), value);
            }
            _ => return Ok(self.save_exec(inst, a)),
        }
        Ok(true)
    }

    /// The families that combine EXEC with a mask: `saveexec` keeps the old EXEC, `wrexec` the new one.
    fn save_exec(&mut self, inst: &Inst, a: u64) -> bool {
        use Op::*;
        let wide = inst.result() == Ty::B64;
        let exec = self.registers.scalar(inst, Operand::Sgpr(EXEC as u8), inst.result());
        let value = match inst.op {
            SAndSaveexecB32 | SAndSaveexecB64 => a & exec,
            SOrSaveexecB32 | SOrSaveexecB64 => a | exec,
            SXorSaveexecB32 | SXorSaveexecB64 => a ^ exec,
            SNandSaveexecB32 | SNandSaveexecB64 => !(a & exec),
            SNorSaveexecB32 | SNorSaveexecB64 => !(a | exec),
            SXnorSaveexecB32 | SXnorSaveexecB64 => !(a ^ exec),
            SAndNot0SaveexecB32 | SAndNot0SaveexecB64 | SAndNot0WrexecB32 | SAndNot0WrexecB64 => !a & exec,
            SOrNot0SaveexecB32 | SOrNot0SaveexecB64 => !a | exec,
            SAndNot1SaveexecB32 | SAndNot1SaveexecB64 | SAndNot1WrexecB32 | SAndNot1WrexecB64 => a & !exec,
            SOrNot1SaveexecB32 | SOrNot1SaveexecB64 => a | !exec,
            _ => return false,
        };
        let value = if wide { value } else { value & 0xffff_ffff };
        let kept = if inst.name.ends_with("wrexec_b32") || inst.name.ends_with("wrexec_b64") { value } else { exec };
        self.registers.set_scalar(inst.dst, inst.result(), kept);
        self.registers.set_scalar(Operand::Sgpr(EXEC as u8), inst.result(), value);
        self.registers.scc = value != 0;
        true
    }

    /// Instructions with two sources; those that read SCC or the destination, too.
    fn binary(&self, op: Op, a: u64, b: u64) -> Option<Done> {
        use Op::*;
        let scc = self.registers.scc;
        let (x, y) = (a as u32, b as u32);
        let (i, j) = (x as i32, y as i32);
        Some(match op {
            SAddU32 => {
                let (sum, carry) = x.overflowing_add(y);
                with(sum, carry)
            }
            SSubU32 => {
                let (difference, borrow) = x.overflowing_sub(y);
                with(difference, borrow)
            }
            SAddI32 => {
                let (sum, overflow) = i.overflowing_add(j);
                with(sum as u32, overflow)
            }
            SSubI32 => {
                let (difference, overflow) = i.overflowing_sub(j);
                with(difference as u32, overflow)
            }
            SAddcU32 => {
                let sum = u64::from(x) + u64::from(y) + u64::from(scc);
                with(sum as u32, sum >> 32 != 0)
            }
            SSubbU32 => {
                let borrow = u64::from(y) + u64::from(scc) > u64::from(x);
                with(x.wrapping_sub(y).wrapping_sub(scc.into()), borrow)
            }
            SAbsdiffI32 => tested(i.wrapping_sub(j).unsigned_abs().into()),
            SMinI32 => with(i.min(j) as u32, i < j),
            SMinU32 => with(x.min(y), x < y),
            SMaxI32 => with(i.max(j) as u32, i >= j),
            SMaxU32 => with(x.max(y), x >= y),
            SCselectB32 | SCselectB64 => plain(if scc { a } else { b }),
            SAndB32 | SAndB64 => tested(a & b),
            SOrB32 | SOrB64 => tested(a | b),
            SXorB32 | SXorB64 => tested(a ^ b),
            SAndNot1B32 | SAndNot1B64 => tested(a & !b),
            SOrNot1B32 => tested((x | !y).into()),
            SOrNot1B64 => tested(a | !b),
            SNandB32 => tested((!(x & y)).into()),
            SNandB64 => tested(!(a & b)),
            SNorB32 => tested((!(x | y)).into()),
            SNorB64 => tested(!(a | b)),
            SXnorB32 => tested((!(x ^ y)).into()),
            SXnorB64 => tested(!(a ^ b)),
            SLshlB32 => tested((x << (y & 31)).into()),
            SLshlB64 => tested(a << (y & 63)),
            SLshrB32 => tested((x >> (y & 31)).into()),
            SLshrB64 => tested(a >> (y & 63)),
            SAshrI32 => tested(((i >> (y & 31)) as u32).into()),
            SAshrI64 => tested(((a as i64) >> (y & 63)) as u64),
            SLshl1AddU32 | SLshl2AddU32 | SLshl3AddU32 | SLshl4AddU32 => {
                let shift = match op {
                    SLshl1AddU32 => 1,
                    SLshl2AddU32 => 2,
                    SLshl3AddU32 => 3,
                    _ => 4,
                };
                let sum = (u64::from(x) << shift) + u64::from(y);
                with(sum as u32, sum >> 32 != 0)
            }
            SBfmB32 => plain((((1u64 << (x & 31)) - 1) << (y & 31)) as u32 as u64),
            SBfmB64 => plain(((1u64 << (x & 63)) - 1) << (y & 63)),
            SMulI32 => plain(x.wrapping_mul(y).into()),
            SMulHiU32 => plain((u64::from(x) * u64::from(y)) >> 32),
            SMulHiI32 => plain(((i64::from(i) * i64::from(j)) >> 32) as u32 as u64),
            SBfeU32 => tested(field(a, y & 31, (y >> 16 & 127).min(32), 32, false)),
            SBfeI32 => tested(field(a, y & 31, (y >> 16 & 127).min(32), 32, true) & 0xffff_ffff),
            SBfeU64 => tested(field(a, y & 63, y >> 16 & 127, 64, false)),
            SBfeI64 => tested(field(a, y & 63, y >> 16 & 127, 64, true)),
            SPackLlB32B16 => plain((x & 0xffff | y << 16).into()),
            SPackLhB32B16 => plain((x & 0xffff | y & 0xffff_0000).into()),
            SPackHhB32B16 => plain((x >> 16 | y & 0xffff_0000).into()),
            SPackHlB32B16 => plain((x >> 16 | y << 16).into()),
            SAddNcU64 => plain(a.wrapping_add(b)),
            SSubNcU64 => plain(a.wrapping_sub(b)),
            SMulU64 => plain(a.wrapping_mul(b)),
            _ => return None,
        })
    }

    /// The clock: later each time it is read, and depending on nothing else.
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A hardware register, as `s_getreg` reads it.
    fn hardware(&mut self, number: u32) -> u32 {
        match number {
            HW_MODE => self.registers.mode.bits,
            HW_STATUS => {
                u32::from(self.registers.scc)
                    | u32::from(self.registers.exec() == 0) << 9
                    | u32::from(self.registers.sgpr[VCC] == 0) << 10
            }
            HW_CYCLES => self.tick() as u32,
            // Identities of the processor and the like: zero, the same everywhere.
            _ => 0,
        }
    }

    fn sopk(&mut self, inst: &Inst) -> Result<(), Stop> {
        use Op::*;
        let constant = inst.imm as u16 as i16;
        let (number, offset, width) = (inst.imm & 63, inst.imm >> 6 & 31, (inst.imm >> 11 & 31) + 1);
        let mask = (((1u64 << width) - 1) << offset) as u32;
        let (signed, unsigned) = (i32::from(constant), inst.imm & 0xffff);
        let old = self.registers.scalar(inst, inst.dst, Ty::B32) as u32;
        let source = self.read(inst, 0) as u32;
        match inst.op {
            SMovkI32 => self.registers.set_scalar(inst.dst, Ty::B32, (signed as u32).into()),
            SCmovkI32 => {
                if self.registers.scc {
                    self.registers.set_scalar(inst.dst, Ty::B32, (signed as u32).into());
                }
            }
            SAddkI32 => {
                let (sum, overflow) = (old as i32).overflowing_add(signed);
                self.registers.set_scalar(inst.dst, Ty::B32, (sum as u32).into());
                self.registers.scc = overflow;
            }
            SMulkI32 => {
                let product = (old as i32).wrapping_mul(signed);
                self.registers.set_scalar(inst.dst, Ty::B32, (product as u32).into());
            }
            SCmpkEqI32 => self.registers.scc = source as i32 == signed,
            SCmpkLgI32 => self.registers.scc = source as i32 != signed,
            SCmpkGtI32 => self.registers.scc = source as i32 > signed,
            SCmpkGeI32 => self.registers.scc = source as i32 >= signed,
            SCmpkLtI32 => self.registers.scc = (source as i32) < signed,
            SCmpkLeI32 => self.registers.scc = source as i32 <= signed,
            SCmpkEqU32 => self.registers.scc = source == unsigned,
            SCmpkLgU32 => self.registers.scc = source != unsigned,
            SCmpkGtU32 => self.registers.scc = source > unsigned,
            SCmpkGeU32 => self.registers.scc = source >= unsigned,
            SCmpkLtU32 => self.registers.scc = source < unsigned,
            SCmpkLeU32 => self.registers.scc = source <= unsigned,
            SGetregB32 => {
                let value = self.hardware(number);
                self.registers.set_scalar(inst.dst, Ty::B32, ((value & mask) >> offset).into());
            }
            SSetregB32 | SSetregImm32B32 => match number {
                HW_MODE => {
                    let bits = self.registers.mode.bits & !mask | source << offset & mask;
                    self.set_mode(bits);
                }
                // RDNA2 kernels point FLAT_SCRATCH at their private segment, which the memory knows by itself.
                number if HW_FLAT_SCRATCH.contains(&number) => {}
                HW_SCHEDULING if self.registers.generation == Generation::Rdna4 => {}
                _ => return Err(Stop::new(FaultKind::NotImplemented)),
            },
            SWaitcntVscnt | SWaitcntVmcnt | SWaitcntExpcnt | SWaitcntLgkmcnt => {}
            _ => return Err(Stop::new(FaultKind::NotImplemented)),
        }
        Ok(())
    }
}

/// Instructions with one source.
fn unary(op: Op, a: u64) -> Option<Done> {
    use Op::*;
    let x = a as u32;
    let minus_one_if_zero = |zero: bool, count: u32| plain(if zero { u64::from(u32::MAX) } else { count.into() });
    Some(match op {
        SMovB32 | SMovB64 => plain(a),
        SBrevB32 => plain(x.reverse_bits().into()),
        SBrevB64 => plain(a.reverse_bits()),
        SNotB32 => tested((!x).into()),
        SNotB64 => tested(!a),
        SWqmB32 | SWqmB64 => {
            let spread = (0..16).map(|quad| if quads(a) >> quad & 1 == 1 { 15u64 << (4 * quad) } else { 0 }).sum();
            tested(spread)
        }
        SQuadmaskB32 | SQuadmaskB64 => tested(quads(a)),
        SCtzI32B32 => minus_one_if_zero(x == 0, x.trailing_zeros()),
        SCtzI32B64 => minus_one_if_zero(a == 0, a.trailing_zeros()),
        SFf0I32B32 => minus_one_if_zero(x == u32::MAX, x.trailing_ones()),
        SFf0I32B64 => minus_one_if_zero(a == u64::MAX, a.trailing_ones()),
        SClzI32U32 => minus_one_if_zero(x == 0, x.leading_zeros()),
        SClzI32U64 => minus_one_if_zero(a == 0, a.leading_zeros()),
        SClsI32 => plain(leading_signs(a, 32).into()),
        SClsI32I64 => plain(leading_signs(a, 64).into()),
        SBcnt0I32B32 => tested(x.count_zeros().into()),
        SBcnt0I32B64 => tested(a.count_zeros().into()),
        SBcnt1I32B32 => tested(x.count_ones().into()),
        SBcnt1I32B64 => tested(a.count_ones().into()),
        SSextI32I8 => plain((x as i8 as i32 as u32).into()),
        SSextI32I16 => plain((x as i16 as i32 as u32).into()),
        SAbsI32 => tested((x as i32).wrapping_abs() as u32 as u64),
        SBitreplicateB64B32 => plain((0..32).map(|bit| (u64::from(x >> bit & 1) * 3) << (2 * bit)).sum()),
        _ => return None,
    })
}

fn integer_compare(op: Op, a: u64, b: u64) -> Option<bool> {
    use Op::*;
    let (x, y) = (a as u32, b as u32);
    let (i, j) = (x as i32, y as i32);
    Some(match op {
        SCmpEqI32 | SCmpEqU32 => x == y,
        SCmpLgI32 | SCmpLgU32 => x != y,
        SCmpGtI32 => i > j,
        SCmpGeI32 => i >= j,
        SCmpLtI32 => i < j,
        SCmpLeI32 => i <= j,
        SCmpGtU32 => x > y,
        SCmpGeU32 => x >= y,
        SCmpLtU32 => x < y,
        SCmpLeU32 => x <= y,
        SCmpEqU64 => a == b,
        SCmpLgU64 => a != b,
        SBitcmp0B32 => x >> (y & 31) & 1 == 0,
        SBitcmp1B32 => x >> (y & 31) & 1 == 1,
        SBitcmp0B64 => a >> (y & 63) & 1 == 0,
        SBitcmp1B64 => a >> (y & 63) & 1 == 1,
        _ => return None,
    })
}
