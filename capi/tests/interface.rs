//! The functions of the C interface: what they compute, every status, and what they refuse.

mod common;

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::thread;

use common::call::{DIMS, Data, Open, expect, last_error, text};
use ssm_update::{SSM_PORTS, State, Step};
use ssm_update_capi::*;

fn cpu() -> Open {
    Open::new("cpu").expect("the CPU port opens everywhere")
}

/// The same step by the Rust interface.
fn by_rust(data: &Data) -> Data {
    let mut after = data.clone();
    let Dims { batch, heads, head_dim, groups, d_state, slots } = DIMS;
    let kernel = (SSM_PORTS.last().expect("a row").open)().expect("the CPU port opens everywhere");
    let dims = ssm_update::Dims { batch, heads, head_dim, groups, d_state, slots };
    let state = State::in_place(&mut after.state);
    let step = Step::new(dims, &data.x, &data.b, &data.c, &data.dt, &data.a_log, state, &mut after.y);
    let optional = Step { z: Some((&data.z).into()), d: Some((&data.d).into()), ..step };
    let slots = Some(&data.slots[..]);
    let step = Step { dt_bias: Some((&data.dt_bias).into()), slots_in: slots, slots_out: slots, ..optional };
    kernel.step(step).expect("a legal step");
    after
}

#[test]
fn the_versions_are_those_of_the_package_and_of_the_header() {
    assert_eq!(text(ssm_update_version()), env!("CARGO_PKG_VERSION"));
    assert_eq!(ssm_update_abi_version(), SSM_UPDATE_ABI_VERSION);
}

#[test]
fn the_table_is_the_library_s() {
    assert_eq!(ssm_update_port_count(), SSM_PORTS.len());
    for (index, port) in SSM_PORTS.iter().enumerate() {
        assert_eq!(text(ssm_update_port_name(index)), port.name);
        let name = CString::new(port.name).expect("no zero byte");
        // SAFETY: a text that ends in zero.
        let available = unsafe { ssm_update_available(name.as_ptr()) };
        assert_eq!(available, (port.open)().is_ok());
        assert_eq!(last_error().is_empty(), available, "a reason exactly where it does not open");
        assert_eq!(Open::new(port.name).is_ok(), available);
    }
    assert!(ssm_update_port_name(SSM_PORTS.len()).is_null());
    assert!(ssm_update_port_name(usize::MAX).is_null());
}

#[test]
fn both_levels_compute_what_the_rust_interface_does() {
    let kernel = cpu();
    // SAFETY: open.
    let (port, description) =
        unsafe { (text(ssm_update_kernel_port(kernel.0)), text(ssm_update_kernel_description(kernel.0))) };
    assert_eq!(port, "cpu");
    assert!(description.contains("threads"), "{description}");

    for (seed, run) in
        [(1, ssm_update_kernel_launch as unsafe extern "C" fn(_, _) -> _), (2, ssm_update_kernel_step_host)]
    {
        let before = Data::new(seed);
        let mut data = before.clone();
        let launch = data.launch();
        // SAFETY: whole tensors that do not overlap and that nobody else has.
        expect(
            unsafe { ssm_update_kernel_prepare(kernel.0, [&raw const launch, &raw const launch].as_ptr(), 2) },
            Status::Ok,
            &[],
        );
        assert_eq!(format!("{data:?}"), format!("{before:?}"), "no tensor is touched"); // y is NaN
        // SAFETY: as above.
        expect(unsafe { run(kernel.0, &launch) }, Status::Ok, &[]);
        assert_eq!(data, by_rust(&before));
        assert_ne!(data.state, before.state);
    }
}

