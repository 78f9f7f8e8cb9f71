//! Vector arithmetic: VOP1, VOP2, VOPC with their DPP and SDWA forms, VOP3, VOP3P, VOPD.

use super::{Cursor, bit, bits, byte, is};
use crate::isa::table::{Row, Table};
use crate::isa::{Dpp, Encoding, Inst, Op, Operand, Sdwa, Ty};

/// Codes in the place of the first source that announce a further dword.
const DPP8: u32 = 233;
const DPP8_FETCH_INACTIVE: u32 = 234;
const SDWA: u32 = 249;
const DPP16: u32 = 250;

impl Cursor<'_> {
    /// A vector register of the short forms. From RDNA3 on, halves are numbered: bit 7 tells the upper one.
    fn short_vgpr(&self, inst: &mut Inst, slot: usize, ty: Ty, number: u8) -> Operand {
        if ty.is_half() && !self.is_rdna2() && number >= 128 {
            inst.mods.op_sel |= 1 << slot;
            return Operand::Vgpr(number - 128);
        }
        Operand::Vgpr(number)
    }

    /// VOP1, VOP2 or VOPC.
    pub(super) fn short_vector(&mut self, word: u32) -> Option<Inst> {
        let (row, encoding) = match bits(word, 25, 7) {
            0x3f => (self.find(Table::Vop1, bits(word, 9, 8))?, Encoding::Vop1),
            0x3e => (self.find(Table::Vopc, bits(word, 17, 8))?, Encoding::Vopc),
            _ => (self.find(Table::Vop2, bits(word, 25, 6))?, Encoding::Vop2),
        };
        let mut inst = self.new_inst(row, encoding);
        match row.dst.first() {
            Some(Ty::Mask) => inst.dst = Operand::VCC,
            Some(Ty::S32) => inst.dst = self.sgpr(bits(word, 17, 8)),
            Some(&ty) => inst.dst = self.short_vgpr(&mut inst, 3, ty, byte(word, 17, 8)),
            None => {}
        }
        if row.dst.len() == 2 {
            inst.sdst = Operand::VCC;
        }
        if encoding != Encoding::Vop1 {
            inst.src[1] = self.short_vgpr(&mut inst, 1, row.src[1], byte(word, 9, 8));
        }
        if row.src.get(2) == Some(&Ty::Mask) {
            inst.src[2] = Operand::VCC;
        }
        if row.src.is_empty() {
            return Some(inst);
        }
        match bits(word, 0, 9) {
            code @ (DPP8 | DPP8_FETCH_INACTIVE | DPP16) => self.dpp(&mut inst, code)?,
            SDWA if self.is_rdna2() => self.sdwa(&mut inst)?,
            code @ 256.. => inst.src[0] = self.short_vgpr(&mut inst, 0, row.src[0], (code - 256) as u8),
            code => inst.src[0] = self.source(code)?,
        }
        if is(row, &[Op::VFmaakF32, Op::VFmamkF32, Op::VFmaakF16, Op::VFmamkF16]) {
            inst.imm = self.literal()?;
        }
        Some(inst)
    }

    /// The dword of a data-parallel primitive, which has the first source and, in the short forms, its modifiers.
    fn dpp(&mut self, inst: &mut Inst, code: u32) -> Option<()> {
        let word = self.word()?;
        let short = !matches!(inst.encoding, Encoding::Vop3 | Encoding::Vop3p);
        inst.src[0] = if short {
            self.short_vgpr(inst, 0, inst.src_ty[0], byte(word, 0, 8))
        } else {
            Operand::Vgpr(byte(word, 0, 8))
        };
        inst.dpp = Some(if code == DPP16 {
            if short {
                inst.mods.neg = byte(word, 20, 1) | byte(word, 22, 1) << 1;
                inst.mods.abs = byte(word, 21, 1) | byte(word, 23, 1) << 1;
            }
            Dpp::Row {
                control: bits(word, 8, 9) as u16,
                fetch_inactive: bit(word, 18),
                bound_ctrl: bit(word, 19),
                bank_mask: byte(word, 24, 4),
                row_mask: byte(word, 28, 4),
            }
        } else {
            Dpp::Eight {
                select: std::array::from_fn(|lane| byte(word, 8 + 3 * lane as u32, 3)),
                fetch_inactive: code == DPP8_FETCH_INACTIVE,
            }
        });
        Some(())
    }

    /// The dword of RDNA2's sub-dword addressing.
    fn sdwa(&mut self, inst: &mut Inst) -> Option<()> {
        let word = self.word()?;
        inst.src[0] = if bit(word, 23) { self.sgpr(bits(word, 0, 8)) } else { Operand::Vgpr(byte(word, 0, 8)) };
        if bit(word, 31) {
            let Operand::Vgpr(number) = inst.src[1] else { return None };
            inst.src[1] = self.sgpr(number.into());
        }
        let mut sdwa = Sdwa {
            dst_sel: 6,
            dst_unused: 0,
            src_sel: [byte(word, 16, 3), byte(word, 24, 3)],
            sext: byte(word, 19, 1) | byte(word, 27, 1) << 1,
        };
        inst.mods.neg = byte(word, 20, 1) | byte(word, 28, 1) << 1;
        inst.mods.abs = byte(word, 21, 1) | byte(word, 29, 1) << 1;
        if inst.encoding == Encoding::Vopc {
            if bit(word, 15) && inst.dst.is_some() {
                inst.dst = self.sgpr(bits(word, 8, 7));
            }
        } else {
            sdwa.dst_sel = byte(word, 8, 3);
            sdwa.dst_unused = byte(word, 11, 2);
            inst.mods.clamp = bit(word, 13);
            inst.mods.omod = byte(word, 14, 2);
        }
        inst.sdwa = Some(sdwa);
        Some(())
    }

    /// The row of a VOP3 opcode: of its own table, or of a short form's.
    fn long_row(&self, opcode: u32) -> Option<(&'static Row, bool)> {
        if let Some(row) = self.find(Table::Vop3, opcode) {
            return Some((row, false));
        }
        let row = match opcode {
            0..0x100 => self.find(Table::Vopc, opcode),
            0x100..0x140 => self.find(Table::Vop2, opcode - 0x100),
            0x180..0x200 => self.find(Table::Vop1, opcode - 0x180),
            _ => None,
        };
        row.map(|row| (row, true))
    }

    /// Sources of the long forms, with literal or DPP dword.
    fn long_sources(&mut self, inst: &mut Inst, fields: u32) -> Option<()> {
        let count = inst.src_ty.len();
        for slot in 1..count {
            inst.src[slot] = self.source(bits(fields, 9 * slot as u32, 9))?;
        }
        if count == 0 {
            return Some(());
        }
        match bits(fields, 0, 9) {
            code @ (DPP8 | DPP8_FETCH_INACTIVE | DPP16) if !self.is_rdna2() => self.dpp(inst, code)?,
            code => inst.src[0] = self.source(code)?,
        }
        Some(())
    }

    pub(super) fn vop3(&mut self, word: u32) -> Option<Inst> {
        let (row, _) = self.long_row(bits(word, 16, 10))?;
        let fields = self.word()?;
        let mut inst = self.new_inst(row, Encoding::Vop3);
        match row.dst.first() {
            Some(Ty::Mask | Ty::S32) => inst.dst = self.sgpr(bits(word, 0, 8)),
            Some(_) => inst.dst = Operand::Vgpr(byte(word, 0, 8)),
            None => {}
        }
        inst.mods.clamp = bit(word, 15);
        if row.dst.len() == 2 {
            inst.sdst = self.sgpr(bits(word, 8, 7));
        } else {
            inst.mods.abs = byte(word, 8, 3);
            inst.mods.op_sel = byte(word, 11, 4);
        }
        inst.mods.omod = byte(fields, 27, 2);
        inst.mods.neg = byte(fields, 29, 3);
        self.long_sources(&mut inst, fields)?;
        Some(inst)
    }

    pub(super) fn vop3p(&mut self, word: u32) -> Option<Inst> {
        if bits(word, 23, 3) != 0 {
            return None;
        }
        let row = self.find(Table::Vop3p, bits(word, 16, 7))?;
        let fields = self.word()?;
        let mut inst = self.new_inst(row, Encoding::Vop3p);
        inst.dst = Operand::Vgpr(byte(word, 0, 8));
        inst.mods.clamp = bit(word, 15);
        inst.mods.neg_hi = byte(word, 8, 3);
        inst.mods.op_sel = byte(word, 11, 3);
        inst.mods.op_sel_hi = byte(fields, 27, 2) | byte(word, 14, 1) << 2;
        inst.mods.neg = byte(fields, 29, 3);
        self.long_sources(&mut inst, fields)?;
        Some(inst)
    }

    /// Two instructions that are issued together.
    pub(super) fn vopd(&mut self, word: u32) -> Option<Inst> {
        let rows = [bits(word, 22, 4), bits(word, 17, 5)].map(|opcode| self.find(Table::Vopd, opcode));
        let fields = self.word()?;
        let x = byte(fields, 24, 8);
        // The destinations lie in different banks: the lowest bit of the second one is the inverse of the first one's.
        let y = byte(fields, 17, 7) << 1 | !x & 1;
        let mut first = self.half(rows[0]?, x, bits(word, 0, 9), byte(word, 9, 8))?;
        let second = self.half(rows[1]?, y, bits(fields, 0, 9), byte(fields, 9, 8))?;
        first.second = Some(Box::new(second));
        Some(first)
    }

    fn half(&mut self, row: &'static Row, dst: u8, src0: u32, src1: u8) -> Option<Inst> {
        let mut inst = self.new_inst(row, Encoding::Vopd);
        inst.dst = Operand::Vgpr(dst);
        inst.src[0] = self.source(src0)?;
        if row.src.len() > 1 {
            inst.src[1] = Operand::Vgpr(src1);
        }
        if row.op == Op::VCndmaskB32 {
            inst.src[2] = Operand::VCC;
        }
        if is(row, &[Op::VFmaakF32, Op::VFmamkF32]) {
            inst.imm = self.literal()?;
        }
        Some(inst)
    }
}
