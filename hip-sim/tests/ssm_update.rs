//! The kernel of this repository, as it ships, against the definition of the step in f64; and that it moves each state byte
//! once.

mod support;

use std::time::Instant;

use hip_sim::device::Device;
use hip_sim::dispatch::Geometry;
use hip_sim::exec::Space;
use hip_sim::isa::Arch;
use support::{Random, compile, compilers, device, package, targets};

/// Sizes of a problem, one batch row, one group. The rest follows from `hip/ssm_update.hip`.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    head_dim: usize,
    d_state: usize,
}

/// Lanes that share a row of f32 state: a piece of 16 bytes each.
const COLUMNS: usize = 4;
/// Waves of a work-group, and tiles of rows of a wave with one piece per lane.
const WAVES: usize = 4;
const TILES: usize = 4;

/// Tensors of a problem.
struct Problem {
    shape: Shape,
    x: Vec<f32>,
    z: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    dt: Vec<f32>,
    a_log: Vec<f32>,
    d: Vec<f32>,
    bias: Vec<f32>,
    state: Vec<f32>,
}

impl Problem {
    fn new(shape: Shape) -> Self {
        let mut random = Random::new(17);
        let Shape { heads, head_dim, d_state } = shape;
        let mut fill = |count: usize, scale: f32, offset: f32| -> Vec<f32> {
            (0..count).map(|_| random.unit() * scale + offset).collect()
        };
        Self {
            shape,
            x: fill(heads * head_dim, 2.0, 0.0),
            z: fill(heads * head_dim, 4.0, 0.0),
            b: fill(d_state, 1.0, 0.0),
            c: fill(d_state, 1.0, 0.0),
            dt: fill(heads, 3.0, -1.0),
            a_log: fill(heads, 1.5, 0.5),
            d: fill(heads, 1.0, 0.5),
            bias: fill(heads, 1.0, -1.0),
            state: fill(heads * head_dim * d_state, 1.0, 0.0),
        }
    }

    /// State and y by the definition.
    fn expected(&self) -> (Vec<f64>, Vec<f64>) {
        let Shape { heads, head_dim, d_state } = self.shape;
        let (mut state, mut y) = (Vec::new(), Vec::new());
        for h in 0..heads {
            let dt = (f64::from(self.dt[h]) + f64::from(self.bias[h])).exp().ln_1p();
            let decay = (-f64::from(self.a_log[h]).exp() * dt).exp();
            for p in 0..head_dim {
                let row = h * head_dim + p;
                let x = f64::from(self.x[row]);
                let mut sum = 0.0;
                for n in 0..d_state {
                    let old = f64::from(self.state[row * d_state + n]);
                    let now = decay * old + dt * x * f64::from(self.b[n]);
                    sum += now * f64::from(self.c[n]);
                    state.push(now);
                }
                let z = f64::from(self.z[row]);
                y.push((sum + f64::from(self.d[h]) * x) * z / (1.0 + (-z).exp()));
            }
        }
        (state, y)
    }
}

fn upload(device: &mut Device, values: &[f32]) -> u64 {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let address = device.allocate(bytes.len() as u64).expect("room");
    device.memory.write(address, &bytes).expect("in bounds");
    address
}

fn download(device: &Device, address: u64, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * count];
    device.memory.read(address, &mut bytes).expect("in bounds");
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

/// `ssm_update_params` of `gpu/abi.h`.
fn parameters(shape: Shape, pointers: [u64; 13]) -> Vec<u8> {
    let [heads, head_dim, d_state] = [shape.heads, shape.head_dim, shape.d_state].map(|size| size as u64);
    let row_lanes = (shape.d_state / COLUMNS).next_power_of_two();
    let mut bytes: Vec<u8> = pointers.into_iter().flat_map(u64::to_le_bytes).collect();
    let strides = [heads * head_dim, heads * head_dim, d_state, d_state, heads, heads * head_dim, 1];
    bytes.extend(strides.into_iter().flat_map(u64::to_le_bytes));
    // One group.
    bytes.extend((1_u64 << 32).div_ceil(heads).to_le_bytes());
    let sizes = [heads, head_dim, d_state, u64::from(row_lanes.trailing_zeros())];
    bytes.extend(sizes.into_iter().flat_map(|size| (size as u32).to_le_bytes()));
    bytes.extend(0.0_f32.to_le_bytes());
    bytes.extend(f32::INFINITY.to_le_bytes());
    // All per-head vectors are f32; the state is updated; the first batch row is 0.
    bytes.extend([0; 4]);
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend([0; 4]); // to a multiple of the struct's alignment
    bytes
}

