//! A wave: what it begins with, and the loop that runs it.

use super::fault::Stop;
use super::registers::{EXEC, Registers, VCC};
use super::{Fault, FaultKind, LaneAccess, Memory, Probe, Program, Step};
use crate::isa::{Arch, Dialect, Encoding, Inst, Op};

/// What a wave begins with; the dispatcher fills it from the kernel descriptor and the dispatch packet.
#[derive(Clone, Debug)]
pub struct WaveSetup {
    /// The architecture that is simulated.
    pub arch: Arch,
    /// Address of the first instruction.
    pub pc: u64,
    /// User and system SGPRs, from s0 on.
    pub sgprs: Vec<u32>,
    /// Work-item ids and the like, from v0 on.
    pub vgprs: Vec<[u32; 32]>,
    /// VGPRs that the kernel has, at least those of `vgprs`.
    pub vgpr_count: usize,
    /// Lanes that exist: all ones but for a partial wave.
    pub exec: u32,
    /// Trap temporaries that the hardware fills, from ttmp0 on; RDNA4 keeps work-group ids in ttmp7 and ttmp9.
    pub ttmps: [u32; 16],
    /// FP_ROUND and FP_DENORM of the kernel descriptor's COMPUTE_PGM_RSRC1: bits 0-1 round f32, 2-3 round f16 and f64,
    /// 4-5 denormals of f32, 6-7 of f16 and f64.
    pub float_mode: u8,
    /// ENABLE_IEEE_MODE of the descriptor (up to RDNA3.5).
    pub ieee: bool,
    /// ENABLE_DX10_CLAMP of the descriptor (up to RDNA3.5): clamping turns NaN to 0.
    pub dx10_clamp: bool,
    /// Bits 63-32 of the flat addresses of LDS, read as `src_shared_base`.
    pub shared_base: u32,
    /// Bits 63-32 of the flat addresses of scratch, read as `src_private_base`.
    pub private_base: u32,
    /// Units in the last place by which approximated functions (rcp, exp, ...) are off, in a direction that depends on
    /// the operand alone; 0 rounds correctly.
    pub hardware_error_ulp: u32,
}

/// Why a wave paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It waits at a work-group barrier; running it again continues behind it.
    Barrier,
    /// It ended.
    End,
    /// It has executed as many instructions as [`Wave::run`] was allowed to; running it again continues.
    Budget,
}

/// Where an instruction leads.
pub(super) enum Flow {
    Next,
    Jump(u64),
    Pause(Event),
}

/// One wave of 32 lanes.
#[derive(Clone, Debug)]
pub struct Wave {
    pub(super) registers: Registers,
    pub(super) pc: u64,
    /// What the current instruction did in memory, where a probe wants to know.
    pub(super) accesses: Vec<LaneAccess>,
    pub(super) observed: bool,
    /// What reads of the clock have counted; they differ, and depend on nothing else.
    pub(super) clock: u64,
}

impl Wave {
    /// A wave before its first instruction.
    pub fn new(setup: WaveSetup) -> Self {
        Self { registers: Registers::new(&setup), pc: setup.pc, accesses: Vec::new(), observed: false, clock: 0 }
    }

