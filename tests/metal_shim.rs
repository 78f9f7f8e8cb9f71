//! The shim on which the Metal kernel is tested notices what it is there for: each fault is planted into the kernel's source, which
//! is compiled and run, and has to be reported with its place.

#![cfg(all(feature = "metal", target_os = "linux"))]

mod common;

use common::case::{Case, Optional};
use common::fixture::Fixture;
use common::metal_shim::{self, Shim, ShimGpu};
use common::run::{Level, run, run_checked};
use ssm_update::ports::metal::key::Key;
use ssm_update::ports::metal::{MetalKernel, source};
use ssm_update::{Dtype, Error};

/// The kernel that all of them are planted into.
const KEY: Key = Key { x: Dtype::F32, bc: Dtype::F32, state: Dtype::F32, chunks: 1 };

/// A step in which lanes are left over: rows that fill no SIMD-group, columns that fill no lanes.
fn case() -> Case {
    Case { optional: Optional::ALL, ..Case::new(2, 3, 5, 1, 48) }
}

/// The outcome of a step on the kernel with one text in place of another.
fn outcome(find: &str, replace: &str, level: Level) -> Result<(), Error> {
    let source = source::of(&KEY);
    assert_eq!(source.matches(find).count(), 1, "{find}");
    let compilers = metal_shim::compilers();
    let (compiler, banner) = compilers.first().expect("clang++ is needed; scripts/setup.sh installs it on Debian");
    let kernels = metal_shim::keys_source(&[KEY], |_| source.replace(find, replace));
    let shim = Box::leak(Box::new(Shim::of(&metal_shim::build(compiler, banner, &kernels))));
    let kernel = MetalKernel::open(ShimGpu::new(shim)).expect("the kernel is there");
    run(&kernel, &mut Fixture::new(&case()), level)
}

#[test]
fn the_kernel_as_it_is_passes() {
    let kernel = metal_shim::open().expect("clang++ is needed; scripts/setup.sh installs it on Debian");
    for level in Level::ALL {
        run_checked(&kernel, &Fixture::new(&case()), level).expect("a legal step");
    }
}

#[test]
fn the_kernel_compiles_without_warnings() {
    let keys: Vec<Key> = Key::all().collect();
    for (compiler, _) in metal_shim::compilers() {
        metal_shim::check(compiler, &metal_shim::keys_source(&keys, source::of));
    }
}

#[test]
#[should_panic(expected = "unused variable 'leftover'")]
fn a_warning_is_noticed() {
    let source = source::of(&KEY).replace("const bool frozen", "int leftover; const bool frozen");
    let (compiler, _) = metal_shim::compilers().remove(0);
    metal_shim::check(compiler, &metal_shim::keys_source(&[KEY], |_| source.clone()));
}

/// Runs the step on a changed kernel, which has to fail with these words and the place of the change.
#[track_caller]
fn faulty(find: &str, replace: &str, level: Level, wanted: &[&str]) {
    let error = outcome(find, replace, level).expect_err("a fault").to_string();
    for wanted in wanted.iter().chain(&["metal/ssm_update.metal:", "ssm_update_f32_f32_f32_k1", "in lane "]) {
        assert!(error.contains(wanted), "{wanted} in: {error}");
    }
}

const RESULT: &str = "if (writer && has_row[t]) y_rows[row[t]] = X::narrow(sum[t]);";

#[test]
fn a_read_beyond_a_tensor() {
    let (find, replace) = ("if (has_row[t] && has_columns[k])", "if (has_columns[k])");
    faulty(find, replace, Level::Slices, &["4 bytes are read at byte 5952 of state_in, which has 5760"]);
}

#[test]
fn a_read_in_front_of_a_tensor() {
    let (find, replace) = ("load<SSM_BC>(b_row + column[k])", "load<SSM_BC>(b_row + column[k] - p.d_state)");
    faulty(find, replace, Level::Launch, &["4 bytes are read at byte -192 of b, which has 384"]);
}

