//! `gpu/abi.h` as a C compiler lays it out, beside `ssm_update::ports::gpu::abi`: every field's offset, size and kind, and the
//! constants.

#![cfg(all(feature = "rocm", target_os = "linux"))]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::layout::{self, Field, Measured};
use common::scripted::compile;
use ssm_update::ports::gpu::abi::{self, Params};

/// The Rust side. The pattern makes the list complete: it does not compile with a field missing.
fn rust_fields() -> Vec<Field> {
    macro_rules! fields {
        ($($name:ident)*) => {{
            let Params { $($name),* } = Params::default();
            vec![$(Field::of(stringify!($name), std::mem::offset_of!(Params, $name), $name)),*]
        }};
    }
    fields!(
        x z b c dt a_log d dt_bias state_in state_out slots_in slots_out y
        x_stride z_stride b_stride c_stride dt_stride y_stride slots
        group_multiplier heads head_dim d_state row_lanes_log2 dt_min dt_max
        dt_dtype a_log_dtype d_dtype dt_bias_dtype flags first_batch unused
    )
}

fn rust_constants() -> BTreeMap<String, u64> {
    [
        ("SSM_F32", u64::from(abi::dtype::F32)),
        ("SSM_F16", abi::dtype::F16.into()),
        ("SSM_BF16", abi::dtype::BF16.into()),
        ("SSM_PREPARED_DT", abi::flags::PREPARED_DT.into()),
        ("SSM_WRITE_STATE", abi::flags::WRITE_STATE.into()),
        ("SSM_PREFETCH_STATE", abi::flags::PREFETCH_STATE.into()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn measure(name: &str, header: &str) -> Measured {
    layout::measure(name, header, "ssm_update_params", compile)
}

fn header() -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/abi.h");
    fs::read_to_string(path).expect("gpu/abi.h is there")
}

#[test]
fn every_field_of_the_parameter_struct_is_where_rust_has_it() {
    let measured = measure("fields", &header());
    assert_eq!(measured.fields, rust_fields());
    assert_eq!((measured.size, measured.alignment), (size_of::<Params>(), align_of::<Params>()));
    // No padding: every byte that is passed to the kernel was set.
    assert_eq!(measured.fields.iter().map(|field| field.size).sum::<usize>(), measured.size);
}

#[test]
fn every_constant_has_the_value_that_rust_has() {
    assert_eq!(measure("constants", &header()).constants, rust_constants());
}

/// The comparison is able to fail: changes of the header that somebody could make.
#[test]
fn a_changed_header_is_noticed() {
    let header = header();
    let (first, second) = ("    uint32_t heads;\n", "    uint32_t head_dim;\n");
    for (name, find, replace) in [
        ("swapped", format!("{first}{second}"), format!("{second}{first}")),
        ("narrower", "int64_t slots;".to_owned(), "int32_t slots;".to_owned()),
        ("other-kind", "float dt_min;".to_owned(), "uint32_t dt_min;".to_owned()),
        ("removed", first.to_owned(), String::new()),
        ("added", first.to_owned(), format!("{first}    uint32_t more;\n")),
    ] {
        assert_eq!(header.matches(&find).count(), 1, "{name}: {find}");
        assert_ne!(measure(name, &header.replace(&find, &replace)).fields, rust_fields(), "{name}");
    }
    let constants = header.replace("SSM_F16 = 1, SSM_BF16 = 2", "SSM_F16 = 2, SSM_BF16 = 1");
    assert_ne!(constants, header);
    assert_ne!(measure("constants-swapped", &constants).constants, rust_constants());
}
