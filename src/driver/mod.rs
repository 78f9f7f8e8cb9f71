//! The drivers of accelerators, fenced in: declarations, calls that return `Result`, and types that own what they hold. No
//! foreign function is called above this folder.

#![allow(unsafe_code)] // foreign functions

pub mod hip;
