//! The step on the CPU, written once over [`Vector`]: a launch is a list of blocks, a block is up to [`BLOCK`] rows of one
//! head of one batch row.

use std::ffi::c_void;
use std::ops::Range;

use half::{bf16, f16};

use super::isa::{Isa, Level};
use super::portable::Portable;
use super::vector::{GROUP, Lanes, Vector};
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
use crate::{Dt, Dtype, Launch};

/// Rows of one block: small enough that batch 1 feeds many threads, large enough that what is done once per block does not
/// count. A multiple of [`GROUP`], so that a row's place in its group does not depend on the cut.
const BLOCK: usize = 64;

/// Rows that share one load of B and C. Two are nearly one sequential stream, which the caches follow best: four and eight
/// rows were up to 1.3 times slower from memory on a Xeon (Sapphire Rapids class), one row no faster.
const TILE: usize = 2;

/// Bytes by which loads are asked for in advance: a page's half. The hardware's own prefetching stops at page ends.
const AHEAD: usize = 2048;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Heads whose step size and decay are computed together: one vector of the widest instruction set.
const HEADS: usize = 16;

/// A launch, cut into blocks.
pub(super) struct Plan<'a> {
    launch: &'a Launch,
    functions: Functions,
    /// Blocks of one head.
    blocks_per_head: usize,
}

// SAFETY: a plan only holds the launch's addresses; reading and writing through them is `run`, whose callers vouch that no
// two threads have the same blocks.
unsafe impl Sync for Plan<'_> {}

/// The two loops of an instruction set for a launch's dtypes.
#[derive(Clone, Copy)]
struct Functions {
    rates: unsafe fn(&mut Rates, Dt),
    block: unsafe fn(&Block),
}

/// Step size and decay of some heads.
struct Rates {
    /// dt (with its bias) to begin with, then dt'.
    dt: [f32; HEADS],
    /// A_log to begin with, then the decay.
    decay: [f32; HEADS],
}

/// What one block computes. Pointers are to the block's first row, or to the head's row of B and C.
struct Block {
    x: *const c_void,
    /// Null: no gate.
    z: *const c_void,
    y: *mut c_void,
    b: *const c_void,
    c: *const c_void,
    state_in: *const c_void,
    /// Null: the state is not written.
    state_out: *mut c_void,
    rows: usize,
    d_state: usize,
    decay: f32,
    dt: f32,
    d: Option<f32>,
}

/// B of a head whose step size is zero: with it, dt' * x = 0 and a decay of one, the recurrence gives back the state as it
/// was, also where the real B is infinite. Zero bytes are zero in each dtype.
static ZEROS: [f32; 512] = [0.0; 512];

impl<'a> Plan<'a> {
    pub(super) fn new(launch: &'a Launch, isa: Isa) -> Self {
        let blocks_per_head = launch.problem().dims.head_dim.div_ceil(BLOCK);
        Self { launch, functions: functions(launch, isa), blocks_per_head }
    }

    pub(super) fn blocks(&self) -> usize {
        let dims = &self.launch.problem().dims;
        dims.batch * dims.heads * self.blocks_per_head
    }

    /// Bytes of state that the launch reads.
    pub(super) fn state_bytes(&self) -> usize {
        let problem = self.launch.problem();
        let dims = &problem.dims;
        (dims.batch * dims.heads).saturating_mul(dims.head_dim * dims.d_state * problem.dtypes.state.size())
    }

    /// Runs a range of blocks.
    ///
    /// # Safety
    ///
    /// The contract of [`Kernel::launch`](crate::Kernel::launch), with slots that passed `validate_slots`; nobody else
    /// runs these blocks at the same time.
    pub(super) unsafe fn run(&self, blocks: Range<usize>) {
        let per_head = self.blocks_per_head;
        let heads = blocks.start / per_head..blocks.end.div_ceil(per_head);
        for first in heads.clone().step_by(HEADS) {
            let heads = first..heads.end.min(first + HEADS);
            // SAFETY: this function's own contract; these heads have blocks in the range.
            unsafe {
                let rates = self.rates(heads.clone());
                for block in blocks.start.max(heads.start * per_head)..blocks.end.min(heads.end * per_head) {
                    let head = block / per_head;
                    self.run_block(head, block % per_head * BLOCK, rates.dt[head - first], rates.decay[head - first]);
                }
            }
        }
    }

    /// The state rows that a batch row reads and writes; `None`: it is padding.
    unsafe fn slots(&self, b: usize) -> Option<(usize, usize)> {
        let at = self.launch.at();
        // SAFETY: the caller vouches for `batch` indices behind each list that is not null.
        let slot =
            |list: *const i32| unsafe { if list.is_null() { Some(b) } else { usize::try_from(*list.add(b)).ok() } };
        Some((slot(at.slots_in)?, if self.launch.problem().update_state { slot(at.slots_out)? } else { 0 }))
    }

