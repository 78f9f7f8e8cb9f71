//! Threads for the CPU port.
//!
//! A step at batch 1 takes tens of microseconds, as long as a sleeping thread may take to wake up. Rayon's workers go to
//! sleep within microseconds, so both sides stay awake a moment longer here: the caller waits for the last piece awake,
//! and a worker that had a piece looks out for the next one, serving rayon's other jobs meanwhile.

use std::fmt::Debug;
use std::sync::Arc;
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

/// Rayon's global pool, or one made by the caller. A step that is itself called on a worker of the pool runs on that worker
/// alone.
#[derive(Debug)]
pub struct RayonPool {
    /// `None`: the global one.
    pool: Option<rayon::ThreadPool>,
    /// Workers that look out for the next piece.
    lookouts: Arc<AtomicUsize>,
}

impl RayonPool {
    /// The global pool, which rayon makes at first use (`RAYON_NUM_THREADS` sets its size).
    pub fn global() -> Self {
        Self { pool: None, lookouts: Arc::default() }
    }

    /// A pool of the caller's.
    pub fn new(pool: rayon::ThreadPool) -> Self {
        Self { pool: Some(pool), lookouts: Arc::default() }
    }
}

impl Pool for RayonPool {
    fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(rayon::current_num_threads, rayon::ThreadPool::current_num_threads)
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let worker =
            self.pool.as_ref().map_or_else(rayon::current_thread_index, rayon::ThreadPool::current_thread_index);
        if worker.is_some() {
            // The engine has spread its own work over this pool. Waiting for another worker would mean running whatever
            // job is next meanwhile, of any length, inside this step.
            return (0..tasks).for_each(task);
        }
        let left = AtomicUsize::new(tasks - 1);
        // In place: the calling thread takes a piece too, so that only the others pay a hand-over.
        match &self.pool {
            None => rayon::in_place_scope(|scope| spread(scope, tasks, task, &left, &self.lookouts)),
            Some(pool) => pool.in_place_scope(|scope| spread(scope, tasks, task, &left, &self.lookouts)),
        }
    }
}

fn spread<'scope>(
    scope: &rayon::Scope<'scope>,
    tasks: usize,
    task: &'scope (dyn Fn(usize) + Sync),
    left: &'scope AtomicUsize,
    lookouts: &'scope Arc<AtomicUsize>,
) {
    for index in 1..tasks {
        scope.spawn(move |_| {
            task(index);
            left.fetch_sub(1, Ordering::Release);
            // As many as have a piece, and no more: the pool may have a worker for every core beside the calling thread,
            // and one too many awake would take the core of another.
            let more = |awake: usize| (awake < tasks - 1).then_some(awake + 1);
            if lookouts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
                let lookouts = Arc::clone(lookouts);
                rayon::spawn(move || look_out(&lookouts));
            }
        });
    }
    task(0);
    // The end of the scope waits too, but asleep.
    let since = Instant::now();
    while left.load(Ordering::Acquire) > 0 && since.elapsed() < AWAKE {
        std::hint::spin_loop();
    }
}

/// Keeps a worker awake until it has had nothing to do for [`AWAKE`]. It runs the pool's other jobs meanwhile.
fn look_out(lookouts: &AtomicUsize) {
    let mut since = Instant::now();
    while since.elapsed() < AWAKE {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            since = Instant::now();
        } else {
            std::hint::spin_loop();
        }
    }
    lookouts.fetch_sub(1, Ordering::Relaxed);
}
