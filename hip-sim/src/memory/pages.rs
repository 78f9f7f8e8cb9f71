//! The pages of one allocation, in two levels, so that an allocation of many GiB costs nothing until it is touched.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::page::{PAGE, Page, UNWRITTEN};
use super::race::{Party, Role, Shadow};

/// Pages of a region: 4 MiB.
const REGION: usize = 1024;
/// Bytes of a region.
const REGION_BYTES: u64 = (REGION * PAGE) as u64;
/// Mark in [`Region::fill`]: the low byte is a value that the whole region was filled with.
const FILLED: u16 = 0x100;

/// A place for each page of a region; a page is made when it is first touched.
type Slots = Box<[OnceLock<Box<Mutex<Page>>>]>;

#[derive(Debug, Default)]
struct Region {
    /// What pages of it begin as that do not exist yet.
    fill: AtomicU16,
    pages: OnceLock<Slots>,
}

/// The contents of an allocation.
#[derive(Debug)]
pub struct Pages {
    regions: Vec<Region>,
}

/// A page that a launch touched: its number within the allocation.
pub type Touched = usize;

/// A launch's access that is not ordered with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Whose access the earlier one was.
    pub other: Party,
    /// What it did.
    pub role: Role,
    /// Offset in the allocation of the first byte that both touched.
    pub offset: u64,
}

/// Why a launch's access did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The byte at this offset was never written.
    Unwritten(u64),
    /// It races.
    Race(Conflict),
}

/// A stretch of an allocation within one page: the page, the offset in it, and where in the caller's buffer it lies.
fn pieces(offset: u64, size: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let length = (PAGE - within).min(size - done);
        let piece = ((at / PAGE as u64) as usize, within, done..done + length);
        done += length;
        (length > 0).then_some(piece)
    })
}

impl Pages {
    /// Of that many bytes.
    pub fn new(size: u64) -> Self {
        Self { regions: (0..size.div_ceil(REGION_BYTES)).map(|_| Region::default()).collect() }
    }

    fn existing(&self, page: usize) -> Option<MutexGuard<'_, Page>> {
        let slot = self.regions[page / REGION].pages.get()?[page % REGION].get()?;
        // A panic of another thread while it held a page ends that thread's launch; the page itself is plain data.
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fill_of(&self, page: usize) -> Option<u8> {
        let fill = self.regions[page / REGION].fill.load(Ordering::Relaxed);
        (fill & FILLED != 0).then_some(fill as u8)
    }

    fn page(&self, page: usize) -> MutexGuard<'_, Page> {
        let region = &self.regions[page / REGION];
        let pages = region.pages.get_or_init(|| (0..REGION).map(|_| OnceLock::new()).collect());
        let slot = pages[page % REGION].get_or_init(|| Box::new(Mutex::new(Page::new(self.fill_of(page)))));
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes bytes for the host.
    pub fn host_write(&self, offset: u64, bytes: &[u8]) {
        for (page, at, range) in pieces(offset, bytes.len()) {
            let mut page = self.page(page);
            page.written.set(at, range.len(), true);
            page.data[at..at + range.len()].copy_from_slice(&bytes[range]);
        }
    }

    /// Reads bytes for the host; those that nobody wrote read as 0xff.
    pub fn host_read(&self, offset: u64, out: &mut [u8]) {
        for (page, at, range) in pieces(offset, out.len()) {
            match self.existing(page) {
                Some(page) => out[range.clone()].copy_from_slice(&page.data[at..at + range.len()]),
                None => out[range].fill(self.fill_of(page).unwrap_or(UNWRITTEN)),
            }
        }
    }

    /// Fills bytes for the host. Regions that are covered as a whole take no memory.
    pub fn host_fill(&self, offset: u64, size: u64, value: u8) {
        let (mut at, end) = (offset, offset + size);
        while at < end {
            let region = (at / REGION_BYTES) as usize;
            let last = end.min((region as u64 + 1) * REGION_BYTES);
            let whole = at % REGION_BYTES == 0 && last - at == REGION_BYTES;
            if whole {
                self.regions[region].fill.store(FILLED | u16::from(value), Ordering::Relaxed);
            }
            for (page, within, range) in pieces(at, (last - at) as usize) {
                let page = if whole { self.existing(page) } else { Some(self.page(page)) };
                if let Some(mut page) = page {
                    page.written.set(within, range.len(), true);
                    page.data[within..within + range.len()].fill(value);
                }
            }
            at = last;
        }
    }

    /// Copies bytes for the host within or between allocations, and whether they were written.
    pub fn host_copy(&self, offset: u64, from: &Self, from_offset: u64, size: u64) {
        let mut buffer = vec![0; PAGE];
        let mut done = 0;
        while done < size {
            let at = from_offset + done;
            let length = (PAGE as u64 - at % PAGE as u64).min(size - done) as usize;
            from.host_read(at, &mut buffer[..length]);
            let within = (at % PAGE as u64) as usize;
            let page_number = (at / PAGE as u64) as usize;
            let written: Vec<bool> = match from.existing(page_number) {
                Some(page) => (within..within + length).map(|bit| page.written.get(bit)).collect(),
                None => vec![from.fill_of(page_number).is_some(); length],
            };
            for (page, at, range) in pieces(offset + done, length) {
                let mut page = self.page(page);
                page.data[at..at + range.len()].copy_from_slice(&buffer[range.clone()]);
                for (bit, &written) in written[range].iter().enumerate() {
                    page.written.set(at + bit, 1, written);
                }
            }
            done += length as u64;
        }
    }

