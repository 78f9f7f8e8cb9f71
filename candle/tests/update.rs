//! The operation on candle's tensors against the library's own host level, bit for bit on one port.
//!
//! `SSM_UPDATE_CANDLE_TEST_DEVICE=cuda` or `metal` runs it on that device of candle's (the feature of that name), and holds it to the
//! results of the host level within rounding.

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use ssm_update::{Dims, Dt, SSM_PORTS, State, Step, select_kernel_port};
use ssm_update_candle::{Update, kernel_for};

const DIMS: Dims = Dims { batch: 3, heads: 6, head_dim: 5, groups: 2, d_state: 32, slots: 5 };
/// Rows use slots in another order, and the second row is padding.
const SLOTS: [i32; 3] = [4, -1, 0];
const LIMITS: Dt = Dt::Raw { min: 0.01, max: 1.5 };

fn device() -> Device {
    match std::env::var("SSM_UPDATE_CANDLE_TEST_DEVICE").as_deref() {
        Err(_) | Ok("cpu") => Device::Cpu,
        Ok("cuda") => Device::new_cuda(0).unwrap(),
        Ok("metal") => Device::new_metal(0).unwrap(),
        Ok(other) => panic!("SSM_UPDATE_CANDLE_TEST_DEVICE: expected cpu, cuda or metal, got {other:?}"),
    }
}

/// Tensors of a step on the CPU, in f32 that their dtypes hold exactly.
struct Case {
    /// Rows `[x, z, B, C, dt, 7 more]` of one wide projection in the dtype of x.
    projection: Tensor,
    a_log: Tensor,
    d: Tensor,
    dt_bias: Tensor,
    state: Tensor,
}

impl Case {
    fn new(x: DType, state: DType) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut random = |shape: &[usize], low: f32, high: f32, dtype: DType| {
            let values = (0..shape.iter().product()).map(|_| rng.random_range(low..high)).collect::<Vec<f32>>();
            Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
        };
        let Dims { batch, heads, head_dim, groups, d_state, slots } = DIMS;
        let width = 2 * heads * head_dim + 2 * groups * d_state + heads + 7;
        Self {
            projection: random(&[batch, width], -1.0, 1.0, x),
            a_log: random(&[heads], 0.0, 2.0, DType::F32),
            d: random(&[heads], -1.0, 1.0, x),
            dt_bias: random(&[heads], -3.0, 1.0, DType::F32),
            state: random(&[slots, heads, head_dim, d_state], -1.0, 1.0, state),
        }
    }

    /// x, z, B, C and dt as slices of the projection: strided where there are several rows.
    fn slices(projection: &Tensor) -> [Tensor; 5] {
        let Dims { heads, head_dim, groups, d_state, .. } = DIMS;
        let (channels, columns) = (heads * head_dim, groups * d_state);
        let mut start = 0;
        let mut part = |width: usize| {
            let part = projection.narrow(1, start, width).unwrap();
            start += width;
            part
        };
        [part(channels), part(channels), part(columns), part(columns), part(heads)]
    }

    /// y and the state by the operation, on `device`.
    fn by_candle(&self, device: &Device) -> (Tensor, Tensor) {
        let to = |tensor: &Tensor| tensor.to_device(device).unwrap();
        let (projection, a_log, d, dt_bias) = (to(&self.projection), to(&self.a_log), to(&self.d), to(&self.dt_bias));
        // A copy: on the CPU `to_device` shares the storage.
        let state = to(&self.state).copy().unwrap();
        let slots = Tensor::from_slice(&SLOTS, SLOTS.len(), device).unwrap();
        let [x, z, b, c, dt] = Self::slices(&projection);
        let kernel = kernel_for(device).unwrap();
        let update = Update {
            z: Some(&z),
            d: Some(&d),
            dt_bias: Some(&dt_bias),
            dt_mode: LIMITS,
            slots: Some(&slots),
            ..Update::new(&x, &b, &c, &dt, &a_log)
        };
        let y = update.apply(&*kernel, &state).unwrap();
        (y.to_device(&Device::Cpu).unwrap(), state.to_device(&Device::Cpu).unwrap())
    }

    /// The same by the host level, on contiguous copies.
    fn by_host_level<T, U>(&self) -> (Tensor, Tensor)
    where
        T: candle_core::WithDType + ssm_update::Element,
        U: candle_core::WithDType + ssm_update::Element,
    {
        fn flat<T: candle_core::WithDType>(tensor: &Tensor) -> Vec<T> {
            tensor.flatten_all().unwrap().to_vec1().unwrap()
        }
        let [x, z, b, c, dt] = Self::slices(&self.projection).map(|tensor| flat::<T>(&tensor));
        let (a_log, d, dt_bias) = (flat::<f32>(&self.a_log), flat::<T>(&self.d), flat::<f32>(&self.dt_bias));
        let (mut state, mut y) = (flat::<U>(&self.state), vec![T::default(); x.len()]);
        let kernel = select_kernel_port(SSM_PORTS).unwrap();
        kernel
            .step(Step {
                z: Some((&z).into()),
                d: Some((&d).into()),
                dt_bias: Some((&dt_bias).into()),
                dt_mode: LIMITS,
                slots_in: Some(&SLOTS),
                slots_out: Some(&SLOTS),
                ..Step::new(DIMS, &x, &b, &c, &dt, &a_log, State::in_place(&mut state), &mut y)
            })
            .unwrap();
        (
            Tensor::from_vec(y, (DIMS.batch, DIMS.heads * DIMS.head_dim), &Device::Cpu).unwrap(),
            Tensor::from_vec(state, self.state.dims(), &Device::Cpu).unwrap(),
        )
    }
}

