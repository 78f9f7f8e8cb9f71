//! The Metal port above a GPU: what opens and what is refused on a GPU that only answers, and encoders, buffers and offsets on the
//! shim that runs the kernel.

#![cfg(all(feature = "metal", target_os = "linux"))]

mod common;

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use common::addresses::addresses;
use common::buffer::Buffer;
use common::case::{Case, StateMode};
use common::fixture::Fixture;
use common::metal_shim::{self, ShimBuffer, ShimEncoder, ShimGpu};
use common::run::{Level, run_checked, slices};
use ssm_update::ports::metal::key::Key;
use ssm_update::ports::metal::support::{Facts, Language, System};
use ssm_update::ports::metal::{At, Buffers, Compiled, Encoding, Gpu, MetalKernel};
use ssm_update::{DriverError, Dtype, Dtypes, Error, Kernel, Problem, Stream, Unavailable, validate};

// --- a GPU that only answers --------------------------------------------------------------------------------------------

/// Answers as it is told, and counts what it is asked.
#[derive(Debug)]
struct Answers {
    facts: Facts,
    width: usize,
    /// Width of kernels other than the first one.
    later_width: usize,
    max_threads: usize,
    /// The compiler's text, where it fails.
    failure: Option<&'static str>,
    compiled: Mutex<Vec<(Key, Language)>>,
    encoded: AtomicUsize,
}

impl Answers {
    fn new() -> Self {
        Self {
            facts: Facts {
                system: System::MacOs,
                version: (14, 0),
                gpu: "Some GPU".to_owned(),
                apple6: true,
                mac2: true,
                metal3: true,
            },
            width: 32,
            later_width: 32,
            max_threads: 1024,
            failure: None,
            compiled: Mutex::default(),
            encoded: AtomicUsize::new(0),
        }
    }
}

#[derive(Clone, Debug)]
struct Nowhere {
    address: usize,
    length: usize,
}

impl Gpu for Answers {
    type Buffer = Nowhere;
    type Pipeline = Key;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn compile(&self, key: &Key, language: Language, source: &str) -> Result<Compiled<Key>, Box<DriverError>> {
        assert!(source.contains("kernel void ssm_update("), "the whole source");
        // Long enough for another thread to come.
        thread::sleep(Duration::from_millis(300));
        let mut compiled = self.compiled.lock().expect("no thread panics with it");
        compiled.push((*key, language));
        if let Some(text) = self.failure {
            let (call, name) = ("newLibraryWithSource".to_owned(), "MTLLibraryErrorDomain".to_owned());
            return Err(Box::new(DriverError { call, code: 3, name, text: text.to_owned(), advice: String::new() }));
        }
        let width = if compiled.len() == 1 { self.width } else { self.later_width };
        Ok(Compiled { pipeline: *key, thread_execution_width: width, max_threads: self.max_threads })
    }

    fn allocate(&self, bytes: usize) -> Result<Nowhere, Box<DriverError>> {
        static NEXT: AtomicUsize = AtomicUsize::new(1 << 40);
        Ok(Nowhere { address: NEXT.fetch_add(1 << 30, Ordering::SeqCst), length: bytes })
    }

    fn identity(buffer: &Nowhere) -> usize {
        buffer.address
    }

    fn address(buffer: &Nowhere) -> *mut c_void {
        std::ptr::without_provenance_mut(buffer.address)
    }

    fn length(buffer: &Nowhere) -> usize {
        buffer.length
    }

    unsafe fn write(&self, _: &Nowhere, _: usize, _: &[u8]) {}

    unsafe fn read(&self, _: &Nowhere, _: usize, _: &mut [u8]) {}

