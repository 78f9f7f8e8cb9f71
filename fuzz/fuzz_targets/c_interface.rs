//! The C interface with structs of any size and content: a status and a text, never a crash. Pointers are null, misaligned or to
//! memory; a step runs only where that memory is large enough, which is what a caller has to promise.
#![no_main]

use std::ffi::{CStr, CString, c_void};
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use ssm_update_capi::{
    Dims, Launch, Status, ssm_update_available, ssm_update_check, ssm_update_check_dims, ssm_update_kernel_close,
    ssm_update_kernel_launch, ssm_update_kernel_open, ssm_update_kernel_prepare, ssm_update_kernel_step_host,
    ssm_update_last_error, ssm_update_last_status, ssm_update_launch_init, ssm_update_port_name,
};
use ssm_update_fuzz::Size;

#[derive(Debug, Arbitrary)]
struct Input {
    /// Bytes of the struct: what the library has, plus this, where `is_sized`.
    excess: i8,
    is_sized: bool,
    struct_size: Size,
    dims: [Size; 6],
    is_legal: bool,
    dtypes: [u8; 7],
    /// Fields that are anything: which, and what.
    wild: Vec<(u8, i32)>,
    limits: (f32, f32),
    is_unlimited: bool,
    dt_mode: bool,
    update_state: bool,
    strides: [Option<Size>; 6],
    pointers: [u8; 13],
    slots: [i8; 8],
    behind: [u8; 8],
    bytes: u8,
    port: Option<Vec<u8>>,
}

/// Memory of one tensor.
const BYTES: usize = 1 << 13;

#[repr(align(64))]
#[derive(Clone)]
struct Buffer([u8; BYTES]);

fuzz_target!(|input: Input| run(&input));

struct Opened(*mut ssm_update_capi::Kernel);
// SAFETY: the interface lets several threads use a kernel at once.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// What every call leaves: its status, and a text exactly where it is not `Ok`.
fn told(status: Status) -> bool {
    assert_eq!(ssm_update_last_status(), status);
    // SAFETY: the text is the library's, until the next call of this thread.
    let text = unsafe { CStr::from_ptr(ssm_update_last_error()) }.to_str().expect("UTF-8");
    assert_eq!(text.is_empty(), status == Status::Ok, "{status:?}: {text}");
    assert!(!matches!(status, Status::Internal | Status::Driver), "{status:?}: {text}");
    status == Status::Ok
}

