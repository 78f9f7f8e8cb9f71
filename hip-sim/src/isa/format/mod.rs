//! Disassembly, in the spelling of `llvm-objdump -d`.
//!
//! Where versions of LLVM spell an instruction differently, [`Dialect`] says which one is followed; all of those places
//! ask [`Text`]'s `dialect` and nothing else does.

mod control;
mod memory;
mod operand;

use std::fmt;

use super::{Dpp, Encoding, Generation, Inst, Op, Operand, Ty};

/// Whose spelling is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// LLVM 19, which names 16-bit registers of RDNA3 by their whole register.
    Llvm19,
    /// LLVM 22, which writes halves as `v0.l` and `v0.h`.
    #[default]
    Llvm22,
}

/// An instruction as text.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    inst: &'a Inst,
    dialect: Dialect,
}

impl Inst {
    /// As text, in a given spelling.
    pub fn text(&self, dialect: Dialect) -> Text<'_> {
        Text { inst: self, dialect }
    }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text(Dialect::default()).fmt(f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.inst.encoding {
            Encoding::Sopp => self.sopp(),
            Encoding::Sopk => self.sopk(),
            Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc => self.scalar(),
            Encoding::Smem => self.smem(),
            Encoding::Flat | Encoding::Global | Encoding::Scratch => self.flat(),
            Encoding::Mubuf => self.mubuf(),
            Encoding::Ds => self.ds(),
            Encoding::Vopd => self.vopd(),
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc | Encoding::Vop3 => self.vector(),
            Encoding::Vop3p => self.packed(),
        };
        f.write_str(&text)
    }
}

/// Name and operands.
fn line(name: &str, operands: &[String]) -> String {
    if operands.is_empty() { name.to_owned() } else { format!("{name} {}", operands.join(", ")) }
}

/// A list of bits, as modifiers are written.
fn flags(name: &str, value: u8, count: usize) -> String {
    let bits: Vec<String> = (0..count).map(|index| (value >> index & 1).to_string()).collect();
    format!(" {name}:[{}]", bits.join(","))
}