    unsafe fn encode(&self, dispatch: &Encoding<'_, Self>, _: Stream) -> Result<(), Error> {
        let tensors = &dispatch.tensors;
        assert!(tensors.iter().all(|tensor| tensor.offset + tensor.bytes <= tensor.buffer.length), "{tensors:?}");
        self.encoded.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn why_closed(gpu: Answers) -> String {
    MetalKernel::open(gpu).expect_err("it must not open").to_string()
}

#[test]
fn a_gpu_with_other_simd_groups_is_refused_with_their_width() {
    for width in [8, 16, 31, 64] {
        let why = why_closed(Answers { width, ..Answers::new() });
        for part in ["threadExecutionWidth", "expected 32", &format!("got {width}"), "Some GPU"] {
            assert!(why.contains(part), "{part} in: {why}");
        }
    }
    let why = why_closed(Answers { max_threads: 64, ..Answers::new() });
    assert!(why.contains("maxTotalThreadsPerThreadgroup") && why.contains("at least 128, got 64"), "{why}");
}

#[test]
fn a_system_or_gpu_that_is_too_old_is_not_asked_to_compile() {
    let base = Answers::new().facts;
    for (facts, part) in [
        (Facts { version: (11, 7), ..base.clone() }, "this is macOS 11.7"),
        (Facts { system: System::Ios, version: (14, 8), ..base.clone() }, "this is iOS 14.8"),
        (Facts { apple6: false, mac2: false, ..base }, "no SIMD-group shuffles"),
    ] {
        let gpu = Answers { facts, failure: Some("it was asked"), ..Answers::new() };
        let why = why_closed(gpu);
        assert!(why.contains(part), "{part} in: {why}");
    }
}

#[test]
fn the_compilers_text_is_in_the_reason() {
    let text = "program_source: metal/ssm_update.metal:80:1: error: no such thing";
    match MetalKernel::open(Answers { failure: Some(text), ..Answers::new() }) {
        Err(Unavailable::Driver(error)) => {
            let told = error.to_string();
            for part in [text, "newLibraryWithSource", "MTLLibraryErrorDomain (3)"] {
                assert!(told.contains(part), "{part} in: {told}");
            }
        }
        other => panic!("{other:?}"),
    }
}

fn step(kernel: &impl Kernel, dtypes: Dtypes) -> Result<(), Error> {
    let mut fixture = Fixture::new(&Case { dtypes, ..Case::new(1, 2, 3, 1, 32) });
    kernel.step(slices(&mut fixture))
}

#[test]
fn a_later_kernel_with_other_simd_groups_is_refused_and_the_first_still_works() {
    let kernel = MetalKernel::open(Answers { later_width: 16, ..Answers::new() }).expect("the first kernel is right");
    let error = step(&kernel, Dtypes::uniform(Dtype::F16)).expect_err("16 threads");
    let text = error.to_string();
    assert!(text.contains("unsupported shapes") && text.contains("threadExecutionWidth: expected 32"), "{text}");
    assert_eq!(kernel.gpu().encoded.load(Ordering::SeqCst), 0);
    assert_eq!(step(&kernel, Dtypes::uniform(Dtype::F32)), Ok(()));
    assert_eq!(kernel.gpu().encoded.load(Ordering::SeqCst), 1);
}

#[test]
fn without_bfloat_its_keys_are_refused_and_the_others_work() {
    let base = Answers::new().facts;
    for (facts, part) in [
        (Facts { version: (13, 6), ..base.clone() }, "bfloat came with macOS 14, and this is macOS 13.6"),
        (Facts { apple6: false, metal3: false, ..base }, "Some GPU is of neither"),
    ] {
        let kernel = MetalKernel::open(Answers { facts, ..Answers::new() }).expect("f32 and f16 are there");
        assert!(kernel.describe().contains("without bfloat"), "{}", kernel.describe());
        let state = Dtypes { state: Dtype::Bf16, ..Dtypes::uniform(Dtype::F32) };
        for (dtypes, field) in [(Dtypes::uniform(Dtype::Bf16), "dtypes.x"), (state, "dtypes.state")] {
            let error = step(&kernel, dtypes).expect_err("no bfloat");
            assert_eq!(error.mismatch().map(|mismatch| mismatch.field), Some(field));
            assert!(error.to_string().contains("unsupported shapes") && error.to_string().contains(part), "{error}");
        }
        // Per-head vectors of bf16 are widened by their bits.
        for x in [Dtype::F32, Dtype::F16] {
            let b = Dtype::Bf16;
            let dtypes = Dtypes { dt: b, a_log: b, d: b, dt_bias: b, ..Dtypes::uniform(x) };
            assert_eq!(step(&kernel, dtypes), Ok(()));
        }
        let compiled = kernel.gpu().compiled.lock().expect("no thread panics with it");
        assert!(compiled.iter().all(|(_, language)| *language == Language::V2_4), "{compiled:?}");
    }
}

/// Kernels that are made ready ahead: no step compiles them again, and what no kernel serves is refused then as later.
#[test]
fn what_is_prepared_is_not_compiled_by_a_step() {
    let kernel = MetalKernel::open(Answers::new()).expect("it opens");
    let case = Case { dtypes: Dtypes::uniform(Dtype::F16), ..Case::new(1, 2, 3, 1, 32) };
    let mut fixture = Fixture::new(&case);
    let launch = validate(&Problem::contiguous(case.dims, case.dtypes), &addresses()).expect("legal");
    let compiled = || kernel.gpu().compiled.lock().expect("no thread panics with it").len();
    let before = compiled();
    assert_eq!(kernel.prepare(&[launch, launch]), Ok(()));
    assert_eq!(compiled(), before + 1);
    assert_eq!(kernel.step(slices(&mut fixture)), Ok(()));
    assert_eq!(compiled(), before + 1);
}

#[test]
fn a_kernel_is_compiled_when_it_is_first_used_and_once() {
    const DTYPES: [Dtype; 8] = {
        let (f32, f16, bf16) = (Dtype::F32, Dtype::F16, Dtype::Bf16);
        [f16, bf16, f16, bf16, f16, f32, f32, f16]
    };
    let kernel = MetalKernel::open(Answers::new()).expect("it opens");
    let all_are_here = Barrier::new(DTYPES.len());
    thread::scope(|scope| {
        for dtype in DTYPES {
            let (kernel, all_are_here) = (&kernel, &all_are_here);
            scope.spawn(move || {
                let case = Case { dtypes: Dtypes::uniform(dtype), ..Case::new(1, 2, 3, 1, 32) };
                let mut fixture = Fixture::new(&case);
                all_are_here.wait();
                assert_eq!(kernel.step(slices(&mut fixture)), Ok(()));
            });
        }
    });
    let mut compiled: Vec<_> = kernel
        .gpu()
        .compiled
        .lock()
        .expect("no thread panics with it")
        .iter()
        .map(|(key, language)| (key.x, *language))
        .collect();
    compiled.sort_by_key(|(dtype, _)| dtype.name());
    let wanted = [(Dtype::Bf16, Language::V3_1), (Dtype::F16, Language::V2_4), (Dtype::F32, Language::V2_4)];
    assert_eq!(compiled, wanted);
    assert_eq!(kernel.gpu().encoded.load(Ordering::SeqCst), 8);
}

// --- buffers and encoders, on the shim ------------------------------------------------------------------------------------

fn shim() -> MetalKernel<ShimGpu> {
    metal_shim::open().expect("clang++ is needed; scripts/setup.sh installs it on Debian")
}

/// A fixture's tensors in buffers, each behind its guard.
struct Placed {
    gpu: &'static MetalKernel<ShimGpu>,
    tensors: Vec<(Arc<ShimBuffer>, usize)>,
}

impl Placed {
    fn place(&mut self, (whole, len, body): (*mut u8, usize, usize)) -> usize {
        let buffer = self.gpu.gpu().allocate(len).expect("memory");
        // SAFETY: the fixture's buffer, of this length, into one that is as long.
        unsafe { self.gpu.gpu().write(&buffer, 0, std::slice::from_raw_parts(whole, len)) };
        self.tensors.push((buffer, body));
        self.tensors.len() - 1
    }

    fn at(&self, number: usize) -> At<'_, Arc<ShimBuffer>> {
        At { buffer: &self.tensors[number].0, offset: self.tensors[number].1 }
    }

    fn bring_back(&self, number: usize, to: &mut Buffer) {
        let (whole, len, _) = to.raw();
        // SAFETY: as many bytes as were placed.
        unsafe { self.gpu.gpu().read(&self.tensors[number].0, 0, std::slice::from_raw_parts_mut(whole, len)) };
    }
}

/// Encodes steps into one encoder of the caller's, which computes nothing before its commit, and then what `Kernel::step` computes.
#[test]
fn steps_are_placed_into_an_encoder_of_the_callers() {
    let kernel: &'static MetalKernel<ShimGpu> = Box::leak(Box::new(shim()));
    let case = Case { gap: 3, state: StateMode::InPlace, ..Case::new(2, 6, 5, 3, 48) };
    let before = Fixture::new(&case);
    let mut fixture = before.clone();
    let mut placed = Placed { gpu: kernel, tensors: Vec::new() };
    let [x, b, c, dt, a_log, y, state] = [
        &mut fixture.x,
        &mut fixture.b,
        &mut fixture.c,
        &mut fixture.dt,
        &mut fixture.a_log,
        &mut fixture.y,
        &mut fixture.state_in,
    ]
    .map(|buffer| placed.place(buffer.raw()));
    let [z, d, bias] = [&mut fixture.z, &mut fixture.d, &mut fixture.dt_bias]
        .map(|buffer| buffer.as_mut().map(|buffer| placed.place(buffer.raw())));

    let mut encoder = ShimEncoder::default();
    let buffers = Buffers {
        x: placed.at(x),
        z: z.map(|z| placed.at(z)),
        b: placed.at(b),
        c: placed.at(c),
        dt: placed.at(dt),
        a_log: placed.at(a_log),
        d: d.map(|d| placed.at(d)),
        dt_bias: bias.map(|bias| placed.at(bias)),
        state_in: placed.at(state),
        state_out: Some(placed.at(state)),
        slots_in: None,
        slots_out: None,
        y: placed.at(y),
    };
    for _ in 0..2 {
        // SAFETY: whole tensors in buffers of their own, and an encoder of ours.
        unsafe { kernel.encode(&before.problem(), &buffers, encoder.stream()) }.expect("a legal step");
    }
    assert_eq!(encoder.len(), 2);
    placed.bring_back(y, &mut fixture.y);
    placed.bring_back(state, &mut fixture.state_in);
    assert_eq!(fixture.any_write(&before), None, "nothing runs before the commit");

    encoder.commit(kernel.gpu()).expect("no fault");
    placed.bring_back(y, &mut fixture.y);
    placed.bring_back(state, &mut fixture.state_in);
    let once = run_checked(kernel, &before, Level::Slices).expect("a legal step");
    let twice = run_checked(kernel, &Fixture { y: before.y.clone(), ..once }, Level::Slices).expect("a legal step");
    assert!(fixture.y.same_bits(&twice.y) && fixture.state_in.same_bits(&twice.state_in));
}

/// A step with everything in one buffer of `length` bytes: tensors one after the other.
fn in_one_buffer<'a, B>(buffer: &'a B, problem: &Problem) -> (Buffers<'a, B>, usize) {
    let dims = problem.dims;
    let sizes = [
        dims.heads * dims.head_dim,
        dims.groups * dims.d_state,
        dims.heads,
        dims.slots * dims.heads * dims.head_dim * dims.d_state,
    ];
    let mut end = 0;
    let mut next = |elements: usize| {
        end += elements * 4;
        At { buffer, offset: end - elements * 4 }
    };
    let (x, b, c, dt, a_log, state, y) = (
        next(sizes[0]),
        next(sizes[1]),
        next(sizes[1]),
        next(sizes[2]),
        next(sizes[2]),
        next(sizes[3]),
        next(sizes[0]),
    );
    let buffers = Buffers {
        x,
        z: None,
        b,
        c,
        dt,
        a_log,
        d: None,
        dt_bias: None,
        state_in: state,
        state_out: Some(state),
        slots_in: None,
        slots_out: None,
        y,
    };
    (buffers, end)
}

