//! `hipDeviceProp_t`, in the layout before HIP 6 and the one since. A test compares the offsets with AMD's headers where
//! those are installed. Runs of fields that are always zero here are one field.

use std::mem::zeroed;

use super::devices::{BLOCK_MAX, GRID_MAX, properties_major, properties_minor};
use crate::device::{Config, LDS_MAX, Model};

/// A text in an array that ends with a null.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut array = [0; N];
    let used = text.len().min(N - 1);
    array[..used].copy_from_slice(&text.as_bytes()[..used]);
    array
}

/// A pitch that copies may have at most.
const PITCH_MAX: usize = i32::MAX as usize;
/// Registers of a block, as the runtime reports them.
const REGISTERS: i32 = 65536;
/// Resident work-items of a pair of compute units, as the runtime reports them.
const RESIDENT: i32 = 2048;
/// The clock that `wall_clock64` counts, in kHz.
const CONSTANT_CLOCK: i32 = 100_000;

/// Bits that name features.
#[allow(non_camel_case_types, reason = "the name is HIP's")]
pub type hipDeviceArch_t = u32;
/// Atomics of 32 and 64 bits (0-6), doubles, votes, ballots, shuffles (7-10), system fences (12), grids in 3 dimensions (15).
const FEATURES: hipDeviceArch_t = 0x97ff;

/// The layout of HIP 6 and 7.
#[allow(non_camel_case_types, missing_docs, reason = "names are HIP's, in Rust's spelling; its header describes them")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hipDeviceProp_tR0600 {
    pub name: [u8; 256],
    pub uuid: [u8; 16],
    pub luid: [u8; 8],
    pub luid_device_node_mask: u32,
    pub total_global_mem: usize,
    pub shared_mem_per_block: usize,
    pub regs_per_block: i32,
    pub warp_size: i32,
    pub mem_pitch: usize,
    pub max_threads_per_block: i32,
    pub max_threads_dim: [i32; 3],
    pub max_grid_size: [i32; 3],
    pub clock_rate: i32,
    pub total_const_mem: usize,
    pub major: i32,
    pub minor: i32,
    pub texture_alignment: usize,
    pub texture_pitch_alignment: usize,
    pub device_overlap: i32,
    pub multi_processor_count: i32,
    pub kernel_exec_timeout_enabled: i32,
    pub integrated: i32,
    pub can_map_host_memory: i32,
    pub compute_mode: i32,
    pub textures_and_surfaces: [i32; 40],
    pub surface_alignment: usize,
    pub concurrent_kernels: i32,
    pub ecc_enabled: i32,
    pub pci_bus_id: i32,
    pub pci_device_id: i32,
    pub pci_domain_id: i32,
    pub tcc_driver: i32,
    pub async_engine_count: i32,
    pub unified_addressing: i32,
    pub memory_clock_rate: i32,
    pub memory_bus_width: i32,
    pub l2_cache_size: i32,
    pub persisting_l2_cache_max_size: i32,
    pub max_threads_per_multi_processor: i32,
    pub stream_priorities_supported: i32,
    pub global_l1_cache_supported: i32,
    pub local_l1_cache_supported: i32,
    pub shared_mem_per_multiprocessor: usize,
    pub regs_per_multiprocessor: i32,
    pub managed_memory_to_cooperative_multi_device_launch: [i32; 11],
    pub shared_mem_per_block_optin: usize,
    pub pageable_memory_access_uses_host_page_tables: i32,
    pub direct_managed_mem_access_from_host: i32,
    pub max_blocks_per_multi_processor: i32,
    pub access_policy_max_window_size: i32,
    pub reserved_shared_mem_per_block: usize,
    pub host_register_supported_to_unified_function_pointers: [i32; 13],
    pub reserved: [i32; 63],
    pub hip_reserved: [i32; 32],
    pub gcn_arch_name: [u8; 256],
    pub max_shared_memory_per_multi_processor: usize,
    pub clock_instruction_rate: i32,
    pub arch: hipDeviceArch_t,
    pub hdp_mem_flush_cntl: usize,
    pub hdp_reg_flush_cntl: usize,
    pub cooperative_multi_device_unmatched: [i32; 4],
    pub is_large_bar: i32,
    pub asic_revision: i32,
}

