//! The compilation itself, and what is said when it fails.

use crate::workplace::{VERSION, Workplace};

#[test]
fn every_target_is_compiled_once_and_in_order() {
    let mut place = Workplace::new("all", &["gfx1151", "gfx1100", "gfx1153"]);
    place.compiler("bin/clang++-19", VERSION, "");
    for jobs in [1, 2, 64] {
        place.settings.jobs = jobs;
        let plan = place.build().expect("it compiles");
        let targets: Vec<&str> = plan.built.images.iter().map(|image| image.target.as_str()).collect();
        assert_eq!(targets, ["gfx1151", "gfx1100", "gfx1153"]);
        assert_eq!(plan.warnings, [""; 0]);
        assert_eq!(plan.built.images[0].kernels.len(), 35);
        assert_eq!(place.compiled().len(), 3, "{jobs} jobs");
        std::fs::remove_dir_all(place.path("out")).expect("it was written to");
        std::fs::create_dir(place.path("out")).expect("it can be made again");
    }
}

/// A compile that fails is an error, with the whole command line and the compiler's text; nothing half-written stays.
#[test]
fn a_failing_compile_stops_the_build() {
    let place = Workplace::new("fails", &["gfx1151", "gfx1100"]);
    let body = "[ $source = probe.hip ] || [ $target = gfx1151 ] || { echo half >$out; echo 'ssm_update.hip:1:1: error: no' >&2; exit 1; }";
    let program = place.compiler("bin/clang++-19", VERSION, body);
    let failure = place.failure();
    let command = format!(
        "cd {} && {} -x hip -std=c++17 -O3 -nogpulib -nogpuinc --cuda-device-only -mcode-object-version=5 -fuse-cuid=none \
         --no-gpu-bundle-output --offload-arch=gfx1100 -c ssm_update.hip -o ",
        place.path("root/hip").display(),
        program.display()
    );
    for part in ["does not compile for gfx1100: exit status: 1", &command, "ssm_update.hip:1:1: error: no"] {
        assert!(failure.contains(part), "{part:?} is missing in: {failure}");
    }
    let written = place.written();
    assert!(!written.iter().any(|name| name.contains("gfx1100")), "{written:?}");
    assert!(!written.iter().any(|name| name.contains("unchecked") || name.contains("partial")), "{written:?}");
}

/// Also where the probe succeeds, the kernel's own compilation may bring foreign headers in, crash, or write nothing.
#[test]
fn each_failure_of_a_compile_is_told() {
    for (name, body, reason) in [
        ("crash", "kill -ABRT $$", "signal: 6 (SIGABRT)"),
        (
            "flag",
            "echo \"clang: error: unknown argument: '-fuse-cuid=none'\" >&2; exit 1",
            "unknown argument: '-fuse-cuid=none'",
        ),
        (
            "headers",
            "echo '/usr/include/hip/hip_runtime.h:5:1: error: x' >&2; exit 1",
            "it takes in /usr/include/hip/hip_runtime.h, though this kernel uses no HIP header",
        ),
        // Not the architecture that was asked for: a fault of the compiler's configuration.
        ("target", "echo \"clang: error: invalid target ID 'gfx000'\" >&2; exit 1", "invalid target ID 'gfx000'"),
        ("nothing", "exit 0", "it succeeds and writes nothing"),
        ("garbage", "echo nonsense >$out; exit 0", "is refused: not a code object"),
    ] {
        let place = Workplace::new(&format!("kernel-{name}"), &["gfx1151"]);
        place.compiler("bin/clang++-19", VERSION, &format!("[ $source = probe.hip ] || {{ {body}; }}"));
        let failure = place.failure();
        assert!(failure.contains(reason), "{name}: {failure}");
        assert_eq!(place.written(), [""; 0], "{name}");
    }
}

#[test]
fn a_target_unknown_to_the_compiler_is_passed_over_aloud() {
    let mut place = Workplace::new("unknown", &["gfx1151", "gfx1153"]);
    let body =
        "[ $target != gfx1153 ] || { echo \"clang: error: invalid target ID 'gfx1153'; format is\" >&2; exit 1; }";
    let program = place.compiler("bin/clang++-19", VERSION, body);
    let plan = place.build().expect("the other target compiles");
    let why = format!("{} ({VERSION}) does not know it", program.display());
    assert_eq!(plan.built.images.len(), 1);
    assert_eq!(plan.built.passed_over, [("gfx1153".to_owned(), why.clone())]);
    assert_eq!(plan.warnings, [format!("gfx1153 is passed over: {why}")]);

    place.settings.archs = Some("gfx1151;gfx1153".to_owned());
    let failure = place.failure();
    assert!(failure.starts_with("SSM_UPDATE_ARCHS: gfx1153 is not known to "), "{failure}");
    assert!(failure.contains(VERSION), "{failure}");
}

#[test]
fn a_command_line_can_be_pasted_into_a_shell() {
    use crate::parts::command::{Form, Invocation};
    let path = std::path::Path::new;
    let command =
        Invocation::compile(path("/opt/my rocm/hipcc"), path("/it's"), "a.hip", "gfx1151", Form::Bare, path("o"));
    let text = command.to_string();
    assert!(text.starts_with(r"cd '/it'\''s' && '/opt/my rocm/hipcc' -x hip "), "{text}");
    assert!(text.ends_with(" --offload-arch=gfx1151 -c a.hip -o o"), "{text}");
}