    /// Step size and decay of at most [`HEADS`] heads, which are counted through the batch. Those of padding mean nothing.
    unsafe fn rates(&self, heads: Range<usize>) -> Rates {
        let (problem, at) = (self.launch.problem(), self.launch.at());
        let (dims, dtypes) = (&problem.dims, &problem.dtypes);
        let mut rates = Rates { dt: [0.0; HEADS], decay: [0.0; HEADS] };
        for (index, head) in heads.enumerate() {
            let (b, h) = (head / dims.heads, head % dims.heads);
            // SAFETY: `validate` has checked that these offsets do not overflow, and the caller vouches for the tensors,
            // of which padding's inputs are not read.
            unsafe {
                if self.slots(b).is_none() {
                    continue;
                }
                let bias = if at.dt_bias.is_null() { 0.0 } else { widen(at.dt_bias, dtypes.dt_bias, h) };
                rates.dt[index] = widen(at.dt, dtypes.dt, b * problem.strides.dt + h) + bias;
                rates.decay[index] = widen(at.a_log, dtypes.a_log, h);
            }
        }
        // SAFETY: `Isa` witnesses the instructions.
        unsafe { (self.functions.rates)(&mut rates, problem.dt) };
        rates
    }

    /// Runs the block that starts at row `row` of a head; heads are counted through the batch.
    unsafe fn run_block(&self, head: usize, row: usize, dt: f32, decay: f32) {
        let (problem, at) = (self.launch.problem(), self.launch.at());
        let (dims, dtypes, strides) = (&problem.dims, &problem.dtypes, &problem.strides);
        let (b, h) = (head / dims.heads, head % dims.heads);
        let rows = BLOCK.min(dims.head_dim - row);
        let channel = h * dims.head_dim + row;
        let group = h / (dims.heads / dims.groups);

        // SAFETY: `validate` has checked that these offsets do not overflow, and the caller vouches for the tensors.
        unsafe {
            let y = element_mut(at.y, dtypes.x, b * strides.y + channel);
            let Some((from, to)) = self.slots(b) else {
                y.cast::<u8>().write_bytes(0, rows * dtypes.x.size());
                return;
            };
            let d = (!at.d.is_null()).then(|| widen(at.d, dtypes.d, h));
            let frozen = dt == 0.0;

            let slot_rows = dims.heads * dims.head_dim;
            let state_in = element(at.state_in, dtypes.state, (from * slot_rows + channel) * dims.d_state);
            let state_out = element_mut(at.state_out, dtypes.state, (to * slot_rows + channel) * dims.d_state);
            if problem.update_state && frozen && !std::ptr::eq(state_in, state_out) {
                let bytes = rows * dims.d_state * dtypes.state.size();
                state_in.cast::<u8>().copy_to_nonoverlapping(state_out.cast::<u8>(), bytes);
            }
            let b_row = element(at.b, dtypes.bc, b * strides.b + group * dims.d_state);

            (self.functions.block)(&Block {
                x: element(at.x, dtypes.x, b * strides.x + channel),
                z: if at.z.is_null() { at.z } else { element(at.z, dtypes.x, b * strides.z + channel) },
                y,
                b: if frozen { ZEROS.as_ptr().cast() } else { b_row },
                c: element(at.c, dtypes.bc, b * strides.c + group * dims.d_state),
                state_in,
                state_out: if problem.update_state && !frozen { state_out } else { std::ptr::null_mut() },
                rows,
                d_state: dims.d_state,
                decay: if frozen { 1.0 } else { decay },
                dt,
                d,
            });
        }
    }
}

/// # Safety
///
/// The element lies in the tensor that starts at `at`.
unsafe fn element(at: *const c_void, dtype: Dtype, index: usize) -> *const c_void {
    // SAFETY: this function's own contract.
    unsafe { at.byte_add(index * dtype.size()) }
}

/// The address of an element to write; of a null tensor, an address that nobody uses.
fn element_mut(at: *mut c_void, dtype: Dtype, index: usize) -> *mut c_void {
    at.wrapping_byte_add(index * dtype.size())
}

/// # Safety
///
/// The element lies in the tensor that starts at `at`.
unsafe fn widen(at: *const c_void, dtype: Dtype, index: usize) -> f32 {
    // SAFETY: this function's own contract.
    unsafe {
        let at = element(at, dtype, index);
        match dtype {
            Dtype::F32 => *at.cast::<f32>(),
            Dtype::F16 => at.cast::<f16>().read().to_f32(),
            Dtype::Bf16 => at.cast::<bf16>().read().to_f32(),
        }
    }
}