    /// Notes an access of a launch to a page; the first one tells `touched`.
    fn note(
        page: &mut Page,
        number: usize,
        (at, size): (usize, usize),
        (me, role): (Party, Role),
        touched: &mut dyn FnMut(Touched),
    ) -> Result<(), Refusal> {
        let shadow = page.shadow.get_or_insert_with(|| {
            touched(number);
            Box::new(Shadow::new(PAGE))
        });
        shadow.access(at, size, me, role).map_err(|(other, role, byte)| {
            Refusal::Race(Conflict { other, role, offset: (number * PAGE + byte) as u64 })
        })
    }

    /// Reads bytes for a launch.
    ///
    /// # Errors
    ///
    /// When one of them was never written, or the access races. The pages before it have been noted as read.
    pub fn load(
        &self,
        offset: u64,
        out: &mut [u8],
        me: Party,
        touched: &mut dyn FnMut(Touched),
    ) -> Result<(), Refusal> {
        for (number, at, range) in pieces(offset, out.len()) {
            let mut page = self.page(number);
            if let Some(byte) = page.written.first_unset(at, range.len()) {
                return Err(Refusal::Unwritten((number * PAGE + byte) as u64));
            }
            Self::note(&mut page, number, (at, range.len()), (me, Role::Reader), touched)?;
            out[range.clone()].copy_from_slice(&page.data[at..at + range.len()]);
        }
        Ok(())
    }

    /// Writes bytes for a launch, and keeps what was there before.
    ///
    /// # Errors
    ///
    /// When the access races.
    pub fn store(&self, offset: u64, bytes: &[u8], me: Party, touched: &mut dyn FnMut(Touched)) -> Result<(), Refusal> {
        for (number, at, range) in pieces(offset, bytes.len()) {
            let mut page = self.page(number);
            Self::note(&mut page, number, (at, range.len()), (me, Role::Writer), touched)?;
            page.remember();
            page.written.set(at, range.len(), true);
            page.data[at..at + range.len()].copy_from_slice(&bytes[range]);
        }
        Ok(())
    }

    /// Reads and writes bytes of one page for a launch, in one step.
    ///
    /// # Errors
    ///
    /// When one of them was never written, or the access races.
    pub fn atomic(
        &self,
        offset: u64,
        size: usize,
        update: &mut dyn FnMut(&mut [u8]),
        me: Party,
        touched: &mut dyn FnMut(Touched),
    ) -> Result<(), Refusal> {
        // Atomics are aligned to their size, so that they lie in one page.
        let (number, at) = ((offset / PAGE as u64) as usize, (offset % PAGE as u64) as usize);
        let mut page = self.page(number);
        if let Some(byte) = page.written.first_unset(at, size) {
            return Err(Refusal::Unwritten((number * PAGE + byte) as u64));
        }
        Self::note(&mut page, number, (at, size), (me, Role::Atomic), touched)?;
        page.remember();
        update(&mut page.data[at..at + size]);
        Ok(())
    }

    /// Ends a launch's interest in a page; with `undo`, the page is again what it was before. Answers the bytes that were
    /// read and those that were written, each counted once.
    pub fn settle(&self, page: Touched, undo: bool) -> (u64, u64) {
        let Some(mut page) = self.existing(page) else { return (0, 0) };
        let before = page.before.take();
        if let Some(before) = before.filter(|_| undo) {
            page.data = before.data;
            page.written = before.written;
        }
        page.shadow.take().map_or((0, 0), |shadow| shadow.distinct())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Party {
        Party::new(0, 0, 0)
    }

    #[test]
    fn a_huge_allocation_costs_what_is_touched() {
        let pages = Pages::new(40 << 30);
        pages.host_write(39 << 30, &[1, 2, 3]);
        let mut out = [0; 5];
        pages.host_read((39 << 30) - 1, &mut out);
        assert_eq!(out, [UNWRITTEN, 1, 2, 3, UNWRITTEN]);
        // Filling all of it does not make its pages either.
        pages.host_fill(0, 40 << 30, 7);
        pages.host_read((39 << 30) - 1, &mut out);
        assert_eq!(out, [7; 5]);
        assert_eq!(pages.load(20 << 30, &mut out, me(), &mut |_| {}), Ok(()));
        assert_eq!(out, [7; 5]);
    }

    #[test]
    fn unwritten_bytes_are_refused_to_the_byte() {
        let pages = Pages::new(3 * PAGE as u64);
        let edge = PAGE as u64 - 2;
        pages.host_write(edge, &[1, 2, 3]);
        let mut out = [0; 4];
        assert_eq!(pages.load(edge, &mut out[..3], me(), &mut |_| {}), Ok(()));
        assert_eq!(pages.load(edge, &mut out, me(), &mut |_| {}), Err(Refusal::Unwritten(edge + 3)));
        let copy = Pages::new(16);
        copy.host_copy(0, &pages, edge, 4);
        assert_eq!(copy.load(0, &mut out, me(), &mut |_| {}), Err(Refusal::Unwritten(3)));
    }

    #[test]
    fn a_launch_can_be_undone() {
        let pages = Pages::new(100);
        pages.host_write(0, &[5; 8]);
        let mut touched = Vec::new();
        pages.store(4, &[9; 8], me(), &mut |page| touched.push(page)).expect("no race");
        assert_eq!(touched, [0]);
        assert_eq!(pages.settle(0, true), (0, 8));
        let mut out = [0; 9];
        pages.host_read(0, &mut out);
        assert_eq!(out, [5, 5, 5, 5, 5, 5, 5, 5, UNWRITTEN]);
        assert_eq!(pages.load(0, &mut out, me(), &mut |_| {}), Err(Refusal::Unwritten(8)));
    }
}