/// 16-bit tensors, strides, prepared dt, two states and no update: each field of the struct reaches the step.
#[test]
fn every_field_reaches_the_step() {
    let kernel = cpu();
    // SAFETY: below, whole tensors that do not overlap and that nobody else has.
    let run = |launch: &Launch| expect(unsafe { ssm_update_kernel_launch(kernel.0, launch) }, Status::Ok, &[]);
    let outcome = |change: &dyn Fn(&mut Launch)| {
        let mut data = Data::new(3);
        let mut launch = data.launch();
        change(&mut launch);
        run(&launch);
        data
    };
    let plain = outcome(&|_| {});
    for (field, change) in [
        ("z", (&|l: &mut Launch| l.z = null()) as &dyn Fn(&mut Launch)),
        ("d", &|l| l.d = null()),
        ("dt_bias", &|l| l.dt_bias = null()),
        ("dt_min", &|l| l.dt_min = 5.0),
        ("dt_max", &|l| l.dt_max = 0.25),
        ("dt_mode", &|l| (l.dt_mode, l.dt_bias) = (Dt::Prepared as i32, null())),
        ("x_stride", &|l| l.x_stride = 0),
        ("z_stride", &|l| l.z_stride = 0),
        ("b_stride", &|l| l.b_stride = 0),
        ("c_stride", &|l| l.c_stride = 0),
        ("dt_stride", &|l| l.dt_stride = 0),
        ("a_log_dtype", &|l| l.a_log_dtype = Dtype::Bf16 as i32),
        ("d_dtype", &|l| l.d_dtype = Dtype::F16 as i32),
        ("dt_bias_dtype", &|l| l.dt_bias_dtype = Dtype::Bf16 as i32),
        ("dt_dtype", &|l| l.dt_dtype = Dtype::Bf16 as i32),
        ("x_dtype", &|l| l.x_dtype = Dtype::Bf16 as i32),
        ("bc_dtype", &|l| (l.x_dtype, l.bc_dtype) = (Dtype::F16 as i32, Dtype::F16 as i32)),
        ("state_dtype", &|l| l.state_dtype = Dtype::F16 as i32),
        ("batch", &|l| l.dims.batch = 1),
        ("groups", &|l| l.dims.groups = 1),
    ] {
        let changed = outcome(change);
        assert_ne!(format!("{:?}", changed.y), format!("{:?}", plain.y), "{field} made no difference");
    }

    let read_only = outcome(&|l| (l.update_state, l.state_out) = (0, null_mut()));
    assert_eq!((&read_only.y, &read_only.state), (&plain.y, &Data::new(3).state));
    let mut apart = Data::new(3).state;
    let target: *mut c_void = apart.as_mut_ptr().cast();
    let from = outcome(&|l| l.state_out = target);
    assert_eq!((&from.y, &from.state, &apart), (&plain.y, &Data::new(3).state, &plain.state));
    let mut wide = vec![7.0_f32; 3 * 32];
    let target: *mut c_void = wide.as_mut_ptr().cast();
    outcome(&|l| (l.y, l.y_stride) = (target, 32));
    for (row, wide) in wide.chunks(32).enumerate() {
        assert_eq!(wide[..20], plain.y[row * 20..][..20]);
        assert_eq!(wide[20..], [7.0; 12], "between the rows nothing is written");
    }
    // Nothing is read of a step without rows.
    let mut data = Data::new(3);
    let Launch { struct_size, dims, x_stride, .. } = data.launch();
    // SAFETY: zero is a value of every field.
    let zero: Launch = unsafe { std::mem::zeroed() };
    run(&Launch { struct_size, dims: Dims { batch: 0, ..dims }, x_stride, ..zero });
}

#[test]
fn what_a_launch_must_not_say_is_refused_by_name() {
    use Status::{Invalid, Unsupported};
    let kernel = cpu();
    let odd = |at: *const c_void| at.wrapping_byte_add(1);
    for (status, parts, change) in [
        (
            Unsupported,
            &["unsupported shapes", "heads: expected at least 1, got 0"][..],
            (&|l: &mut Launch| l.dims.heads = 0) as &dyn Fn(&mut Launch),
        ),
        (Unsupported, &["unsupported shapes", "d_state", "got 24"], &|l| l.dims.d_state = 24),
        (Unsupported, &["unsupported shapes", "groups", "got 3"], &|l| l.dims.groups = 3),
        (Unsupported, &["bc_dtype: expected f16 (as x) or f32, got bf16"], &|l| (l.x_dtype, l.bc_dtype) = (1, 2)),
        (Unsupported, &["y_stride: expected at least heads * head_dim = 20, got 19"], &|l| l.y_stride = 19),
        (Unsupported, &["unsupported shapes"], &|l| l.dims.heads = usize::MAX & !1),
        (Unsupported, &["x: expected a tensor of at most isize::MAX bytes"], &|l| l.x_stride = usize::MAX),
        (Invalid, &["dt_min, dt_max", "(2, 1)"], &|l| (l.dt_min, l.dt_max) = (2.0, 1.0)),
        (Invalid, &["dt_min, dt_max", "NaN"], &|l| l.dt_max = f32::NAN),
        (Invalid, &["dt_bias: expected none"], &|l| l.dt_mode = Dt::Prepared as i32),
        (Invalid, &["x: expected a pointer to its data, got null"], &|l| l.x = null()),
        (Invalid, &["state_out: expected a pointer"], &|l| l.state_out = null_mut()),
        (Invalid, &["y: expected a pointer"], &|l| l.y = null_mut()),
        (Invalid, &["c: expected a pointer aligned to 4 bytes"], &|l| l.c = odd(l.c)),
        (Invalid, &["state_out: expected the same buffer as state_in, or one apart from it"], &|l| {
            l.state_out = l.state_out.wrapping_byte_add(64)
        }),
        (Invalid, &["slots_out", "shared by two"], &|l| l.slots_out = [4, -1, 4].as_ptr()),
        (Invalid, &["slots_in", "below slots = 6", "6 in batch row 2"], &|l| l.slots_in = [0, -1, 6].as_ptr()),
        (Invalid, &["x_dtype: expected one of ssm_update_dtype, got 3"], &|l| l.x_dtype = 3),
        (Invalid, &["bc_dtype", "got -1"], &|l| l.bc_dtype = -1),
        (Invalid, &["dt_dtype"], &|l| l.dt_dtype = 3),
        (Invalid, &["a_log_dtype"], &|l| l.a_log_dtype = 3),
        (Invalid, &["d_dtype"], &|l| l.d_dtype = 3),
        (Invalid, &["dt_bias_dtype"], &|l| l.dt_bias_dtype = i32::MIN),
        (Invalid, &["state_dtype"], &|l| l.state_dtype = i32::MAX),
        (Invalid, &["dt_mode: expected one of ssm_update_dt, got 2"], &|l| l.dt_mode = 2),
        (Invalid, &["update_state: expected 0 or 1, got 2"], &|l| l.update_state = 2),
        (Invalid, &["reserved: expected 0, got 9"], &|l| l.reserved = 9),
    ] {
        let mut data = Data::new(4);
        let before = format!("{data:?}");
        let mut launch = data.launch();
        change(&mut launch);
        let sees_slots = parts[0].starts_with("slots");
        // SAFETY: what is wrong with the launch is refused; the slots lists are constants.
        unsafe {
            expect(ssm_update_kernel_launch(kernel.0, &launch), status, parts);
            expect(ssm_update_kernel_step_host(kernel.0, &launch), status, parts);
            if !sees_slots {
                expect(ssm_update_check(&launch), status, parts);
                expect(ssm_update_kernel_prepare(kernel.0, [&raw const launch].as_ptr(), 1), status, parts);
            }
        }
        assert_eq!(format!("{data:?}"), before, "nothing is written: {parts:?}");
    }
    // The dtype of a tensor that is not there is not looked at.
    let mut data = Data::new(4);
    let absent = Launch { d: null(), d_dtype: 77, dt_bias: null(), dt_bias_dtype: -3, ..data.launch() };
    // SAFETY: a whole launch.
    expect(unsafe { ssm_update_check(&absent) }, Status::Ok, &[]);
}

