//! Integer and bit instructions of a lane ("Vector ALU Operations" of the ISA documents).

use super::valu::Env;
use crate::isa::Op;

/// Sign-extends the lowest `bits`.
fn extend(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

fn byte(value: u32, index: u32) -> u32 {
    value >> (8 * index) & 255
}

/// Sum of absolute differences of bytes.
fn sad(a: u32, b: u32) -> u32 {
    (0..4).map(|index| byte(a, index).abs_diff(byte(b, index))).sum()
}

/// A byte of eight, or what the selector stands for beyond them.
fn permuted(data: u64, selector: u32) -> u32 {
    let at = |index: u32| (data >> (8 * index)) as u32 & 255;
    match selector {
        0..=7 => at(selector),
        8..=11 => at(2 * (selector - 8) + 1) >> 7 & 1,
        12 => 0,
        _ => 1,
    }
    .wrapping_mul(if selector >= 8 { 255 } else { 1 })
}

fn med3<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.max(b).min(a.min(b).max(c))
}

/// Dot product of `count` fields of `bits` each.
fn dot(a: u32, b: u32, count: u32, bits: u32, signed: [bool; 2]) -> i64 {
    let field = |value: u32, index: u32, signed: bool| {
        let value = u64::from(value >> (bits * index)) & ((1 << bits) - 1);
        if signed { extend(value, bits) } else { value as i64 }
    };
    (0..count).map(|index| field(a, index, signed[0]) * field(b, index, signed[1])).sum()
}

/// A dot product added to the accumulator, saturated on request.
pub(super) fn dot_add(a: u32, b: u32, c: u32, count: u32, signed: [bool; 2], clamp: bool) -> u32 {
    let bits = 32 / count;
    let sum = dot(a, b, count, bits, signed);
    if signed == [false, false] {
        let sum = sum + i64::from(c);
        return if clamp { sum.clamp(0, u32::MAX.into()) as u32 } else { sum as u32 };
    }
    let sum = sum + i64::from(c as i32);
    if clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32 } else { sum as u32 }
}