/// Largest difference over the root mean square of what is expected.
fn error(got: &[f32], expected: &[f64]) -> f64 {
    let square = expected.iter().map(|value| value * value).sum::<f64>() / expected.len() as f64;
    let largest = got.iter().zip(expected).map(|(got, expected)| (f64::from(*got) - expected).abs());
    largest.fold(0.0, f64::max) / square.sqrt()
}

fn run(arch: Arch, version: u32, image: &[u8], shape: Shape) {
    let problem = Problem::new(shape);
    let mut device = device(arch, 2);
    let module = device.load(image).expect("the compiler made it");
    let mut up = |values: &[f32]| upload(&mut device, values);
    let [x, z, b, c] = [&problem.x, &problem.z, &problem.b, &problem.c].map(|values| up(values));
    let [dt, a_log, d, bias] = [&problem.dt, &problem.a_log, &problem.d, &problem.bias].map(|values| up(values));
    let state = up(&problem.state);
    let new_state = device.allocate(4 * problem.state.len() as u64).expect("room");
    let y = device.allocate(4 * problem.x.len() as u64).expect("room");
    let arguments = parameters(shape, [x, z, b, c, dt, a_log, d, bias, state, new_state, 0, 0, y]);
    let row_lanes = (shape.d_state / COLUMNS).next_power_of_two();
    let rows = WAVES * TILES * (32 / row_lanes);
    let blocks = [shape.head_dim.div_ceil(rows) as u32, shape.heads as u32, 1];
    let geometry = Geometry::of_blocks(blocks, [32 * WAVES as u32, 1, 1]).expect("a legal shape");
    let start = Instant::now();
    let counters = device
        .launch(module, "ssm_update_f32_f32_f32_k1", geometry, 0, &arguments)
        .unwrap_or_else(|error| panic!("{arch}, clang {version}: {error}"));
    let time = start.elapsed();
    let (expected_state, expected_y) = problem.expected();
    let state_error = error(&download(&device, new_state, expected_state.len()), &expected_state);
    let y_error = error(&download(&device, y, expected_y.len()), &expected_y);
    let Shape { heads, head_dim, d_state } = shape;
    println!(
        "{arch}, clang {version}, {heads}x{head_dim}x{d_state}: state off by {state_error:.1e}, y by {y_error:.1e}, \
         {:.0} ms",
        time.as_secs_f64() * 1e3
    );
    assert!(state_error < 1e-5 && y_error < 1e-4, "{arch}, clang {version}: {state_error:e}, {y_error:e}");

    // Each byte of state is read once and written once, and 32 lanes with 16 bytes each fill four lines of 128.
    let bytes = 4 * problem.state.len() as u64;
    let (read, written) = (counters.of_allocation(state), counters.of_allocation(new_state));
    assert_eq!((read.read, read.distinct_read, read.written), (bytes, bytes, 0));
    assert_eq!((written.written, written.distinct_written, written.read), (bytes, bytes, 0));
    assert_eq!(counters.of_allocation(y).written, 4 * problem.x.len() as u64);
    let stores = &counters.of_space(Space::Global).written;
    assert!(
        stores.lines128 >= bytes / 128 && stores.lines128 <= bytes / 128 + 2 * blocks[0] as u64 * 16 * heads as u64
    );
}

#[test]
fn the_step_is_that_of_the_definition() {
    for version in compilers() {
        for arch in targets() {
            let source = package().join("../hip/ssm_update.hip");
            let Some(object) = compile(version, arch, &source, &["-O3"]) else { continue };
            let image = std::fs::read(object).expect("it was just written");
            for (heads, head_dim, d_state) in [(48, 64, 128), (3, 37, 96), (2, 80, 16), (1, 1, 32)] {
                run(arch, version, &image, Shape { heads, head_dim, d_state });
            }
        }
    }
}
