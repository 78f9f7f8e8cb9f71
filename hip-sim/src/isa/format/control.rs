//! Waits, branches, messages and hardware registers as text: SOPP and SOPK.

use super::{Dialect, Text, line};
use crate::isa::{Generation, Op, Ty};

/// Hardware registers by number, with the generations that have them under this name.
const HARDWARE: &[(u32, &str, [bool; 4])] = &[
    (1, "HW_REG_MODE", [true; 4]),
    (2, "HW_REG_STATUS", [true; 4]),
    (3, "HW_REG_TRAPSTS", [true, true, true, false]),
    (4, "HW_REG_STATE_PRIV", [false, false, false, true]),
    (5, "HW_REG_GPR_ALLOC", [true; 4]),
    (6, "HW_REG_LDS_ALLOC", [true; 4]),
    (7, "HW_REG_IB_STS", [true; 4]),
    (10, "HW_REG_PERF_SNAPSHOT_DATA", [false, false, false, true]),
    (11, "HW_REG_PERF_SNAPSHOT_PC_LO", [false, false, false, true]),
    (12, "HW_REG_PERF_SNAPSHOT_PC_HI", [false, false, false, true]),
    (15, "HW_REG_SH_MEM_BASES", [true, true, true, false]),
    (15, "HW_REG_PERF_SNAPSHOT_DATA1", [false, false, false, true]),
    (16, "HW_REG_PERF_SNAPSHOT_DATA2", [false, false, false, true]),
    (16, "HW_REG_TBA_LO", [true, false, false, false]),
    (17, "HW_REG_TBA_HI", [true, false, false, false]),
    (17, "HW_REG_EXCP_FLAG_PRIV", [false, false, false, true]),
    (18, "HW_REG_TMA_LO", [true, false, false, false]),
    (19, "HW_REG_TMA_HI", [true, false, false, false]),
    (18, "HW_REG_PERF_SNAPSHOT_PC_LO", [false, true, true, false]),
    (19, "HW_REG_PERF_SNAPSHOT_PC_HI", [false, true, true, false]),
    (18, "HW_REG_EXCP_FLAG_USER", [false, false, false, true]),
    (19, "HW_REG_TRAP_CTRL", [false, false, false, true]),
    (20, "HW_REG_FLAT_SCR_LO", [true, true, true, false]),
    (21, "HW_REG_FLAT_SCR_HI", [true, true, true, false]),
    (20, "HW_REG_SCRATCH_BASE_LO", [false, false, false, true]),
    (21, "HW_REG_SCRATCH_BASE_HI", [false, false, false, true]),
    (23, "HW_REG_HW_ID1", [true; 4]),
    (24, "HW_REG_HW_ID2", [true; 4]),
    (25, "HW_REG_POPS_PACKER", [true, false, false, false]),
    (27, "HW_REG_PERF_SNAPSHOT_DATA", [false, true, true, false]),
    (29, "HW_REG_SHADER_CYCLES", [true, true, true, false]),
    (29, "HW_REG_SHADER_CYCLES_LO", [false, false, false, true]),
    (30, "HW_REG_SHADER_CYCLES_HI", [false, false, false, true]),
];

/// Messages by number.
const MESSAGES: &[(u32, &str, [bool; 4])] = &[
    (1, "MSG_INTERRUPT", [true; 4]),
    (2, "MSG_GS", [true, false, false, false]),
    (2, "MSG_HS_TESSFACTOR", [false, true, true, true]),
    (3, "MSG_GS_DONE", [true, false, false, false]),
    (3, "MSG_DEALLOC_VGPRS", [false, true, true, true]),
    (128, "MSG_RTN_GET_DOORBELL", [false, true, true, true]),
    (129, "MSG_RTN_GET_DDID", [false, true, true, true]),
    (130, "MSG_RTN_GET_TMA", [false, true, true, true]),
    (131, "MSG_RTN_GET_REALTIME", [false, true, true, true]),
    (132, "MSG_RTN_SAVE_WAVE", [false, true, true, true]),
    (133, "MSG_RTN_GET_TBA", [false, true, true, true]),
];

