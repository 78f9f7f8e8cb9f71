//! From the start of a process to the first result: with the kernel on board, and compiled by hipRTC from the same source.

use std::error::Error;
use std::ffi::c_void;
use std::process::Command;
use std::time::Instant;

use clap::{Args, ValueEnum};
use ssm_update::ports::rocm::plan::Plan;
use ssm_update::ports::rocm::{BUILT, RocmKernel, variant};
use ssm_update::{Dims, Dtype, Kernel, Memory, Stream, switches};
use ssm_update_bench::cases::Case;
use ssm_update_bench::gpu::{OnDevice, Rotation};
use ssm_update_bench::hip::rtc::{Failure, Rtc};
use ssm_update_bench::hip::{Hip, source};

/// How a process gets the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// On board, as the port has it.
    AheadOfTime,
    /// Compiled by hipRTC, one kernel, without a cache.
    Hiprtc,
    /// The same, and the compiler may use its cache of an earlier process.
    HiprtcCached,
}

impl Way {
    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::AheadOfTime => "ahead of time",
            Self::Hiprtc => "hipRTC",
            Self::HiprtcCached => "hipRTC with its cache",
        }
    }
}

/// One first launch.
#[derive(Debug, Args)]
pub struct First {
    /// How the process gets the kernel
    #[arg(long)]
    way: Way,
    /// The HIP runtime, for hipRTC's ways
    #[arg(long, default_value = "")]
    library: String,
    /// The device's architecture, for the same
    #[arg(long, default_value = "")]
    architecture: String,
    /// The only hipRTC that may be loaded
    #[arg(long)]
    hiprtc_library: Option<String>,
}

/// What a process found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Milliseconds until the kernel could be launched, and those of the first launch up to its result; none where the device
    /// is simulated.
    pub milliseconds: Option<[f64; 2]>,
    /// The HIP runtime.
    pub library: String,
    /// The architecture.
    pub architecture: String,
}

/// Begins the one line for the parent, whose fields are separated by tabs.
const ANSWER: &str = "first-launch";
/// The same where the way does not exist on this machine.
const ABSENT: &str = "absent";

/// Options of hipRTC: those of the build, as far as they change the code.
fn options(architecture: &str) -> [String; 3] {
    [format!("--offload-arch={architecture}"), "-O3".to_owned(), "-std=c++17".to_owned()]
}

/// The kernel that the case takes.
const KERNEL: &str = "ssm_update_bf16_bf16_f32_k1";

/// Granite-4.0-H tiny at batch 1.
fn case() -> Case {
    let dims = Dims { batch: 1, heads: 48, head_dim: 64, groups: 1, d_state: 128, slots: 1 };
    Case { models: String::new(), dims, rotating: false, every_mode: false }
}

/// The child: does it, and prints the line. `begin` is when the process began.
pub fn run(args: &First, begin: Instant) -> Result<(), Box<dyn Error>> {
    let switches = switches::Rocm::from_env();
    let found = if args.way == Way::AheadOfTime {
        let kernel = RocmKernel::open(&switches, None, BUILT.images)?;
        let ready = begin.elapsed();
        let case = OnDevice::new(&kernel, &case(), Dtype::F32, Rotation { bytes: 0, most: 2 })?;
        let begin = Instant::now();
        // SAFETY: whole tensors of the port's memory, which nobody else uses.
        unsafe { kernel.launch(&case.launch(0), Stream::DEFAULT) }?;
        Memory::synchronize(&kernel)?;
        let launched = begin.elapsed();
        case.check_results()?;
        let hip = Hip::load(kernel.library())?;
        (hip.simulated(), ready, launched, kernel)
    } else {
        let hip = Hip::load(&args.library)?;
        let made = Rtc::load(args.hiprtc_library.as_deref(), &hip, switches.rocm_path.as_ref()).and_then(|rtc| {
            let text = source::of_one(KERNEL).map_err(Failure::Failed)?;
            rtc.compile(&text, &[source::STDINT], &options(&args.architecture).each_ref().map(String::as_str))
        });
        let image = match made {
            Err(Failure::Absent(why)) => {
                println!("{ABSENT}\t{}", why.lines().collect::<Vec<_>>().join(" "));
                return Ok(());
            }
            made => made?,
        };
        // SAFETY: hipRTC says how long its code object is, and this is all of it.
        let module = unsafe { hip.load_module(&image) }?;
        let function = module.function(KERNEL)?;
        let ready = begin.elapsed();
        // For its memory alone.
        let kernel = RocmKernel::open(&switches, None, BUILT.images)?;
        let case = OnDevice::new(&kernel, &case(), Dtype::F32, Rotation { bytes: 0, most: 2 })?;
        let plan = Plan::new(&case.launch(0))?;
        let planned = &variant::names()[plan.kernel];
        if planned != KERNEL {
            return Err(format!("the case takes {planned}, which is not what was compiled").into());
        }
        let begin = Instant::now();
        for (mut params, grid) in plan.launches() {
            let mut arguments = [(&raw mut params).cast::<c_void>()];
            // SAFETY: the kernel's one parameter; whole tensors of the port's memory, which nobody else uses.
            unsafe { function.launch(grid, variant::WORK_GROUP, &mut arguments, Stream::DEFAULT) }?;
        }
        Memory::synchronize(&kernel)?;
        let launched = begin.elapsed();
        case.check_results()?;
        (hip.simulated(), ready, launched, kernel)
    };
    let (simulated, ready, launched, kernel) = found;
    let times = if simulated {
        "simulated\t-".to_owned()
    } else {
        format!("{}\t{}", ready.as_secs_f64() * 1e3, launched.as_secs_f64() * 1e3)
    };
    println!("{ANSWER}\t{times}\t{}\t{}", kernel.library(), kernel.architecture());
    Ok(())
}

