//! Graphs and repetitions give the bits of launches one by one.

use std::error::Error;

use ssm_update::{Dtype, Kernel};
use ssm_update_bench::cases::Case;
use ssm_update_bench::gpu::{OnDevice, Queue, Replay, Rotation};
use ssm_update_bench::hip::HipQueue;

use crate::Which;

/// Steps of a graph.
const STEPS: usize = 3;

/// One buffer is stepped; a case has two at the least.
const NO_ROTATION: Rotation = Rotation { bytes: 0, most: 2 };

/// Every case at batch 1 and 3.
pub fn run(which: &Which, repetitions: usize) -> Result<(), Box<dyn Error>> {
    if repetitions < 2 {
        return Err(format!("--repetitions: expected 2 or more, got {repetitions}").into());
    }
    let (kernel, hip) = crate::open()?;
    let queue = HipQueue::new(&hip)?;
    println!("{}{}", crate::label(&hip), kernel.describe());
    for batch in [1, 3] {
        // A batch takes the same kernels; repeating it once in a while is enough.
        let repetitions = if batch == 1 { repetitions } else { repetitions.min(5) };
        for case in which.cases(batch)? {
            for state in which.states()? {
                one(&kernel, &queue, &case, state, repetitions)
                    .map_err(|error| format!("{}, {}, state {state}: {error}", case.models, case.name()))?;
                println!(
                    "{}{}, {}, state {state}: {STEPS} steps in a graph and {repetitions} repetitions, all bit-equal",
                    crate::label(&hip),
                    case.models,
                    case.name(),
                );
            }
        }
    }
    Ok(())
}

fn one(
    kernel: &dyn Kernel,
    queue: &HipQueue<'_>,
    case: &Case,
    state: Dtype,
    repetitions: usize,
) -> Result<(), Box<dyn Error>> {
    let mut case = OnDevice::new(kernel, case, state, NO_ROTATION)?;
    case.check(kernel)?;
    let launch = case.launch(0);
    let steps = |count: usize| {
        move || -> Result<(), Box<dyn Error>> {
            // SAFETY: whole tensors of the port's memory, which only this stream uses.
            Ok((0..count).try_for_each(|_| unsafe { kernel.launch(&launch, queue.stream()) })?)
        }
    };

    // Several steps on one state, so that the order of a graph's nodes shows.
    case.reset(0)?;
    let before = case.bits(0)?.1;
    steps(STEPS)()?;
    queue.wait()?;
    let expected = case.bits(0)?;
    case.reset(0)?;
    let (graph, nodes) = queue.capture_counted(&mut steps(STEPS))?;
    if nodes != STEPS {
        return Err(format!("the graph of {STEPS} launches has {nodes} nodes").into());
    }
    if case.bits(0)?.1 != before {
        return Err("a launch ran while it was captured".into());
    }
    for replay in 1..=2 {
        case.reset(0)?;
        graph.launch()?;
        queue.wait()?;
        compare(&case.bits(0)?, &expected).map_err(|what| format!("replay {replay} of the graph: {what}"))?;
    }

    let (graph, _) = queue.capture_counted(&mut steps(1))?;
    let mut first = None;
    for repetition in 1..=repetitions {
        case.reset(0)?;
        // Half of them by a graph.
        if repetition % 2 == 0 {
            graph.launch()?
        } else {
            steps(1)()?
        }
        queue.wait()?;
        let bits = case.bits(0)?;
        match &first {
            None => first = Some(bits),
            Some(first) => compare(&bits, first).map_err(|what| format!("repetition {repetition}: {what}"))?,
        }
    }
    Ok(())
}

/// Holds y and state to those of another run.
fn compare(got: &(Vec<u8>, Vec<u8>), expected: &(Vec<u8>, Vec<u8>)) -> Result<(), String> {
    for (name, got, expected) in [("y", &got.0, &expected.0), ("the state", &got.1, &expected.1)] {
        let different = got.iter().zip(expected).filter(|(a, b)| a != b).count();
        if different > 0 || got.len() != expected.len() {
            return Err(format!("{name} differs in {different} of {} bytes from launches one by one", expected.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn one_byte_is_a_difference() {
        let bits = (vec![1, 2, 3], vec![4; 8]);
        assert_eq!(compare(&bits, &bits), Ok(()));
        let (mut y, mut state) = (bits.clone(), bits.clone());
        y.0[2] = 9;
        state.1[0] = 9;
        assert!(compare(&y, &bits).expect_err("y").starts_with("y differs in 1 of 3 bytes"));
        assert!(compare(&state, &bits).expect_err("the state").starts_with("the state differs in 1 of 8"));
    }
}
