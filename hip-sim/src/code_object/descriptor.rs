//! The kernel descriptor: 64 bytes that say how the hardware starts a wave.
//!
//! Layout: LLVM's "User Guide for AMDGPU Backend", "Kernel Descriptor".

use crate::isa::{Arch, Generation};

/// Bytes of a descriptor.
pub(super) const SIZE: usize = 64;

/// What a wave finds in its user SGPRs, in the order in which they are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UserSgpr {
    /// Buffer descriptor of the scratch memory: 4 registers, where scratch is reached by buffer instructions.
    PrivateSegmentBuffer,
    /// Address of the dispatch packet: 2 registers.
    DispatchPtr,
    /// Address of the queue: 2 registers.
    QueuePtr,
    /// Address of the kernel's arguments: 2 registers.
    KernargSegmentPtr,
    /// Number of the dispatch: 2 registers.
    DispatchId,
    /// Base of the scratch memory: 2 registers, where a wave sets it up itself.
    FlatScratchInit,
    /// Bytes of scratch of one lane: 1 register.
    PrivateSegmentSize,
}

impl UserSgpr {
    /// Bit of `kernel_code_properties` that asks for it, and registers that it takes, in their order.
    const TABLE: [(Self, u32, usize); 7] = [
        (Self::PrivateSegmentBuffer, 0, 4),
        (Self::DispatchPtr, 1, 2),
        (Self::QueuePtr, 2, 2),
        (Self::KernargSegmentPtr, 3, 2),
        (Self::DispatchId, 4, 2),
        (Self::FlatScratchInit, 5, 2),
        (Self::PrivateSegmentSize, 6, 1),
    ];

    /// Registers that it takes.
    pub fn registers(self) -> usize {
        Self::TABLE.iter().find(|row| row.0 == self).map_or(0, |row| row.2)
    }
}

/// A kernel descriptor, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Bytes of LDS of one work-group, the dynamic part not included.
    pub lds: u32,
    /// Bytes of scratch of one lane.
    pub scratch: u32,
    /// Bytes of the argument segment, as far as the compiler knows it; the metadata note has the same.
    pub kernarg_size: u32,
    /// From the descriptor to the first instruction.
    pub entry_offset: i64,
    /// VGPRs of a wave of 32 lanes.
    pub vgprs: usize,
    /// Bits 0-7 as [`WaveSetup::float_mode`](crate::exec::WaveSetup) has them.
    pub float_mode: u8,
    /// A signalling NaN is made quiet, and more (up to RDNA3.5; RDNA4 has no such bit).
    pub ieee: bool,
    /// Clamping turns NaN to 0 (up to RDNA3.5; RDNA4 always does).
    pub dx10_clamp: bool,
    /// User SGPRs, in order.
    pub user_sgprs: Vec<UserSgpr>,
    /// How many user SGPRs the descriptor counts.
    pub user_sgpr_count: usize,
    /// Dwords of the argument segment that are preloaded to SGPRs, and the first of them.
    pub kernarg_preload: (usize, usize),
    /// Whether the id of the work-group comes in an SGPR, for x, y and z.
    pub workgroup_ids: [bool; 3],
    /// Whether a register with information about the work-group follows them.
    pub workgroup_info: bool,
    /// Whether the offset of the wave's scratch comes in the last SGPR (before RDNA3), or scratch is used at all.
    pub private_segment: bool,
    /// Dimensions of the work-item id that come in VGPRs, 1 to 3.
    pub workitem_id_dims: usize,
    /// Waves have 32 lanes, not 64.
    pub wave32: bool,
    /// The stack's size is not known to the compiler.
    pub dynamic_stack: bool,
}

impl Descriptor {
    /// Takes a descriptor apart.
    ///
    /// # Errors
    ///
    /// A sentence, when it is none: reserved bits are set, or the counts contradict each other.
    pub fn read(bytes: &[u8], arch: Arch) -> Result<Self, String> {
        let bytes: &[u8; SIZE] = bytes.try_into().map_err(|_| format!("{} bytes, not {SIZE}", bytes.len()))?;
        let dword = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        if let Some(at) = (12..16).chain(24..44).chain(60..64).find(|&at| bytes[at] != 0) {
            return Err(format!("reserved byte {at} is {:#x}", bytes[at]));
        }
        let (rsrc1, rsrc2, properties, preload) = (dword(48), dword(52), half(56), half(58));
        let bit = |word: u32, bit: u32| word >> bit & 1 != 0;
        let rdna4 = arch.generation() == Generation::Rdna4;
        let wave32 = bit(properties.into(), 10);
        let user_sgprs: Vec<UserSgpr> =
            UserSgpr::TABLE.iter().filter(|row| bit(properties.into(), row.1)).map(|row| row.0).collect();
        let user_sgpr_count = (rsrc2 >> 1 & 0x1f) as usize;
        let preloaded = usize::from(preload & 0x7f);
        let listed = user_sgprs.iter().map(|sgpr| sgpr.registers()).sum::<usize>() + preloaded;
        if listed > user_sgpr_count {
            return Err(format!("{listed} user SGPRs are asked for and {user_sgpr_count} counted"));
        }
        let workitem_id_dims = (rsrc2 >> 11 & 3) as usize + 1;
        if workitem_id_dims > 3 {
            return Err("a work-item id of 4 dimensions".into());
        }
        Ok(Self {
            lds: dword(0),
            scratch: dword(4),
            kernarg_size: dword(8),
            entry_offset: i64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")),
            vgprs: ((rsrc1 & 0x3f) as usize + 1) * if wave32 { 8 } else { 4 },
            float_mode: (rsrc1 >> 12) as u8,
            ieee: !rdna4 && bit(rsrc1, 23),
            dx10_clamp: rdna4 || bit(rsrc1, 21),
            user_sgprs,
            user_sgpr_count,
            kernarg_preload: (preloaded, usize::from(preload >> 7)),
            workgroup_ids: [bit(rsrc2, 7), bit(rsrc2, 8), bit(rsrc2, 9)],
            workgroup_info: bit(rsrc2, 10),
            private_segment: bit(rsrc2, 0),
            workitem_id_dims,
            wave32,
            dynamic_stack: bit(properties.into(), 11),
        })
    }
}
