//! Memory instructions as text.

use super::{Text, line};
use crate::isa::{Encoding, Generation, Inst, Mem, Op, Operand, Ty};

/// Fields of a memory instruction.
fn fields(inst: &Inst) -> Mem {
    inst.mem.expect("decoding gives memory instructions their fields")
}

impl Text<'_> {
    /// Cache bits, as each generation has them.
    fn cache(&self) -> String {
        let inst = self.inst;
        let cache = fields(inst).cache;
        if !self.is_rdna4() {
            let mut text = String::new();
            for (bit, name) in [(1, " glc"), (2, " slc"), (4, " dlc")] {
                if cache & bit != 0 {
                    text += name;
                }
            }
            return text;
        }
        let (hint, scope) = (usize::from(cache & 7), usize::from(cache >> 4));
        let mut text = String::new();
        if hint != 0 {
            text += " th:";
            text += &if inst.name.contains("atomic") {
                self.atomic_hint(hint, scope)
            } else {
                let kind = if inst.name.contains("store") { "STORE" } else { "LOAD" };
                let last = if kind == "STORE" { "WB" } else { "LU" };
                let hints = [
                    "RT",
                    "NT",
                    "HT",
                    last,
                    "NT_RT",
                    "RT_NT",
                    "NT_HT",
                    if kind == "STORE" { "NT_WB" } else { "RESERVED" },
                ];
                let bypass = scope == 3 && hint == 3;
                format!("TH_{kind}_{}", if bypass { "BYPASS" } else { hints[hint] })
            };
        }
        text + ["", " scope:SCOPE_SE", " scope:SCOPE_DEV", " scope:SCOPE_SYS"][scope]
    }

    fn atomic_hint(&self, hint: usize, scope: usize) -> String {
        let mut name = String::from("TH_ATOMIC");
        if hint & 4 != 0 && scope >= 2 {
            name += "_CASCADE";
            name += if hint & 2 != 0 { "_NT" } else { "_RT" };
            return name;
        }
        if hint & 2 != 0 {
            name += "_NT";
        }
        if hint & 1 != 0 {
            name += "_RETURN";
        }
        name
    }

    pub(super) fn smem(&self) -> String {
        let inst = self.inst;
        let mem = fields(inst);
        let mut operands = Vec::new();
        if inst.dst.is_some() {
            operands.push(self.operand(inst.dst, inst.result()));
        }
        let Some(&base) = inst.src_ty.first() else {
            return line(inst.name, &operands);
        };
        if inst.op != Op::SPrefetchDataPcRel {
            operands.push(self.operand(mem.saddr, base));
        }
        let has_register = mem.soffset != Operand::NULL;
        let offset =
            if mem.offset < 0 { format!("-0x{:x}", -i64::from(mem.offset)) } else { format!("0x{:x}", mem.offset) };
        let prefetch = inst.name.contains("prefetch");
        let mut text = if prefetch {
            operands.extend([offset, self.operand(mem.soffset, Ty::B32), inst.imm.to_string()]);
            line(inst.name, &operands)
        } else if has_register {
            operands.push(self.operand(mem.soffset, Ty::B32));
            line(inst.name, &operands)
                + &if mem.offset != 0 || self.is_rdna4() { format!(" offset:{offset}") } else { String::new() }
        } else if mem.offset == 0 && inst.generation != Generation::Rdna4 {
            operands.push("null".to_owned());
            line(inst.name, &operands)
        } else {
            operands.push(offset);
            line(inst.name, &operands)
        };
        if !prefetch {
            text += &self.cache();
        }
        text
    }

    pub(super) fn flat(&self) -> String {
        let inst = self.inst;
        let mem = fields(inst);
        let prefix = match inst.encoding {
            Encoding::Flat => "flat_",
            Encoding::Global => "global_",
            _ => "scratch_",
        };
        let name = format!("{prefix}{}", inst.name);
        if matches!(inst.op, Op::Inv | Op::Wb | Op::Wbinv) {
            return name + &self.cache();
        }
        let mut operands = Vec::new();
        if inst.dst.is_some() {
            operands.push(self.operand(inst.dst, inst.result()));
        }
        let wide = inst.encoding != Encoding::Scratch && !mem.saddr.is_some();
        let addtid = matches!(inst.op, Op::LoadAddtidB32 | Op::StoreAddtidB32);
        if !addtid {
            operands.push(match mem.vaddr {
                Operand::None => "off".to_owned(),
                vaddr => self.operand(vaddr, if wide { Ty::B64 } else { Ty::B32 }),
            });
        }
        operands.extend(self.sources());
        if inst.encoding != Encoding::Flat {
            operands.push(match mem.saddr {
                Operand::None => "off".to_owned(),
                saddr => self.operand(saddr, if inst.encoding == Encoding::Global { Ty::B64 } else { Ty::B32 }),
            });
        }
        let mut text = line(&name, &operands);
        if mem.offset != 0 {
            text += &format!(" offset:{}", mem.offset);
        }
        text + &self.cache()
    }

    pub(super) fn mubuf(&self) -> String {
        let inst = self.inst;
        let mem = fields(inst);
        if matches!(inst.op, Op::BufferGl0Inv | Op::BufferGl1Inv) {
            return format!("buffer_{}", inst.name);
        }
        // One register is both what is written and what is read.
        let (data, ty) = match inst.src_ty.first() {
            Some(&ty) => (inst.src[0], ty),
            None => (inst.dst, inst.result()),
        };
        let mut operands = vec![self.operand(data, ty)];
        operands.push(match mem.addressing {
            0 => "off".to_owned(),
            3 => self.operand(mem.vaddr, Ty::B64),
            _ => self.operand(mem.vaddr, Ty::B32),
        });
        operands.push(self.operand(mem.saddr, Ty::B128));
        operands.push(self.operand(mem.soffset, Ty::B32));
        let mut text = line(&format!("buffer_{}", inst.name), &operands);
        if mem.addressing & 2 != 0 {
            text += " idxen";
        }
        if mem.addressing & 1 != 0 {
            text += " offen";
        }
        if mem.offset != 0 {
            text += &format!(" offset:{}", mem.offset);
        }
        text + &self.cache()
    }

    pub(super) fn ds(&self) -> String {
        let inst = self.inst;
        let mem = fields(inst);
        if inst.op == Op::DsNop {
            return inst.name.to_owned();
        }
        let mut operands = Vec::new();
        if inst.dst.is_some() {
            operands.push(self.operand(inst.dst, inst.result()));
        }
        let no_address = matches!(inst.op, Op::DsAppend | Op::DsConsume | Op::DsLoadAddtidB32 | Op::DsStoreAddtidB32);
        if !no_address {
            operands.push(self.operand(mem.vaddr, Ty::B32));
        }
        operands.extend(self.sources());
        let mut text = line(inst.name, &operands);
        if inst.name.contains("2addr")
            || inst.name.contains("read2")
            || inst.name.contains("write2")
            || inst.name.contains("xchg2")
        {
            for (index, offset) in mem.offsets.into_iter().enumerate().filter(|(_, offset)| *offset != 0) {
                text += &format!(" offset{index}:{offset}");
            }
        } else if inst.op == Op::DsSwizzleB32 {
            text += &swizzle(mem.offset as u32);
        } else if mem.offset != 0 {
            text += &format!(" offset:{}", mem.offset);
        }
        if mem.gds {
            text += " gds";
        }
        text
    }
}