/// An integer instruction of a lane.
pub(super) fn lane(op: Op, [a, b, c]: [u64; 3], env: &Env) -> Option<u64> {
    use Op::*;
    let (x, y, z) = (a as u32, b as u32, c as u32);
    let (i, j, k) = (x as i32, y as i32, z as i32);
    let (h, l, m) = (x as u16, y as u16, z as u16);
    let (p, q, r) = (h as i16, l as i16, m as i16);
    let clamp = env.clamp;
    let signed = |value: i32| u64::from(value as u32);
    let short = |value: i16| u64::from(value as u16);
    Some(match op {
        VMovB32 => x.into(),
        VMovB16 => h.into(),
        VNotB32 => (!x).into(),
        VNotB16 => (!h).into(),
        VBfrevB32 => x.reverse_bits().into(),
        VClzI32U32 => if x == 0 { u32::MAX } else { x.leading_zeros() }.into(),
        VCtzI32B32 => if x == 0 { u32::MAX } else { x.trailing_zeros() }.into(),
        VClsI32 => {
            let differing = if i < 0 { !x } else { x };
            if differing == 0 { u32::MAX } else { differing.leading_zeros() }.into()
        }
        VAndB32 => (x & y).into(),
        VOrB32 => (x | y).into(),
        VXorB32 => (x ^ y).into(),
        VXnorB32 => (!(x ^ y)).into(),
        VAndB16 => (h & l).into(),
        VOrB16 => (h | l).into(),
        VXorB16 => (h ^ l).into(),
        VXor3B32 => (x ^ y ^ z).into(),
        VOr3B32 => (x | y | z).into(),
        VAndOrB32 => (x & y | z).into(),
        VBfiB32 => (x & y | !x & z).into(),
        VLshlOrB32 => (x << (y & 31) | z).into(),
        VLshlAddU32 => (x << (y & 31)).wrapping_add(z).into(),
        VAddLshlU32 => (x.wrapping_add(y) << (z & 31)).into(),
        VXadU32 => (x ^ y).wrapping_add(z).into(),
        VAdd3U32 => x.wrapping_add(y).wrapping_add(z).into(),
        VLshlrevB32 => (y << (x & 31)).into(),
        VLshrrevB32 => (y >> (x & 31)).into(),
        VAshrrevI32 => signed(j >> (x & 31)),
        VLshlrevB16 => (l << (x & 15)).into(),
        VLshrrevB16 => (l >> (x & 15)).into(),
        VAshrrevI16 => short(q >> (x & 15)),
        VLshlrevB64 => b << (x & 63),
        VLshrrevB64 => b >> (x & 63),
        VAshrrevI64 => ((b as i64) >> (x & 63)) as u64,
        VAddNcU32 => if clamp { x.saturating_add(y) } else { x.wrapping_add(y) }.into(),
        VSubNcU32 => if clamp { x.saturating_sub(y) } else { x.wrapping_sub(y) }.into(),
        VSubrevNcU32 => if clamp { y.saturating_sub(x) } else { y.wrapping_sub(x) }.into(),
        VAddNcI32 => signed(if clamp { i.saturating_add(j) } else { i.wrapping_add(j) }),
        VSubNcI32 => signed(if clamp { i.saturating_sub(j) } else { i.wrapping_sub(j) }),
        VAddNcU16 => if clamp { h.saturating_add(l) } else { h.wrapping_add(l) }.into(),
        VSubNcU16 => if clamp { h.saturating_sub(l) } else { h.wrapping_sub(l) }.into(),
        VAddNcI16 => short(if clamp { p.saturating_add(q) } else { p.wrapping_add(q) }),
        VSubNcI16 => short(if clamp { p.saturating_sub(q) } else { p.wrapping_sub(q) }),
        VMulLoU32 => x.wrapping_mul(y).into(),
        VMulHiU32 => (u64::from(x) * u64::from(y)) >> 32,
        VMulHiI32 => signed(((i64::from(i) * i64::from(j)) >> 32) as i32),
        VMulLoU16 => h.wrapping_mul(l).into(),
        VMulU32U24 => ((a & 0xff_ffff) * (b & 0xff_ffff)) & 0xffff_ffff,
        VMulHiU32U24 => ((a & 0xff_ffff) * (b & 0xff_ffff)) >> 32,
        VMulI32I24 => signed((extend(a, 24) * extend(b, 24)) as i32),
        VMulHiI32I24 => signed(((extend(a, 24) * extend(b, 24)) >> 32) as i32),
        VMadU32U24 => {
            let sum = (a & 0xff_ffff) * (b & 0xff_ffff) + u64::from(z);
            if clamp { sum.min(0xffff_ffff) } else { sum & 0xffff_ffff }
        }
        VMadI32I24 => {
            let sum = extend(a, 24) * extend(b, 24) + i64::from(k);
            signed(if clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 })
        }
        VMadU16 => {
            let sum = u32::from(h) * u32::from(l) + u32::from(m);
            u64::from(if clamp { sum.min(0xffff) } else { sum & 0xffff })
        }
        VMadI16 => {
            let sum = i32::from(p).wrapping_mul(i32::from(q)).wrapping_add(r.into());
            short(if clamp { sum.clamp(-32768, 32767) as i16 } else { sum as i16 })
        }
        VMadU32U16 => {
            let sum = u64::from(h) * u64::from(l) + u64::from(z);
            if clamp { sum.min(0xffff_ffff) } else { sum & 0xffff_ffff }
        }
        VMadI32I16 => {
            let sum = i64::from(p) * i64::from(q) + i64::from(k);
            signed(if clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 })
        }
        VMinI32 => signed(i.min(j)),
        VMaxI32 => signed(i.max(j)),
        VMinU32 => x.min(y).into(),
        VMaxU32 => x.max(y).into(),
        VMinI16 => short(p.min(q)),
        VMaxI16 => short(p.max(q)),
        VMinU16 => h.min(l).into(),
        VMaxU16 => h.max(l).into(),
        VMin3I32 => signed(i.min(j).min(k)),
        VMax3I32 => signed(i.max(j).max(k)),
        VMin3U32 => x.min(y).min(z).into(),
        VMax3U32 => x.max(y).max(z).into(),
        VMed3I32 => signed(med3(i, j, k)),
        VMed3U32 => med3(x, y, z).into(),
        VMin3I16 => short(p.min(q).min(r)),
        VMax3I16 => short(p.max(q).max(r)),
        VMin3U16 => h.min(l).min(m).into(),
        VMax3U16 => h.max(l).max(m).into(),
        VMed3I16 => short(med3(p, q, r)),
        VMed3U16 => med3(h, l, m).into(),
        VMaxminI32 => signed(i.max(j).min(k)),
        VMinmaxI32 => signed(i.min(j).max(k)),
        VMaxminU32 => x.max(y).min(z).into(),
        VMinmaxU32 => x.min(y).max(z).into(),
        VBfmB32 => (((1u64 << (x & 31)) - 1) << (y & 31)) & 0xffff_ffff,
        VBfeU32 => {
            let width = z & 31;
            u64::from(x >> (y & 31)) & ((1 << width) - 1)
        }
        VBfeI32 => match z & 31 {
            0 => 0,
            width => extend(signed(i >> (y & 31)), width) as u64 & 0xffff_ffff,
        },
        VAlignbitB32 => ((a & 0xffff_ffff) << 32 | u64::from(y)) >> (z & 31) & 0xffff_ffff,
        VAlignbyteB32 => ((a & 0xffff_ffff) << 32 | u64::from(y)) >> (8 * (z & 3)) & 0xffff_ffff,
        VPermB32 => {
            let data = (a & 0xffff_ffff) << 32 | u64::from(y);
            (0..4).map(|index| permuted(data, byte(z, index)) << (8 * index)).sum::<u32>().into()
        }
        VPackB32F16 => (x & 0xffff | y << 16).into(),
        VBcntU32B32 => x.count_ones().wrapping_add(y).into(),
        VMbcntLoU32B32 => {
            let below = ((1u64 << env.lane) - 1) as u32;
            (x & below).count_ones().wrapping_add(y).into()
        }
        // Waves have 32 lanes: nobody is above.
        VMbcntHiU32B32 => y.into(),
        VSadU8 => sad(x, y).wrapping_add(z).into(),
        VSadHiU8 => (sad(x, y) << 16).wrapping_add(z).into(),
        VSadU16 => (x & 0xffff).abs_diff(y & 0xffff).wrapping_add((x >> 16).abs_diff(y >> 16)).wrapping_add(z).into(),
        VSadU32 => x.abs_diff(y).wrapping_add(z).into(),
        VLerpU8 => (0..4)
            .map(|index| ((byte(x, index) + byte(y, index) + (byte(z, index) & 1)) / 2) << (8 * index))
            .sum::<u32>()
            .into(),
        VDot4cI32I8 => dot_add(x, y, z, 4, [true, true], clamp).into(),
        _ => return None,
    })
}