impl Text<'_> {
    fn is_rdna4(&self) -> bool {
        self.inst.generation == Generation::Rdna4
    }

    fn scalar(&self) -> String {
        let inst = self.inst;
        let mut operands = Vec::new();
        if inst.dst.is_some() {
            operands.push(self.operand(inst.dst, inst.result()));
        }
        if matches!(inst.op, Op::SSendmsgRtnB32 | Op::SSendmsgRtnB64) {
            operands.push(self.message(inst.imm));
        }
        operands.extend(self.sources());
        match inst.op {
            Op::SFmaakF32 => operands.push(format!("0x{:x}", inst.imm)),
            Op::SFmamkF32 => operands.insert(2, format!("0x{:x}", inst.imm)),
            _ => {}
        }
        line(inst.name, &operands)
    }

    /// Sources without modifiers.
    fn sources(&self) -> Vec<String> {
        let inst = self.inst;
        inst.src_ty
            .iter()
            .zip(inst.src)
            .filter(|(_, src)| src.is_some())
            .map(|(&ty, src)| self.operand(src, ty))
            .collect()
    }

    /// Whether halves are written as such.
    fn writes_halves(&self) -> bool {
        matches!(self.inst.generation, Generation::Rdna3 | Generation::Rdna35) && self.dialect == Dialect::Llvm22
    }

    /// A vector operand that may be half a register; slot 3 is the destination.
    fn half(&self, operand: Operand, ty: Ty, slot: usize) -> String {
        let text = self.operand(operand, ty);
        if !ty.is_half() || !self.writes_halves() || !matches!(operand, Operand::Vgpr(_)) {
            return text;
        }
        text + if self.inst.is_high(slot) { ".h" } else { ".l" }
    }

    /// A source with its modifiers.
    fn source(&self, slot: usize) -> String {
        let inst = self.inst;
        let mut text = self.half(inst.src[slot], inst.src_ty[slot], slot);
        let (negated, absolute) = (inst.mods.neg >> slot & 1 == 1, inst.mods.abs >> slot & 1 == 1);
        if inst.sdwa.is_some_and(|sdwa| sdwa.sext >> slot & 1 == 1) {
            text = format!("sext({text})");
        }
        if absolute {
            text = format!("|{text}|");
        }
        if negated {
            let constant = matches!(inst.src[slot], Operand::Inline(_) | Operand::Literal(_));
            text = if constant && !absolute { format!("neg({text})") } else { format!("-{text}") };
        }
        text
    }

    /// The name with the suffix that tells the encoding, where there are several.
    fn vector_name(&self) -> String {
        let inst = self.inst;
        let long = inst.encoding == Encoding::Vop3;
        let bare = matches!(
            inst.op,
            Op::VNop
                | Op::VReadfirstlaneB32
                | Op::VSwapB32
                | Op::VSwapB16
                | Op::VPermlane64B32
                | Op::VFmaakF32
                | Op::VFmamkF32
                | Op::VFmaakF16
                | Op::VFmamkF16
                | Op::VDot2cF32F16
                | Op::VDot4cI32I8
                | Op::VPkFmacF16
        );
        let suffix = match (long, inst.dpp.is_some(), inst.sdwa.is_some()) {
            (_, _, true) => "_sdwa",
            (false, true, _) => "_dpp",
            (true, true, _) => "_e64_dpp",
            _ if bare => "",
            (false, ..) => "_e32",
            (true, ..) if self.has_short_form() => "_e64",
            _ => "",
        };
        format!("{}{suffix}", inst.name)
    }

    /// Whether a VOP3 instruction is the long form of a short one.
    fn has_short_form(&self) -> bool {
        use crate::isa::table::{Table, has};
        [Table::Vop1, Table::Vop2, Table::Vopc].into_iter().any(|table| has(self.inst.generation, table, self.inst.op))
    }

    fn vector(&self) -> String {
        let inst = self.inst;
        let mut operands = Vec::new();
        if inst.dst.is_some() {
            operands.push(self.half(inst.dst, inst.result(), 3));
        }
        if inst.sdst.is_some() {
            operands.push(self.operand(inst.sdst, Ty::Mask));
        }
        operands.extend((0..inst.src_ty.len()).filter(|&slot| inst.src[slot].is_some()).map(|slot| self.source(slot)));
        match inst.op {
            Op::VFmaakF32 | Op::VFmaakF16 => operands.push(format!("0x{:x}", inst.imm)),
            Op::VFmamkF32 | Op::VFmamkF16 => operands.insert(2, format!("0x{:x}", inst.imm)),
            _ => {}
        }
        let mut text = line(&self.vector_name(), &operands);
        let permlane = matches!(
            inst.op,
            Op::VPermlane16B32 | Op::VPermlanex16B32 | Op::VPermlane16VarB32 | Op::VPermlanex16VarB32
        );
        if inst.encoding == Encoding::Vop3 && inst.mods.op_sel != 0 && inst.op != Op::VCndmaskB16 {
            // The accumulator counts as a source.
            let accumulates = matches!(inst.op, Op::VFmacF16 | Op::VFmacF32 | Op::VFmacDx9ZeroF32);
            let count = inst.src_ty.len() + usize::from(accumulates);
            // The two bits of permlane are not about halves: inactive lanes are fetched, lanes without source read 0.
            if permlane {
                text += &flags("op_sel", inst.mods.op_sel & 3, 2);
            } else {
                let value = inst.mods.op_sel & ((1 << count) - 1) & 7 | (inst.mods.op_sel >> 3) << count;
                text += &flags("op_sel", value, count + 1);
            }
        }
        if inst.mods.clamp {
            text += " clamp";
        }
        text += ["", " mul:2", " mul:4", " div:2"][usize::from(inst.mods.omod)];
        text + &self.dpp() + &self.sdwa()
    }

    fn sdwa(&self) -> String {
        const SELECT: [&str; 7] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"];
        const UNUSED: [&str; 3] = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"];
        let Some(sdwa) = self.inst.sdwa else { return String::new() };
        let mut text = String::new();
        let select = |value: u8| SELECT.get(usize::from(value)).copied().unwrap_or("?");
        if self.inst.encoding != Encoding::Vopc {
            text += &format!(
                " dst_sel:{} dst_unused:{}",
                select(sdwa.dst_sel),
                UNUSED.get(usize::from(sdwa.dst_unused)).copied().unwrap_or("?")
            );
        }
        text += &format!(" src0_sel:{}", select(sdwa.src_sel[0]));
        if self.inst.src[1].is_some() {
            text += &format!(" src1_sel:{}", select(sdwa.src_sel[1]));
        }
        text
    }

    fn dpp(&self) -> String {
        match self.inst.dpp {
            None => String::new(),
            Some(Dpp::Eight { select, fetch_inactive }) => {
                let lanes: Vec<String> = select.iter().map(u8::to_string).collect();
                format!(" dpp8:[{}]{}", lanes.join(","), if fetch_inactive { " fi:1" } else { "" })
            }
            Some(Dpp::Row { control, fetch_inactive, bound_ctrl, bank_mask, row_mask }) => {
                let low = control & 15;
                let what = match control {
                    0..=0xff => {
                        let lanes: Vec<String> = (0..4).map(|lane| (control >> (2 * lane) & 3).to_string()).collect();
                        format!("quad_perm:[{}]", lanes.join(","))
                    }
                    0x101..=0x10f => format!("row_shl:{low}"),
                    0x111..=0x11f => format!("row_shr:{low}"),
                    0x121..=0x12f => format!("row_ror:{low}"),
                    0x140 => "row_mirror".to_owned(),
                    0x141 => "row_half_mirror".to_owned(),
                    0x150..=0x15f => format!("row_share:{low}"),
                    0x160..=0x16f => format!("row_xmask:{low}"),
                    _ => format!("dpp_ctrl:{control:#x}"),
                };
                format!(
                    " {what} row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}{}{}",
                    if bound_ctrl { " bound_ctrl:1" } else { "" },
                    if fetch_inactive { " fi:1" } else { "" }
                )
            }
        }
    }

    fn packed(&self) -> String {
        let inst = self.inst;
        let count = inst.src_ty.len();
        let all = (1u8 << count) - 1;
        let mut operands = vec![self.operand(inst.dst, inst.result())];
        let mixed = matches!(inst.op, Op::VFmaMixF32 | Op::VFmaMixloF16 | Op::VFmaMixhiF16);
        let mut text = if mixed {
            for slot in 0..count {
                let mut source = self.operand(inst.src[slot], inst.src_ty[slot]);
                if inst.mods.neg_hi >> slot & 1 == 1 {
                    source = format!("|{source}|");
                }
                if inst.mods.neg >> slot & 1 == 1 {
                    source = format!("-{source}");
                }
                operands.push(source);
            }
            line(inst.name, &operands)
        } else {
            operands.extend(self.sources());
            line(inst.name, &operands) + if inst.dpp.is_some() { "_e64_dpp" } else { "" }
        };
        if inst.mods.op_sel != 0 {
            text += &flags("op_sel", inst.mods.op_sel, count);
        }
        if inst.mods.op_sel_hi & all != if mixed { 0 } else { all } {
            text += &flags("op_sel_hi", inst.mods.op_sel_hi, count);
        }
        if !mixed {
            if inst.mods.neg & all != 0 {
                text += &flags("neg_lo", inst.mods.neg, count);
            }
            if inst.mods.neg_hi & all != 0 {
                text += &flags("neg_hi", inst.mods.neg_hi, count);
            }
        }
        if inst.mods.clamp {
            text += " clamp";
        }
        text + &self.dpp()
    }

    fn vopd(&self) -> String {
        let part = |inst: &Inst| {
            let text = Text { inst, dialect: self.dialect };
            let mut operands = vec![text.operand(inst.dst, inst.result())];
            operands.extend(text.sources());
            match inst.op {
                Op::VFmaakF32 => operands.push(format!("0x{:x}", inst.imm)),
                Op::VFmamkF32 => operands.insert(2, format!("0x{:x}", inst.imm)),
                _ => {}
            }
            line(inst.name, &operands)
        };
        let second = self.inst.second.as_deref().map(part).unwrap_or_default();
        format!("{} :: {second}", part(self.inst))
    }
}