fn wide(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// On the CPU both ways run on one port and give the same bits; elsewhere they agree within rounding of x's dtype.
fn check<T, U>(x: DType, state: DType)
where
    T: candle_core::WithDType + ssm_update::Element,
    U: candle_core::WithDType + ssm_update::Element,
{
    let (case, device) = (Case::new(x, state), device());
    let (y, new_state) = case.by_candle(&device);
    let (want_y, want_state) = case.by_host_level::<T, U>();
    assert_eq!(y.dtype(), x);
    let unit = |dtype| match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        _ => 1.6e-2,
    };
    for (field, got, want, tolerance) in [("y", y, want_y, unit(x)), ("state", new_state, want_state, unit(state))] {
        assert_eq!(got.dims(), want.dims(), "{field}");
        let tolerance = if device.is_cpu() { 0.0 } else { tolerance };
        for (i, (got, want)) in wide(&got).iter().zip(wide(&want)).enumerate() {
            assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{field}[{i}]: {got}, expected {want}");
        }
    }
}

#[test]
fn f32_equals_the_host_level() {
    check::<f32, f32>(DType::F32, DType::F32);
}

#[test]
fn bf16_with_an_f32_state_equals_the_host_level() {
    check::<bf16, f32>(DType::BF16, DType::F32);
}

#[test]
fn f16_with_an_f16_state_equals_the_host_level() {
    check::<f16, f16>(DType::F16, DType::F16);
}

#[test]
fn padding_gives_zeros_and_other_slots_stay() {
    let case = Case::new(DType::F32, DType::F32);
    let (y, state) = case.by_candle(&device());
    assert!(wide(&y.get(1).unwrap()).iter().all(|y| *y == 0.0));
    for slot in 0..DIMS.slots {
        let same = wide(&state.get(slot).unwrap()) == wide(&case.state.get(slot).unwrap());
        assert_eq!(same, !SLOTS.contains(&(slot as i32)), "slot {slot}");
    }
}

