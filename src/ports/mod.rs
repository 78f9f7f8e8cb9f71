//! The ports: one module each, exporting `PORT`, the row of [`SSM_PORTS`](crate::SSM_PORTS).

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(any(feature = "cuda", feature = "metal", feature = "rocm"))]
pub mod gpu;
#[cfg(feature = "metal")]
pub mod metal;
#[cfg(feature = "rocm")]
pub mod rocm;

/// A row whose code is not in this version.
#[allow(unused_macros)] // by default, every port is built
macro_rules! not_built {
    ($name:ident, $feature:literal, $platform:literal) => {
        #[doc = concat!("The ", $platform, " port.")]
        pub mod $name {
            use crate::{Kernel, Port, Unavailable};

            /// The row of the table.
            pub const PORT: Port = Port { name: stringify!($name), open };

            fn open() -> Result<Box<dyn Kernel>, Unavailable> {
                let reason = if cfg!(feature = $feature) {
                    concat!("this version of ssm-update has no ", $platform, " port yet")
                } else {
                    concat!("ssm-update was built without its cargo feature `", $feature, "`")
                };
                Err(Unavailable::NotBuilt(reason.to_owned()))
            }
        }
    };
}

#[cfg(not(feature = "rocm"))]
not_built!(rocm, "rocm", "ROCm");
#[cfg(not(feature = "cuda"))]
not_built!(cuda, "cuda", "CUDA");
#[cfg(not(feature = "metal"))]
not_built!(metal, "metal", "Metal");
