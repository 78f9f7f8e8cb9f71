//! Tables of a library's functions: each function is declared once, as REQUIRED or OPTIONAL, and the list makes the table of
//! pointers, fills it from a library, and says which ones a library must have.

use std::ffi::{CStr, c_void};

/// How a symbol is found: null where there is none.
pub type Lookup<'a> = dyn Fn(&CStr) -> *const c_void + 'a;

/// Makes a struct of function pointers, and its `resolve`.
macro_rules! function_table {
    (@pointer REQUIRED $signature:ty) => { $signature };
    (@pointer OPTIONAL $signature:ty) => { Option<$signature> };
    (@resolve REQUIRED $missing:ident, $name:ident, $address:expr) => {{
        let address = $address;
        if address.is_null() {
            $missing.push(stringify!($name));
        }
        address
    }};
    (@resolve OPTIONAL $missing:ident, $name:ident, $address:expr) => { $address };
    (@cast REQUIRED $address:expr, $signature:ty) => {
        // SAFETY: not null (checked), and the library's function of this name has this signature (the caller's promise).
        unsafe { std::mem::transmute::<*const std::ffi::c_void, $signature>($address) }
    };
    (@cast OPTIONAL $address:expr, $signature:ty) => {
        // SAFETY: null becomes `None`; otherwise as for the required ones.
        unsafe { std::mem::transmute::<*const std::ffi::c_void, Option<$signature>>($address) }
    };
    (
        $(#[$attribute:meta])*
        $table:ident:
        $($need:ident $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_snake_case)] // the library's own names
        pub struct $table {
            $(pub $name: function_table!(@pointer $need unsafe extern "C" fn($($kind),*) -> $result),)*
        }

        impl $table {
            /// Fills the table.
            ///
            /// # Errors
            ///
            /// The names of required functions that were not found.
            ///
            /// # Safety
            ///
            /// What `lookup` finds under a name is the library's function of that name, and stays loaded.
            #[allow(non_snake_case)]
            pub unsafe fn resolve(
                lookup: &(dyn Fn(&std::ffi::CStr) -> *const std::ffi::c_void + '_),
            ) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    let name = const {
                        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name has no zero byte inside"),
                        }
                    };
                    let $name = function_table!(@resolve $need missing, $name, lookup(name));
                )*
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok(Self {
                    $($name: function_table!(@cast $need $name, unsafe extern "C" fn($($kind),*) -> $result),)*
                })
            }
        }
    };
}
pub(super) use function_table;

/// Proves that a list agrees with the module `bindings`, which is generated from the library's headers. Generic and never
/// instantiated: the functions are loaded at run time, and there is nothing to link to.
#[allow(unused_macros, reason = "CUDA's declarations come from cudarc")]
macro_rules! agreement {
    ($($need:ident $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {
        #[allow(dead_code, clippy::extra_unused_type_parameters)]
        fn agrees_with_the_headers<Never>() {
            $(let _: unsafe extern "C" fn($($kind),*) -> $result = bindings::$name;)*
        }
    };
}
#[allow(unused_imports, reason = "see above")]
pub(super) use agreement;