/// The parent: a process for one way. `known` is what the way on board found.
pub fn in_a_process(way: Way, known: Option<&Found>, hiprtc: Option<&str>) -> Result<Found, Failure> {
    let failed = |what: String| Failure::Failed(format!("first launch, {}: {what}", way.name()));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    let value = way.to_possible_value().expect("no way is hidden");
    command.args(["first-launch", "--way", value.get_name()]);
    if let Some(known) = known {
        command.args(["--library", &known.library, "--architecture", &known.architecture]);
    }
    command.args(hiprtc.iter().flat_map(|name| ["--hiprtc-library", name]));
    if way == Way::Hiprtc {
        // The compiler's own switch; hipRTC keeps code objects of earlier processes otherwise.
        command.env("AMD_COMGR_CACHE", "0");
    }
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("the process ended with {}: {}", output.status, told.trim())));
    }
    answer(&String::from_utf8_lossy(&output.stdout)).map_err(|error| match error {
        Failure::Failed(what) => failed(what),
        absent => absent,
    })
}

/// Reads the line of a child.
fn answer(text: &str) -> Result<Found, Failure> {
    for line in text.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            [ABSENT, why] => return Err(Failure::Absent(why.to_owned())),
            [ANSWER, ready, launched, library, architecture] => {
                let milliseconds = match (ready, launched.parse()) {
                    ("simulated", _) => None,
                    (_, Ok(launched)) => ready
                        .parse()
                        .ok()
                        .map(|ready: f64| Some([ready, launched]))
                        .ok_or_else(|| Failure::Failed(format!("no time: {line}")))?,
                    _ => return Err(Failure::Failed(format!("no time: {line}"))),
                };
                let (library, architecture) = (library.to_owned(), architecture.to_owned());
                return Ok(Found { milliseconds, library, architecture });
            }
            _ => {}
        }
    }
    Err(Failure::Failed(format!("the process says nothing: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_children_are_read() {
        let found = answer("noise\nfirst-launch\t12.5\t0.25\tlib.so\tgfx1151\n").expect("an answer");
        assert_eq!((found.milliseconds, found.architecture.as_str()), (Some([12.5, 0.25]), "gfx1151"));
        let simulated = answer("first-launch\tsimulated\t-\tlib.so\tgfx1151\n").expect("an answer");
        assert_eq!(simulated.milliseconds, None);
        assert_eq!(answer("absent\tno hipRTC\n"), Err(Failure::Absent("no hipRTC".to_owned())));
        for text in ["", "first-launch\tsoon\t0.5\tlib.so\tgfx1151\n", "first-launch\t1.0\t-\tlib.so\tgfx1151\n"] {
            assert!(matches!(answer(text), Err(Failure::Failed(_))), "{text:?}");
        }
    }
}