fn small() -> Problem {
    let dims = ssm_update::Dims { batch: 1, heads: 2, head_dim: 3, groups: 1, d_state: 32, slots: 1 };
    Problem::contiguous(dims, Dtypes::uniform(Dtype::F32))
}

/// Encodes on a GPU that only answers.
#[allow(unsafe_code)]
fn encode(kernel: &MetalKernel<Answers>, problem: &Problem, at: &Buffers<'_, Nowhere>) -> Result<(), Error> {
    // SAFETY: nothing is computed.
    unsafe { kernel.encode(problem, at, Stream::DEFAULT) }
}

#[test]
fn buffers_that_do_not_hold_their_tensors_are_refused_by_name() {
    let kernel = MetalKernel::open(Answers::new()).expect("it opens");
    let problem = small();
    let whole = Nowhere { address: 1 << 40, length: 1 << 20 };
    let (all, length) = in_one_buffer(&whole, &problem);
    let refused = |at: Buffers<'_, Nowhere>, field: &str, part: &str| {
        let before = kernel.gpu().encoded.load(Ordering::SeqCst);
        let error = encode(&kernel, &problem, &at).expect_err(field);
        assert_eq!(error.mismatch().map(|mismatch| mismatch.field), Some(field), "{error}");
        assert!(error.to_string().contains(part), "{part} in: {error}");
        assert_eq!(kernel.gpu().encoded.load(Ordering::SeqCst), before, "nothing was encoded");
    };
    // y is the last one.
    let exact = Nowhere { length, ..whole };
    assert_eq!(encode(&kernel, &problem, &in_one_buffer(&exact, &problem).0), Ok(()));
    let short = Nowhere { length: length - 1, ..whole };
    refused(in_one_buffer(&short, &problem).0, "y", "in a buffer of");
    let at = |offset| At { buffer: &whole, offset };
    refused(Buffers { x: at((1 << 20) - 20), ..all }, "x", "24 bytes from its offset");
    refused(Buffers { b: at(usize::MAX - 3), ..all }, "b", "in a buffer of");
    refused(Buffers { c: at(6), ..all }, "c", "aligned to 4 bytes");
    refused(Buffers { state_out: Some(at(all.state_in.offset + 16)), ..all }, "state_out", "16 bytes apart");
    refused(Buffers { state_out: None, ..all }, "state_out", "null");
    // Of another buffer, the same offsets are another place.
    let other = Nowhere { address: 1 << 41, length: 1 << 20 };
    let state_out = Some(At { buffer: &other, offset: all.state_in.offset + 16 });
    assert_eq!(encode(&kernel, &problem, &Buffers { state_out, ..all }), Ok(()));
    // Without a batch, nothing has to be anywhere.
    let nothing = Problem { dims: ssm_update::Dims { batch: 0, ..problem.dims }, ..problem };
    let before = kernel.gpu().encoded.load(Ordering::SeqCst);
    assert_eq!(encode(&kernel, &nothing, &all), Ok(()));
    assert_eq!(kernel.gpu().encoded.load(Ordering::SeqCst), before);
}

