//! Every tensor's dtype, which tensors are there, how rows are spread over lanes and whether vectors can be moved decide which CUDA
//! kernel is compiled: no two problems that need different code have the same key, and no key leaves out one of its fields.
#![cfg(feature = "cuda")]

#[path = "common/addresses.rs"]
mod addresses;
#[path = "common/dtypes.rs"]
mod dtypes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::fs;
use std::path::Path;
use std::ptr::without_provenance_mut;

use addresses::addresses;
use dtypes::{combinations, place_of_each_tensor, places};
use ssm_update::ports::cuda::key::Key;
use ssm_update::{Dims, Dt, Dtype, Dtypes, Launch, Pointers, Problem, validate};

fn dims(d_state: usize) -> Dims {
    Dims { batch: 2, heads: 6, head_dim: 5, groups: 3, d_state, slots: 4 }
}

/// What a step is asked to do beside its dtypes and sizes, and the pointers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    z: bool,
    d: bool,
    dt_bias: bool,
    slots_in: bool,
    slots_out: bool,
    prepared: bool,
    update: bool,
}

impl Asked {
    const EVERYTHING: Self =
        Self { z: true, d: true, dt_bias: true, slots_in: true, slots_out: true, prepared: false, update: true };

    fn all() -> Vec<Self> {
        let nth = |number: u32, bit: u32| number >> bit & 1 != 0;
        let all = (0..128).map(|number| Self {
            z: nth(number, 0),
            d: nth(number, 1),
            dt_bias: nth(number, 2),
            slots_in: nth(number, 3),
            slots_out: nth(number, 4),
            prepared: nth(number, 5),
            update: nth(number, 6),
        });
        // A bias is added to raw dt only; without a new state, nobody looks where it would go.
        all.filter(|asked| !(asked.prepared && asked.dt_bias) && (asked.update || !asked.slots_out)).collect()
    }

    fn pointers(self) -> Pointers {
        let (mut at, null) = (addresses(), Pointers::NULL);
        let clear = |there: bool, pointer: &mut *const c_void| {
            if !there {
                *pointer = null.x;
            }
        };
        clear(self.z, &mut at.z);
        clear(self.d, &mut at.d);
        clear(self.dt_bias, &mut at.dt_bias);
        if !self.slots_in {
            at.slots_in = null.slots_in;
        }
        if !self.slots_out {
            at.slots_out = null.slots_out;
        }
        at
    }

    fn problem(self, dims: Dims, dtypes: Dtypes) -> Problem {
        let dt = if self.prepared { Dt::Prepared } else { Dt::UNCLAMPED };
        Problem { dt, update_state: self.update, ..Problem::contiguous(dims, dtypes) }
    }

