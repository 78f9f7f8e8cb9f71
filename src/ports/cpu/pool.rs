//! Threads for the CPU port.
//!
//! A step at batch 1 takes tens of microseconds, as long as a sleeping thread may take to wake up. Rayon's workers go to
//! sleep within microseconds, so both sides stay awake a moment longer here: the caller waits for the last piece awake,
//! and a worker that had a piece looks out for the next one, serving rayon's other jobs meanwhile.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a thread without work stays awake: more than the time between two layers' steps on a small model, far less
/// than would show in a machine's load.
const AWAKE: Duration = Duration::from_micros(100);

/// A thread pool that the CPU port can run on: rayon's, or one of the engine's own.
pub trait Pool: Send + Sync + Debug {
    /// Threads that [`Pool::run`] can keep busy, the calling one included.
    fn threads(&self) -> usize;

    /// Calls `task(0)`, …, `task(tasks - 1)`, each once, in any order and on any threads, and returns when all are done.
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// Rayon's global pool, or one made by the caller.
#[derive(Debug)]
pub struct RayonPool(Option<rayon::ThreadPool>);

impl RayonPool {
    /// The global pool, which rayon makes at first use (`RAYON_NUM_THREADS` sets its size).
    pub const fn global() -> Self {
        Self(None)
    }

    /// A pool of the caller's.
    pub const fn new(pool: rayon::ThreadPool) -> Self {
        Self(Some(pool))
    }
}

impl Pool for RayonPool {
    fn threads(&self) -> usize {
        self.0.as_ref().map_or_else(rayon::current_num_threads, rayon::ThreadPool::current_num_threads)
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let left = AtomicUsize::new(tasks - 1);
        // In place: the calling thread takes a piece too, so that only the others pay a hand-over.
        match &self.0 {
            None => rayon::in_place_scope(|scope| spread(scope, tasks, task, &left)),
            Some(pool) => pool.in_place_scope(|scope| spread(scope, tasks, task, &left)),
        }
    }
}

fn spread<'scope>(
    scope: &rayon::Scope<'scope>,
    tasks: usize,
    task: &'scope (dyn Fn(usize) + Sync),
    left: &'scope AtomicUsize,
) {
    for index in 1..tasks {
        scope.spawn(move |_| {
            task(index);
            left.fetch_sub(1, Ordering::Release);
            if !LOOKS_OUT.get() {
                rayon::spawn(look_out);
            }
        });
    }
    task(0);
    // The end of the scope waits too, but asleep.
    let since = Instant::now();
    while left.load(Ordering::Acquire) > 0 && since.elapsed() < AWAKE {
        serve_or_spin();
    }
}

thread_local! {
    /// Whether this worker is inside [`look_out`] already.
    static LOOKS_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Keeps a worker awake until it has had nothing to do for [`AWAKE`].
fn look_out() {
    if LOOKS_OUT.replace(true) {
        return;
    }
    let mut since = Instant::now();
    while since.elapsed() < AWAKE {
        if serve_or_spin() {
            since = Instant::now();
        }
    }
    LOOKS_OUT.set(false);
}

/// Runs one waiting job of the pool that this thread belongs to, if there is one.
fn serve_or_spin() -> bool {
    let served = rayon::yield_now() == Some(rayon::Yield::Executed);
    if !served {
        std::hint::spin_loop();
    }
    served
}
