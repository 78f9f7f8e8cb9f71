//! Comparisons: VOPC, in all lanes at once.

use super::float::{F16, F32, Format, double};
use super::mode::FloatMode;
use super::valu::{Sources, each_lane};
use super::wave::Wave;
use crate::isa::{Inst, Ty};

/// How two floats relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Less,
    Equal,
    Greater,
    Unordered,
}

pub(super) fn relation(format: Format, mode: FloatMode, a: u32, b: u32) -> Relation {
    let of = |bits| {
        if format.is_nan(bits) { f64::NAN } else { format.widen(format.flush(bits, mode.flush_in)) }
    };
    relate(of(a), of(b))
}

fn relate<T: PartialOrd>(a: T, b: T) -> Relation {
    match a.partial_cmp(&b) {
        Some(std::cmp::Ordering::Less) => Relation::Less,
        Some(std::cmp::Ordering::Equal) => Relation::Equal,
        Some(std::cmp::Ordering::Greater) => Relation::Greater,
        None => Relation::Unordered,
    }
}

/// Relations for which a comparison of this name holds: less, equal, greater, unordered.
fn wanted(name: &str, integer: bool) -> Option<[bool; 4]> {
    Some(match name {
        "f" => [false; 4],
        "t" | "tru" => [true; 4],
        "lt" => [true, false, false, false],
        "eq" => [false, true, false, false],
        "le" => [true, true, false, false],
        "gt" => [false, false, true, false],
        "ge" => [false, true, true, false],
        "lg" => [true, false, true, false],
        "ne" if integer => [true, false, true, false],
        "o" => [true, true, true, false],
        "u" => [false, false, false, true],
        "nge" => [true, false, false, true],
        "nlg" => [false, true, false, true],
        "ngt" => [true, true, false, true],
        "nle" => [false, false, true, true],
        "neq" => [true, false, true, true],
        "nlt" => [false, true, true, true],
        _ => return None,
    })
}

/// The class of a float, as the bits of a class mask number them.
fn class(negative: bool, nan: Option<bool>, infinite: bool, zero: bool, denormal: bool) -> u32 {
    match nan {
        Some(signalling) => u32::from(!signalling),
        None => match (infinite, denormal, zero, negative) {
            (true, _, _, true) => 2,
            (_, true, _, true) => 4,
            (_, _, true, true) => 5,
            (true, ..) => 9,
            (_, true, ..) => 7,
            (_, _, true, _) => 6,
            (_, _, _, true) => 3,
            _ => 8,
        },
    }
}

fn class_of(ty: Ty, bits: u64) -> u32 {
    if ty == Ty::F64 {
        let magnitude = bits & !(1 << 63);
        let nan = double::is_nan(bits).then(|| double::is_signalling(bits));
        let denormal = magnitude != 0 && magnitude < 1 << 52;
        return class(bits >> 63 == 1, nan, magnitude == double::INFINITY, magnitude == 0, denormal);
    }
    let format = if ty == Ty::F16 { F16 } else { F32 };
    let bits = bits as u32 & (format.sign() | (format.sign() - 1));
    let magnitude = bits & (format.sign() - 1);
    let nan = format.is_nan(bits).then(|| format.is_signalling(bits));
    class(bits & format.sign() != 0, nan, magnitude == format.infinity(), magnitude == 0, format.is_denormal(bits))
}

/// Lanes in which the comparison holds; none where the instruction is no comparison.
pub(super) fn mask(wave: &Wave, inst: &Inst, sources: &Sources) -> Option<u32> {
    let rest = inst.name.strip_prefix("v_cmpx_").or_else(|| inst.name.strip_prefix("v_cmp_"))?;
    let (what, kind) = rest.split_once('_')?;
    let mode = wave.registers.mode;
    let [a, b, _] = &sources.values;
    let of = |holds: &dyn Fn(u64, u64) -> bool| {
        each_lane(sources.lanes).fold(0, |mask, lane| mask | u32::from(holds(a[lane], b[lane])) << lane)
    };
    if what == "class" {
        let ty = inst.src_ty[0];
        return Some(of(&|value, classes| classes >> class_of(ty, value) & 1 == 1));
    }
    let wanted = wanted(what, !kind.starts_with('f'))?;
    let holds = |relation: Relation| wanted[relation as usize];
    Some(match kind {
        "f32" => of(&|x, y| holds(relation(F32, mode.single, x as u32, y as u32))),
        "f16" => of(&|x, y| holds(relation(F16, mode.other, x as u32 & 0xffff, y as u32 & 0xffff))),
        "f64" => of(&|x, y| {
            let [x, y] = [x, y].map(|bits| f64::from_bits(double::flush(bits, mode.other.flush_in)));
            holds(relate(x, y))
        }),
        "i16" => of(&|x, y| holds(relate(x as i16, y as i16))),
        "u16" => of(&|x, y| holds(relate(x as u16, y as u16))),
        "i32" => of(&|x, y| holds(relate(x as i32, y as i32))),
        "u32" => of(&|x, y| holds(relate(x as u32, y as u32))),
        "i64" => of(&|x, y| holds(relate(x as i64, y as i64))),
        "u64" => of(&|x, y| holds(relate(x, y))),
        _ => return None,
    })
}