#[test]
fn sizes_of_other_versions() {
    let size = size_of::<Launch>();
    let mut data = Data::new(5);
    #[repr(C)]
    struct Newer {
        launch: Launch,
        more: [u64; 3],
    }
    let mut newer = Newer { launch: data.launch(), more: [0; 3] };
    // SAFETY: as many bytes as the size says, in each call.
    let check = |newer: &Newer| unsafe { ssm_update_check((&raw const *newer).cast()) };
    newer.launch.struct_size = size_of::<Newer>();
    expect(check(&newer), Status::Ok, &[]);
    newer.more[2] = 1 << 40;
    let place = format!("a value at byte {}", size + 16 + 5);
    expect(check(&newer), Status::Invalid, &["does not know", env!("CARGO_PKG_VERSION"), &place]);
    newer.launch.struct_size = size + 16;
    expect(check(&newer), Status::Ok, &[]); // the value is beyond the struct
    for wrong in [0, 1, size - 1, 4097, usize::MAX] {
        newer.launch.struct_size = wrong;
        expect(check(&newer), Status::Invalid, &["struct_size", &format!("at least {size}"), &format!("got {wrong}")]);
    }

    // A struct of a later header is set to zero where this library does not know it.
    let mut newer = Newer { launch: data.launch(), more: [u64::MAX; 3] };
    let at: *mut Launch = (&raw mut newer).cast();
    // SAFETY: as many bytes as the size says.
    expect(unsafe { ssm_update_launch_init(at, size + 16, &DIMS) }, Status::Ok, &[]);
    assert_eq!((newer.launch.struct_size, newer.more), (size + 16, [0, 0, u64::MAX]));
    assert_eq!((newer.launch.x_stride, newer.launch.b_stride, newer.launch.dt_stride), (20, 32, 4));
    assert_eq!((newer.launch.dt_max, newer.launch.update_state), (f32::INFINITY, 1));
    assert!(newer.launch.x.is_null() && newer.launch.stream.is_null());
    let before = newer.launch.struct_size;
    for wrong in [0, size - 1, 4097] {
        // SAFETY: refused before anything is written.
        expect(unsafe { ssm_update_launch_init(at, wrong, &DIMS) }, Status::Invalid, &["struct_size"]);
    }
    assert_eq!(newer.launch.struct_size, before);
}

