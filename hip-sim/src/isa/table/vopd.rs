//! Halves of dual-issue instructions (VOPD); the first half reaches the opcodes up to 15 only.

use super::{NO, Row, Ty::*, row};
use crate::isa::Op::*;

/// Opcodes for RDNA2, RDNA3, RDNA3.5, RDNA4.
pub(super) const VOPD: &[Row] = &[
    row(VFmacF32, "v_dual_fmac_f32", [NO, 0x00, 0x00, 0x00], &[F32], &[F32, F32]),
    row(VFmaakF32, "v_dual_fmaak_f32", [NO, 0x01, 0x01, 0x01], &[F32], &[F32, F32]),
    row(VFmamkF32, "v_dual_fmamk_f32", [NO, 0x02, 0x02, 0x02], &[F32], &[F32, F32]),
    row(VMulF32, "v_dual_mul_f32", [NO, 0x03, 0x03, 0x03], &[F32], &[F32, F32]),
    row(VAddF32, "v_dual_add_f32", [NO, 0x04, 0x04, 0x04], &[F32], &[F32, F32]),
    row(VSubF32, "v_dual_sub_f32", [NO, 0x05, 0x05, 0x05], &[F32], &[F32, F32]),
    row(VSubrevF32, "v_dual_subrev_f32", [NO, 0x06, 0x06, 0x06], &[F32], &[F32, F32]),
    row(VMulDx9ZeroF32, "v_dual_mul_dx9_zero_f32", [NO, 0x07, 0x07, 0x07], &[F32], &[F32, F32]),
    row(VMovB32, "v_dual_mov_b32", [NO, 0x08, 0x08, 0x08], &[B32], &[B32]),
    row(VCndmaskB32, "v_dual_cndmask_b32", [NO, 0x09, 0x09, 0x09], &[B32], &[B32, B32]),
    row(VMaxF32, "v_dual_max_f32", [NO, 0x0a, 0x0a, NO], &[F32], &[F32, F32]),
    row(VMaxF32, "v_dual_max_num_f32", [NO, NO, NO, 0x0a], &[F32], &[F32, F32]),
    row(VMinF32, "v_dual_min_f32", [NO, 0x0b, 0x0b, NO], &[F32], &[F32, F32]),
    row(VMinF32, "v_dual_min_num_f32", [NO, NO, NO, 0x0b], &[F32], &[F32, F32]),
    row(VDot2cF32F16, "v_dual_dot2acc_f32_f16", [NO, 0x0c, 0x0c, 0x0c], &[F32], &[Pf16, Pf16]),
    row(VAddNcU32, "v_dual_add_nc_u32", [NO, 0x10, 0x10, 0x10], &[B32], &[B32, B32]),
    row(VLshlrevB32, "v_dual_lshlrev_b32", [NO, 0x11, 0x11, 0x11], &[B32], &[B32, B32]),
    row(VAndB32, "v_dual_and_b32", [NO, 0x12, 0x12, 0x12], &[B32], &[B32, B32]),
];
