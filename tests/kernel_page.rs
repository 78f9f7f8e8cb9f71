//! `docs/hip-kernel.md`: its tables are made from the code objects, and this fails where they are not those of the sources.
//! `make kernel-counts` writes them.

#![cfg(feature = "rocm")]

#[path = "common/hip.rs"]
#[allow(dead_code, reason = "the checks of every target use the rest")]
mod hip;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use hip::{Disassembled, banner, compile, compilers, disassemble, text};
use ssm_update::ports::rocm::plan::Plan;
use ssm_update::ports::rocm::variant::{self, PIECE, WAVE};
use ssm_update::{Dims, Dtype, Dtypes, Pointers, Problem, validate};

/// The compilers that the page is about. Another release gives other counts, and its own page.
const BANNERS: [(u32, &str); 2] = [(22, "Debian clang version 22.1.8"), (19, "Debian clang version 19.1.7")];
/// The architecture that the page is about.
const TARGET: &str = "gfx1151";
/// Bytes per microsecond that gfx1151 reaches from memory.
const BANDWIDTH: f64 = 212e3;
/// SIMD units of gfx1151: 40 compute units of two.
const SIMDS: f64 = 80.0;
/// Cycles per microsecond at its highest clock.
const CLOCK: f64 = 2900.0;

/// The classes of d_state that models use, and the largest.
const D_STATES: [usize; 9] = [16, 32, 48, 64, 80, 96, 128, 256, 512];

/// Layers of models, in 16 bits with an f32 state unless it says otherwise: name, heads, head_dim, d_state, groups, state.
const LAYERS: [(&str, usize, usize, usize, usize, Dtype); 7] = [
    ("Granite-4.0-H tiny", 48, 64, 128, 1, Dtype::F32),
    ("the same, bf16 state", 48, 64, 128, 1, Dtype::Bf16),
    ("Granite-4.0-H small", 128, 64, 128, 1, Dtype::F32),
    ("Falcon-H1 1.5b", 48, 64, 256, 1, Dtype::F32),
    ("PLaMo-2 1b", 32, 128, 64, 1, Dtype::F32),
    ("Nemotron-3-Nano-30B", 64, 64, 128, 8, Dtype::F32),
    ("Nemotron-Nano-9b-v2", 128, 80, 128, 8, Dtype::F32),
];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/hip-kernel.md")
}

/// How the port launches a step, with everything contiguous and T and B/C in bf16.
fn plan(dims: Dims, state: Dtype) -> Plan {
    // Addresses far from each other, never followed.
    let address = |number: usize| std::ptr::without_provenance_mut::<c_void>(number << 40);
    let at = Pointers {
        x: address(1),
        b: address(2),
        c: address(3),
        dt: address(4),
        a_log: address(5),
        state_in: address(6),
        state_out: address(6),
        y: address(7),
        ..Pointers::NULL
    };
    let dtypes = Dtypes { state, ..Dtypes::uniform(Dtype::Bf16) };
    let launch = validate(&Problem::contiguous(dims, dtypes), &at).expect("a legal step");
    Plan::new(&launch).expect("a step that fits")
}

/// Pieces per lane of a plan's kernel.
fn chunks(plan: &Plan) -> u32 {
    let name = &variant::names()[plan.kernel];
    name.rsplit_once("_k").and_then(|(_, chunks)| chunks.parse().ok()).expect("the name ends in the pieces")
}

/// Rows that one wave of a plan has.
fn rows_of_wave(plan: &Plan, state: Dtype) -> u32 {
    variant::tiles(state.size() as u32, chunks(plan)) * (WAVE >> plan.params.row_lanes_log2)
}

/// What the d_state of a model means for a wave. No compiler is asked.
fn classes() -> String {
    let mut table = String::from(
        "| d_state | state | kernel | lanes of a row | of them idle | rows of a wave | KiB of a wave | waves of 48x64 rows |\n\
         |---:|---|---|---:|---:|---:|---:|---:|\n",
    );
    for state in [Dtype::F32, Dtype::Bf16] {
        for d_state in D_STATES {
            let plan = plan(Dims { batch: 1, heads: 48, head_dim: 64, groups: 1, d_state, slots: 1 }, state);
            let (chunks, lanes) = (chunks(&plan), 1 << plan.params.row_lanes_log2);
            let pieces = (d_state * state.size()) as u32 / PIECE;
            let rows = rows_of_wave(&plan, state);
            let kib = f64::from(rows * pieces * PIECE) / 1024.0;
            // Of the lanes' pieces, those that no column is in.
            let idle = 1.0 - f64::from(pieces) / f64::from(lanes * chunks);
            let waves = 48 * 64_u32.div_ceil(rows);
            let name = if state == Dtype::F32 { "f32" } else { "16 bits" };
            let _ = writeln!(
                table,
                "| {d_state} | {name} | k{chunks} | {lanes} | {:.0} % | {rows} | {kib} | {waves} |",
                idle * 100.0
            );
        }
    }
    table
}

/// What an instruction is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Vector,
    Scalar,
    Global,
    ScalarLoad,
    Wait,
    Hint,
}