    /// Address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.pc
    }

    /// Lanes that are active.
    pub fn exec(&self) -> u32 {
        self.registers.exec()
    }

    /// A scalar register by operand number: 0-105 SGPRs, 106 and 107 VCC, 108-123 TTMPs, 125 M0, 126 and 127 EXEC.
    pub fn sgpr(&self, number: usize) -> u32 {
        self.registers.sgpr[number]
    }

    /// The scalar condition.
    pub fn scc(&self) -> bool {
        self.registers.scc
    }

    /// A vector register, a value per lane.
    pub fn vgpr(&self, number: usize) -> &[u32; 32] {
        &self.registers.vgpr[number]
    }

    /// Sets a scalar register, numbered as [`sgpr`](Self::sgpr) has it.
    pub fn set_sgpr(&mut self, number: usize, value: u32) {
        self.registers.set_sgpr(number, value);
    }

    /// Sets the scalar condition.
    pub fn set_scc(&mut self, value: bool) {
        self.registers.scc = value;
    }

    /// Sets a vector register in all lanes.
    pub fn set_vgpr(&mut self, number: usize, values: [u32; 32]) {
        self.registers.vgpr[number] = values;
        self.registers.vgpr_written[number] = u32::MAX;
    }

    /// Runs until a barrier, the end, a fault, or until `budget` instructions are executed.
    ///
    /// # Errors
    ///
    /// A fault stops the wave for good; its registers are as they were before the instruction, or, where lanes had
    /// already been served, between.
    pub fn run<P: Probe>(
        &mut self,
        program: &Program,
        memory: &mut dyn Memory,
        probe: &mut P,
        budget: u64,
    ) -> Result<Event, Box<Fault>> {
        self.observed = P::ENABLED;
        for _ in 0..budget {
            let inst = self.fetch(program)?;
            let exec = self.registers.exec();
            if P::ENABLED {
                self.accesses.clear();
            }
            let flow = self.execute(inst, memory).map_err(|stop| self.fault(stop, inst))?;
            if P::ENABLED {
                probe.executed(&Step { pc: self.pc, inst, exec, accesses: &self.accesses });
            }
            let next = self.pc + u64::from(inst.size);
            match flow {
                Flow::Next => self.pc = next,
                Flow::Jump(pc) => self.pc = pc,
                Flow::Pause(event) => {
                    self.pc = next;
                    return Ok(event);
                }
            }
        }
        Ok(Event::Budget)
    }

    fn fetch<'a>(&self, program: &'a Program) -> Result<&'a Inst, Box<Fault>> {
        let fault = |kind, text| Box::new(Fault { kind, pc: self.pc, text, lane: None, address: None });
        match program.fetch(self.pc) {
            Some(Ok(inst)) => Ok(inst),
            Some(Err(unknown)) => {
                let words: Vec<String> = unknown.words.iter().map(|word| format!("{word:08x}")).collect();
                Err(fault(FaultKind::Unknown, words.join(" ")))
            }
            None => Err(fault(FaultKind::OutsideCode, String::new())),
        }
    }

    fn fault(&self, stop: Stop, inst: &Inst) -> Box<Fault> {
        let text = inst.text(Dialect::default()).to_string();
        Box::new(Fault { kind: stop.kind, pc: self.pc, text, lane: stop.lane, address: stop.address })
    }

    fn execute(&mut self, inst: &Inst, memory: &mut dyn Memory) -> Result<Flow, Stop> {
        if !self.registers.has_vgprs(inst) {
            return Err(Stop::new(FaultKind::BeyondRegisters));
        }
        match inst.encoding {
            Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc | Encoding::Sopk => self.salu(inst),
            Encoding::Sopp => self.control(inst),
            Encoding::Smem => self.scalar_memory(inst, memory).map(|()| Flow::Next),
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vop3 | Encoding::Vopc | Encoding::Vopd | Encoding::Vop3p => {
                self.vector(inst).map(|()| Flow::Next)
            }
            Encoding::Flat | Encoding::Global | Encoding::Scratch | Encoding::Mubuf => {
                self.vector_memory(inst, memory).map(|()| Flow::Next)
            }
            Encoding::Ds => self.local_memory(inst, memory).map(|()| Flow::Next),
        }
    }

    /// The target of a relative branch.
    pub(super) fn target(&self, inst: &Inst) -> u64 {
        let offset = i64::from(inst.imm as u16 as i16) * 4;
        (self.pc + 4).wrapping_add_signed(offset)
    }

    /// Whether the branch condition comes from a register that somebody wrote.
    fn condition(&self, number: usize, name: &str) -> Result<u32, Stop> {
        if !self.registers.is_written(number) {
            return Err(Stop::unwritten(name.to_owned()));
        }
        Ok(self.registers.sgpr[number])
    }

    /// SOPP.
    fn control(&mut self, inst: &Inst) -> Result<Flow, Stop> {
        use Op::*;
        let taken = match inst.op {
            SEndpgm => return Ok(Flow::Pause(Event::End)),
            SBarrier | SBarrierWait => return Ok(Flow::Pause(Event::Barrier)),
            STrap => return Err(Stop::new(FaultKind::Trap(inst.imm as u16))),
            SBranch => true,
            SCbranchScc0 => !self.registers.scc,
            SCbranchScc1 => self.registers.scc,
            SCbranchVccz => self.condition(VCC, "vcc_lo")? == 0,
            SCbranchVccnz => self.condition(VCC, "vcc_lo")? != 0,
            SCbranchExecz => self.registers.sgpr[EXEC] == 0,
            SCbranchExecnz => self.registers.sgpr[EXEC] != 0,
            SRoundMode => {
                self.set_mode(self.registers.mode.bits & !0xf | inst.imm & 0xf);
                false
            }
            SDenormMode => {
                self.set_mode(self.registers.mode.bits & !0xf0 | (inst.imm & 0xf) << 4);
                false
            }
            // Timing, caches, priorities and messages: nothing that a wave could see here. Memory is in order.
            SNop
            | SSethalt
            | SSleep
            | SWakeup
            | SSetInstPrefetchDistance
            | SClause
            | SDelayAlu
            | SWaitAlu
            | SWaitcnt
            | SWaitIdle
            | SWaitEvent
            | SSetprio
            | SSendmsg
            | SWaitLoadcnt
            | SWaitStorecnt
            | SWaitSamplecnt
            | SWaitBvhcnt
            | SWaitExpcnt
            | SWaitDscnt
            | SWaitKmcnt
            | SWaitLoadcntDscnt
            | SWaitStorecntDscnt => false,
            _ => return Err(Stop::new(FaultKind::NotImplemented)),
        };
        Ok(if taken { Flow::Jump(self.target(inst)) } else { Flow::Next })
    }
}
