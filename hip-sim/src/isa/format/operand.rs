//! Registers and constants as text.

use super::{Dialect, Text};
use crate::isa::inst::inline;
use crate::isa::{Encoding, Operand, Ty};

/// Registers from `first` on.
fn registers(prefix: &str, first: u8, count: u8) -> String {
    if count == 1 {
        format!("{prefix}{first}")
    } else {
        format!("{prefix}[{first}:{}]", u16::from(first) + u16::from(count) - 1)
    }
}

fn scalar(number: u8, count: u8) -> String {
    match (number, count) {
        (0..=105, _) => registers("s", number, count),
        (106, 2) => "vcc".to_owned(),
        (106, _) => "vcc_lo".to_owned(),
        (107, _) => "vcc_hi".to_owned(),
        (108..=123, _) => registers("ttmp", number - 108, count),
        (124, _) => "null".to_owned(),
        (125, _) => "m0".to_owned(),
        (126, 2) => "exec".to_owned(),
        (126, _) => "exec_lo".to_owned(),
        _ => "exec_hi".to_owned(),
    }
}

impl Text<'_> {
    pub(super) fn operand(&self, operand: Operand, ty: Ty) -> String {
        match operand {
            Operand::None => String::new(),
            Operand::Sgpr(number) => scalar(number, ty.dwords()),
            Operand::Vgpr(number) => registers("v", number, ty.dwords()),
            Operand::Inline(code @ 128..=192) => (code - 128).to_string(),
            Operand::Inline(code @ 193..=208) => format!("-{}", code - 192),
            Operand::Inline(code) => {
                let names = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"];
                match names.get(usize::from(code - 240)) {
                    Some(name) => (*name).to_owned(),
                    None if matches!(ty, Ty::F64 | Ty::B64) => "0.15915494309189532".to_owned(),
                    None => "0.15915494".to_owned(),
                }
            }
            Operand::Special(code) => match code {
                235 => "src_shared_base",
                236 => "src_shared_limit",
                237 => "src_private_base",
                238 => "src_private_limit",
                251 => "src_vccz",
                252 => "src_execz",
                _ => "src_scc",
            }
            .to_owned(),
            Operand::Literal(value) => self.literal(value, ty),
        }
    }

    fn literal(&self, value: u32, ty: Ty) -> String {
        let half = ty.is_half() && self.inst.encoding != Encoding::Sop2;
        let value = if half { value & 0xffff } else { value };
        // One that could have been an inline constant: the older LLVM shows which, the newer that it is not.
        let signed = if half { i32::from(value as u16 as i16) } else { value as i32 };
        let wide = ty.dwords() == 2;
        let name = if (-16..=64).contains(&signed) && !(wide && signed < 0) {
            Some(signed.to_string())
        } else if ty == Ty::B16 || wide {
            None
        } else {
            let inline = (240..=248).find(|&code| inline(code, if half { Ty::F16 } else { Ty::F32 }) == value.into());
            inline.map(|code| self.operand(Operand::Inline(code), ty))
        };
        match (name, self.dialect) {
            (Some(name), Dialect::Llvm19) => name,
            (Some(_), Dialect::Llvm22) => format!("lit(0x{value:x})"),
            (None, _) => format!("0x{value:x}"),
        }
    }
}