fn class(instruction: &str) -> Class {
    let name = instruction.split_whitespace().next().unwrap_or_default();
    match name {
        _ if name.starts_with("v_") => Class::Vector,
        _ if name.starts_with("global_") => Class::Global,
        _ if name.starts_with("s_load") => Class::ScalarLoad,
        _ if name.starts_with("s_wait") => Class::Wait,
        "s_delay_alu" | "s_clause" | "s_nop" => Class::Hint,
        _ if name.starts_with("s_") => Class::Scalar,
        _ => panic!("what kind of instruction is {instruction}?"),
    }
}

/// Counts by width, widest first, as in `6 / 0 / 1`.
fn by_width(of: &Disassembled, kind: &str) -> String {
    let accesses = of.accesses(kind);
    [16, 8, 4, 2].map(|width| accesses.get(&width).copied().unwrap_or(0).to_string()).join(" / ")
}

/// Every variant of one compiler.
fn variants(kernels: &BTreeMap<String, Disassembled>) -> String {
    let mut table = String::from(
        "| kernel | VGPRs | SGPRs | bytes | loads of 16 / 8 / 4 / 2 B | stores | vector | scalar | scalar loads | waits | \
         hints | all | rows | all per row | state bytes per row |\n\
         |---|---:|---:|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (x, bc) in variant::X_AND_BC {
        for (state, chunks) in variant::STATES {
            for &chunks in chunks {
                let name = variant::name(x, bc, state, chunks);
                let of = &kernels[&name];
                let count = |wanted| of.count(|instruction| class(instruction) == wanted);
                let (all, rows) = (of.instructions.len(), variant::tiles(if state == "f32" { 4 } else { 2 }, chunks));
                let _ = writeln!(
                    table,
                    "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {all} | {rows} | {} | {} |",
                    name.trim_start_matches("ssm_update_"),
                    of.kernel.vgprs,
                    of.kernel.sgprs,
                    of.bytes,
                    by_width(of, "load"),
                    by_width(of, "store"),
                    count(Class::Vector),
                    count(Class::Scalar),
                    count(Class::ScalarLoad),
                    count(Class::Wait),
                    count(Class::Hint),
                    all.div_ceil(rows as usize),
                    2 * chunks * WAVE * PIECE,
                );
            }
        }
    }
    table
}

/// The floor of memory beside that of instructions, for one layer.
fn layers(kernels: &BTreeMap<String, Disassembled>) -> String {
    let mut table = String::from(
        "| layer | heads x head_dim x d_state | batch | state, MB | memory, us | waves per SIMD | instructions, us |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    for (name, heads, head_dim, d_state, groups, state) in LAYERS {
        for batch in [1, 16] {
            let plan = plan(Dims { batch, heads, head_dim, groups, d_state, slots: batch }, state);
            let bytes = (2 * batch * heads * head_dim * d_state * state.size()) as f64;
            let waves = (batch * heads * head_dim.div_ceil(rows_of_wave(&plan, state) as usize)) as f64;
            let instructions = kernels[&variant::names()[plan.kernel]].instructions.len() as f64;
            let _ = writeln!(
                table,
                "| {name} | {heads}x{head_dim}x{d_state} | {batch} | {:.1} | {:.1} | {:.1} | {:.1} |",
                bytes / 1e6,
                bytes / BANDWIDTH,
                waves / SIMDS,
                waves * instructions / SIMDS / CLOCK,
            );
        }
    }
    table
}

/// The generated parts by name. A compiler that is not there, or another release of it, has none.
fn parts() -> Vec<(String, String)> {
    let mut parts = vec![("classes".to_owned(), classes())];
    let there = compilers();
    for (version, wanted) in BANNERS.into_iter().filter(|(version, _)| there.contains(version)) {
        let found = banner(version);
        if found != wanted {
            println!("the page's counts of clang {version}: NOT RUN (the page is about {wanted}, here is {found})");
            continue;
        }
        let (output, object) = compile(version, TARGET, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let kernels = disassemble(version, &object).expect("a code object");
        parts.push((format!("layers, {wanted}"), layers(&kernels)));
        parts.push((format!("variants, {wanted}"), variants(&kernels)));
    }
    parts
}

/// The page with each part in its place, between `<!-- begin NAME -->` and `<!-- end NAME -->`.
fn filled(page: &str, parts: &[(String, String)]) -> String {
    let mut page = page.to_owned();
    for (name, table) in parts {
        let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
        let from = page.find(&begin).unwrap_or_else(|| panic!("the page has no line {begin}")) + begin.len();
        let to = from + page[from..].find(&end).unwrap_or_else(|| panic!("the page has no line {end}"));
        page.replace_range(from..to, &format!("\n{table}\n"));
    }
    page
}

fn read() -> String {
    std::fs::read_to_string(page()).expect("the page is there")
}

#[test]
fn the_page_has_the_counts_of_these_sources() {
    let (is, should_be) = (read(), filled(&read(), &parts()));
    let stale = is.lines().zip(should_be.lines()).find(|(is, should_be)| is != should_be);
    assert!(is == should_be, "docs/hip-kernel.md is stale; make kernel-counts writes it. First: {stale:?}");
}

#[test]
#[ignore = "writes docs/hip-kernel.md: make kernel-counts"]
fn write_the_counts() {
    std::fs::write(page(), filled(&read(), &parts())).expect("the page can be written");
}
