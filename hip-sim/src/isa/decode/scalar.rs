//! Scalar formats: SOP1, SOP2, SOPC, SOPK, SOPP.

use super::{Cursor, bits, is};
use crate::isa::table::Table;
use crate::isa::{Encoding, Inst, Op, Operand};

impl Cursor<'_> {
    pub(super) fn sop2(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Sop2, bits(word, 23, 7))?;
        let mut inst = self.new_inst(row, Encoding::Sop2);
        inst.dst = self.sgpr(bits(word, 16, 7));
        inst.src[0] = self.source(bits(word, 0, 8))?;
        inst.src[1] = self.source(bits(word, 8, 8))?;
        if is(row, &[Op::SFmaakF32, Op::SFmamkF32]) {
            inst.imm = self.literal()?;
        }
        Some(inst)
    }

    pub(super) fn sop1(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Sop1, bits(word, 8, 8))?;
        let mut inst = self.new_inst(row, Encoding::Sop1);
        if !row.dst.is_empty() {
            inst.dst = self.sgpr(bits(word, 16, 7));
        }
        if is(row, &[Op::SSendmsgRtnB32, Op::SSendmsgRtnB64]) {
            inst.imm = bits(word, 0, 8);
        } else if !row.src.is_empty() {
            inst.src[0] = self.source(bits(word, 0, 8))?;
        }
        Some(inst)
    }

    pub(super) fn sopc(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Sopc, bits(word, 16, 7))?;
        let mut inst = self.new_inst(row, Encoding::Sopc);
        inst.src[0] = self.source(bits(word, 0, 8))?;
        inst.src[1] = self.source(bits(word, 8, 8))?;
        Some(inst)
    }

    pub(super) fn sopk(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Sopk, bits(word, 23, 5))?;
        let mut inst = self.new_inst(row, Encoding::Sopk);
        let register = self.sgpr(bits(word, 16, 7));
        if !row.dst.is_empty() {
            inst.dst = register;
        } else if !row.src.is_empty() {
            inst.src[0] = register;
        }
        if row.op == Op::SSetregImm32B32 {
            inst.src[0] = Operand::Literal(self.literal()?);
        }
        inst.imm = bits(word, 0, 16);
        Some(inst)
    }

    pub(super) fn sopp(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Sopp, bits(word, 16, 7))?;
        let mut inst = self.new_inst(row, Encoding::Sopp);
        inst.imm = bits(word, 0, 16);
        Some(inst)
    }
}
