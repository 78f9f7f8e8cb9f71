//! Capture into graphs, and compilation at run time.

use super::*;

const ILLEGAL_STATE: i32 = 401;
const NOT_SUPPORTED: i32 = 801;
const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const IMPLICIT: i32 = 906;
const WRONG_THREAD: i32 = 908;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn stream(flags: u32) -> u64 {
    let mut stream = 0;
    assert_eq!(call!(hipStreamCreateWithFlags(*mut u64: &mut stream, u32: flags)), OK);
    stream
}

fn begin(stream: u64, mode: i32) -> i32 {
    call!(hipStreamBeginCapture(u64: stream, i32: mode))
}

fn end(stream: u64) -> Result<u64, i32> {
    let mut graph = 1;
    match call!(hipStreamEndCapture(u64: stream, *mut u64: &mut graph)) {
        OK => Ok(graph),
        status => {
            assert!(graph <= 1, "no graph where the capture failed");
            Err(status)
        }
    }
}

fn capturing(stream: u64) -> i32 {
    let mut status = -1;
    assert_eq!(call!(hipStreamIsCapturing(u64: stream, *mut i32: &mut status)), OK);
    status
}

fn instantiate(graph: u64) -> u64 {
    let mut made = 0;
    let none = null_mut::<c_void>();
    let status =
        call!(hipGraphInstantiate(*mut u64: &mut made, u64: graph, *mut c_void: none, *mut c_void: none, usize: 0));
    assert_eq!(status, OK);
    made
}

fn launch_on(function: u64, stream: u64, items: u32, parameters: *mut *mut c_void) -> i32 {
    call!(hipModuleLaunchKernel(
        u64: function, u32: 1, u32: 1, u32: 1, u32: items, u32: 1, u32: 1, u32: 0, u64: stream,
        *mut *mut c_void: parameters, *mut *mut c_void: null_mut()
    ))
}

fn word(at: u64) -> u32 {
    let mut words = [0];
    assert_eq!(download(at, &mut words), OK);
    words[0]
}

/// A fill, two launches and a copy: nothing happens before the graph is launched, and then all of it in order, each time.
pub fn graphs_are_launched() {
    let Some(module) = module("tests/launches/launches.hip") else { return };
    let count = function(module, c"count").expect("it is a kernel");
    let (total, copied, stream) = (malloc(4), malloc(4), stream(1));
    assert_eq!(upload(total, &[7]), OK);
    assert_eq!(upload(copied, &[0]), OK);
    let mut argument = total;
    let mut parameters = [(&raw mut argument).cast::<c_void>()];

    assert_eq!(begin(stream, THREAD_LOCAL), OK);
    assert_eq!(capturing(stream), 1);
    assert_eq!(call!(hipMemsetAsync(u64: total, i32: 0, usize: 4, u64: stream)), OK);
    assert_eq!(launch_on(count, stream, 32, parameters.as_mut_ptr()), OK);
    assert_eq!(launch_on(count, stream, 5, parameters.as_mut_ptr()), OK);
    assert_eq!(call!(hipMemcpyDtoDAsync(u64: copied, u64: total, usize: 4, u64: stream)), OK);
    // What a launch was given is kept with it.
    argument = 0;
    let graph = end(stream).expect("a graph");
    assert_eq!(capturing(stream), 0);
    assert_eq!((word(total), word(copied), argument), (7, 0, 0));

    let mut nodes = 0;
    assert_eq!(call!(hipGraphGetNodes(u64: graph, u64: 0, *mut usize: &mut nodes)), OK);
    assert_eq!(nodes, 4);
    let launchable = instantiate(graph);
    // Its own copy of the nodes.
    assert_eq!(call!(hipGraphDestroy(u64: graph)), OK);
    assert_eq!(call!(hipGraphDestroy(u64: graph)), ILLEGAL_STATE);
    for _ in 0..2 {
        assert_eq!(call!(hipGraphLaunch(u64: launchable, u64: stream)), OK);
        assert_eq!((word(total), word(copied)), (37, 37));
    }
    assert_eq!(call!(hipGraphLaunch(u64: launchable + 16, u64: stream)), INVALID_VALUE);
    assert_eq!(call!(hipGraphLaunch(u64: launchable, u64: stream + 1)), INVALID_HANDLE);
    // A node that fails ends the launch.
    assert_eq!(call!(hipFree(u64: copied)), OK);
    assert_eq!(call!(hipGraphLaunch(u64: launchable, u64: stream)), INVALID_VALUE);
    assert_eq!(call!(hipGraphExecDestroy(u64: launchable)), OK);
    assert_eq!(call!(hipGraphExecDestroy(u64: launchable)), INVALID_VALUE);
    assert_eq!(call!(hipGraphDestroy(u64: 0)), INVALID_VALUE);
}

