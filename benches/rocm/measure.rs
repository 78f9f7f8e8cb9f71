//! The measurement: first launches in processes of their own, then copy, step and host for every case.

use std::error::Error;
use std::ffi::c_void;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use ssm_update::ports::rocm::RocmKernel;
use ssm_update::{Dtype, Kernel, Stream, switches};
use ssm_update_bench::cases::Case;
use ssm_update_bench::gpu::{Effort, OnDevice, Queue, Rotation, graph_times, host_time, step_times};
use ssm_update_bench::hip::rtc::{Failure, Rtc};
use ssm_update_bench::hip::{Function, Hip, HipQueue, source};
use ssm_update_bench::kfd::{Busy, Kfd};
use ssm_update_bench::measure::{Times, times};
use ssm_update_bench::record as common;

use crate::first::{self, Found, Way};
use crate::record::{self, Row};
use crate::{Bench, facts};

/// Bytes over which the state buffers are spread at the least: beyond every cache that a driver may not tell of.
const FOOTPRINT: usize = 512 << 20;
/// The footprint over the caches, so that what is left in them of the round before does not count.
const OVER_CACHES: usize = 8;
/// The most buffers, that is launches of a graph.
const BUFFERS: usize = 1024;
/// Batch sizes on a GPU.
const BATCHES: [usize; 4] = [1, 4, 16, 64];
/// Where records of GPUs are.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/record");

/// What was not measured, and why.
#[derive(Debug, Default)]
struct Lacking {
    /// Lines for the record.
    lines: Vec<String>,
    failed: bool,
}

impl Lacking {
    /// What hipRTC did not give. The rest is measured all the same.
    fn add(&mut self, what: &str, failure: &Failure) {
        let line = match failure {
            Failure::Absent(why) => format!("NOT RUN: {what}: {why}"),
            Failure::Failed(why) => {
                self.failed = true;
                format!("FAILED: {what}: {why}")
            }
        };
        println!("{line}");
        self.lines.push(line);
    }
}

/// Measures, prints, records.
pub fn run(args: &Bench) -> Result<(), Box<dyn Error>> {
    let (states, bad_batch) = (args.which.states()?, args.batches.iter().find(|&&batch| batch == 0));
    args.which.cases(1)?;
    if bad_batch.is_some() {
        return Err("--batches: expected numbers from 1, got 0".into());
    }
    let (mut watch, mut busy) = match Kfd(args.kfd.clone()).watch() {
        Ok(watch) => (Some(watch), None),
        Err(others) if args.even_if_busy => (None, Some(others)),
        Err(others) => return Err(others.into()),
    };
    let (mut rows, mut lacking) = (Vec::new(), Lacking::default());
    first_launches(args, &mut rows, &mut lacking)?;

    let (kernel, hip) = crate::open()?;
    let simulated = hip.simulated();
    let out = output(args.out.as_deref(), simulated, kernel.architecture())?;
    if let Some(watch) = &mut watch {
        watch.opened();
    }
    let kfd = Kfd(args.kfd.clone());
    let mut known = facts::collect(&kernel, &hip, &kfd)?;
    let footprint = footprint(args.footprint_mib, &hip, &kfd)?;
    let rtc = Rtc::load(args.hiprtc_library.as_deref(), &hip, switches::Rocm::from_env().rocm_path.as_ref());
    let option = format!("--offload-arch={}", kernel.architecture());
    let image = rtc.and_then(|rtc| rtc.compile(source::COPY, &[], &[&option, "-O3"]));
    let image = image.map_err(|failure| lacking.add("copy kernel", &failure)).ok();
    // SAFETY: hipRTC says how long its code object is, and this is all of it.
    let module = image.map(|image| unsafe { hip.load_module(&image) }).transpose()?;
    let setting = Setting {
        kernel: &kernel,
        queue: &HipQueue::new(&hip)?,
        hip: &hip,
        copy: module.as_ref().map(|module| module.function(source::COPY_NAME)).transpose()?,
        rotation: Rotation { bytes: footprint, most: BUFFERS },
        effort: match args.replays {
            Some(replays) if !simulated => Effort::of(replays),
            None if !simulated => Effort::of(21),
            replays => Effort { replays: replays.unwrap_or(1), ..Effort::LEAST },
        },
    };
    let batches = match &args.batches[..] {
        [] if simulated => vec![1],
        [] => BATCHES.to_vec(),
        given => given.to_vec(),
    };
    let cases = batches.iter().map(|&batch| args.which.cases(batch)).collect::<Result<Vec<_>, _>>()?.concat();
    let progress = ProgressBar::new((cases.len() * states.len()) as u64);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} cases: {msg}")?);
    for case in &cases {
        for &state in &states {
            progress.set_message(case.name());
            let of_case = setting.case(case, state);
            let of_case = of_case.map_err(|error| {
                format!("{}, {}, state {state}: {error}; nothing is recorded", case.models, case.name())
            })?;
            progress.suspend(|| of_case.iter().for_each(|row| record::print(row, simulated)));
            rows.extend(of_case);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    if let Some(Err(others)) = watch.map(|watch| watch.check()) {
        if !args.even_if_busy {
            return Err(Busy(others.0).into());
        }
        busy = Some(others);
    }

    let command: Vec<String> = std::env::args().skip(1).collect();
    known.push(("command", format!("cargo run --release -p ssm-update-bench --bin rocm -- {}", command.join(" "))));
    known.push(("other processes on the GPU", busy.map_or("none".to_owned(), |busy| busy.to_string())));
    known.extend(lacking.lines.iter().map(|line| ("not measured", line.clone())));
    match &out {
        Some(path) => {
            record::write(path, &known, &rows, simulated)?;
            println!("{}wrote {}", crate::label(&hip), path.display());
        }
        None => println!("{}no record is written", crate::label(&hip)),
    }
    if lacking.failed { Err("a part failed, see FAILED above; the rest was measured".into()) } else { Ok(()) }
}

/// Where the record goes.
fn output(out: Option<&Path>, simulated: bool, architecture: &str) -> Result<Option<PathBuf>, String> {
    let Some(path) = out else {
        let path = Path::new(RECORDS).join(architecture).join(common::today()).with_extension("csv");
        return Ok((!simulated).then_some(path));
    };
    // A new file has no canonical path; its folder may have.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if simulated && folder.starts_with(Path::new(RECORDS).canonicalize().unwrap_or_default()) {
        return Err(format!("--out: {} is for records of devices, and this one is simulated", path.display()));
    }
    Ok(Some(path.to_owned()))
}

