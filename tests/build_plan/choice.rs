//! Which compiler is looked for, which is taken, and the reasons for which the others are not.

use crate::parts::compiler::{candidates, choose};
use crate::parts::settings::Search;
use crate::workplace::{VERSION, Workplace, committed_object};

/// Names of the places, and whether there is a program.
fn places(search: &Search) -> Vec<(String, bool)> {
    candidates(search).into_iter().map(|one| (one.place, one.program.is_ok())).collect()
}

#[test]
fn the_search_has_an_order() {
    let place = Workplace::new("order", &["gfx1151"]);
    for name in
        ["bin/clang++-17", "bin/clang++-19", "bin/clang++-22", "bin/clang++", "bin/clang++-cl", "rocm/bin/hipcc"]
    {
        place.script(name, "");
    }
    place.write("bin/clang++-23", b"not a program");
    let rocm = place.path("rocm/bin/hipcc").to_string_lossy().into_owned();
    let expected = [
        (rocm.as_str(), true),
        ("hipcc on PATH", false),
        ("amdclang++ on PATH", false),
        ("clang++-22 on PATH", true),
        ("clang++-19 on PATH", true),
        ("clang++ on PATH", true),
    ];
    let found = places(&place.settings.search);
    assert_eq!(found.iter().map(|(name, there)| (name.as_str(), *there)).collect::<Vec<_>>(), expected);

    // Of two programs of the same name the first on PATH counts.
    place.script("second/clang++-22", "");
    let mut search = place.settings.search.clone();
    search.path.push(place.path("second"));
    let programs: Vec<_> = candidates(&search).into_iter().filter_map(|one| one.program.ok()).collect();
    assert!(programs.contains(&place.path("bin/clang++-22")), "{programs:?}");
    assert!(!programs.contains(&place.path("second/clang++-22")), "{programs:?}");
}

#[test]
fn without_a_rocm_path_its_usual_folder_is_searched() {
    let place = Workplace::new("usual", &["gfx1151"]);
    let search = Search { rocm_path: None, ..place.settings.search.clone() };
    assert_eq!(places(&search)[0].0, "/opt/rocm/bin/hipcc");
}

#[test]
fn the_first_that_compiles_is_taken() {
    let place = Workplace::new("first", &["gfx1151"]);
    // As Debian 12 has them.
    let unknown = "echo \"clang: error: invalid target ID '$target'; format is a processor name\" >&2; exit 1";
    place.compiler("bin/hipcc", "HIP version: 5.2.21153\nDebian clang version 14.0.6", unknown);
    let good = place.compiler("bin/clang++-22", VERSION, "");
    place.compiler("bin/clang++-19", VERSION, "");
    let compiler = choose(&place.settings.search, "gfx1151", &place.path("out")).expect("out can be written to");
    assert_eq!(compiler.expect("clang 22 compiles").program, good);
}