#[test]
fn a_write_beyond_a_tensor() {
    let replace = RESULT.replace("y_rows[row[t]]", "y_rows[row[t] + 2 * 3 * 5]");
    faulty(RESULT, &replace, Level::Slices, &["4 bytes are written at byte 120 of y, which has 120"]);
}

#[test]
fn a_write_to_what_is_read_only() {
    let replace = "device STATE::word *const state_to = (device STATE::word *)state_in + (ulong(to) * slot_rows + head_row) * p.d_state;";
    let find = "device STATE::word *const state_to = state_out + (ulong(to) * slot_rows + head_row) * p.d_state;";
    faulty(find, replace, Level::Slices, &["4 bytes are written at byte 0 of state_in (read only)"]);
}

#[test]
fn a_read_of_what_nobody_wrote() {
    let (find, replace) = ("X::widen(x_rows[row[t]])", "X::widen(y_rows[row[t]])");
    faulty(find, replace, Level::Slices, &["4 bytes are read at byte 0 of y, which nobody has written"]);
}

#[test]
fn a_read_of_what_another_thread_may_be_writing() {
    let replace = format!("{RESULT} if (X::widen(y_rows[0]) == 77.0f) y_rows[row[0]] = X::narrow(0.0f);");
    faulty(RESULT, &replace, Level::Slices, &["bytes are read at byte ", "of y, which this dispatch has written"]);
}

#[test]
fn two_threads_that_write_one_element() {
    let replace = RESULT.replace("writer && ", "");
    faulty(RESULT, &replace, Level::Slices, &["written at byte 0 of y for the second time in one dispatch, in lane 1"]);
}

#[test]
fn a_shuffle_that_not_all_lanes_come_to() {
    let find = "for (uint log2 = 0; log2 < p.row_lanes_log2; log2++)";
    let replace = format!("if (lane != 3) {find}");
    faulty(find, &replace, Level::Slices, &["a shuffle with lane 3, which is not at this shuffle, in lane 2"]);
}

#[test]
fn lanes_at_different_shuffles() {
    let (find, replace) = ("ushort(1u << log2)", "ushort(1u << (lane < 3 ? log2 : 1 - log2 % 2))");
    faulty(find, replace, Level::Slices, &["which is not at this shuffle"]);
}

#[test]
fn a_vector_at_an_address_that_it_is_not_aligned_for() {
    let find = "*(device const typename element<E>::packed *)at";
    let replace = "*(device const typename element<E>::words *)at";
    // At launch level, tensors begin at any element.
    faulty(find, replace, Level::Launch, &["to which it is not aligned"]);
}

#[test]
fn an_element_beyond_a_local_array() {
    let replace = RESULT.replace("X::narrow(sum[t])", "X::narrow(sum[t + lane])");
    faulty(RESULT, &replace, Level::Slices, &["element 16 of a local array that has fewer"]);
}

#[test]
fn a_shift_by_too_much() {
    let (find, replace) = ("uint(WAVE) >> p.row_lanes_log2", "uint(WAVE) >> (p.row_lanes_log2 + 31u)");
    faulty(find, replace, Level::Slices, &["a shift by 35"]);
}

/// What the language does not have, or reserves, does not compile.
#[test]
#[should_panic(expected = "expected unqualified-id")]
fn a_variable_by_the_name_of_a_type() {
    let _ = outcome(
        "const bool writer = first_column == 0;",
        "const bool writer = first_column == 0; uint half = 1;",
        Level::Slices,
    );
}

#[test]
#[should_panic(expected = "no_bfloat_before_3_1")]
fn bfloat_in_a_language_without_it() {
    let _ = outcome("typedef half f16;", "typedef half f16; typedef bfloat bf16;", Level::Slices);
}

/// A launch after one that failed is not troubled by it.
#[test]
fn a_fault_leaves_no_trace() {
    let replace = RESULT.replace("y_rows[row[t]]", "y_rows[row[t] + 2 * 3 * 5]");
    assert!(outcome(RESULT, &replace, Level::Slices).is_err());
    the_kernel_as_it_is_passes();
}
