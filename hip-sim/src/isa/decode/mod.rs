//! From dwords to instructions.
//!
//! Layouts are those of the ISA documents' chapter "Microcode Formats"; fields that only make sense for graphics are
//! left out.

mod memory;
mod scalar;
mod vector;

use super::table::{Row, Table, find};
use super::{Arch, Encoding, Generation, Inst, Mods, Op, Operand};

/// An encoding that no row of the tables has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Its first two dwords, or one at the end of the code.
    pub words: Vec<u32>,
}

/// Decodes the instruction that begins with the first word. Words behind it are ignored.
pub fn decode(arch: Arch, words: &[u32]) -> Result<Inst, Unknown> {
    let mut cursor = Cursor { generation: arch.generation(), words, next: 0, literal: None };
    let inst = cursor.word().and_then(|word| cursor.instruction(word));
    match inst {
        Some(mut inst) => {
            inst.size = u8::try_from(cursor.next * 4).expect("an instruction has few words");
            Ok(inst)
        }
        None => Err(Unknown { words: words[..words.len().min(2)].to_vec() }),
    }
}

/// A field of a word.
fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

/// The same, as a register number or the like.
fn byte(word: u32, low: u32, count: u32) -> u8 {
    debug_assert!(count <= 8, "the field fits a byte");
    bits(word, low, count) as u8
}

fn bit(word: u32, index: u32) -> bool {
    word >> index & 1 == 1
}

/// Sign-extends a field of `count` bits.
fn signed(value: u32, count: u32) -> i32 {
    (value << (32 - count)) as i32 >> (32 - count)
}

struct Cursor<'a> {
    generation: Generation,
    words: &'a [u32],
    next: usize,
    /// The constant behind the instruction, which several operands may share.
    literal: Option<u32>,
}

impl Cursor<'_> {
    fn word(&mut self) -> Option<u32> {
        let word = *self.words.get(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// The constant behind the instruction; to be asked for when all of its fixed words have been taken.
    fn literal(&mut self) -> Option<u32> {
        if self.literal.is_none() {
            self.literal = Some(self.word()?);
        }
        self.literal
    }

    fn is_rdna2(&self) -> bool {
        self.generation == Generation::Rdna2
    }

    fn is_rdna4(&self) -> bool {
        self.generation == Generation::Rdna4
    }

    fn find(&self, table: Table, opcode: u32) -> Option<&'static Row> {
        find(self.generation, table, opcode)
    }

    fn new_inst(&self, row: &'static Row, encoding: Encoding) -> Inst {
        Inst {
            op: row.op,
            name: row.name,
            encoding,
            generation: self.generation,
            size: 0,
            dst_ty: row.dst,
            src_ty: row.src,
            dst: Operand::None,
            sdst: Operand::None,
            src: [Operand::None; 3],
            imm: 0,
            mods: Mods::default(),
            dpp: None,
            sdwa: None,
            mem: None,
            second: None,
        }
    }

    /// A scalar register, with RDNA2's numbers of null and M0 exchanged.
    fn sgpr(&self, code: u32) -> Operand {
        Operand::Sgpr(match code {
            124 if self.is_rdna2() => 125,
            125 if self.is_rdna2() => 124,
            _ => code as u8,
        })
    }

    /// A source, scalar (8 bits) or any (9 bits).
    fn source(&mut self, code: u32) -> Option<Operand> {
        Some(match code {
            0..=127 => self.sgpr(code),
            128..=208 | 240..=248 => Operand::Inline(code as u8),
            235..=238 | 251..=253 => Operand::Special(code as u8),
            255 => Operand::Literal(self.literal()?),
            256..=511 => Operand::Vgpr((code - 256) as u8),
            _ => return None,
        })
    }

    fn instruction(&mut self, word: u32) -> Option<Inst> {
        match word >> 30 {
            0b00 | 0b01 => self.short_vector(word),
            0b10 => match bits(word, 23, 9) {
                0b1_0111_1101 => self.sop1(word),
                0b1_0111_1110 => self.sopc(word),
                0b1_0111_1111 => self.sopp(word),
                _ if word >> 28 == 0b1011 => self.sopk(word),
                _ => self.sop2(word),
            },
            _ => match word >> 26 {
                0b11_0010 if !self.is_rdna2() => self.vopd(word),
                0b11_0011 => self.vop3p(word),
                0b11_0101 => self.vop3(word),
                0b11_0110 => self.ds(word),
                0b11_0111 if !self.is_rdna4() => self.flat(word),
                0b11_1000 if !self.is_rdna4() => self.mubuf(word),
                0b11_1011 if self.is_rdna4() => self.flat_rdna4(word),
                0b11_1101 => self.smem(word),
                _ => None,
            },
        }
    }
}

/// Whether the row is one of `ops`.
fn is(row: &Row, ops: &[Op]) -> bool {
    ops.contains(&row.op)
}