/// Bytes over which the state buffers are spread. On the simulator, as few as can take turns.
fn footprint(mib: Option<usize>, hip: &Hip, kfd: &Kfd) -> Result<usize, String> {
    let device = hip.device()?;
    if let Some(mib) = mib {
        return Ok(mib << 20);
    }
    if hip.simulated() {
        return Ok(0);
    }
    let caches = device.l2 + kfd.mall().unwrap_or(0);
    // The tensors and other programs need memory, too.
    Ok(FOOTPRINT.max(OVER_CACHES * caches).min(device.memory / 4))
}

/// Times to the first result.
fn first_launches(args: &Bench, rows: &mut Vec<Row>, lacking: &mut Lacking) -> Result<(), Box<dyn Error>> {
    let hiprtc = args.hiprtc_library.as_deref();
    // Tells whether the device is simulated, and what the others need to know.
    let known = first::in_a_process(Way::AheadOfTime, None, hiprtc)?;
    let simulated = known.milliseconds.is_none();
    let processes = args.first_launches.unwrap_or(if simulated { 1 } else { 5 }).max(1);
    for way in [Way::AheadOfTime, Way::Hiprtc, Way::HiprtcCached] {
        let of_way = (0..processes).map(|_| first::in_a_process(way, Some(&known), hiprtc));
        match of_way.collect::<Result<Vec<Found>, _>>() {
            Ok(found) => {
                let of_way = rows_of(way, &found);
                of_way.iter().for_each(|row| record::print(row, simulated));
                rows.extend(of_way);
            }
            Err(failure) if way != Way::AheadOfTime => lacking.add(way.name(), &failure),
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(())
}

fn rows_of(way: Way, found: &[Found]) -> Vec<Row> {
    let of = |measurement, get: fn([f64; 2]) -> f64| {
        let micros: Option<Vec<f64>> =
            found.iter().map(|found| found.milliseconds.map(|both| get(both) * 1e3)).collect();
        Row { measurement, arm: way.name().to_owned(), times: micros.map(times), ..Row::default() }
    };
    vec![
        of("ready", |[ready, _]| ready),
        of("launch", |[_, launch]| launch),
        of("first result", |[ready, launch]| ready + launch),
    ]
}

/// What cases are measured with.
struct Setting<'a> {
    kernel: &'a RocmKernel,
    hip: &'a Hip,
    queue: &'a HipQueue<'a>,
    /// The copy as a kernel, where hipRTC is there.
    copy: Option<Function<'a>>,
    rotation: Rotation,
    effort: Effort,
}

impl Setting<'_> {
    /// The rows of a case: copies of the state's bytes, then the step.
    fn case(&self, case: &Case, state: Dtype) -> Result<Vec<Row>, Box<dyn Error>> {
        let on_device = OnDevice::new(self.kernel, case, state, self.rotation)?;
        on_device.check(self.kernel)?;
        let timed = |times: Times| (!self.hip.simulated()).then_some(times);
        let row = |measurement, arm: &str, times| Row {
            measurement,
            model: case.models.clone(),
            case: case.name(),
            state: state.to_string(),
            arm: arm.to_owned(),
            times,
            bytes: on_device.state_bytes(),
            buffers: Some((on_device.buffers(), on_device.buffers() * on_device.state_bytes() / 2)),
            ..Row::default()
        };
        let mut rows = Vec::new();
        if let Some(function) = &self.copy {
            let copy = |to, from, bytes| launch_copy(function, to, from, bytes, self.queue.stream());
            rows.push(row("copy", "copy kernel", timed(self.copy(&on_device, &copy)?)));
        }
        let copy = |to, from, bytes| {
            // SAFETY: whole state buffers, which only this stream uses.
            unsafe { self.hip.copy(to, from, bytes, self.queue.stream()) }
        };
        rows.push(row("copy", "hipMemcpyDtoDAsync", timed(self.copy(&on_device, &copy)?)));
        let best = rows.iter().filter_map(Row::gb_per_s).max_by(f64::total_cmp);

        let mut step =
            row("step", "ahead of time", timed(step_times(self.queue, self.kernel, &on_device, self.effort)?));
        let host = host_time(self.queue, self.kernel, &on_device, self.effort)?;
        step.host_us = (!self.hip.simulated()).then_some(host / 1e3);
        step.of_copy = step.gb_per_s().zip(best).map(|(rate, best)| rate / best);
        rows.push(step);
        Ok(rows)
    }

    /// Times a copy from each buffer of the first half to one of the second: none is read or written again before all others.
    fn copy(
        &self,
        case: &OnDevice,
        copy: &dyn Fn(*mut c_void, *mut c_void, usize) -> Result<(), String>,
    ) -> Result<Times, Box<dyn Error>> {
        let states: Vec<(*mut c_void, usize)> = case.states().collect();
        let half = states.len() / 2;
        let mut all = || -> Result<(), Box<dyn Error>> {
            let mut pairs = states[..half].iter().zip(&states[half..]);
            Ok(pairs.try_for_each(|(&(from, bytes), &(to, _))| copy(to, from, bytes))?)
        };
        // One more step, so that the first buffer differs from all others until it is copied.
        // SAFETY: whole tensors of the port's memory, which only this stream uses.
        unsafe { self.kernel.launch(&case.launch(0), self.queue.stream()) }?;
        self.queue.wait()?;
        if case.bits(0)?.1 == case.bits(half)?.1 {
            return Err("a step changes nothing, so that a copy of it would prove nothing".into());
        }
        let times = graph_times(self.queue, &mut all, half, self.effort)?;
        self.queue.wait()?;
        let (from, to) = (case.bits(0)?.1, case.bits(half)?.1);
        if from != to { Err("a copy differs from what was copied".into()) } else { Ok(times) }
    }
}

fn launch_copy(
    function: &Function<'_>,
    mut to: *mut c_void,
    mut from: *mut c_void,
    bytes: usize,
    stream: Stream,
) -> Result<(), String> {
    let mut count = u32::try_from(bytes / 16).map_err(|_| format!("{bytes} bytes are more than one launch copies"))?;
    let groups = bytes.div_ceil(source::COPY_BYTES) as u32;
    let mut arguments = [(&raw mut from).cast(), (&raw mut to).cast(), (&raw mut count).cast::<c_void>()];
    // SAFETY: the kernel's three parameters; whole state buffers of a multiple of 16 bytes, which only this stream uses.
    unsafe { function.launch([groups, 1, 1], source::COPY_BLOCK, &mut arguments, stream) }
}