/// What HIP refuses while a stream is captured, and what becomes of the capture.
pub fn captures_have_rules() {
    let (blocking, free) = (stream(0), stream(1));
    assert_eq!(begin(0, GLOBAL), UNSUPPORTED);
    assert_eq!(begin(free, 3), INVALID_VALUE);
    assert_eq!(end(free), Err(ILLEGAL_STATE));
    assert_eq!(end(0), Err(ILLEGAL_STATE));
    assert_eq!(begin(free, GLOBAL), OK);
    assert_eq!(begin(free, GLOBAL), ILLEGAL_STATE);
    assert_eq!(end(free).map(|_| ()), Ok(()));

    // Waiting for the stream makes the capture invalid: later work and its end say so, and then it may begin anew.
    assert_eq!(begin(free, RELAXED), OK);
    assert_eq!(call!(hipStreamSynchronize(u64: free)), UNSUPPORTED);
    assert_eq!(capturing(free), 2);
    assert_eq!(call!(hipMemsetAsync(u64: 0, i32: 0, usize: 0, u64: free)), INVALIDATED);
    assert_eq!(end(free), Err(INVALIDATED));
    assert_eq!(begin(free, RELAXED), OK);
    assert_eq!(end(free).map(|_| ()), Ok(()));

    // Calls outside every stream: of any thread while somebody captures globally, of the own one otherwise.
    let mut pointer = 0_u64;
    let mut allocate = || call!(hipMalloc(*mut u64: &mut pointer, usize: 16));
    for (mode, own, elsewhere) in
        [(GLOBAL, UNSUPPORTED, UNSUPPORTED), (THREAD_LOCAL, UNSUPPORTED, OK), (RELAXED, OK, OK)]
    {
        assert_eq!(begin(free, mode), OK);
        assert_eq!(allocate(), own, "mode {mode}");
        assert_eq!(end(free).err(), (own != OK).then_some(INVALIDATED), "mode {mode}");
        assert_eq!(begin(free, mode), OK);
        let other =
            std::thread::scope(|scope| scope.spawn(|| call!(hipDeviceSynchronize())).join().expect("the thread ends"));
        assert_eq!(other, elsewhere, "mode {mode}");
        assert_eq!(end(free).err(), (elsewhere != OK).then_some(INVALIDATED), "mode {mode}");
    }

    // A copy that waits, and the default stream, which a stream waits for unless it was made otherwise.
    let device = malloc(64);
    assert_eq!(begin(free, RELAXED), OK);
    assert_eq!(call!(hipMemsetAsync(u64: device, i32: 0, usize: 64, u64: 0)), OK);
    assert_eq!(upload(device, &[1]), IMPLICIT);
    assert_eq!(end(free), Err(INVALIDATED));
    assert_eq!(begin(blocking, RELAXED), OK);
    assert_eq!(call!(hipMemsetAsync(u64: device, i32: 0, usize: 64, u64: 0)), IMPLICIT);
    assert_eq!(end(blocking), Err(INVALIDATED));

    // A capture that belongs to a thread is ended by it.
    assert_eq!(begin(free, THREAD_LOCAL), OK);
    let other = std::thread::scope(|scope| scope.spawn(|| end(free)).join().expect("the thread ends"));
    assert_eq!(other, Err(WRONG_THREAD));
    // What the simulator does not put into graphs is refused, and the capture goes on.
    let mut words = [0_u32; 4];
    let host = words.as_mut_ptr().cast::<c_void>();
    assert_eq!(call!(hipMemcpyDtoHAsync(*mut c_void: host, u64: device, usize: 16, u64: free)), NOT_SUPPORTED);
    let mut event = 0_u64;
    assert_eq!(call!(hipEventCreate(*mut u64: &mut event)), OK);
    assert_eq!(call!(hipEventRecord(u64: event, u64: free)), NOT_SUPPORTED);
    let graph = end(free).expect("a graph");
    let mut made = 0_u64;
    assert_eq!(call!(hipGraphInstantiateWithFlags(*mut u64: &mut made, u64: graph, u64: 64)), INVALID_VALUE);
    assert_eq!(call!(hipGraphInstantiateWithFlags(*mut u64: &mut made, u64: graph, u64: 1)), OK);
    assert_eq!(call!(hipGraphInstantiateWithFlags(*mut u64: &mut made, u64: made, u64: 0)), INVALID_VALUE);
}