    fn launch(self, dtypes: Dtypes, d_state: usize) -> Launch {
        validate(&self.problem(dims(d_state), dtypes), &self.pointers())
            .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn key(self, dtypes: Dtypes, d_state: usize) -> Key {
        Key::of(&self.launch(dtypes, d_state))
    }
}

/// The compiler's definitions by name.
fn defined(key: &Key) -> BTreeMap<String, String> {
    let definitions = key.definitions();
    let defined: BTreeMap<String, String> = definitions
        .iter()
        .map(|definition| {
            let (name, value) = definition.split_once('=').unwrap_or_else(|| panic!("{definition}"));
            (name.strip_prefix("-D").expect("a definition").to_owned(), value.to_owned())
        })
        .collect();
    assert_eq!(defined.len(), definitions.len(), "none is defined twice: {definitions:?}");
    defined
}

#[test]
fn no_two_combinations_of_dtypes_are_compiled_alike() {
    let all = combinations();
    assert_eq!(all.len(), 5 * 3_usize.pow(5), "T with B and C, and five dtypes of their own");
    let (mut keys, mut definitions) = (HashMap::new(), HashMap::new());
    for &dtypes in &all {
        let key = Asked::EVERYTHING.key(dtypes, 128);
        assert_eq!(keys.insert(key, dtypes), None, "{dtypes:?}");
        assert_eq!(definitions.insert(key.definitions(), dtypes), None, "{dtypes:?}");
    }
    for (tensor, place) in place_of_each_tensor(Pointers::NULL) {
        let Some(place) = place else { continue };
        // Each place really varies, and with it the key.
        let values: Vec<Dtype> = all
            .iter()
            .filter_map(|&dtypes| places(dtypes).into_iter().find(|(name, _)| *name == place).map(|(_, dtype)| dtype))
            .collect();
        assert!(Dtype::ALL.iter().all(|dtype| values.contains(dtype)), "{tensor}: its dtype has a place, {place}");
    }
}

/// The comparison is able to fail: without one of the definitions, some combinations look the same.
#[test]
fn definitions_without_a_dtype_are_found_out() {
    let all = combinations();
    for missing in ["KEY_X", "KEY_BC", "KEY_STATE", "KEY_DT", "KEY_A_LOG", "KEY_D", "KEY_DT_BIAS"] {
        let mut seen = BTreeSet::new();
        let mut alike = 0;
        for &dtypes in &all {
            let mut defined = defined(&Asked::EVERYTHING.key(dtypes, 128));
            assert!(defined.remove(missing).is_some(), "{missing}");
            alike += usize::from(!seen.insert(defined.into_iter().collect::<Vec<_>>()));
        }
        assert!(alike > 0, "{missing}");
    }
}

#[test]
fn each_dtype_has_its_own_definition() {
    for dtypes in combinations() {
        let defined = defined(&Asked::EVERYTHING.key(dtypes, 64));
        for (place, dtype) in places(dtypes) {
            assert_eq!(defined[&format!("KEY_{}", place.to_uppercase())], dtype.name(), "{place} of {dtypes:?}");
        }
    }
}

#[test]
fn what_is_asked_for_is_defined_and_no_two_demands_are_compiled_alike() {
    let dtypes = Dtypes::uniform(Dtype::Bf16);
    let mut seen = HashMap::new();
    let all = Asked::all();
    assert_eq!(all.len(), 72);
    for &asked in &all {
        let key = asked.key(dtypes, 128);
        assert_eq!(seen.insert(key.definitions(), asked), None, "{asked:?}");
        let defined = defined(&key);
        for (name, expected) in [
            ("KEY_HAS_Z", asked.z),
            ("KEY_HAS_D", asked.d),
            ("KEY_HAS_DT_BIAS", asked.dt_bias),
            ("KEY_HAS_SLOTS_IN", asked.slots_in),
            ("KEY_HAS_SLOTS_OUT", asked.slots_out),
            ("KEY_PREPARED_DT", asked.prepared),
            ("KEY_WRITE_STATE", asked.update),
        ] {
            assert_eq!(defined[name], if expected { "1" } else { "0" }, "{name} of {asked:?}");
        }
    }
}

/// What is absent has no dtype, and what is not written goes nowhere: neither makes a kernel of its own.
#[test]
fn what_a_step_does_not_use_is_not_in_its_key() {
    let without = Asked { d: false, dt_bias: false, ..Asked::EVERYTHING };
    let keys: BTreeSet<Vec<String>> = Dtype::ALL
        .into_iter()
        .flat_map(|d| Dtype::ALL.map(|dt_bias| Dtypes { d, dt_bias, ..Dtypes::uniform(Dtype::F32) }))
        .map(|dtypes| without.key(dtypes, 32).definitions())
        .collect();
    assert_eq!(keys.len(), 1);

    let read_only = Asked { update: false, slots_out: false, ..Asked::EVERYTHING };
    let (problem, at) = (read_only.problem(dims(32), Dtypes::uniform(Dtype::F32)), read_only.pointers());
    let key = |at: &Pointers| Key::of(&validate(&problem, at).expect("legal"));
    let expected = key(&at);
    let odd = without_provenance_mut::<c_void>((10 << 40) + 4);
    for other in [
        Pointers { slots_out: addresses().slots_out, ..at },
        Pointers { state_out: Pointers::NULL.state_out, ..at },
        Pointers { state_out: odd, ..at },
    ] {
        assert_eq!(key(&other), expected, "{other:?}");
    }
    // Sizes that the kernel is told in its parameters.
    let dtypes = Dtypes::uniform(Dtype::F16);
    let other = Dims { batch: 1, heads: 40, head_dim: 64, groups: 8, d_state: 32, slots: 9 };
    let launch = validate(&Asked::EVERYTHING.problem(other, dtypes), &addresses()).expect("legal");
    assert_eq!(Key::of(&launch), Asked::EVERYTHING.key(dtypes, 32));
    let mut limits = Asked::EVERYTHING.problem(dims(32), dtypes);
    limits.dt = Dt::Raw { min: 0.5, max: 0.75 };
    assert_eq!(Key::of(&validate(&limits, &addresses()).expect("legal")), Asked::EVERYTHING.key(dtypes, 32));
}

/// The fields of a key, each with another value. Taken apart without `..`: a new field does not compile until it is here.
fn one_field_changed(key: Key) -> Vec<(&'static str, Key)> {
    let Key {
        x,
        bc,
        state,
        dt,
        a_log,
        d,
        dt_bias,
        z,
        slots_in,
        slots_out,
        prepared_dt,
        write_state,
        row_lanes_log2,
        chunks,
        whole_rows,
        aligned,
    } = key;
    let others = |dtype: Dtype| Dtype::ALL.into_iter().filter(move |&other| other != dtype);
    let mut changed = Vec::new();
    changed.extend(others(x).map(|x| ("x", Key { x, ..key })));
    changed.extend(others(bc).map(|bc| ("bc", Key { bc, ..key })));
    changed.extend(others(state).map(|state| ("state", Key { state, ..key })));
    changed.extend(others(dt).map(|dt| ("dt", Key { dt, ..key })));
    changed.extend(others(a_log).map(|a_log| ("a_log", Key { a_log, ..key })));
    for other in [None, Some(Dtype::F32), Some(Dtype::F16), Some(Dtype::Bf16)] {
        changed.extend((other != d).then_some(("d", Key { d: other, ..key })));
        changed.extend((other != dt_bias).then_some(("dt_bias", Key { dt_bias: other, ..key })));
    }
    changed.extend([
        ("z", Key { z: !z, ..key }),
        ("slots_in", Key { slots_in: !slots_in, ..key }),
        ("slots_out", Key { slots_out: !slots_out, ..key }),
        ("prepared_dt", Key { prepared_dt: !prepared_dt, ..key }),
        ("write_state", Key { write_state: !write_state, ..key }),
        ("whole_rows", Key { whole_rows: !whole_rows, ..key }),
        ("aligned", Key { aligned: !aligned, ..key }),
    ]);
    changed.extend(
        (1..=5)
            .filter(|&other| other != row_lanes_log2)
            .map(|row_lanes_log2| ("row_lanes_log2", Key { row_lanes_log2, ..key })),
    );
    changed
        .extend([1, 2, 4].into_iter().filter(|&other| other != chunks).map(|chunks| ("chunks", Key { chunks, ..key })));
    changed
}

#[test]
fn each_field_of_a_key_changes_the_definitions() {
    for asked in [Asked::EVERYTHING, Asked { d: false, dt_bias: false, z: false, ..Asked::EVERYTHING }] {
        let key = asked.key(Dtypes::uniform(Dtype::F16), 96);
        let definitions = key.definitions();
        let mut seen = BTreeSet::from([definitions.clone()]);
        let changes = one_field_changed(key);
        assert!(changes.len() > 25, "{}", changes.len());
        for (field, changed) in changes {
            assert!(seen.insert(changed.definitions()), "{field}: {changed:?}");
            assert_eq!(changed.definitions().len(), definitions.len(), "{field}");
        }
    }
}

/// The words of a text that are macros of the key.
fn macros(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("KEY_") && word.len() > 4).map(str::to_owned).collect()
}