/// Each way of being useless, and a part of the reason.
#[test]
fn each_unusable_compiler_has_its_reason() {
    let say = |text: &str| format!("echo \"{text}\" >&2; exit 1");
    let cases = [
        ("unknown", say("hipcc: error: invalid target ID 'gfx1151'; format is"), "does not know gfx1151"),
        ("old_words", say("clang: error: unsupported HIP gpu architecture: gfx1151"), "does not know gfx1151"),
        ("text", say("noise\nfatal error: out of luck"), "(exit status: 1): fatal error: out of luck"),
        ("silent", "exit 3".to_owned(), "(exit status: 3): without a word"),
        ("crash", "kill -SEGV $$".to_owned(), "(signal: 11 (SIGSEGV)"),
        ("flag", say("clang: error: unknown argument: '-fuse-cuid=none'"), "unknown argument: '-fuse-cuid=none'"),
        (
            "headers",
            say(
                "In file included from <built-in>:1:\n/opt/rocm-5.2/include/hip/amd_detail/amd_warp_functions.h:35:10: error: x",
            ),
            "takes in /opt/rocm-5.2/include/hip/amd_detail/amd_warp_functions.h, though this kernel uses no HIP header: \
             headers and compiler come from different installations",
        ),
        (
            "wrapper",
            say("/usr/lib/clang/14/include/__clang_hip_runtime_wrapper.h:50:10: fatal error: 'cmath' file not found"),
            "takes in /usr/lib/clang/14/include/__clang_hip_runtime_wrapper.h, though",
        ),
        (
            "linker",
            say("clang: error: unable to execute command: Executable 'lld' doesn't exist!"),
            "install lld of the same version",
        ),
        ("nothing", "exit 0".to_owned(), "what it wrote is wrong: the image is empty"),
        ("garbage", "echo nonsense >$out; exit 0".to_owned(), "what it wrote is wrong: not a code object"),
        ("compressed", "echo CCOBxxxx >$out; exit 0".to_owned(), "what it wrote is wrong: a compressed bundle"),
        ("other", "target=gfx1100".to_owned(), "asked for gfx1151, compiles for gfx1100"),
    ];
    for (name, body, reason) in cases {
        let place = Workplace::new(&format!("unusable-{name}"), &["gfx1151"]);
        let program = place.compiler("bin/clang++-19", VERSION, &body);
        let rejected = choose(&place.settings.search, "gfx1151", &place.path("out")).expect("out can be written to");
        let rejected = rejected.expect_err("it must not be taken");
        let why = &rejected.iter().find(|one| one.place == "clang++-19 on PATH").expect("it was tried").why;
        assert!(why.contains(reason) && why.contains(VERSION), "{name}: {why}");
        assert!(!why.contains('\n'), "{name}: {why}");

        // The same compiler by name: no other may take its place, though a good one is there.
        let mut search = place.settings.search.clone();
        place.compiler("bin/clang++-22", VERSION, "");
        search.hipcc = Some(program.clone());
        let failure = choose(&search, "gfx1151", &place.path("out")).expect_err("HIPCC is exact").to_string();
        assert!(failure.contains(reason) && failure.contains(&*program.to_string_lossy()), "{name}: {failure}");
    }
}

#[test]
fn the_version_is_asked_for_first() {
    let place = Workplace::new("version", &["gfx1151"]);
    place.script("bin/hipcc", "echo 'Can not find hipconfig' >&2; exit 2");
    place.script("bin/amdclang++", "echo 'g++ (Debian 12.2.0-14) 12.2.0'");
    place.compiler("bin/clang++-18", VERSION, "exit 1");
    place.compiler("bin/clang++", "Debian clang version 14.0.6", "");
    let rejected = choose(&place.settings.search, "gfx1151", &place.path("out")).expect("out can be written to");
    let lines: Vec<String> = rejected.expect_err("none is good").iter().map(ToString::to_string).collect();
    assert_eq!(lines[1], "hipcc on PATH: --version fails (exit status: 2): Can not find hipconfig");
    assert_eq!(lines[2], "amdclang++ on PATH: --version names no clang, but \"g++ (Debian 12.2.0-14) 12.2.0\"");
    assert_eq!(lines[4], "clang++ on PATH: too old: Debian clang version 14.0.6, wanted is clang 18 or newer");
}

#[test]
fn hipcc_may_be_a_name_or_a_path() {
    let place = Workplace::new("hipcc", &["gfx1151"]);
    let program = place.compiler("bin/my-clang", VERSION, "");
    place.compiler("bin/clang++-22", VERSION, "");
    let mut search = place.settings.search.clone();
    for name in ["my-clang".into(), program.clone()] {
        search.hipcc = Some(name);
        let compiler = choose(&search, "gfx1151", &place.path("out")).expect("it is good").expect("it is good");
        assert_eq!(compiler.program, program);
        assert_eq!(compiler.version, VERSION);
    }
    for (name, reason) in
        [("no-clang", "not on PATH"), ("/nowhere/hipcc", "does not start"), ("ccache hipcc", "not on PATH")]
    {
        search.hipcc = Some(name.into());
        let failure = choose(&search, "gfx1151", &place.path("out")).expect_err("it is not there").to_string();
        assert!(failure.contains(&format!("HIPCC names {name}")) && failure.contains(reason), "{failure}");
    }
}

/// hipcc prints a line of its own before clang's.
#[test]
fn the_version_is_clangs() {
    let place = Workplace::new("hipcc-version", &["gfx1151"]);
    place.compiler("bin/hipcc", "HIP version: 6.4.43482\nAMD clang version 19.0.0git (roc-6.4.0)", "");
    let built = place.build().expect("it compiles").built;
    assert_eq!(built.images[0].origin.compiler, "AMD clang version 19.0.0git (roc-6.4.0)");
    assert_eq!(built.images[0].bytes, committed_object());
}
