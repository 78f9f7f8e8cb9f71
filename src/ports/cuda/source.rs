//! The kernel's source, as it is on board.

use crate::driver::cuda::nvrtc::Source;

/// The kernel with everything that it includes.
pub const KERNEL: Source<'static> = Source {
    name: "cuda/ssm_update.cu",
    text: include_str!("../../../cuda/ssm_update.cu"),
    headers: &[
        ("../gpu/abi.h", include_str!("../../../gpu/abi.h")),
        ("../gpu/arithmetic.h", include_str!("../../../gpu/arithmetic.h")),
        ("stdint.h", include_str!("../../../cuda/stdint.h")),
    ],
};

/// The function in it.
pub const ENTRY: &str = "ssm_update";

/// The smallest kernel: that it compiles and loads shows that the compiler is whole and that the driver takes what it makes.
pub const PROBE: Source<'static> =
    Source { name: "probe.cu", text: "extern \"C\" __global__ void ssm_update_probe() {}\n", headers: &[] };

/// The function in it.
pub const PROBE_ENTRY: &str = "ssm_update_probe";