/// A macro that the source uses and nobody defines is a kernel that does not compile; one that nobody uses compiles the same code
/// under many names.
#[test]
fn the_source_uses_what_is_defined_and_its_head_describes_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/ssm_update.cu");
    let source = fs::read_to_string(path).expect("the kernel is there");
    let (head, code) = source.split_once("#include").expect("the head, then the code");
    let definitions = defined(&Asked::EVERYTHING.key(Dtypes::uniform(Dtype::F32), 16));
    let names: BTreeSet<String> = definitions.into_keys().collect();
    // Comments are no uses.
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    assert_eq!(macros(&code), names);
    assert_eq!(macros(head), names);
}

/// How a row of the state is spread over a warp, said again from the kernel's head: lanes hold pieces of 16 bytes; a row gets as
/// few pieces per lane as 32 lanes allow, and as few lanes, both powers of two, as that needs.
fn geometry(state: Dtype, d_state: usize) -> (usize, usize) {
    let pieces = d_state * state.size() / 16;
    let chunks = [1, 2, 4].into_iter().find(|chunks| 32 * chunks >= pieces).expect("128 pieces at most");
    let lanes = [1, 2, 4, 8, 16, 32].into_iter().find(|lanes| lanes * chunks >= pieces).expect("32 do");
    (chunks, lanes)
}