const COMPILATION: i32 = 6;
const NO_COMPILER: i32 = 7;

/// A program of one source and, where given, one header.
fn program(source: &CStr, header: Option<(&CStr, &CStr)>) -> Result<u64, i32> {
    let mut program = 0;
    let (name, text) =
        header.map_or((std::ptr::null(), std::ptr::null()), |(name, text)| (name.as_ptr(), text.as_ptr()));
    let status = call!(hiprtcCreateProgram(
        *mut u64: &mut program, *const c_char: source.as_ptr(), *const c_char: c"k.hip".as_ptr(),
        i32: header.is_some().into(), *const *const c_char: &text, *const *const c_char: &name
    ));
    if status == OK { Ok(program) } else { Err(status) }
}

fn compile_program(program: u64, options: &[&CStr]) -> i32 {
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    call!(hiprtcCompileProgram(u64: program, i32: options.len() as i32, *const *const c_char: options.as_ptr()))
}

fn log(program: u64) -> String {
    let mut size = 0_usize;
    assert_eq!(call!(hiprtcGetProgramLogSize(u64: program, *mut usize: &mut size)), OK);
    let mut text = vec![1_u8; size];
    if size > 0 {
        assert_eq!(call!(hiprtcGetProgramLog(u64: program, *mut u8: text.as_mut_ptr())), OK);
        assert_eq!(text.pop(), Some(0), "its end");
    }
    String::from_utf8(text).expect("text")
}

/// A source becomes a code object, which is loaded and runs.
pub fn sources_are_compiled() {
    if compilers().is_empty() {
        return;
    }
    let source = c"#include \"number.h\"\nextern \"C\" __global__ void set(uint32_t *to) { *to = NUMBER + MORE; }\n";
    let compiled = program(source, Some((c"number.h", c"#define NUMBER 40\n"))).expect("a program");
    assert_eq!(compile_program(compiled, &[c"-DMORE=2"]), OK, "{}", log(compiled));
    let mut size = 0_usize;
    assert_eq!(call!(hiprtcGetCodeSize(u64: compiled, *mut usize: &mut size)), OK);
    let mut code = vec![0_u8; size];
    assert_eq!(call!(hiprtcGetCode(u64: compiled, *mut u8: code.as_mut_ptr())), OK);
    let mut handle = compiled;
    assert_eq!(call!(hiprtcDestroyProgram(*mut u64: &mut handle)), OK);
    assert_eq!(call!(hiprtcDestroyProgram(*mut u64: &mut handle)), 4);

    let mut module = 0;
    assert_eq!(call!(hipModuleLoadData(*mut u64: &mut module, *const c_void: code.as_ptr().cast())), OK);
    let set = function(module, c"set").expect("it is a kernel");
    let mut to = malloc(4);
    let mut parameters = [(&raw mut to).cast::<c_void>()];
    assert_eq!(launch_on(set, 0, 1, parameters.as_mut_ptr()), OK);
    assert_eq!(word(to), 42);

    // A fault of the source, with the compiler's words; an architecture that is another than the device's.
    let wrong = program(c"extern \"C\" __global__ void set(int *to) { *to = nothing; }", None).expect("a program");
    assert_eq!(compile_program(wrong, &[]), COMPILATION);
    assert!(log(wrong).contains("source.hip:1:") && log(wrong).contains("nothing"), "{}", log(wrong));
    let mut size = 9_usize;
    assert_eq!(call!(hiprtcGetCodeSize(u64: wrong, *mut usize: &mut size)), OK);
    assert_eq!(size, 0);
    assert_eq!(compile_program(wrong + 16, &[]), 4);
    assert_eq!(program(c"", Some((c"../outside.h", c""))), Err(2), "a header outside the folder");
    assert_eq!(call!(hipPeekAtLastError()), OK, "results of hipRTC are no errors of HIP");
}

/// No compiler is told apart from a source that does not compile.
pub fn no_compiler() {
    let source = program(c"", None).expect("a program");
    assert_eq!(compile_program(source, &[]), NO_COMPILER);
    assert!(log(source).starts_with("hip-sim: no compiler for hipRTC: "), "{}", log(source));
}