fn name(table: &[(u32, &'static str, [bool; 4])], generation: Generation, number: u32) -> Option<&'static str> {
    table.iter().find(|row| row.0 == number && row.2[generation as usize]).map(|row| row.1)
}

/// A counter within the constant of a wait: name, lowest bit, width.
type Field = (&'static str, u32, u32);

/// Counters that are waited for; one that is at its largest value is not waited for, and is left out unless all are.
fn counters(fields: &[(&str, u32, u32)], always: bool) -> String {
    let everything = fields.iter().all(|&(_, value, most)| value == most);
    let shown: Vec<String> = fields
        .iter()
        .filter(|&&(_, value, most)| always && everything || value != most)
        .map(|(name, value, _)| format!("{name}({value})"))
        .collect();
    shown.join(" ")
}

impl Text<'_> {
    fn field(&self, low: u32, count: u32) -> u32 {
        self.inst.imm >> low & ((1 << count) - 1)
    }

    fn hardware_register(&self) -> String {
        let (number, offset, size) = (self.field(0, 6), self.field(6, 5), self.field(11, 5) + 1);
        let name = name(HARDWARE, self.inst.generation, number).map_or_else(|| number.to_string(), str::to_owned);
        // LLVM 22 tells the registers of a wave of RDNA4 apart from the others.
        let of_wave =
            self.is_rdna4() && self.dialect == Dialect::Llvm22 && !matches!(number, 7 | 10..=12 | 15 | 16 | 29 | 30);
        let name = if of_wave { name.replace("HW_REG_", "HW_REG_WAVE_") } else { name };
        if offset == 0 && size == 32 { format!("hwreg({name})") } else { format!("hwreg({name}, {offset}, {size})") }
    }

    pub(super) fn message(&self, value: u32) -> String {
        match name(MESSAGES, self.inst.generation, value) {
            Some(name) => format!("sendmsg({name})"),
            None => format!("sendmsg({value}, 0, 0)"),
        }
    }

    pub(super) fn sopk(&self) -> String {
        let inst = self.inst;
        let constant = format!("0x{:x}", inst.imm);
        let operands = match inst.op {
            Op::SGetregB32 => vec![self.operand(inst.dst, Ty::B32), self.hardware_register()],
            Op::SSetregB32 | Op::SSetregImm32B32 => vec![self.hardware_register(), self.operand(inst.src[0], Ty::B32)],
            Op::SCallB64 => vec![self.operand(inst.dst, Ty::B64), inst.imm.to_string()],
            _ if inst.dst.is_some() => vec![self.operand(inst.dst, Ty::B32), constant],
            _ => vec![self.operand(inst.src[0], Ty::B32), constant],
        };
        line(inst.name, &operands)
    }

    fn waitcnt(&self) -> String {
        let (vm, exp, lgkm) = match self.inst.generation {
            Generation::Rdna2 => (self.field(0, 4) | self.field(14, 2) << 4, self.field(4, 3), self.field(8, 6)),
            _ => (self.field(10, 6), self.field(0, 3), self.field(4, 6)),
        };
        counters(&[("vmcnt", vm, 63), ("expcnt", exp, 7), ("lgkmcnt", lgkm, 63)], true)
    }

    fn dependency_counters(&self) -> String {
        const FIELDS: [Field; 7] = [
            ("depctr_hold_cnt", 7, 1),
            ("depctr_sa_sdst", 0, 1),
            ("depctr_va_vdst", 12, 4),
            ("depctr_va_sdst", 9, 3),
            ("depctr_va_ssrc", 8, 1),
            ("depctr_va_vcc", 1, 1),
            ("depctr_vm_vsrc", 2, 3),
        ];
        let fields = FIELDS.map(|(name, low, count)| (name, self.field(low, count), (1 << count) - 1));
        counters(&fields, true)
    }

    fn delay(&self) -> String {
        const WHAT: [&str; 12] = [
            "NO_DEP",
            "VALU_DEP_1",
            "VALU_DEP_2",
            "VALU_DEP_3",
            "VALU_DEP_4",
            "TRANS32_DEP_1",
            "TRANS32_DEP_2",
            "TRANS32_DEP_3",
            "FMA_ACCUM_CYCLE_1",
            "SALU_CYCLE_1",
            "SALU_CYCLE_2",
            "SALU_CYCLE_3",
        ];
        const SKIP: [&str; 6] = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];
        let look = |table: &[&'static str], value: u32| table.get(value as usize).copied().unwrap_or("?");
        let mut parts = Vec::new();
        if self.field(0, 4) != 0 {
            parts.push(format!("instid0({})", look(&WHAT, self.field(0, 4))));
        }
        if self.field(4, 3) != 0 {
            parts.push(format!("instskip({})", look(&SKIP, self.field(4, 3))));
        }
        if self.field(7, 4) != 0 {
            parts.push(format!("instid1({})", look(&WHAT, self.field(7, 4))));
        }
        if parts.is_empty() { "0".to_owned() } else { parts.join(" | ") }
    }

    pub(super) fn sopp(&self) -> String {
        use Op::*;
        let inst = self.inst;
        let argument = match inst.op {
            SEndpgm if inst.imm == 0 => return inst.name.to_owned(),
            SCodeEnd | SBarrier | SWakeup | SWaitIdle | SBarrierLeave => return inst.name.to_owned(),
            SNop | SSethalt | SSleep | SSetprio | STrap | SDenormMode | SEndpgm => inst.imm.to_string(),
            SBarrierWait if inst.imm <= 64 => inst.imm.to_string(),
            SBranch | SCbranchScc0 | SCbranchScc1 | SCbranchVccz | SCbranchVccnz | SCbranchExecz | SCbranchExecnz => {
                inst.imm.to_string()
            }
            SWaitcnt => self.waitcnt(),
            // LLVM 19 has names for the counters of RDNA2 only.
            SWaitAlu if self.dialect == Dialect::Llvm19 && inst.generation != Generation::Rdna2 && !self.is_rdna4() => {
                format!("0x{:x}", inst.imm)
            }
            SWaitAlu => self.dependency_counters(),
            SDelayAlu => self.delay(),
            SSendmsg => self.message(inst.imm),
            _ => format!("0x{:x}", inst.imm),
        };
        format!("{} {argument}", inst.name)
    }
}