fn run(input: &Input) {
    static KERNEL: LazyLock<Opened> = LazyLock::new(|| {
        let mut kernel = std::ptr::null_mut();
        // SAFETY: a text that ends in zero, and a pointer that may be written.
        assert!(told(unsafe { ssm_update_kernel_open(c"cpu".as_ptr(), &mut kernel) }));
        Opened(kernel)
    });
    let kernel = KERNEL.0;
    if let Some(port) = &input.port {
        open(port);
    }

    let [batch, heads, head_dim, groups, d_state, slots] = [0, 1, 2, 3, 4, 5].map(|at| input.dims[at].0);
    let dims = if input.is_legal {
        let groups = groups.clamp(1, 2);
        Dims {
            batch: batch.min(4),
            heads: groups * heads.clamp(1, 2),
            head_dim: head_dim.clamp(1, 4),
            groups,
            d_state: 16 * d_state.clamp(1, 3),
            slots: slots.min(6),
        }
    } else {
        Dims { batch, heads, head_dim, groups, d_state, slots }
    };
    // SAFETY: to a struct, or null.
    unsafe {
        told(ssm_update_check_dims(&dims));
        assert!(!told(ssm_update_check_dims(std::ptr::null())));
    }

    // Exactly as many bytes as the struct says that it has, so that a sanitizer sees every byte beyond.
    let known = size_of::<Launch>();
    let size = if input.is_sized { known.saturating_add_signed(input.excess.into()) } else { input.struct_size.0 };
    let held = size.clamp(8, 5000).next_multiple_of(8);
    let mut place = vec![u64::from_le_bytes(input.behind); held / 8];
    let at = place.as_mut_ptr().cast::<Launch>();
    if size <= held {
        // SAFETY: `size` bytes may be written.
        told(unsafe { ssm_update_launch_init(at, size, &dims) });
    }

    let mut buffers = vec![Buffer([input.bytes & 0x3f; BYTES]); 13];
    for (slot, list) in input.slots.iter().zip([10, 10, 10, 10, 11, 11, 11, 11]) {
        let index = usize::from(slot.unsigned_abs()) % 4;
        buffers[list].0[4 * index..4 * index + 4].copy_from_slice(&i32::from(*slot % 6).to_le_bytes());
    }
    let pointers: Vec<*mut c_void> = buffers
        .iter_mut()
        .zip(input.pointers)
        .map(|(buffer, how)| match how {
            0..8 => std::ptr::null_mut(),
            8..12 => buffer.0.as_mut_ptr().wrapping_add(usize::from(how & 3)).cast(),
            _ => buffer.0.as_mut_ptr().cast(),
        })
        .collect();
    let row = dims.heads.wrapping_mul(dims.head_dim);
    let group = dims.groups.wrapping_mul(dims.d_state);
    let stride = |at: usize, row: usize| input.strides[at].as_ref().map_or(row, |size| size.0.wrapping_add(row));
    let dtype = |at: usize| i32::from(input.dtypes[at] % 3);
    let in_place = input.pointers[9] % 3 == 0;
    let mut launch = Launch {
        struct_size: size,
        dims,
        x_dtype: dtype(0),
        bc_dtype: if input.dtypes[1].is_multiple_of(4) { 0 } else { dtype(0) },
        dt_dtype: dtype(2),
        a_log_dtype: dtype(3),
        d_dtype: dtype(4),
        dt_bias_dtype: dtype(5),
        state_dtype: dtype(6),
        dt_mode: input.dt_mode.into(),
        dt_min: if input.is_unlimited { 0.0 } else { input.limits.0 },
        dt_max: if input.is_unlimited { f32::INFINITY } else { input.limits.1 },
        update_state: input.update_state.into(),
        reserved: 0,
        x_stride: stride(0, row),
        z_stride: stride(1, row),
        b_stride: stride(2, group),
        c_stride: stride(3, group),
        dt_stride: stride(4, dims.heads),
        y_stride: stride(5, row),
        x: pointers[0],
        z: pointers[1],
        b: pointers[2],
        c: pointers[3],
        dt: pointers[4],
        a_log: pointers[5],
        d: pointers[6],
        dt_bias: if input.dt_mode { std::ptr::null() } else { pointers[7] },
        state_in: pointers[8],
        state_out: if in_place { pointers[8] } else { pointers[9] },
        slots_in: pointers[10].cast(),
        slots_out: pointers[11].cast(),
        y: pointers[12],
        // The CPU port has none, and looks at none.
        stream: std::ptr::without_provenance_mut(input.bytes.into()),
    };
    for &(field, value) in input.wild.iter().take(3) {
        match field % 11 {
            0 => launch.x_dtype = value,
            1 => launch.bc_dtype = value,
            2 => launch.dt_dtype = value,
            3 => launch.a_log_dtype = value,
            4 => launch.d_dtype = value,
            5 => launch.dt_bias_dtype = value,
            6 => launch.state_dtype = value,
            7 => launch.dt_mode = value,
            8 => launch.update_state = value,
            9 => launch.reserved = value as u32,
            _ => launch.dt_min = f32::from_bits(value as u32),
        }
    }
    // SAFETY: both are to as many bytes; the struct's are copied as far as the place goes.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const launch).cast::<u8>(), at.cast::<u8>(), held.min(known));
    }
    // The library reads as many bytes as the struct says, and refuses sizes that it does not believe before that.
    // SAFETY: sizes from the struct's own to 4096 are within `held`.
    unsafe {
        assert!(!told(ssm_update_check(std::ptr::null())));
        assert!(!told(ssm_update_check(at.wrapping_byte_add(4).cast())));
        let legal = told(ssm_update_check(at));
        let list = [at.cast_const(), at.cast_const()];
        assert_eq!(told(ssm_update_kernel_prepare(kernel, list.as_ptr(), 2)), legal);
        assert!(!told(ssm_update_kernel_prepare(kernel, std::ptr::null(), 2)));
        assert!(!told(ssm_update_kernel_launch(std::ptr::null(), at)));
        if !legal || fits(&launch) {
            told(ssm_update_kernel_launch(kernel, at));
            told(ssm_update_kernel_step_host(kernel, at));
        }
    }
}

/// Whether every tensor of a legal launch lies within its buffer.
fn fits(launch: &Launch) -> bool {
    let Dims { batch, heads, head_dim, groups, d_state, slots } = launch.dims;
    let wide = |size: usize| size as u128;
    let last = wide(batch.saturating_sub(1));
    let most = |stride: usize, row: u128| (last * wide(stride) + row) * 4 <= BYTES as u128;
    let (row, group) = (wide(heads) * wide(head_dim), wide(groups) * wide(d_state));
    // Four bytes each, whatever the dtype.
    batch == 0
        || [launch.x_stride, launch.z_stride, launch.y_stride].into_iter().all(|stride| most(stride, row))
            && [launch.b_stride, launch.c_stride].into_iter().all(|stride| most(stride, group))
            && most(launch.dt_stride, wide(heads))
            && wide(batch) * 4 <= BYTES as u128
            && wide(slots).saturating_mul(row).saturating_mul(wide(d_state)) * 4 <= BYTES as u128
}

/// Opens by any name: only the processor's port is there, and names that no port has are refused.
fn open(name: &[u8]) {
    let Ok(text) = CString::new(name) else { return };
    // The other ports load libraries, if there are any: not what is looked at here.
    if [&b""[..], b"rocm", b"cuda", b"metal"].contains(&name) {
        return;
    }
    let mut kernel = std::ptr::dangling_mut();
    // SAFETY: a text that ends in zero, and a pointer that may be written.
    unsafe {
        let opened = told(ssm_update_kernel_open(text.as_ptr(), &mut kernel));
        assert_eq!(opened, !kernel.is_null());
        assert_eq!(opened, name == b"cpu");
        ssm_update_kernel_close(kernel);
        assert_eq!(ssm_update_available(text.as_ptr()), opened);
        assert!(!told(ssm_update_kernel_open(text.as_ptr(), std::ptr::null_mut())));
    }
    let _ = ssm_update_port_name(name.len());
}
