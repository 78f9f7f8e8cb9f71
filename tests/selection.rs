//! Which port is taken: with fake ports and given switches, and in child processes with the real environment.

mod common;

use std::ffi::OsString;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::case::Case;
use common::child;
use common::fixture::Fixture;
use common::ports::{self, ONLY_PORT, REQUIRE_PORT};
use common::run::{Level, run_checked};
use ssm_update::ports::cpu::Isa;
use ssm_update::switches::{CPU_ISA, CPU_THREADS, CUDA_KERNEL, KERNEL, PORT, Selection};
use ssm_update::{
    Error, Kernel, Launch, NoPort, Port, SSM_PORTS, Step, Stream, Unavailable, has_kernel_port, select_kernel_port,
    select_with, ssm_kernel_available,
};

/// A kernel that computes nothing.
#[derive(Debug)]
struct Fake(&'static str);

impl Kernel for Fake {
    fn port(&self) -> &'static str {
        self.0
    }

    fn describe(&self) -> String {
        format!("fake {}", self.0)
    }

    unsafe fn launch(&self, _launch: &Launch, _stream: Stream) -> Result<(), Error> {
        Ok(())
    }

    fn step(&self, _step: Step<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// How often a port that must not be opened was opened.
static FORBIDDEN: AtomicUsize = AtomicUsize::new(0);

const ABSENT: Port = Port { name: "absent", open: || Err(Unavailable::NotBuilt("left at home".to_owned())) };
const BROKEN: Port = Port {
    name: "broken",
    open: || {
        Err(Unavailable::Switch { variable: "SOME_SWITCH", value: "7".to_owned(), reason: "six at most".to_owned() })
    },
};
const FIRST: Port = Port { name: "first", open: || Ok(Box::new(Fake("first"))) };
const SECOND: Port = Port { name: "second", open: || Ok(Box::new(Fake("second"))) };
const COUNTED: Port = Port {
    name: "counted",
    open: || {
        FORBIDDEN.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Fake("counted")))
    },
};

fn switches(kernel: Option<&str>, cuda_kernel: Option<&str>, port: Option<&str>) -> Selection {
    let value = |value: Option<&str>| value.map(OsString::from);
    Selection { kernel: value(kernel), cuda_kernel: value(cuda_kernel), port: value(port) }
}

fn chosen(ports: &[Port], switches: &Selection) -> Result<&'static str, NoPort> {
    select_with(ports, switches).map(|kernel| kernel.port())
}

#[test]
fn every_combination_of_switches() {
    const VALUES: [Option<&str>; 9] =
        [None, Some("0"), Some("1"), Some(""), Some("00"), Some(" 0"), Some("0 "), Some("off"), Some("false")];
    const PORTS: [Option<&str>; 6] =
        [None, Some("first"), Some("second"), Some("absent"), Some("nowhere"), Some("FIRST")];
    let table = [ABSENT, FIRST, SECOND];
    for kernel in VALUES {
        for cuda_kernel in VALUES {
            for port in PORTS {
                let got = chosen(&table, &switches(kernel, cuda_kernel, port));
                // Exactly "0" switches off, in either variable; the newer one is named where both do.
                let off =
                    [(KERNEL, kernel), (CUDA_KERNEL, cuda_kernel)].into_iter().find(|(_, value)| *value == Some("0"));
                let expected = match (off, port) {
                    (Some((variable, _)), _) => Err(NoPort::SwitchedOff { variable }),
                    (None, None | Some("first")) => Ok("first"),
                    (None, Some("second")) => Ok("second"),
                    (None, Some("absent")) => Err(NoPort::NamedClosed {
                        name: "absent",
                        why: Unavailable::NotBuilt("left at home".to_owned()),
                    }),
                    (None, Some(name)) => {
                        Err(NoPort::UnknownName { name: name.to_owned(), known: vec!["absent", "first", "second"] })
                    }
                };
                assert_eq!(got, expected, "{kernel:?} {cuda_kernel:?} {port:?}");
            }
        }
    }
}

