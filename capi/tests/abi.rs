//! The structs and constants of `include/ssm_update.h` as a C compiler lays them out, beside Rust's.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/common/layout.rs"]
mod layout;

use std::collections::BTreeMap;
use std::fs;

use layout::{Field, Kind, Measured};
use ssm_update_capi::{Dims, Dt, Dtype, Launch, Status, ssm_update_launch_init};

impl Kind for Dims {
    const KIND: &'static str = "struct";
}

/// The fields of a struct. The pattern makes the list complete: it does not compile with a field missing.
macro_rules! fields {
    ($of:ident, $value:expr, $($name:ident)*) => {{
        let $of { $($name),* } = $value;
        vec![$(Field::of(stringify!($name), std::mem::offset_of!($of, $name), $name)),*]
    }};
}

fn launch_fields() -> Vec<Field> {
    let mut launch = std::mem::MaybeUninit::<Launch>::zeroed();
    // SAFETY: a place for the struct, and sizes.
    let status = unsafe { ssm_update_launch_init(launch.as_mut_ptr(), size_of::<Launch>(), &Dims::default()) };
    assert_eq!(status, Status::Ok);
    // SAFETY: all of it was written.
    let launch = unsafe { launch.assume_init() };
    fields!(
        Launch, launch,
        struct_size dims x_dtype bc_dtype dt_dtype a_log_dtype d_dtype dt_bias_dtype state_dtype dt_mode dt_min dt_max
        update_state reserved x_stride z_stride b_stride c_stride dt_stride y_stride
        x z b c dt a_log d dt_bias state_in state_out slots_in slots_out y stream
    )
}

fn dims_fields() -> Vec<Field> {
    fields!(Dims, Dims::default(), batch heads head_dim groups d_state slots)
}

fn constants() -> BTreeMap<String, u64> {
    [
        ("SSM_UPDATE_STATUS_OK", Status::Ok as u64),
        ("SSM_UPDATE_STATUS_UNSUPPORTED", Status::Unsupported as u64),
        ("SSM_UPDATE_STATUS_INVALID", Status::Invalid as u64),
        ("SSM_UPDATE_STATUS_UNAVAILABLE", Status::Unavailable as u64),
        ("SSM_UPDATE_STATUS_DRIVER", Status::Driver as u64),
        ("SSM_UPDATE_STATUS_INTERNAL", Status::Internal as u64),
        ("SSM_UPDATE_DTYPE_F32", Dtype::F32 as u64),
        ("SSM_UPDATE_DTYPE_F16", Dtype::F16 as u64),
        ("SSM_UPDATE_DTYPE_BF16", Dtype::Bf16 as u64),
        ("SSM_UPDATE_DT_RAW", Dt::Raw as u64),
        ("SSM_UPDATE_DT_PREPARED", Dt::Prepared as u64),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn measure(name: &str, header: &str, of: &str) -> Measured {
    layout::measure(name, header, of, |arguments| common::compile(false, arguments))
}

fn header() -> String {
    fs::read_to_string(common::header()).expect("the header is there")
}

#[test]
fn every_field_is_where_rust_has_it() {
    let header = header();
    let launch = measure("launch", &header, "ssm_update_launch");
    assert_eq!(launch.fields, launch_fields());
    assert_eq!((launch.size, launch.alignment), (size_of::<Launch>(), align_of::<Launch>()));
    // No padding: zeroed by C or not, every byte is a field's.
    assert_eq!(launch.fields.iter().map(|field| field.size).sum::<usize>(), launch.size);
    let dims = measure("dims", &header, "ssm_update_dims");
    assert_eq!(dims.fields, dims_fields());
    assert_eq!((dims.size, dims.alignment), (size_of::<Dims>(), align_of::<Dims>()));
}

#[test]
fn every_constant_has_the_value_that_rust_has() {
    assert_eq!(measure("constants", &header(), "ssm_update_launch").constants, constants());
}

/// What has been published stays: these numbers are in programs that are compiled already. A field may be added at the end, and a
/// constant; anything else is a new SSM_UPDATE_ABI_VERSION.
#[test]
fn the_first_version_of_the_struct_is_where_it_was() {
    assert_eq!(ssm_update_capi::SSM_UPDATE_ABI_VERSION, 0);
    #[cfg(target_pointer_width = "64")]
    {
        let fields = launch_fields();
        let offset = |name: &str| fields.iter().find(|field| field.name == name).expect("a field").offset;
        let found =
            ["dims", "x_dtype", "dt_min", "update_state", "x_stride", "x", "state_in", "y", "stream"].map(offset);
        assert_eq!(found, [8, 56, 88, 96, 104, 152, 216, 248, 256]);
    }
}

/// The comparison is able to fail: changes of the header that somebody could make.
#[test]
fn a_changed_header_is_noticed() {
    let header = header();
    for (name, find, replace) in [
        ("swapped", "const void *b;", "const void *b_;"),
        ("narrower", "size_t x_stride;", "int32_t x_stride;"),
        ("other-kind", "float dt_min;", "uint32_t dt_min;"),
        ("removed", "int32_t dt_mode;", ""),
        ("added", "void *stream;", "void *stream;\n    size_t more;"),
    ] {
        assert_eq!(header.matches(find).count(), 1, "{name}: {find}");
        let changed = measure(name, &header.replace(find, replace), "ssm_update_launch");
        assert_ne!(changed.fields, launch_fields(), "{name}");
    }
    assert_eq!(header.matches("SSM_UPDATE_DTYPE_F16 = 1").count(), 1);
    let changed = header.replace("SSM_UPDATE_DTYPE_F16 = 1", "SSM_UPDATE_DTYPE_F16 = 3");
    assert_ne!(measure("constant", &changed, "ssm_update_launch").constants, constants());
}