/// dt' and decay of every head in `rates`, in plain arithmetic on arrays that becomes vector instructions.
#[inline(always)]
fn rates(rates: &mut Rates, mode: Dt) {
    if let Dt::Raw { min, max } = mode {
        for dt in &mut rates.dt {
            *dt = softplus(*dt);
            // Comparisons instead of min and max, so that NaN stays.
            *dt = if *dt < min { min } else { *dt };
            *dt = if *dt > max { max } else { *dt };
        }
    }
    for (decay, dt) in rates.decay.iter_mut().zip(&rates.dt) {
        *decay = exp(-exp(*decay) * dt);
    }
}

/// One block: T is the dtype of x, z and y, BC of B and C, U of the state.
///
/// # Safety
///
/// The processor has V's instructions, and the block's pointers hold what its sizes say.
#[inline(always)]
unsafe fn block<V: Vector, T: Lanes, BC: Lanes, U: Lanes>(block: &Block) {
    // SAFETY: this function's own contract; every offset is below the sizes in the block.
    unsafe {
        let x = load_block::<V, T>(block.x.cast(), block.rows);
        // Not 0 * x, which is NaN for an infinite x.
        let dtx = if block.dt == 0.0 { [0.0; BLOCK] } else { x.map(|x| block.dt * x) };
        let mut sums = [0.0; BLOCK];
        let whole = block.rows / GROUP * GROUP;
        for row in (0..whole).step_by(GROUP) {
            let mut group = [V::splat(0.0); GROUP];
            for (tile, row) in group.as_chunks_mut().0.iter_mut().zip((row..).step_by(TILE)) {
                *tile = tile_sums::<V, BC, U, TILE>(block, row, &dtx);
            }
            sums[row..row + GROUP].copy_from_slice(&V::sums(group));
        }
        for (row, sum) in sums.iter_mut().enumerate().take(block.rows).skip(whole) {
            let [lanes] = tile_sums::<V, BC, U, 1>(block, row, &dtx);
            *sum = lanes.sum();
        }

        if let Some(d) = block.d {
            for (sum, x) in sums.iter_mut().zip(&x) {
                *sum += d * x;
            }
        }
        if !block.z.is_null() {
            let z = load_block::<V, T>(block.z.cast(), block.rows);
            for (sum, z) in sums.iter_mut().zip(&z) {
                *sum *= z / (1.0 + exp(-z));
            }
        }
        store_block::<V, T>(&sums, block.y.cast(), block.rows);
    }
}

/// Updates R rows from `row` on and gives, per row and lane, the sums of s' * C. The one place where state is touched.
#[inline(always)]
unsafe fn tile_sums<V: Vector, BC: Lanes, U: Lanes, const R: usize>(
    block: &Block,
    row: usize,
    dtx: &[f32; BLOCK],
) -> [V; R] {
    let n = block.d_state;
    let writes = !block.state_out.is_null();
    let moves = writes && !std::ptr::eq(block.state_in, block.state_out);
    // SAFETY: the contract of `block`; d_state is a multiple of 16 and therefore of LANES.
    unsafe {
        let state_in = block.state_in.cast::<U>().add(row * n);
        let state_out = block.state_out.cast::<U>().wrapping_add(row * n);
        let (b, c) = (block.b.cast::<BC>(), block.c.cast::<BC>());
        let decay = V::splat(block.decay);
        let mut x = [V::splat(0.0); R];
        for r in 0..R {
            x[r] = V::splat(dtx[row + r]);
        }
        let mut sums = [V::splat(0.0); R];
        for column in (0..n).step_by(V::LANES) {
            let (b, c) = (BC::load::<V>(b.add(column)), BC::load::<V>(c.add(column)));
            for r in 0..R {
                let (from, to) = (state_in.add(r * n + column), state_out.wrapping_add(r * n + column));
                if column % (LINE / size_of::<U>()) == 0 {
                    V::prefetch_read(from.cast::<u8>().wrapping_add(AHEAD));
                    if moves {
                        V::prefetch_write(to.cast::<u8>().wrapping_add(AHEAD));
                    }
                }
                let state = U::load::<V>(from).mul_add(decay, x[r].mul(b));
                if writes {
                    U::store(state, to);
                }
                sums[r] = state.mul_add(c, sums[r]);
            }
        }
        sums
    }
}

/// Widens `rows` elements; the rest is zero.
#[inline(always)]
unsafe fn load_block<V: Vector, T: Lanes>(at: *const T, rows: usize) -> [f32; BLOCK] {
    let mut wide = [0.0; BLOCK];
    let whole = rows / V::LANES * V::LANES;
    // SAFETY: the caller vouches for `rows` elements, and `rows` is at most BLOCK.
    unsafe {
        for row in (0..whole).step_by(V::LANES) {
            T::load::<V>(at.add(row)).store_f32(wide.as_mut_ptr().add(row));
        }
        for (row, wide) in wide.iter_mut().enumerate().take(rows).skip(whole) {
            *wide = at.add(row).read().to_f32();
        }
    }
    wide
}

