//! Structures and numbers of the C interface are those of AMD's headers, where headers are installed.
//!
//! The R0000 layout is that of HIP 5, the R0600 layout that of HIP 6 and 7. `HIP_SIM_TEST_HEADERS` names folders to look in
//! first, separated by colons.

mod support;

use std::env;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use hip_sim::api::{Status, hipDeviceProp_tR0000 as R0000, hipDeviceProp_tR0600 as R0600};
use support::{scratch, text};

/// Folders that hold `hip/hip_version.h`.
fn headers() -> Vec<PathBuf> {
    let named = env::var("HIP_SIM_TEST_HEADERS").unwrap_or_default();
    let rocm = env::var("ROCM_PATH").map(|path| format!("{path}/include")).unwrap_or_default();
    let usual = [rocm.as_str(), "/opt/rocm/include", "/usr/include"];
    let folders = named.split(':').chain(usual).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    folders.filter(|folder| folder.join("hip/hip_version.h").exists()).collect()
}

/// Numbers that a C program prints; the headers of `folder` are included.
fn numbers(folder: &Path, expressions: &[&str]) -> Vec<usize> {
    let lines: String = expressions.iter().map(|what| format!("    printf(\"%zu\\n\", (size_t)({what}));\n")).collect();
    let source = format!(
        "#define __HIP_PLATFORM_AMD__ 1\n#define __HIP_PLATFORM_HCC__ 1\n#include <stddef.h>\n#include <stdio.h>\n\
         #include <hip/hip_version.h>\n#include <hip/hip_runtime_api.h>\nint main(void) {{\n{lines}    return 0;\n}}\n"
    );
    let name = folder.to_string_lossy().replace('/', "_");
    let (file, program) = (scratch("layout").join(format!("{name}.c")), scratch("layout").join(name));
    std::fs::write(&file, source).expect("the test's folder can be written");
    let output = Command::new("cc").arg("-isystem").arg(folder).arg(&file).arg("-o").arg(&program).output();
    let output = output.expect("cc is installed");
    assert!(output.status.success(), "{}", text(&output));
    let output = Command::new(&program).output().expect("it was just compiled");
    let text = String::from_utf8(output.stdout).expect("digits");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

macro_rules! compare {
    ($folder:expr, $type:ty, $size:expr, $($theirs:ident: $ours:ident),* $(,)?) => {{
        let expressions =
            ["sizeof(hipDeviceProp_t)", $(concat!("offsetof(hipDeviceProp_t, ", stringify!($theirs), ")")),*];
        let theirs = numbers($folder, &expressions);
        let ours = [$size, $(offset_of!($type, $ours)),*];
        for ((what, theirs), ours) in expressions.iter().zip(theirs).zip(ours) {
            assert_eq!(theirs, ours, "{what}");
        }
    }};
}

fn old(folder: &Path) {
    compare!(
        folder, R0000, size_of::<R0000>(),
        totalGlobalMem: total_global_mem, warpSize: warp_size, maxThreadsPerBlock: max_threads_per_block,
        maxGridSize: max_grid_size, clockRate: clock_rate, memoryBusWidth: memory_bus_width,
        totalConstMem: total_const_mem, multiProcessorCount: multi_processor_count, arch: arch,
        concurrentKernels: concurrent_kernels, maxSharedMemoryPerMultiProcessor: max_shared_memory_per_multi_processor,
        canMapHostMemory: can_map_host_memory, gcnArchName: gcn_arch_name, integrated: integrated,
        hdpMemFlushCntl: hdp_mem_flush_cntl, memPitch: mem_pitch, texturePitchAlignment: texture_pitch_alignment,
        kernelExecTimeoutEnabled: kernel_exec_timeout_to_page_tables,
    );
}

fn new(folder: &Path) {
    compare!(
        folder, R0600, size_of::<R0600>(),
        totalGlobalMem: total_global_mem, warpSize: warp_size, memPitch: mem_pitch,
        maxThreadsPerBlock: max_threads_per_block, maxGridSize: max_grid_size, clockRate: clock_rate,
        totalConstMem: total_const_mem, multiProcessorCount: multi_processor_count, integrated: integrated,
        maxTexture1D: textures_and_surfaces, surfaceAlignment: surface_alignment, concurrentKernels: concurrent_kernels,
        unifiedAddressing: unified_addressing, l2CacheSize: l2_cache_size,
        maxThreadsPerMultiProcessor: max_threads_per_multi_processor,
        sharedMemPerMultiprocessor: shared_mem_per_multiprocessor, regsPerMultiprocessor: regs_per_multiprocessor,
        managedMemory: managed_memory_to_cooperative_multi_device_launch,
        sharedMemPerBlockOptin: shared_mem_per_block_optin,
        reservedSharedMemPerBlock: reserved_shared_mem_per_block,
        hostRegisterSupported: host_register_supported_to_unified_function_pointers, reserved: reserved,
        gcnArchName: gcn_arch_name, maxSharedMemoryPerMultiProcessor: max_shared_memory_per_multi_processor,
        clockInstructionRate: clock_instruction_rate, arch: arch, hdpMemFlushCntl: hdp_mem_flush_cntl,
        isLargeBar: is_large_bar, asicRevision: asic_revision,
    );
}

#[test]
fn structures_and_numbers_are_those_of_the_headers() {
    let folders = headers();
    if folders.is_empty() || Command::new("cc").arg("--version").output().is_err() {
        println!("layout: NOT RUN (no HIP headers, or no cc)");
    }
    for folder in folders {
        let major = numbers(&folder, &["HIP_VERSION_MAJOR"])[0];
        match major {
            ..6 => old(&folder),
            _ => new(&folder),
        }
        let attributes = [
            ("hipDeviceAttributeClockRate", 5),
            ("hipDeviceAttributeComputeCapabilityMajor", 23),
            ("hipDeviceAttributeMaxBlockDimX", 26),
            ("hipDeviceAttributeMaxGridDimX", 29),
            ("hipDeviceAttributeMaxThreadsPerBlock", 56),
            ("hipDeviceAttributeMemoryBusWidth", 59),
            ("hipDeviceAttributeMultiprocessorCount", 63),
            ("hipDeviceAttributeMaxSharedMemoryPerBlock", 74),
            ("hipDeviceAttributeWarpSize", 87),
            ("hipDeviceAttributeMaxSharedMemoryPerMultiprocessor", 10002),
            ("hipDeviceAttributePhysicalMultiProcessorCount", 10015),
        ];
        // The last of these came after HIP 5.2.
        let attributes = &attributes[..if major < 6 { 10 } else { 11 }];
        let names: Vec<&str> = attributes.iter().map(|row| row.0).collect();
        assert_eq!(numbers(&folder, &names), attributes.iter().map(|row| row.1).collect::<Vec<_>>());
        let statuses = [
            Status::INVALID_VALUE,
            Status::OUT_OF_MEMORY,
            Status::INVALID_CONFIGURATION,
            Status::NO_DEVICE,
            Status::INVALID_IMAGE,
            Status::NO_BINARY_FOR_GPU,
            Status::INVALID_KERNEL_FILE,
            Status::INVALID_HANDLE,
            Status::NOT_FOUND,
            Status::NOT_READY,
            Status::LAUNCH_OUT_OF_RESOURCES,
            Status::LAUNCH_FAILURE,
            Status::NOT_SUPPORTED,
        ];
        let names: Vec<&str> = statuses.iter().map(|status| status.name().to_str().expect("ASCII")).collect();
        assert_eq!(numbers(&folder, &names), statuses.map(|status| status.0 as usize));
        println!("layout: compared with HIP {major} in {}", folder.display());
    }
}
