//! A step's tensors as buffers with offsets: how an engine that has `MTLBuffer`s names them at the launch level.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;

use crate::Pointers;

/// A tensor: a buffer, and the bytes from its start to the tensor's first element.
#[derive(Debug)]
pub struct At<'a, B> {
    /// The buffer.
    pub buffer: &'a B,
    /// Bytes; a multiple of the element's size.
    pub offset: usize,
}

impl<B> Clone for At<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for At<'_, B> {}

/// Where a step's tensors are. Shapes, dtypes, and what may be absent are as in [`Pointers`].
#[derive(Debug)]
#[allow(missing_docs)] // named as in `Pointers`
pub struct Buffers<'a, B> {
    pub x: At<'a, B>,
    pub z: Option<At<'a, B>>,
    pub b: At<'a, B>,
    pub c: At<'a, B>,
    pub dt: At<'a, B>,
    pub a_log: At<'a, B>,
    pub d: Option<At<'a, B>>,
    pub dt_bias: Option<At<'a, B>>,
    pub state_in: At<'a, B>,
    /// In place: the same buffer and offset as `state_in`. `None` only where the state is not updated.
    pub state_out: Option<At<'a, B>>,
    pub slots_in: Option<At<'a, B>>,
    pub slots_out: Option<At<'a, B>>,
    pub y: At<'a, B>,
}

impl<'a, B> Buffers<'a, B> {
    /// The tensors by number of their buffer.
    pub(super) fn by_number(&self) -> [Option<At<'a, B>>; super::abi::TENSORS] {
        let Self { x, z, b, c, dt, a_log, d, dt_bias, state_in, state_out, slots_in, slots_out, y } = *self;
        [
            Some(x),
            z,
            Some(b),
            Some(c),
            Some(dt),
            Some(a_log),
            d,
            dt_bias,
            Some(state_in),
            state_out,
            slots_in,
            slots_out,
            Some(y),
        ]
    }

    /// Pointers that stand for the tensors in [`validate`](crate::validate), which asks whether they are null, aligned, and
    /// apart: each buffer begins at an address of its own, with room for every offset behind it. Nothing is there.
    pub(super) fn pointers(&self, identity: impl Fn(&B) -> usize) -> Pointers {
        let tensors = self.by_number();
        // Of buffers that occur several times, the first place counts.
        let place = |at: At<'a, B>| {
            let same =
                |other: &Option<At<'a, B>>| other.is_some_and(|other| identity(other.buffer) == identity(at.buffer));
            tensors.iter().position(same).unwrap_or(0) + 1
        };
        let stand_in = |at: Option<At<'a, B>>| {
            at.map_or(std::ptr::null_mut(), |at| {
                without_provenance_mut::<c_void>((place(at) << SPACE_LOG2).wrapping_add(at.offset))
            })
        };
        let [x, z, b, c, dt, a_log, d, dt_bias, state_in, state_out, slots_in, slots_out, y] = tensors.map(stand_in);
        Pointers {
            x,
            z,
            b,
            c,
            dt,
            a_log,
            d,
            dt_bias,
            state_in,
            state_out,
            slots_in: slots_in.cast(),
            slots_out: slots_out.cast(),
            y,
        }
    }
}

/// Between the stand-ins of two buffers: more than a buffer has.
const SPACE_LOG2: u32 = usize::BITS - 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_keep_identity_order_and_alignment() {
        let (one, two) = (1_usize, 2_usize);
        let at = |buffer, offset| At { buffer, offset };
        let buffers = Buffers {
            x: at(&one, 6),
            z: None,
            b: at(&one, 10),
            c: at(&two, 0),
            dt: at(&two, 4),
            a_log: at(&two, 8),
            d: None,
            dt_bias: None,
            state_in: at(&two, 64),
            state_out: Some(at(&two, 64)),
            slots_in: None,
            slots_out: Some(at(&one, 16)),
            y: at(&one, 2),
        };
        let pointers = buffers.pointers(|buffer| *buffer);
        assert!(
            pointers.z.is_null() && pointers.d.is_null() && pointers.dt_bias.is_null() && pointers.slots_in.is_null()
        );
        assert_eq!(pointers.state_in, pointers.state_out.cast_const());
        assert_eq!(pointers.b.addr() - pointers.x.addr(), 4);
        assert_eq!(pointers.x.addr() % 16, 6);
        assert_eq!(pointers.slots_out.addr() - pointers.y.addr(), 14);
        assert_eq!(pointers.a_log.addr() - pointers.c.addr(), 8);
        assert!(pointers.c.addr().abs_diff(pointers.x.addr()) > 1 << 48);
    }
}