/// Rounds and stores `rows` elements.
#[inline(always)]
unsafe fn store_block<V: Vector, T: Lanes>(values: &[f32; BLOCK], at: *mut T, rows: usize) {
    let whole = rows / V::LANES * V::LANES;
    // SAFETY: the caller vouches for `rows` elements, and `rows` is at most BLOCK.
    unsafe {
        for row in (0..whole).step_by(V::LANES) {
            T::store(V::load_f32(values.as_ptr().add(row)), at.add(row));
        }
        for (row, &value) in values.iter().enumerate().take(rows).skip(whole) {
            at.add(row).write(T::from_f32(value));
        }
    }
}

/// `e^x` within 2 ulp over the whole range, subnormal results, overflow, infinities and NaN included, in arithmetic that the
/// compiler turns into vectors. Reduction by ln 2 in two parts (Cody and Waite), then the Taylor polynomial of degree 7 on
/// [-ln 2 / 2, ln 2 / 2], whose remainder is below 6e-9 relative.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Beyond these, the result is 0 or infinity. Comparisons instead of clamp or max, so that NaN passes through.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * r + 1.0;
    let p = p * r + 1.0;
    // 2^n in two factors, since n reaches from -150 to 128 and an exponent field does not.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    p * power(half) * power(n.wrapping_sub(half))
}

/// `ln(1 + e^x)` to a few ulp: no loss for very negative x, where adding 1 would lose `e^x`, no overflow for large x.
#[inline(always)]
fn softplus(x: f32) -> f32 {
    // With e = e^-|x| in [0, 1]: ln(1 + e) = 2 atanh(s), s = e / (2 + e) <= 1/3, by its series. The first term left out is
    // below 4e-9 relative. NaN is in both summands, infinity in one.
    let e = exp(-x.abs());
    let s = e / (2.0 + e);
    let q = s * s;
    let p = 1.0 / 15.0;
    let p = p * q + 1.0 / 13.0;
    let p = p * q + 1.0 / 11.0;
    let p = p * q + 1.0 / 9.0;
    let p = p * q + 1.0 / 7.0;
    let p = p * q + 1.0 / 5.0;
    let p = p * q + 1.0 / 3.0;
    let log = 2.0 * (s + s * q * p);
    if x > 0.0 { x + log } else { log }
}

/// The entry points of one instruction set.
macro_rules! entries {
    ($rates:ident, $block:ident, $vector:ty $(, $features:literal)?) => {
        /// # Safety
        ///
        /// The processor has the instructions.
        $(#[target_feature(enable = $features)])?
        unsafe fn $rates(heads: &mut Rates, mode: Dt) {
            rates(heads, mode);
        }

        /// # Safety
        ///
        /// As [`block`].
        $(#[target_feature(enable = $features)])?
        unsafe fn $block<T: Lanes, BC: Lanes, U: Lanes>(job: &Block) {
            // SAFETY: this function's own contract.
            unsafe { block::<$vector, T, BC, U>(job) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
entries!(
    rates_avx512bf16,
    block_avx512bf16,
    Avx512<true>,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"
);
#[cfg(target_arch = "x86_64")]
entries!(rates_avx512, block_avx512, Avx512<false>, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
entries!(rates_avx2, block_avx2, Avx2, "avx2,fma,f16c");
entries!(rates_portable, block_portable, Portable);

/// The functions of an instruction set for a launch's dtypes.
fn functions(launch: &Launch, isa: Isa) -> Functions {
    let dtypes = &launch.problem().dtypes;
    macro_rules! by_state {
        ($block:ident, $t:ty, $bc:ty) => {
            match dtypes.state {
                Dtype::F32 => $block::<$t, $bc, f32>,
                Dtype::F16 => $block::<$t, $bc, f16>,
                Dtype::Bf16 => $block::<$t, $bc, bf16>,
            }
        };
    }
    macro_rules! by_dtypes {
        ($rates:ident, $block:ident) => {
            Functions {
                rates: $rates,
                // `validate` has refused any other pair of x and B/C.
                block: match (dtypes.x, dtypes.bc) {
                    (Dtype::F32, _) => by_state!($block, f32, f32),
                    (Dtype::F16, Dtype::F32) => by_state!($block, f16, f32),
                    (Dtype::F16, _) => by_state!($block, f16, f16),
                    (Dtype::Bf16, Dtype::F32) => by_state!($block, bf16, f32),
                    (Dtype::Bf16, _) => by_state!($block, bf16, bf16),
                },
            }
        };
    }
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Bf16 => by_dtypes!(rates_avx512bf16, block_avx512bf16),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => by_dtypes!(rates_avx512, block_avx512),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => by_dtypes!(rates_avx2, block_avx2),
        Level::Portable => by_dtypes!(rates_portable, block_portable),
    }
}
