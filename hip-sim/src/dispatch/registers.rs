//! What a wave finds in its registers when it starts.
//!
//! LLVM's "User Guide for AMDGPU Backend", "Initial Kernel Execution State".

use super::aperture::{PRIVATE_BASE, SHARED_BASE};
use super::geometry::{Geometry, WAVE};
use crate::code_object::{Descriptor, UserSgpr};
use crate::exec::WaveSetup;
use crate::isa::{Arch, Generation};

/// Addresses of a launch that waves are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// The first instruction.
    pub entry: u64,
    /// The argument segment.
    pub kernarg: u64,
    /// The dispatch packet, 0 where the kernel does not ask for it.
    pub packet: u64,
}

/// Everything of a launch that the registers are made of.
#[derive(Clone, Debug)]
pub(super) struct Template<'a> {
    pub arch: Arch,
    pub descriptor: &'a Descriptor,
    pub geometry: Geometry,
    pub addresses: Addresses,
    /// Dwords of arguments that are preloaded.
    pub preloaded: Vec<u32>,
    pub error_ulp: u32,
}

impl Template<'_> {
    /// User SGPRs, then those of the work-group.
    fn sgprs(&self, group: [u32; 3]) -> Vec<u32> {
        let mut sgprs = Vec::new();
        for sgpr in &self.descriptor.user_sgprs {
            let value = match sgpr {
                UserSgpr::DispatchPtr => self.addresses.packet,
                UserSgpr::KernargSegmentPtr => self.addresses.kernarg,
                UserSgpr::PrivateSegmentSize => u64::from(self.descriptor.scratch),
                // Queues are not simulated, dispatches not numbered, and scratch is found by offset, not by address.
                UserSgpr::QueuePtr
                | UserSgpr::DispatchId
                | UserSgpr::PrivateSegmentBuffer
                | UserSgpr::FlatScratchInit => 0,
            };
            let dwords = [value as u32, (value >> 32) as u32, 0, 0];
            sgprs.extend_from_slice(&dwords[..sgpr.registers()]);
        }
        sgprs.extend_from_slice(&self.preloaded);
        sgprs.resize(self.descriptor.user_sgpr_count.max(sgprs.len()), 0);
        // RDNA4 has the ids in trap temporaries.
        if self.arch.generation() != Generation::Rdna4 {
            let ids = self.descriptor.workgroup_ids.iter().zip(group).filter(|(asked, _)| **asked);
            sgprs.extend(ids.map(|(_, id)| id));
            if self.descriptor.workgroup_info {
                sgprs.push(0);
            }
            // Offset of the wave's scratch; RDNA3 and later set up scratch before the wave starts.
            if self.descriptor.private_segment && self.arch.generation() == Generation::Rdna2 {
                sgprs.push(0);
            }
        }
        sgprs
    }

    /// Work-item ids: from RDNA3 on packed in v0, before in a register each.
    fn vgprs(&self, items: &[Option<[u32; 3]>]) -> Vec<[u32; WAVE as usize]> {
        let dims = self.descriptor.workitem_id_dims;
        let id = |lane: usize, axis: usize| items[lane].map_or(0, |item| item[axis]);
        if self.arch.generation() == Generation::Rdna2 {
            return (0..dims).map(|axis| std::array::from_fn(|lane| id(lane, axis))).collect();
        }
        let packed = |lane| (0..dims).map(|axis| id(lane, axis) << (10 * axis)).sum();
        vec![std::array::from_fn(packed)]
    }

    /// A wave of a work-group.
    pub fn wave(&self, group: [u32; 3], wave: u32) -> WaveSetup {
        let items: Vec<_> = (0..WAVE).map(|lane| self.geometry.item(group, wave, lane)).collect();
        let exec = items.iter().enumerate().filter(|(_, item)| item.is_some()).map(|(lane, _)| 1 << lane).sum();
        let vgprs = self.vgprs(&items);
        let mut ttmps = [0; 16];
        if self.arch.generation() == Generation::Rdna4 {
            ttmps[9] = group[0];
            ttmps[7] = group[1] & 0xffff | group[2] << 16;
        }
        WaveSetup {
            arch: self.arch,
            pc: self.addresses.entry,
            sgprs: self.sgprs(group),
            vgpr_count: self.descriptor.vgprs.max(vgprs.len()),
            vgprs,
            exec,
            ttmps,
            float_mode: self.descriptor.float_mode,
            ieee: self.descriptor.ieee,
            dx10_clamp: self.descriptor.dx10_clamp,
            shared_base: SHARED_BASE,
            private_base: PRIVATE_BASE,
            hardware_error_ulp: self.error_ulp,
        }
    }
}

/// The dispatch packet of the HSA queue that a launch would have been written to.
pub(super) fn packet(geometry: &Geometry, descriptor: &Descriptor, lds: u32, object: u64, kernarg: u64) -> [u8; 64] {
    /// `HSA_PACKET_TYPE_KERNEL_DISPATCH`.
    const KERNEL_DISPATCH: u16 = 2;
    let mut packet = [0; 64];
    let mut put = |at: usize, bytes: &[u8]| packet[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &KERNEL_DISPATCH.to_le_bytes());
    put(2, &geometry.dimensions().to_le_bytes());
    for axis in 0..3 {
        put(4 + 2 * axis, &(geometry.block[axis] as u16).to_le_bytes());
        put(12 + 4 * axis, &geometry.grid[axis].to_le_bytes());
    }
    put(24, &descriptor.scratch.to_le_bytes());
    put(28, &lds.to_le_bytes());
    put(32, &object.to_le_bytes());
    put(40, &kernarg.to_le_bytes());
    packet
}