#[test]
fn the_order_of_the_table_is_the_order_of_preference() {
    assert_eq!(chosen(&[FIRST, SECOND], &Selection::default()), Ok("first"));
    assert_eq!(chosen(&[SECOND, FIRST], &Selection::default()), Ok("second"));
    assert_eq!(chosen(&[ABSENT, BROKEN, SECOND], &Selection::default()), Ok("second"));
}

#[test]
fn nothing_is_opened_that_is_not_asked_for() {
    assert!(chosen(&[FIRST, COUNTED], &Selection::default()).is_ok());
    assert!(chosen(&[COUNTED, FIRST], &switches(None, None, Some("first"))).is_ok());
    assert!(chosen(&[COUNTED, ABSENT], &switches(None, None, Some("absent"))).is_err());
    assert!(chosen(&[COUNTED], &switches(None, None, Some("nowhere"))).is_err());
    assert!(chosen(&[COUNTED], &switches(Some("0"), None, None)).is_err());
    assert_eq!(FORBIDDEN.load(Ordering::SeqCst), 0);
}

#[test]
fn an_error_names_every_port_and_its_reason() {
    let text = chosen(&[ABSENT, BROKEN], &Selection::default()).expect_err("none opens").to_string();
    for part in ["absent", "not built", "left at home", "broken", "SOME_SWITCH", "7", "six at most"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let text = chosen(&[ABSENT, FIRST], &switches(None, None, Some("nowhere"))).expect_err("unknown").to_string();
    for part in ["SSM_UPDATE_PORT", "nowhere", "absent", "first"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let text = chosen(&[BROKEN, FIRST], &switches(None, None, Some("broken"))).expect_err("does not open").to_string();
    assert!(text.contains("six at most") && !text.contains("first"), "only the port that was asked for: {text}");
    for (kernel, cuda_kernel, variable) in [(Some("0"), None, KERNEL), (None, Some("0"), CUDA_KERNEL)] {
        let text = chosen(&[FIRST], &switches(kernel, cuda_kernel, None)).expect_err("off").to_string();
        assert!(text.contains(&format!("{variable}=0")), "{text}");
    }
    assert_eq!(chosen(&[], &Selection::default()), Err(NoPort::NoneOpened { tried: Vec::new() }));
}

#[cfg(unix)]
#[test]
fn a_name_that_is_not_unicode_is_an_unknown_name() {
    use std::os::unix::ffi::OsStringExt;
    let port = Some(OsString::from_vec(vec![0xff, 0x66]));
    let error = chosen(&[FIRST], &Selection { port, ..Selection::default() });
    assert!(matches!(error, Err(NoPort::UnknownName { .. })), "{error:?}");
    let zero_ish = Some(OsString::from_vec(vec![0x30, 0xff]));
    assert_eq!(chosen(&[FIRST], &Selection { kernel: zero_ish, ..Selection::default() }), Ok("first"));
}

#[test]
fn the_table_has_every_row_in_order() {
    assert_eq!(SSM_PORTS.iter().map(|port| port.name).collect::<Vec<_>>(), ["rocm", "cuda", "metal", "cpu"]);
    for port in SSM_PORTS {
        match (port.open)() {
            Ok(kernel) => {
                assert_eq!(kernel.port(), port.name);
                assert!(!kernel.describe().is_empty(), "{} describes itself", port.name);
            }
            Err(why) => {
                assert_ne!(port.name, "cpu", "{why}");
                assert!(why.to_string().len() > 10, "a reason: {why}");
            }
        }
    }
}

#[test]
fn a_required_port_that_does_not_open_is_an_error() {
    type Open = fn(Option<&str>) -> Result<ports::Ports, String>;
    let required: Open = |name| ports::open(&[FIRST, ABSENT], name, None);
    let only: Open = |name| ports::open(&[FIRST, ABSENT], None, name);
    for (variable, open) in [(REQUIRE_PORT, required), (ONLY_PORT, only)] {
        assert!(open(None).is_ok());
        assert!(open(Some("")).is_ok());
        assert!(open(Some("first")).is_ok());
        let why = open(Some("absent")).expect_err("required");
        assert!(why.contains(variable) && why.contains("absent") && why.contains("left at home"), "{why}");
        let why = open(Some("nowhere")).expect_err("unknown");
        assert!(why.contains(variable) && why.contains("nowhere") && why.contains("first, absent"), "{why}");
    }
    let both = ports::open(&[FIRST, SECOND], None, Some("second")).expect("opens");
    assert_eq!(both.subjects.iter().map(|subject| subject.kernel.port()).collect::<Vec<_>>(), ["second"]);
    assert!(both.summary.join("\n").contains("first: NOT RUN (SSM_UPDATE_ONLY_PORT=second)"), "{:?}", both.summary);
    let summary = required(None).expect("opens").summary.join("\n");
    assert!(
        summary.contains("first: RUN") && summary.contains("absent: NOT RUN (not built: left at home)"),
        "{summary}"
    );
}

/// Every variable that a child must not inherit.
const VARIABLES: [&str; 7] = [KERNEL, CUDA_KERNEL, PORT, CPU_ISA, CPU_THREADS, REQUIRE_PORT, ONLY_PORT];

/// Runs one ignored test of this binary in a process of its own, with just these variables set.
fn ask(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = child::command(test);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.env("RUST_BACKTRACE", "0").envs(variables.iter().copied()).output().expect("the test binary starts")
}

/// The child's line `SELECTED ...`: the answer of the library in its environment.
fn selected(variables: &[(&str, &str)]) -> String {
    child::answer(&ask("child_selects", variables), "SELECTED ")
}

/// Not a test of its own: the child process of the tests below.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_selects() {
    let result = select_kernel_port(SSM_PORTS);
    // The predicate, the choice and the gate of the whole table never disagree.
    assert_eq!(ssm_kernel_available(), result.is_ok());
    assert_eq!(has_kernel_port(SSM_PORTS), result.is_ok());
    match result {
        Ok(kernel) => {
            let fixture = Fixture::new(&Case::new(2, 4, 40, 2, 64));
            let after = run_checked(&*kernel, &fixture, Level::Slices).expect("the selected port computes");
            common::expect::Expected::of(&fixture).check(&after).expect("and computes the step");
            println!("\nSELECTED {}: {}", kernel.port(), kernel.describe());
        }
        Err(why) => println!("\nSELECTED none: {why}"),
    }
}

#[test]
fn without_switches_a_port_is_selected() {
    let answer = selected(&[]);
    assert!(!answer.starts_with("none"), "{answer}");
}

#[test]
fn either_switch_turns_the_step_off_when_it_is_exactly_0() {
    for variable in [KERNEL, CUDA_KERNEL] {
        let answer = selected(&[(variable, "0")]);
        assert!(answer.starts_with("none: ") && answer.contains(&format!("{variable}=0")), "{answer}");
        // Also where a port is named.
        assert!(selected(&[(variable, "0"), (PORT, "cpu")]).starts_with("none: "));
        for on in ["1", "", "00", "no"] {
            let answer = selected(&[(variable, on), (PORT, "cpu")]);
            assert!(answer.starts_with("cpu: "), "{variable}={on}: {answer}");
        }
    }
    assert!(selected(&[(KERNEL, "1"), (CUDA_KERNEL, "0")]).contains(&format!("{CUDA_KERNEL}=0")));
    assert!(selected(&[(KERNEL, "0"), (CUDA_KERNEL, "1")]).contains(&format!("{KERNEL}=0")));
}

#[test]
fn a_named_port_is_exact_and_never_falls_back() {
    assert!(selected(&[(PORT, "cpu")]).starts_with("cpu: "));
    for port in SSM_PORTS.iter().filter(|port| port.name != "cpu") {
        let answer = selected(&[(PORT, port.name)]);
        match (port.open)() {
            Ok(_) => assert!(answer.starts_with(port.name), "{answer}"),
            Err(why) => {
                assert!(answer.starts_with("none: "), "{}: {answer}", port.name);
                assert!(answer.contains(port.name) && answer.contains(&why.to_string()), "the reason: {answer}");
            }
        }
    }
    for unknown in ["vulkan", "CPU", " cpu", "cpu,rocm", "0"] {
        let answer = selected(&[(PORT, unknown)]);
        assert!(answer.starts_with("none: ") && answer.contains("rocm, cuda, metal, cpu"), "{unknown}: {answer}");
    }
    let empty = selected(&[(PORT, "")]);
    assert!(!empty.starts_with("none"), "empty counts as unset: {empty}");
}

#[test]
fn the_cpu_instruction_set_can_be_chosen() {
    let available = Isa::available();
    for isa in &available {
        let answer = selected(&[(PORT, "cpu"), (CPU_ISA, isa.name())]);
        assert!(answer.starts_with("cpu: ") && answer.contains(isa.name()), "{answer}");
    }
    // One that this processor does not have, where there is one, and names that nothing has.
    for wrong in ["avx512bf16", "avx512", "avx2", "portable"]
        .into_iter()
        .filter(|name| available.iter().all(|isa| isa.name() != *name))
    {
        let answer = selected(&[(PORT, "cpu"), (CPU_ISA, wrong)]);
        assert!(answer.starts_with("none: ") && answer.contains(wrong) && answer.contains(CPU_ISA), "{answer}");
    }
    for wrong in ["sse9", "AVX2", "avx2 ", "0"] {
        let answer = selected(&[(PORT, "cpu"), (CPU_ISA, wrong)]);
        assert!(
            answer.starts_with("none: ") && answer.contains(CPU_ISA) && answer.contains("sse9") == (wrong == "sse9")
        );
        for isa in &available {
            assert!(answer.contains(isa.name()), "lists what there is: {answer}");
        }
    }
    assert!(selected(&[(PORT, "cpu"), (CPU_ISA, "")]).starts_with("cpu: "), "empty counts as unset");
}

#[test]
fn the_number_of_threads_can_be_chosen() {
    for threads in ["1", "2"] {
        let answer = selected(&[(PORT, "cpu"), (CPU_THREADS, threads)]);
        assert!(answer.starts_with("cpu: ") && answer.contains(threads), "{answer}");
    }
    for wrong in ["0", "-1", "two", "1.5", "1 ", "99999999999999999999999"] {
        let answer = selected(&[(PORT, "cpu"), (CPU_THREADS, wrong)]);
        assert!(
            answer.starts_with("none: ") && answer.contains(CPU_THREADS) && answer.contains(wrong),
            "{wrong}: {answer}"
        );
    }
    assert!(selected(&[(PORT, "cpu"), (CPU_THREADS, "")]).starts_with("cpu: "), "empty counts as unset");
}

/// Not a test of its own: what every parity test does first.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_opens_the_ports_under_test() {
    ports::under_test();
}

#[test]
fn a_required_port_fails_the_parity_tests_where_it_does_not_open() {
    const TEST: &str = "child_opens_the_ports_under_test";
    assert!(ask(TEST, &[]).status.success());
    assert!(ask(TEST, &[(REQUIRE_PORT, "cpu")]).status.success());
    let unknown = ask(TEST, &[(REQUIRE_PORT, "vulkan")]);
    assert!(!unknown.status.success());
    for port in SSM_PORTS {
        let output = ask(TEST, &[(REQUIRE_PORT, port.name)]);
        assert_eq!(output.status.success(), (port.open)().is_ok(), "{}", port.name);
    }
}