/// The message of an update that is refused, and that the state is as it was.
fn refusal(change: impl for<'a> FnOnce(Update<'a>, &'a [Tensor]) -> Update<'a>, extra: &[Tensor]) -> String {
    let case = Case::new(DType::F32, DType::F32);
    let device = device();
    let to = |tensor: &Tensor| tensor.to_device(&device).unwrap();
    let (projection, a_log, state) = (to(&case.projection), to(&case.a_log), to(&case.state).copy().unwrap());
    let [x, _, b, c, dt] = Case::slices(&projection);
    let extra: Vec<Tensor> = extra.iter().map(to).collect();
    let kernel = kernel_for(&device).unwrap();
    let error = change(Update::new(&x, &b, &c, &dt, &a_log), &extra).apply(&*kernel, &state).unwrap_err();
    assert_eq!(wide(&to(&state)), wide(&to(&case.state)));
    error.to_string()
}

#[test]
fn what_is_wrong_is_named() {
    let zeros = |shape: &[usize], dtype| [Tensor::zeros(shape, dtype, &Device::Cpu).unwrap()];
    for (tensors, field, expected) in [
        (zeros(&[3, 31], DType::F32), "x", "[3, 6, 5] or [3, 30], got [3, 31]"),
        (zeros(&[3, 60], DType::F32), "b", "got [3, 60]"),
        (zeros(&[3, 128], DType::F32), "c", "[3, 2, 32] or [3, 64], got [3, 128]"),
        (zeros(&[3, 7], DType::F32), "dt", "[3, 1, 6] or [3, 6], got [3, 7]"),
        (zeros(&[5], DType::F32), "a_log", "[6], got [5]"),
        (zeros(&[6], DType::U32), "d", "f32, f16 or bf16, got u32"),
        (zeros(&[3], DType::I64), "slots", "contiguous i32, got [3] i64"),
    ] {
        let message = refusal(
            |update, extra| {
                let tensor = &extra[0];
                match field {
                    "x" => Update { x: tensor, ..update },
                    "b" => Update { b: tensor, ..update },
                    "c" => Update { c: tensor, ..update },
                    "dt" => Update { dt: tensor, ..update },
                    "a_log" => Update { a_log: tensor, ..update },
                    "d" => Update { d: Some(tensor), ..update },
                    _ => Update { slots: Some(tensor), ..update },
                }
            },
            &tensors,
        );
        assert!(message.contains(&format!("unsupported shapes: {field}: ")), "{message}");
        assert!(message.contains(expected), "{message}, expected {expected}");
    }
}

/// Locking one storage twice would wait for ever.
#[test]
fn an_input_in_the_states_storage_is_refused() {
    let device = device();
    let state = Tensor::zeros((1, 2, 16, 16), DType::F32, &device).unwrap();
    let x = state.flatten_all().unwrap().narrow(0, 0, 32).unwrap().reshape((1, 32)).unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &device).unwrap();
    let (bc, dt, a_log) = (zeros(&[1, 16]), zeros(&[1, 2]), zeros(&[2]));
    let kernel = kernel_for(&device).unwrap();
    let error = Update::new(&x, &bc, &bc, &dt, &a_log).apply(&*kernel, &state).unwrap_err().to_string();
    assert!(error.contains("x: expected a storage of its own, got the state's"), "{error}");
}

/// What the kernels do not serve is refused by the library, with the words that engines look for.
#[test]
fn the_library_refuses_what_no_kernel_serves() {
    let device = device();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &device).unwrap();
    let (x, bc, dt, a_log, state) =
        (zeros(&[1, 8]), zeros(&[1, 20]), zeros(&[1, 2]), zeros(&[2]), zeros(&[1, 2, 4, 20]));
    let kernel = kernel_for(&device).unwrap();
    let error = Update::new(&x, &bc, &bc, &dt, &a_log).apply(&*kernel, &state).unwrap_err().to_string();
    assert!(error.contains("unsupported shapes") && error.contains("d_state"), "{error}");
}
