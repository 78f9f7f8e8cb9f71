//! Pointers to nowhere, for what looks at addresses and follows none.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;

use ssm_update::Pointers;

/// An address for each tensor, the optional ones too: multiples of 16, far apart, each another one.
pub fn addresses() -> Pointers {
    let at = |number: usize| without_provenance_mut::<c_void>(number << 40);
    Pointers {
        x: at(1),
        z: at(2),
        b: at(3),
        c: at(4),
        dt: at(5),
        a_log: at(6),
        d: at(7),
        dt_bias: at(8),
        state_in: at(9),
        state_out: at(10),
        slots_in: at(11).cast(),
        slots_out: at(12).cast(),
        y: at(13),
    }
}