/// The pattern of `ds_swizzle_b32`.
fn swizzle(pattern: u32) -> String {
    if pattern == 0 {
        return String::new();
    }
    if pattern >> 8 == 0x80 {
        let lanes: Vec<String> = (0..4).map(|lane| (pattern >> (2 * lane) & 3).to_string()).collect();
        return format!(" offset:swizzle(QUAD_PERM,{})", lanes.join(","));
    }
    if pattern >> 15 == 1 {
        return format!(" offset:{pattern}");
    }
    let (and, or, xor) = (pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31);
    if and == 31 && or == 0 && xor.count_ones() == 1 {
        return format!(" offset:swizzle(SWAP,{xor})");
    }
    if and == 31 && or == 0 && xor != 0 && (xor + 1).is_power_of_two() {
        return format!(" offset:swizzle(REVERSE,{})", xor + 1);
    }
    let group = 32 - and;
    if group.is_power_of_two() && and == 32 - group && group > 1 && or < group && xor == 0 {
        return format!(" offset:swizzle(BROADCAST,{group},{or})");
    }
    // What becomes of a bit of the lane that is 0, and of one that is 1.
    let mask: String = (0..5)
        .rev()
        .map(|bit| {
            let (and, or, xor) = (and >> bit & 1, or >> bit & 1, xor >> bit & 1);
            match (or ^ xor, (and | or) ^ xor) {
                (0, 0) => '0',
                (1, 1) => '1',
                (0, _) => 'p',
                _ => 'i',
            }
        })
        .collect();
    format!(" offset:swizzle(BITMASK_PERM,\"{mask}\")")
}
