//! Timing: arms in turn, many short rounds, medians.

use std::time::{Duration, Instant};

use crate::arms::Arm;

/// Time at the start of a round that is not counted: threads wake up, caches fill.
const WARM_UP: Duration = Duration::from_micros(500);
/// Time per round and arm that is counted.
const ROUND: Duration = Duration::from_millis(4);
/// Steps per round at the least.
const MIN_STEPS: usize = 3;

/// Times of one arm, per step.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Microseconds below which a quarter of the steps stayed.
    pub quartile_1: f64,
    /// The median, in microseconds.
    pub median: f64,
    /// Microseconds above which a quarter of the steps stayed.
    pub quartile_3: f64,
    /// Steps that were timed.
    pub steps: usize,
}

/// Times every arm over `rounds` rounds in turn; `tick` is called after each round.
pub fn measure(arms: &mut [Box<dyn Arm>], rounds: usize, mut tick: impl FnMut()) -> Vec<Times> {
    let mut micros = vec![Vec::new(); arms.len()];
    for _ in 0..rounds {
        for (arm, micros) in arms.iter_mut().zip(&mut micros) {
            arm.begin();
            let start = Instant::now();
            while start.elapsed() < WARM_UP {
                arm.run();
            }
            let (start, mut steps) = (Instant::now(), 0);
            while steps < MIN_STEPS || start.elapsed() < ROUND {
                let before = Instant::now();
                arm.run();
                micros.push(before.elapsed().as_secs_f64() * 1e6);
                steps += 1;
            }
            arm.end();
        }
        tick();
    }
    micros.into_iter().map(times).collect()
}

/// Quartiles of times in microseconds; there is at least one.
pub fn times(mut micros: Vec<f64>) -> Times {
    micros.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| micros[(micros.len() - 1) * part / 4];
    Times { quartile_1: at(1), median: at(2), quartile_3: at(3), steps: micros.len() }
}
