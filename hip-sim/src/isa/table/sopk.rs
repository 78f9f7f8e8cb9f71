//! Scalar instructions with a 16-bit constant (SOPK).

use super::{NO, Row, Ty::*, row};
use crate::isa::Op::*;

/// Opcodes for RDNA2, RDNA3, RDNA3.5, RDNA4.
pub(super) const SOPK: &[Row] = &[
    row(SMovkI32, "s_movk_i32", [0x00, 0x00, 0x00, 0x00], &[B32], &[]),
    row(SCmovkI32, "s_cmovk_i32", [0x02, 0x02, 0x02, 0x02], &[B32], &[]),
    row(SCmpkEqI32, "s_cmpk_eq_i32", [0x03, 0x03, 0x03, NO], &[], &[B32]),
    row(SCmpkLgI32, "s_cmpk_lg_i32", [0x04, 0x04, 0x04, NO], &[], &[B32]),
    row(SCmpkGtI32, "s_cmpk_gt_i32", [0x05, 0x05, 0x05, NO], &[], &[B32]),
    row(SCmpkGeI32, "s_cmpk_ge_i32", [0x06, 0x06, 0x06, NO], &[], &[B32]),
    row(SCmpkLtI32, "s_cmpk_lt_i32", [0x07, 0x07, 0x07, NO], &[], &[B32]),
    row(SCmpkLeI32, "s_cmpk_le_i32", [0x08, 0x08, 0x08, NO], &[], &[B32]),
    row(SCmpkEqU32, "s_cmpk_eq_u32", [0x09, 0x09, 0x09, NO], &[], &[B32]),
    row(SCmpkLgU32, "s_cmpk_lg_u32", [0x0a, 0x0a, 0x0a, NO], &[], &[B32]),
    row(SCmpkGtU32, "s_cmpk_gt_u32", [0x0b, 0x0b, 0x0b, NO], &[], &[B32]),
    row(SCmpkGeU32, "s_cmpk_ge_u32", [0x0c, 0x0c, 0x0c, NO], &[], &[B32]),
    row(SCmpkLtU32, "s_cmpk_lt_u32", [0x0d, 0x0d, 0x0d, NO], &[], &[B32]),
    row(SCmpkLeU32, "s_cmpk_le_u32", [0x0e, 0x0e, 0x0e, NO], &[], &[B32]),
    row(SAddkI32, "s_addk_co_i32", [NO, NO, NO, 0x0f], &[B32], &[]),
    row(SAddkI32, "s_addk_i32", [0x0f, 0x0f, 0x0f, NO], &[B32], &[]),
    row(SMulkI32, "s_mulk_i32", [0x10, 0x10, 0x10, 0x10], &[B32], &[]),
    row(SGetregB32, "s_getreg_b32", [0x12, 0x11, 0x11, 0x11], &[B32], &[]),
    row(SSetregB32, "s_setreg_b32", [0x13, 0x12, 0x12, 0x12], &[], &[B32]),
    row(SSetregImm32B32, "s_setreg_imm32_b32", [0x15, 0x13, 0x13, 0x13], &[], &[]),
    row(SCallB64, "s_call_b64", [0x16, 0x14, 0x14, 0x14], &[B64], &[]),
    row(SWaitcntVscnt, "s_waitcnt_vscnt", [0x17, 0x18, 0x18, NO], &[], &[B32]),
    row(SWaitcntVmcnt, "s_waitcnt_vmcnt", [0x18, 0x19, 0x19, NO], &[], &[B32]),
    row(SWaitcntExpcnt, "s_waitcnt_expcnt", [0x19, 0x1a, 0x1a, NO], &[], &[B32]),
    row(SWaitcntLgkmcnt, "s_waitcnt_lgkmcnt", [0x1a, 0x1b, 0x1b, NO], &[], &[B32]),
];
