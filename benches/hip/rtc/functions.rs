//! The functions of hipRTC, each declared once, with types from `bindings.rs`.

use std::ffi::{c_char, c_int};

use super::super::table::{agreement, function_table};
use super::bindings::{self, hiprtcProgram, hiprtcResult};

/// Hands the list to a macro.
macro_rules! for_the_list {
    ($macro:ident: $($before:tt)*) => {
        $macro! {
            $($before)*
        REQUIRED hiprtcGetErrorString(result: hiprtcResult) -> *const c_char;
        REQUIRED hiprtcCreateProgram(
            program: *mut hiprtcProgram,
            source: *const c_char,
            name: *const c_char,
            count: c_int,
            headers: *mut *const c_char,
            names: *mut *const c_char
        ) -> hiprtcResult;
        REQUIRED hiprtcCompileProgram(program: hiprtcProgram, count: c_int, options: *mut *const c_char) -> hiprtcResult;
        REQUIRED hiprtcGetProgramLogSize(program: hiprtcProgram, size: *mut usize) -> hiprtcResult;
        REQUIRED hiprtcGetProgramLog(program: hiprtcProgram, log: *mut c_char) -> hiprtcResult;
        REQUIRED hiprtcGetCodeSize(program: hiprtcProgram, size: *mut usize) -> hiprtcResult;
        REQUIRED hiprtcGetCode(program: hiprtcProgram, code: *mut c_char) -> hiprtcResult;
        REQUIRED hiprtcDestroyProgram(program: *mut hiprtcProgram) -> hiprtcResult;
        }
    };
}

for_the_list!(function_table: /// Pointers to hipRTC's functions.
    Functions:);
for_the_list!(agreement:);