/// The layout before HIP 6.
#[allow(non_camel_case_types, missing_docs, reason = "names are HIP's, in Rust's spelling; its header describes them")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hipDeviceProp_tR0000 {
    pub name: [u8; 256],
    pub total_global_mem: usize,
    pub shared_mem_per_block: usize,
    pub regs_per_block: i32,
    pub warp_size: i32,
    pub max_threads_per_block: i32,
    pub max_threads_dim: [i32; 3],
    pub max_grid_size: [i32; 3],
    pub clock_rate: i32,
    pub memory_clock_rate: i32,
    pub memory_bus_width: i32,
    pub total_const_mem: usize,
    pub major: i32,
    pub minor: i32,
    pub multi_processor_count: i32,
    pub l2_cache_size: i32,
    pub max_threads_per_multi_processor: i32,
    pub compute_mode: i32,
    pub clock_instruction_rate: i32,
    pub arch: hipDeviceArch_t,
    pub concurrent_kernels: i32,
    pub pci_domain_id: i32,
    pub pci_bus_id: i32,
    pub pci_device_id: i32,
    pub max_shared_memory_per_multi_processor: usize,
    pub is_multi_gpu_board: i32,
    pub can_map_host_memory: i32,
    pub gcn_arch: i32,
    pub gcn_arch_name: [u8; 256],
    pub integrated: i32,
    pub cooperative_launch_to_max_texture_3d: [i32; 9],
    pub hdp_mem_flush_cntl: usize,
    pub hdp_reg_flush_cntl: usize,
    pub mem_pitch: usize,
    pub texture_alignment: usize,
    pub texture_pitch_alignment: usize,
    pub kernel_exec_timeout_to_page_tables: [i32; 14],
}

impl hipDeviceProp_tR0600 {
    /// What a device says of itself.
    pub fn of(config: &Config) -> Self {
        let model = Model::of(config.arch);
        // SAFETY: numbers and arrays of numbers, for all of which zero bytes are a value; padding does not matter.
        let zero: Self = unsafe { zeroed() };
        Self {
            name: text(model.name),
            total_global_mem: config.memory as usize,
            shared_mem_per_block: LDS_MAX as usize,
            regs_per_block: REGISTERS,
            warp_size: config.wavefront as i32,
            mem_pitch: PITCH_MAX,
            max_threads_per_block: BLOCK_MAX,
            max_threads_dim: [BLOCK_MAX; 3],
            max_grid_size: GRID_MAX,
            clock_rate: model.clock_mhz * 1000,
            total_const_mem: PITCH_MAX,
            major: properties_major(config.arch.name()),
            minor: properties_minor(config.arch.name()),
            texture_alignment: 256,
            texture_pitch_alignment: 256,
            multi_processor_count: model.multiprocessors(),
            integrated: model.integrated.into(),
            can_map_host_memory: 1,
            concurrent_kernels: 1,
            unified_addressing: 1,
            memory_clock_rate: model.memory_mhz * 1000,
            memory_bus_width: model.bus_bits,
            l2_cache_size: model.l2_bytes,
            max_threads_per_multi_processor: RESIDENT,
            shared_mem_per_multiprocessor: LDS_MAX as usize,
            regs_per_multiprocessor: REGISTERS,
            shared_mem_per_block_optin: LDS_MAX as usize,
            gcn_arch_name: text(config.arch.name()),
            max_shared_memory_per_multi_processor: LDS_MAX as usize,
            clock_instruction_rate: CONSTANT_CLOCK,
            arch: FEATURES,
            ..zero
        }
    }
}

impl hipDeviceProp_tR0000 {
    /// What a device says of itself.
    pub fn of(config: &Config) -> Self {
        let new = hipDeviceProp_tR0600::of(config);
        // SAFETY: numbers and arrays of numbers, for all of which zero bytes are a value; padding does not matter.
        let zero: Self = unsafe { zeroed() };
        Self {
            name: new.name,
            total_global_mem: new.total_global_mem,
            shared_mem_per_block: new.shared_mem_per_block,
            regs_per_block: new.regs_per_block,
            warp_size: new.warp_size,
            max_threads_per_block: new.max_threads_per_block,
            max_threads_dim: new.max_threads_dim,
            max_grid_size: new.max_grid_size,
            clock_rate: new.clock_rate,
            memory_clock_rate: new.memory_clock_rate,
            memory_bus_width: new.memory_bus_width,
            total_const_mem: new.total_const_mem,
            major: new.major,
            minor: new.minor,
            multi_processor_count: new.multi_processor_count,
            l2_cache_size: new.l2_cache_size,
            max_threads_per_multi_processor: new.max_threads_per_multi_processor,
            clock_instruction_rate: new.clock_instruction_rate,
            arch: new.arch,
            concurrent_kernels: 1,
            max_shared_memory_per_multi_processor: new.max_shared_memory_per_multi_processor,
            can_map_host_memory: 1,
            gcn_arch_name: new.gcn_arch_name,
            integrated: new.integrated,
            mem_pitch: new.mem_pitch,
            texture_alignment: new.texture_alignment,
            texture_pitch_alignment: new.texture_pitch_alignment,
            ..zero
        }
    }
}
