//! `metal/abi.h` as compilers lay it out, beside `ssm_update::ports::metal::abi`: every field's offset, size and kind, and every
//! constant.

#![cfg(all(feature = "metal", target_os = "linux"))]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::Command;

use common::layout::{self, Field, Measured};
use common::metal_shim::compilers;
use ssm_update::ports::metal::abi::{Constants, at, dtype, flags};

const HEADER: &str = include_str!("../metal/abi.h");

/// The Rust side. The pattern makes the list complete: it does not compile with a field missing.
fn rust_fields() -> Vec<Field> {
    macro_rules! fields {
        ($($name:ident)*) => {{
            let Constants { $($name),* } = Constants::default();
            vec![$(Field::of(stringify!($name), std::mem::offset_of!(Constants, $name), $name)),*]
        }};
    }
    fields!(
        x_stride z_stride b_stride c_stride dt_stride y_stride slots
        heads head_dim heads_per_group d_state row_lanes_log2 first_batch flags dt_min dt_max
        dt_dtype a_log_dtype d_dtype dt_bias_dtype
    )
}

fn rust_constants() -> BTreeMap<String, u64> {
    let numbers = [
        ("SSM_F32", usize::from(dtype::F32)),
        ("SSM_F16", dtype::F16.into()),
        ("SSM_BF16", dtype::BF16.into()),
        ("SSM_AT_X", at::X),
        ("SSM_AT_Z", at::Z),
        ("SSM_AT_B", at::B),
        ("SSM_AT_C", at::C),
        ("SSM_AT_DT", at::DT),
        ("SSM_AT_A_LOG", at::A_LOG),
        ("SSM_AT_D", at::D),
        ("SSM_AT_DT_BIAS", at::DT_BIAS),
        ("SSM_AT_STATE_IN", at::STATE_IN),
        ("SSM_AT_STATE_OUT", at::STATE_OUT),
        ("SSM_AT_SLOTS_IN", at::SLOTS_IN),
        ("SSM_AT_SLOTS_OUT", at::SLOTS_OUT),
        ("SSM_AT_Y", at::Y),
        ("SSM_AT_CONSTANTS", at::CONSTANTS),
    ];
    let bits = [
        ("SSM_PREPARED_DT", flags::PREPARED_DT),
        ("SSM_WRITE_STATE", flags::WRITE_STATE),
        ("SSM_HAS_Z", flags::HAS_Z),
        ("SSM_HAS_D", flags::HAS_D),
        ("SSM_HAS_DT_BIAS", flags::HAS_DT_BIAS),
        ("SSM_HAS_SLOTS_IN", flags::HAS_SLOTS_IN),
        ("SSM_HAS_SLOTS_OUT", flags::HAS_SLOTS_OUT),
    ];
    let numbers = numbers.map(|(name, value)| (name.to_owned(), value as u64));
    numbers.into_iter().chain(bits.map(|(name, value)| (name.to_owned(), value.into()))).collect()
}

/// Measures a header with each compiler that is there, and gives what the last one says.
fn measure(name: &str, header: &str) -> Measured {
    let compilers = compilers();
    assert!(!compilers.is_empty(), "clang++ is needed; scripts/setup.sh installs it on Debian");
    let of_compiler = |(compiler, _): &(&str, String)| {
        let compile = |arguments: &[&OsStr]| {
            let mut command = Command::new(compiler);
            command.args(["-x", "c", "-std=c11", "-Wall", "-Wextra"]).args(arguments);
            let output = command.output().expect("the compiler starts");
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        layout::measure(&format!("{name}-{compiler}"), header, "ssm_update_constants", compile)
    };
    let mut measured: Vec<Measured> = compilers.iter().map(of_compiler).collect();
    let last = measured.pop().expect("there is a compiler");
    assert!(measured.iter().all(|other| other.fields == last.fields), "every compiler lays it out alike");
    last
}

#[test]
fn every_field_of_the_constants_is_where_rust_has_it() {
    let measured = measure("fields", HEADER);
    assert_eq!(measured.fields, rust_fields());
    assert_eq!((measured.size, measured.alignment), (size_of::<Constants>(), align_of::<Constants>()));
    // No padding: every byte that the kernel gets was set.
    assert_eq!(measured.fields.iter().map(|field| field.size).sum::<usize>(), measured.size);
    // What setBytes takes, and what a system may ask of the constants' alignment.
    assert!(measured.size <= 4096 && measured.size.is_multiple_of(16), "{}", measured.size);
}

#[test]
fn every_constant_has_the_value_that_rust_has() {
    assert_eq!(measure("constants", HEADER).constants, rust_constants());
}

/// The comparison is able to fail: changes of the header that somebody could make.
#[test]
fn a_changed_header_is_noticed() {
    let first = "    int64_t b_stride;\n";
    for (name, find, replace) in [
        ("swapped", "    int64_t b_stride;\n    int64_t c_stride;\n", "    int64_t c_stride;\n    int64_t b_stride;\n"),
        ("other-kind", "float dt_min;", "uint32_t dt_min;"),
        ("removed", first, ""),
        ("added", first, "    int64_t b_stride;\n    int64_t more;\n"),
    ] {
        assert_eq!(HEADER.matches(find).count(), 1, "{name}: {find}");
        assert_ne!(measure(name, &HEADER.replace(find, replace)).fields, rust_fields(), "{name}");
    }
    for (name, find, replace) in [
        ("tags", "SSM_F16 = 1, SSM_BF16 = 2", "SSM_F16 = 2, SSM_BF16 = 1"),
        ("buffers", "SSM_AT_B = 2,", "SSM_AT_B = 3,"),
        ("flags", "SSM_HAS_D = 8", "SSM_HAS_D = 128"),
    ] {
        assert_eq!(HEADER.matches(find).count(), 1, "{name}: {find}");
        assert_ne!(measure(name, &HEADER.replace(find, replace)).constants, rust_constants(), "{name}");
    }
}
