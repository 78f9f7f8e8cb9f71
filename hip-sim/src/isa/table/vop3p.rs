//! Packed, mixed-precision and dot-product instructions (VOP3P).

use super::{NO, Row, Ty::*, row};
use crate::isa::Op::*;

/// Opcodes for RDNA2, RDNA3, RDNA3.5, RDNA4.
pub(super) const VOP3P: &[Row] = &[
    row(VPkMadI16, "v_pk_mad_i16", [0x00, 0x00, 0x00, 0x00], &[P16], &[P16, P16, P16]),
    row(VPkMulLoU16, "v_pk_mul_lo_u16", [0x01, 0x01, 0x01, 0x01], &[P16], &[P16, P16]),
    row(VPkAddI16, "v_pk_add_i16", [0x02, 0x02, 0x02, 0x02], &[P16], &[P16, P16]),
    row(VPkSubI16, "v_pk_sub_i16", [0x03, 0x03, 0x03, 0x03], &[P16], &[P16, P16]),
    row(VPkLshlrevB16, "v_pk_lshlrev_b16", [0x04, 0x04, 0x04, 0x04], &[P16], &[P16, P16]),
    row(VPkLshrrevB16, "v_pk_lshrrev_b16", [0x05, 0x05, 0x05, 0x05], &[P16], &[P16, P16]),
    row(VPkAshrrevI16, "v_pk_ashrrev_i16", [0x06, 0x06, 0x06, 0x06], &[P16], &[P16, P16]),
    row(VPkMaxI16, "v_pk_max_i16", [0x07, 0x07, 0x07, 0x07], &[P16], &[P16, P16]),
    row(VPkMinI16, "v_pk_min_i16", [0x08, 0x08, 0x08, 0x08], &[P16], &[P16, P16]),
    row(VPkMadU16, "v_pk_mad_u16", [0x09, 0x09, 0x09, 0x09], &[P16], &[P16, P16, P16]),
    row(VPkAddU16, "v_pk_add_u16", [0x0a, 0x0a, 0x0a, 0x0a], &[P16], &[P16, P16]),
    row(VPkSubU16, "v_pk_sub_u16", [0x0b, 0x0b, 0x0b, 0x0b], &[P16], &[P16, P16]),
    row(VPkMaxU16, "v_pk_max_u16", [0x0c, 0x0c, 0x0c, 0x0c], &[P16], &[P16, P16]),
    row(VPkMinU16, "v_pk_min_u16", [0x0d, 0x0d, 0x0d, 0x0d], &[P16], &[P16, P16]),
    row(VPkFmaF16, "v_pk_fma_f16", [0x0e, 0x0e, 0x0e, 0x0e], &[Pf16], &[Pf16, Pf16, Pf16]),
    row(VPkAddF16, "v_pk_add_f16", [0x0f, 0x0f, 0x0f, 0x0f], &[Pf16], &[Pf16, Pf16]),
    row(VPkMulF16, "v_pk_mul_f16", [0x10, 0x10, 0x10, 0x10], &[Pf16], &[Pf16, Pf16]),
    row(VPkMinF16, "v_pk_min_f16", [0x11, 0x11, 0x11, NO], &[Pf16], &[Pf16, Pf16]),
    row(VPkMaxF16, "v_pk_max_f16", [0x12, 0x12, 0x12, NO], &[Pf16], &[Pf16, Pf16]),
    row(VDot2F32F16, "v_dot2_f32_f16", [0x13, 0x13, 0x13, 0x13], &[F32], &[Pf16, Pf16, F32]),
    row(VDot2I32I16, "v_dot2_i32_i16", [0x14, NO, NO, NO], &[B32], &[P16, P16, B32]),
    row(VDot2U32U16, "v_dot2_u32_u16", [0x15, NO, NO, NO], &[B32], &[P16, P16, B32]),
    row(VDot4I32I8, "v_dot4_i32_i8", [0x16, NO, NO, NO], &[B32], &[B32, B32, B32]),
    row(VDot4I32Iu8, "v_dot4_i32_iu8", [NO, 0x16, 0x16, 0x16], &[B32], &[B32, B32, B32]),
    row(VDot4U32U8, "v_dot4_u32_u8", [0x17, 0x17, 0x17, 0x17], &[B32], &[B32, B32, B32]),
    row(VDot8I32I4, "v_dot8_i32_i4", [0x18, NO, NO, NO], &[B32], &[B32, B32, B32]),
    row(VDot8I32Iu4, "v_dot8_i32_iu4", [NO, 0x18, 0x18, 0x18], &[B32], &[B32, B32, B32]),
    row(VDot8U32U4, "v_dot8_u32_u4", [0x19, 0x19, 0x19, 0x19], &[B32], &[B32, B32, B32]),
    row(VDot2F32Bf16, "v_dot2_f32_bf16", [NO, 0x1a, 0x1a, 0x1a], &[F32], &[Pbf16, Pbf16, F32]),
    row(VPkMinF16, "v_pk_min_num_f16", [NO, NO, NO, 0x1b], &[Pf16], &[Pf16, Pf16]),
    row(VPkMaxF16, "v_pk_max_num_f16", [NO, NO, NO, 0x1c], &[Pf16], &[Pf16, Pf16]),
    row(VPkMinimumF16, "v_pk_minimum_f16", [NO, NO, NO, 0x1d], &[Pf16], &[Pf16, Pf16]),
    row(VPkMaximumF16, "v_pk_maximum_f16", [NO, NO, NO, 0x1e], &[Pf16], &[Pf16, Pf16]),
    row(VFmaMixF32, "v_fma_mix_f32", [0x20, 0x20, 0x20, 0x20], &[F32], &[B32, B32, B32]),
    row(VFmaMixloF16, "v_fma_mixlo_f16", [0x21, 0x21, 0x21, 0x21], &[F16], &[B32, B32, B32]),
    row(VFmaMixhiF16, "v_fma_mixhi_f16", [0x22, 0x22, 0x22, 0x22], &[F16], &[B32, B32, B32]),
];