#[test]
fn null_and_misaligned_arguments_are_errors() {
    let kernel = cpu();
    let mut data = Data::new(6);
    let launch = data.launch();
    let bytes = [0_u64; 64];
    let odd = bytes.as_ptr().wrapping_byte_add(1);
    // SAFETY: what is null or misaligned is refused; everything else is whole.
    unsafe {
        let invalid = |status: Status, parts: &[&str]| expect(status, Status::Invalid, parts);
        invalid(ssm_update_kernel_launch(null(), &launch), &["kernel: expected an open kernel, got null"]);
        invalid(ssm_update_kernel_launch(kernel.0, null()), &["launch: expected a pointer to it, got null"]);
        invalid(ssm_update_kernel_launch(kernel.0, odd.cast()), &["launch: expected a pointer aligned to 8 bytes"]);
        invalid(ssm_update_kernel_step_host(null(), &launch), &["kernel"]);
        invalid(ssm_update_kernel_step_host(kernel.0, null()), &["launch"]);
        invalid(ssm_update_kernel_prepare(null(), null(), 0), &["kernel"]);
        expect(ssm_update_kernel_prepare(kernel.0, null(), 0), Status::Ok, &[]);
        invalid(ssm_update_kernel_prepare(kernel.0, null(), 2), &["launches: expected 2 pointers"]);
        invalid(ssm_update_kernel_prepare(kernel.0, [&raw const launch, null()].as_ptr(), 2), &["launch"]);
        invalid(ssm_update_kernel_open(c"cpu".as_ptr(), null_mut()), &["kernel: expected the place for the handle"]);
        invalid(ssm_update_check(null()), &["launch"]);
        invalid(ssm_update_check_dims(null()), &["dims"]);
        invalid(ssm_update_check_dims(odd.cast()), &["dims"]);
        let mut place = launch;
        invalid(ssm_update_launch_init(null_mut(), size_of::<Launch>(), &DIMS), &["launch"]);
        invalid(ssm_update_launch_init(&raw mut place, size_of::<Launch>(), null()), &["dims"]);
        assert!(ssm_update_kernel_port(null()).is_null());
        assert!(ssm_update_kernel_description(null()).is_null());
        ssm_update_kernel_close(null_mut());
    }
}

#[test]
fn sizes_are_checked_without_the_batch() {
    // SAFETY: a struct.
    let check = |dims: Dims| unsafe { ssm_update_check_dims(&dims) };
    expect(check(Dims { batch: usize::MAX, slots: 0, ..DIMS }), Status::Ok, &[]);
    expect(check(Dims { d_state: 528, ..DIMS }), Status::Unsupported, &["unsupported shapes", "d_state", "528"]);
}

#[test]
fn a_name_that_no_port_has_is_refused_with_the_names() {
    for name in ["hip", "CPU", "cpu ", "\u{e9}"] {
        let (status, text) = Open::new(name).expect_err("no such port");
        assert_eq!(status, Status::Invalid);
        assert!(text.contains("port: expected one of rocm, cuda, metal, cpu, got"), "{text}");
    }
}

#[cfg(not(any(target_os = "macos", target_os = "ios")))]
#[test]
fn a_port_that_does_not_open_says_why() {
    let (status, text) = Open::new("metal").expect_err("not here");
    assert_eq!(status, Status::Unavailable);
    assert!(text.starts_with("metal: not built: "), "{text}");
}

#[test]
fn each_thread_has_its_own_error() {
    // SAFETY: null is refused.
    expect(unsafe { ssm_update_check(null()) }, Status::Invalid, &["launch"]);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert_eq!((ssm_update_last_status(), last_error()), (Status::Ok, String::new()));
            // SAFETY: a struct.
            let status = unsafe { ssm_update_check_dims(&Dims { heads: 0, ..DIMS }) };
            expect(status, Status::Unsupported, &["heads"]);
        });
        other.join().expect("the other thread's error is its own");
    });
    assert_eq!(ssm_update_last_status(), Status::Invalid);
    assert!(last_error().contains("launch"));
    // Functions that cannot fail leave it, the next one that can replaces it.
    let _ = (ssm_update_version(), ssm_update_port_count(), ssm_update_port_name(0));
    assert_eq!(ssm_update_last_status(), Status::Invalid);
    // SAFETY: a struct.
    expect(unsafe { ssm_update_check_dims(&DIMS) }, Status::Ok, &[]);
}

#[test]
fn several_threads_use_one_kernel() {
    let kernel = cpu();
    thread::scope(|scope| {
        for seed in 10..16 {
            let kernel = &kernel;
            scope.spawn(move || {
                for _ in 0..20 {
                    let before = Data::new(seed);
                    let mut data = before.clone();
                    let launch = data.launch();
                    // SAFETY: whole tensors of this thread's own.
                    expect(unsafe { ssm_update_kernel_launch(kernel.0, &launch) }, Status::Ok, &[]);
                    assert_eq!(data, by_rust(&before));
                }
            });
        }
    });
}
