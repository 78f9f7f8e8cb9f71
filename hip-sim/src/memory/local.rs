//! Memory that a work-group or a lane has to itself: LDS and scratch. Offsets instead of addresses, gone when its owner is.

use super::page::Bits;
use super::race::{Party, Role, Shadow};

/// Why an access to local memory did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalRefusal {
    /// It does not lie within the size.
    OutOfBounds,
    /// The byte at this offset was never written.
    Unwritten(u64),
    /// It races with an earlier access, whose this was, and what that did; with the first byte that both touched.
    Race(Party, Role, u64),
}

/// A block of local memory.
#[derive(Debug)]
pub struct Local {
    data: Vec<u8>,
    written: Bits,
    /// None where only one lane can reach it.
    shadow: Option<Shadow>,
}

impl Local {
    /// Memory that several waves share.
    pub fn shared(size: usize) -> Self {
        Self { data: vec![0; size], written: Bits::new(size, false), shadow: Some(Shadow::new(size)) }
    }

    /// Memory that one lane has.
    pub fn private(size: usize) -> Self {
        Self { data: vec![0; size], written: Bits::new(size, false), shadow: None }
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.data.len()
    }

    /// Checks an access, and notes it.
    fn enter(&mut self, offset: u64, size: usize, me: Party, role: Role) -> Result<usize, LocalRefusal> {
        let at = usize::try_from(offset).ok().filter(|&at| at <= self.data.len() && size <= self.data.len() - at);
        let at = at.ok_or(LocalRefusal::OutOfBounds)?;
        if role != Role::Writer
            && let Some(byte) = self.written.first_unset(at, size)
        {
            return Err(LocalRefusal::Unwritten(byte as u64));
        }
        let noted = self.shadow.as_mut().map_or(Ok(()), |shadow| shadow.access(at, size, me, role));
        noted.map_err(|(party, role, byte)| LocalRefusal::Race(party, role, byte as u64))?;
        Ok(at)
    }

    /// Reads bytes.
    ///
    /// # Errors
    ///
    /// See [`LocalRefusal`]; the same for the others.
    pub fn load(&mut self, offset: u64, out: &mut [u8], me: Party) -> Result<(), LocalRefusal> {
        let at = self.enter(offset, out.len(), me, Role::Reader)?;
        out.copy_from_slice(&self.data[at..at + out.len()]);
        Ok(())
    }

    /// Writes bytes.
    ///
    /// # Errors
    ///
    /// See [`LocalRefusal`].
    pub fn store(&mut self, offset: u64, bytes: &[u8], me: Party) -> Result<(), LocalRefusal> {
        let at = self.enter(offset, bytes.len(), me, Role::Writer)?;
        self.written.set(at, bytes.len(), true);
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Reads and writes bytes in one step.
    ///
    /// # Errors
    ///
    /// See [`LocalRefusal`].
    pub fn atomic(
        &mut self,
        offset: u64,
        size: usize,
        update: &mut dyn FnMut(&mut [u8]),
        me: Party,
    ) -> Result<(), LocalRefusal> {
        let at = self.enter(offset, size, me, Role::Atomic)?;
        update(&mut self.data[at..at + size]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_need_a_barrier() {
        let mut lds = Local::shared(128);
        let party = |wave, epoch| Party::new(0, wave, epoch);
        lds.store(16, &[1; 4], party(0, 0)).expect("alone");
        let mut out = [0; 4];
        let race = LocalRefusal::Race(party(0, 0), Role::Writer, 16);
        assert_eq!(lds.load(16, &mut out, party(1, 0)), Err(race));
        assert_eq!(lds.load(16, &mut out, party(1, 1)), Ok(()));
        assert_eq!(out, [1; 4]);
        assert_eq!(lds.load(20, &mut out, party(1, 1)), Err(LocalRefusal::Unwritten(20)));
        assert_eq!(lds.store(126, &[0; 4], party(1, 1)), Err(LocalRefusal::OutOfBounds));
        assert_eq!(lds.store(u64::MAX, &[0; 4], party(1, 1)), Err(LocalRefusal::OutOfBounds));
    }
}
