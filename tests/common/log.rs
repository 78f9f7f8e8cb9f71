//! What the library logs on the calling thread, for tests of faults that are only told there.

use std::cell::RefCell;
use std::sync::Once;

use log::{Level, Log, Metadata, Record};

thread_local! {
    static WARNINGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Collector;

impl Log for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            WARNINGS.with_borrow_mut(|warnings| warnings.push(record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// The warnings on this thread since the last call. The first call begins to collect.
pub fn take_warnings() -> Vec<String> {
    static START: Once = Once::new();
    START.call_once(|| {
        log::set_logger(&Collector).expect("no other logger in a test");
        log::set_max_level(log::LevelFilter::Warn);
    });
    WARNINGS.take()
}