#[test]
fn rows_are_spread_as_the_kernels_head_says() {
    let mut seen = BTreeSet::new();
    for state in Dtype::ALL {
        for d_state in (16..=512).step_by(16) {
            let dtypes = Dtypes { state, ..Dtypes::uniform(Dtype::F32) };
            let key = Asked::EVERYTHING.key(dtypes, d_state);
            let what = format!("{state}, d_state {d_state}");
            let (chunks, lanes) = geometry(state, d_state);
            assert_eq!((key.chunks as usize, 1 << key.row_lanes_log2), (chunks, lanes), "{what}");
            let pieces = d_state * state.size() / 16;
            assert_eq!(key.whole_rows, chunks * lanes == pieces, "{what}");
            // Two warps, each with so many rows side by side and so many tiles of them.
            let tiles = 4 / chunks;
            assert_eq!(key.rows_per_block() as usize, 2 * tiles * (32 / lanes), "{what}");
            let defined = defined(&key);
            let got = ["KEY_ROW_LANES_LOG2", "KEY_CHUNKS", "KEY_WHOLE_ROWS"].map(|name| defined[name].clone());
            assert_eq!(
                got,
                [lanes.ilog2().to_string(), chunks.to_string(), u32::from(key.whole_rows).to_string()],
                "{what}"
            );
            seen.insert((key.chunks, key.row_lanes_log2, key.whole_rows));
        }
    }
    assert!((1..=5).all(|log2| seen.iter().any(|(_, lanes, _)| *lanes == log2)), "{seen:?}");
    assert!([1, 2, 4].iter().all(|chunks| seen.iter().any(|(seen, _, _)| seen == chunks)), "{seen:?}");
}

