//! Memory: SMEM, FLAT and its relatives, MUBUF, DS.

use super::{Cursor, bit, bits, byte, signed};
use crate::isa::table::{Row, Table};
use crate::isa::{Encoding, Inst, Mem, Operand};

const NOTHING: Mem = Mem {
    vaddr: Operand::None,
    saddr: Operand::None,
    soffset: Operand::None,
    offset: 0,
    offsets: [0; 2],
    cache: 0,
    addressing: 0,
    gds: false,
};

/// Whether the instruction both reads and writes memory, so that a bit tells whether it returns what it read.
fn is_atomic(row: &Row) -> bool {
    row.name.contains("atomic")
}

impl Cursor<'_> {
    pub(super) fn smem(&mut self, word: u32) -> Option<Inst> {
        let opcode = if self.is_rdna4() { bits(word, 13, 6) } else { bits(word, 18, 8) };
        let row = self.find(Table::Smem, opcode)?;
        let fields = self.word()?;
        let mut inst = self.new_inst(row, Encoding::Smem);
        if !row.dst.is_empty() {
            inst.dst = self.sgpr(bits(word, 6, 7));
        } else {
            inst.imm = bits(word, 6, 7);
        }
        let mut mem = NOTHING;
        if !row.src.is_empty() {
            mem.saddr = Operand::Sgpr(byte(word, 0, 6) << 1);
            mem.soffset = self.sgpr(bits(fields, 25, 7));
        }
        mem.offset = if self.is_rdna4() { signed(fields, 24) } else { signed(fields, 21) };
        mem.cache = match self.generation {
            crate::isa::Generation::Rdna2 => byte(word, 16, 1) | byte(word, 14, 1) << 2,
            crate::isa::Generation::Rdna4 => byte(word, 23, 2) | byte(word, 21, 2) << 4,
            _ => byte(word, 14, 1) | byte(word, 13, 1) << 2,
        };
        inst.mem = Some(mem);
        Some(inst)
    }

    /// Data registers of an instruction with one address.
    fn data(&self, inst: &mut Inst, row: &Row, vdst: u8, vdata: u8, returns: bool) {
        if !row.dst.is_empty() && (returns || !is_atomic(row)) {
            inst.dst = Operand::Vgpr(vdst);
        }
        if !row.src.is_empty() {
            inst.src[0] = Operand::Vgpr(vdata);
        }
    }

    /// FLAT, GLOBAL and SCRATCH before RDNA4.
    pub(super) fn flat(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Flat, bits(word, 18, 7))?;
        let fields = self.word()?;
        let (segment, width) = if self.is_rdna2() { (bits(word, 14, 2), 12) } else { (bits(word, 16, 2), 13) };
        let encoding = [Encoding::Flat, Encoding::Scratch, Encoding::Global].get(segment as usize)?;
        let mut inst = self.new_inst(row, *encoding);
        let mut mem = NOTHING;
        // Flat offsets are unsigned, one bit shorter.
        mem.offset = if segment == 0 { bits(word, 0, width - 1) as i32 } else { signed(word, width) };
        mem.cache = if self.is_rdna2() {
            byte(word, 16, 2) | byte(word, 12, 1) << 2
        } else {
            byte(word, 14, 2) | byte(word, 13, 1) << 2
        };
        let saddr = self.sgpr(bits(fields, 16, 7));
        // 127, EXEC_HI elsewhere, stands for "no address at all" on RDNA2.
        let absent = saddr == Operand::NULL || self.is_rdna2() && saddr == Operand::Sgpr(127);
        if segment != 0 && !absent {
            mem.saddr = saddr;
        }
        let has_vaddr = segment != 1 || if self.is_rdna2() { saddr == Operand::NULL } else { bit(fields, 23) };
        if has_vaddr {
            mem.vaddr = Operand::Vgpr(byte(fields, 0, 8));
        }
        let glc = mem.cache & 1 == 1;
        inst.mem = Some(mem);
        self.data(&mut inst, row, byte(fields, 24, 8), byte(fields, 8, 8), glc);
        Some(inst)
    }

    /// VFLAT, VSCRATCH and VGLOBAL.
    pub(super) fn flat_rdna4(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Flat, bits(word, 14, 8))?;
        let (fields, address) = (self.word()?, self.word()?);
        let segment = bits(word, 24, 2);
        let encoding = [Encoding::Flat, Encoding::Scratch, Encoding::Global].get(segment as usize)?;
        let mut inst = self.new_inst(row, *encoding);
        let mut mem = NOTHING;
        mem.offset = signed(address >> 8, 24);
        let saddr = self.sgpr(bits(word, 0, 7));
        if saddr != Operand::NULL {
            mem.saddr = saddr;
        }
        if segment != 1 || bit(fields, 17) {
            mem.vaddr = Operand::Vgpr(byte(address, 0, 8));
        }
        let hint = byte(fields, 20, 3);
        mem.cache = hint | byte(fields, 18, 2) << 4;
        inst.mem = Some(mem);
        self.data(&mut inst, row, byte(fields, 0, 8), byte(fields, 23, 8), hint & 1 == 1);
        Some(inst)
    }

    pub(super) fn mubuf(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Mubuf, bits(word, 18, 7))?;
        let fields = self.word()?;
        let mut inst = self.new_inst(row, Encoding::Mubuf);
        if row.dst.is_empty() && row.src.is_empty() {
            inst.mem = Some(NOTHING);
            return Some(inst);
        }
        let glc = byte(word, 14, 1);
        inst.mem = Some(Mem {
            vaddr: Operand::Vgpr(byte(fields, 0, 8)),
            saddr: Operand::Sgpr(byte(fields, 16, 5) << 2),
            soffset: self.source(bits(fields, 24, 8))?,
            offset: bits(word, 0, 12) as i32,
            cache: glc | byte(fields, 22, 1) << 1 | byte(word, 15, 1) << 2,
            addressing: byte(word, 12, 2),
            ..NOTHING
        });
        let data = byte(fields, 8, 8);
        self.data(&mut inst, row, data, data, glc == 1);
        Some(inst)
    }

    pub(super) fn ds(&mut self, word: u32) -> Option<Inst> {
        let row = self.find(Table::Ds, bits(word, 18, 8))?;
        let fields = self.word()?;
        let mut inst = self.new_inst(row, Encoding::Ds);
        if !row.dst.is_empty() {
            inst.dst = Operand::Vgpr(byte(fields, 24, 8));
        }
        for (slot, low) in [8, 16].into_iter().enumerate().take(row.src.len()) {
            inst.src[slot] = Operand::Vgpr(byte(fields, low, 8));
        }
        inst.mem = Some(Mem {
            vaddr: Operand::Vgpr(byte(fields, 0, 8)),
            offset: bits(word, 0, 16) as i32,
            offsets: [byte(word, 0, 8), byte(word, 8, 8)],
            gds: bit(word, 17),
            ..NOTHING
        });
        Some(inst)
    }
}