/// Pointers are found in registered buffers, as long as they are registered.
#[test]
#[allow(unsafe_code)]
fn pointers_are_found_in_registered_buffers() {
    let kernel = MetalKernel::open(Answers::new()).expect("it opens");
    let problem = small();
    let whole = Nowhere { address: 1 << 50, length: 4096 };
    let (all, _) = in_one_buffer(&whole, &problem);
    let pointer = |at: At<'_, Nowhere>| std::ptr::without_provenance_mut::<c_void>(at.buffer.address + at.offset);
    let pointers = ssm_update::Pointers {
        x: pointer(all.x),
        b: pointer(all.b),
        c: pointer(all.c),
        dt: pointer(all.dt),
        a_log: pointer(all.a_log),
        state_in: pointer(all.state_in),
        state_out: pointer(all.state_in),
        y: pointer(all.y),
        ..ssm_update::Pointers::NULL
    };
    let launch = validate(&problem, &pointers).expect("a legal step");
    // SAFETY: nothing is computed.
    let run = || unsafe { kernel.launch(&launch, Stream::DEFAULT) };
    let refused = || {
        let error = run().expect_err("not registered");
        let text = error.to_string();
        assert!(matches!(error, Error::Invalid(_)) && text.contains("registered with it"), "{text}");
    };
    refused();
    let registered = kernel.register(whole.clone()).expect("a new buffer");
    assert_eq!(run(), Ok(()));
    for overlapping in [whole.clone(), Nowhere { address: whole.address + 4095, length: 1 }] {
        let text = kernel.register(overlapping).expect_err("known already").to_string();
        assert!(text.contains("not registered yet"), "{text}");
    }
    drop(registered);
    refused();
    let private = Nowhere { address: 0, length: 4096 };
    let text = kernel.register(private).expect_err("the CPU does not see it").to_string();
    assert!(text.contains("private storage") && text.contains("encode"), "{text}");
    // The port's own memory is registered while it lives.
    let own = kernel.memory().expect("it has memory").allocate(64).expect("memory");
    let (address, length) = (own.address().addr(), 64);
    assert!(kernel.register(Nowhere { address, length }).is_err());
    drop(own);
    assert!(kernel.register(Nowhere { address, length }).is_ok());
}