/// Whether every vector that a lane moves is at a multiple of its length, found by forming the addresses: of each batch row, group
/// and piece, of a few slots and rows.
fn can_move_vectors(launch: &Launch) -> bool {
    let (problem, at) = (launch.problem(), launch.at());
    let (dims, dtypes, strides) = (problem.dims, problem.dtypes, problem.strides);
    let columns = 16 / dtypes.state.size(); // of a piece
    let mut vectors = Vec::new();
    for (base, there) in [(at.state_in.addr(), true), (at.state_out.addr(), problem.update_state)] {
        for row in 0..dims.slots * dims.heads * dims.head_dim {
            let begin = base + row * dims.d_state * dtypes.state.size();
            vectors.extend((0..dims.d_state / columns).filter(|_| there).map(|piece| (begin + piece * 16, 16)));
        }
    }
    for (base, stride) in [(at.b.addr(), strides.b), (at.c.addr(), strides.c)] {
        for batch in 0..dims.batch {
            for column in (0..dims.groups * dims.d_state).step_by(columns) {
                let address = base + (batch * stride + column) * dtypes.bc.size();
                // As long as the columns are, and at most 16 bytes.
                let bytes = (columns * dtypes.bc.size()).min(16);
                vectors.extend((0..columns * dtypes.bc.size()).step_by(bytes).map(|at| (address + at, bytes)));
            }
        }
    }
    vectors.into_iter().all(|(address, bytes)| address % bytes == 0)
}

#[test]
fn a_kernel_for_vectors_is_chosen_exactly_where_every_vector_is_aligned() {
    let (mut aligned, mut not) = (0, 0);
    let place = |base: usize, by: usize| without_provenance_mut::<c_void>(base + by);
    for (x, bc) in [(Dtype::F32, Dtype::F32), (Dtype::Bf16, Dtype::F32), (Dtype::F16, Dtype::F16)] {
        for state in Dtype::ALL {
            for batch in [1, 2, 3] {
                for update in [true, false] {
                    let dtypes = Dtypes { x, bc, state, ..Dtypes::uniform(Dtype::F32) };
                    let dims = Dims { batch, heads: 2, head_dim: 2, groups: 2, d_state: 16, slots: 3 };
                    let mut check = |change: &dyn Fn(&mut Problem, &mut Pointers)| {
                        let asked = Asked { update, slots_out: update, ..Asked::EVERYTHING };
                        let (mut problem, mut at) = (asked.problem(dims, dtypes), asked.pointers());
                        change(&mut problem, &mut at);
                        let launch = validate(&problem, &at).unwrap_or_else(|error| panic!("{error}"));
                        let expected = can_move_vectors(&launch);
                        let key = Key::of(&launch);
                        assert_eq!(key.aligned, expected, "{problem:?} {at:?}");
                        assert_eq!(defined(&key)["KEY_ALIGNED"], u32::from(expected).to_string());
                        if expected { aligned += 1 } else { not += 1 }
                    };
                    check(&|_, _| {});
                    for by in [2, 4, 6, 8, 12, 16, 24, 32, 48, 64] {
                        if by % state.size() == 0 {
                            check(&|_, at| at.state_in = place(9 << 40, by));
                            check(&|_, at| at.state_out = place(10 << 40, by));
                            // In place.
                            check(&|_, at| (at.state_in, at.state_out) = (place(9 << 40, by), place(9 << 40, by)));
                        }
                        if by % bc.size() == 0 {
                            check(&|_, at| at.b = place(3 << 40, by));
                            check(&|_, at| at.c = place(4 << 40, by));
                            check(&|problem, at| (problem.strides.b, at.b) = (32 + by, place(3 << 40, by)));
                        }
                    }
                    for more in 0..17 {
                        check(&|problem, _| problem.strides.b = 32 + more);
                        check(&|problem, _| problem.strides.c = 32 + more);
                    }
                    // What is moved element by element may be anywhere.
                    check(&|problem, at| {
                        problem.strides.x = 101;
                        problem.strides.z = 103;
                        problem.strides.dt = 7;
                        problem.strides.y = 105;
                        (at.x, at.z) = (place(1 << 40, 4), place(2 << 40, 4));
                        (at.dt, at.y) = (place(5 << 40, 4), place(13 << 40, 4));
                    });
                }
            }
        }
    }
    println!("{aligned} launches with vectors, {not} without");
    assert!(aligned > 500 && not > 500, "{aligned}, {not}");
}
