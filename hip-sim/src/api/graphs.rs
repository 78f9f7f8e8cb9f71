//! Capture of a stream into a graph, and graphs of what was captured. The nodes of a graph run in the order of their capture.
//!
//! Rules and answers are those of AMD's runtime: who may do what while a stream is captured, and what makes a capture invalid.

use std::ffi::c_void;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use super::copies::{copy_on_device, fill};
use super::enter::{exports, put};
use super::modules::{Work, run};
use super::runtime::{Handles, Object, Runtime};
use super::status::Status;
use super::streams::check_stream;

/// `hipStreamCaptureMode`.
const GLOBAL: i32 = 0;
const RELAXED: i32 = 2;

/// `hipStreamCaptureStatus`.
const NONE: i32 = 0;
const ACTIVE: i32 = 1;
const INVALIDATED: i32 = 2;

/// The flags of `hipGraphInstantiateWithFlags` that this library knows: memory nodes are freed, nodes have priorities.
const INSTANTIATE_FLAGS: [u64; 3] = [0, 1, 8];

/// What a graph does in one step.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A kernel, with the arguments that it had when it was captured.
    Launch(Work),
    /// A copy within a device, or from one to another.
    Copy { to: u64, from: u64, size: usize },
    /// A fill.
    Fill { to: u64, value: u8, size: usize },
}

/// What is known of a stream that is captured.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    mode: i32,
    thread: ThreadId,
    valid: bool,
    nodes: Vec<Node>,
}

fn do_now(runtime: &Runtime, node: &Node) -> Result<(), Status> {
    match node {
        Node::Launch(work) => run(runtime, work),
        Node::Copy { to, from, size } => copy_on_device(runtime, *to, *from, *size),
        Node::Fill { to, value, size } => fill(runtime, *to, *value, *size),
    }
}

/// Does something in the order of a stream: at once, or when the graph is launched into which the stream is captured.
pub(super) fn queue(runtime: &Runtime, stream: *mut c_void, node: Node) -> Result<(), Status> {
    check_order(runtime, stream)?;
    if let Some(Object::Stream(found)) = runtime.handles().get_mut(stream as usize)
        && let Some(capture) = &mut found.capture
    {
        if !capture.valid {
            return Err(Status::STREAM_CAPTURE_INVALIDATED);
        }
        capture.nodes.push(node);
        return Ok(());
    }
    do_now(runtime, &node)
}

/// Refuses on a stream that is captured what the simulator does not put into graphs.
pub(super) fn not_captured(runtime: &Runtime, stream: *mut c_void, what: &str) -> Result<(), Status> {
    check_order(runtime, stream)?;
    match runtime.handles().get(stream as usize) {
        Some(Object::Stream(found)) if found.capture.is_some() => {
            eprintln!("hip-sim: {what} on a stream that is captured: not simulated");
            Err(Status::NOT_SUPPORTED)
        }
        _ => Ok(()),
    }
}

/// The default stream waits for the others, which cannot be asked of one that is captured.
fn check_order(runtime: &Runtime, stream: *mut c_void) -> Result<(), Status> {
    check_stream(runtime, stream)?;
    let mut handles = runtime.handles();
    if !matches!(handles.get(stream as usize), Some(Object::Stream(_)))
        && invalidate(&mut handles, |blocking, _| blocking)
    {
        return Err(Status::STREAM_CAPTURE_IMPLICIT);
    }
    Ok(())
}

/// Makes the captures invalid that `affected` says (whether their stream waits for the default one, and the capture). Whether
/// there was one.
fn invalidate(handles: &mut Handles, affected: impl Fn(bool, &Capture) -> bool) -> bool {
    let mut any = false;
    for stream in handles.streams_mut() {
        let blocking = stream.blocking;
        if let Some(capture) = stream.capture.as_mut().filter(|capture| affected(blocking, capture)) {
            capture.valid = false;
            any = true;
        }
    }
    any
}

/// A call that might wait or that is not in the order of any stream: not while this thread captures, or anybody globally.
pub(super) fn check_unsafe_call(runtime: &Runtime) -> Result<(), Status> {
    let own = thread::current().id();
    let affected = |_, capture: &Capture| capture.mode == GLOBAL || (capture.mode != RELAXED && capture.thread == own);
    let any = invalidate(&mut runtime.handles(), affected);
    if any { Err(Status::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// A copy that waits: not while any stream is captured.
pub(super) fn check_waiting_copy(runtime: &Runtime) -> Result<(), Status> {
    let any = invalidate(&mut runtime.handles(), |_, _| true);
    if any { Err(Status::STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}

/// Nobody can wait for a stream that is captured.
pub(super) fn check_wait(runtime: &Runtime, stream: *mut c_void) -> Result<(), Status> {
    if let Some(Object::Stream(found)) = runtime.handles().get_mut(stream as usize)
        && let Some(capture) = &mut found.capture
    {
        capture.valid = false;
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(())
}

/// The nodes behind a handle of a graph, or of one that can be launched.
fn nodes(runtime: &Runtime, graph: *mut c_void, launchable: bool) -> Result<Arc<[Node]>, Status> {
    match (runtime.handles().get(graph as usize), launchable) {
        (Some(Object::Graph(nodes)), false) | (Some(Object::LaunchableGraph(nodes)), true) => Ok(Arc::clone(nodes)),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// Makes a graph that can be launched.
///
/// # Safety
///
/// The pointer is null or valid for a write.
unsafe fn instantiate(runtime: &Runtime, made: *mut *mut c_void, graph: *mut c_void) -> Result<(), Status> {
    if made.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let nodes = nodes(runtime, graph, false)?;
    let handle = runtime.handles().add(Object::LaunchableGraph(nodes));
    // SAFETY: valid for a write by this function's contract.
    unsafe { put(made, handle as *mut c_void) }
}

exports! {
    /// Begins to capture what is asked of a stream, instead of doing it.
    fn hipStreamBeginCapture(stream: *mut c_void, mode: i32) |runtime| {
        check_stream(runtime, stream)?;
        let mut handles = runtime.handles();
        let Some(Object::Stream(found)) = handles.get_mut(stream as usize) else {
            // The default stream.
            return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
        };
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(Status::INVALID_VALUE);
        }
        if found.capture.is_some() {
            return Err(Status::ILLEGAL_STATE);
        }
        found.capture = Some(Capture { mode, thread: thread::current().id(), valid: true, nodes: Vec::new() });
        Ok(())
    };

    /// Ends the capture of a stream; the graph is of what was captured.
    fn hipStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) |runtime| {
        if graph.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        check_stream(runtime, stream)?;
        let mut handles = runtime.handles();
        let Some(Object::Stream(found)) = handles.get_mut(stream as usize) else { return Err(Status::ILLEGAL_STATE) };
        let capture = found.capture.take().ok_or(Status::ILLEGAL_STATE)?;
        if capture.mode != RELAXED && capture.thread != thread::current().id() {
            found.capture = Some(capture);
            return Err(Status::STREAM_CAPTURE_WRONG_THREAD);
        }
        let (handle, status) = if capture.valid {
            (handles.add(Object::Graph(capture.nodes.into())), Ok(()))
        } else {
            (0, Err(Status::STREAM_CAPTURE_INVALIDATED))
        };
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(graph, handle as *mut c_void)? };
        status
    };

    /// Whether a stream is captured: 0 no, 1 yes, 2 the capture is invalid.
    fn hipStreamIsCapturing(stream: *mut c_void, status: *mut i32) |runtime| {
        check_order(runtime, stream)?;
        let answer = match runtime.handles().get(stream as usize) {
            Some(Object::Stream(found)) => match &found.capture {
                Some(capture) if capture.valid => ACTIVE,
                Some(_) => INVALIDATED,
                None => NONE,
            },
            _ => NONE,
        };
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(status, answer) }
    };

    /// How many nodes a graph has. Nodes have no handles here, so that `nodes` is null.
    fn hipGraphGetNodes(graph: *mut c_void, handles: *mut *mut c_void, count: *mut usize) |runtime| {
        let nodes = nodes(runtime, graph, false)?;
        if !handles.is_null() {
            eprintln!("hip-sim: hipGraphGetNodes: handles of nodes are not simulated");
            return Err(Status::NOT_SUPPORTED);
        }
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(count, nodes.len()) }
    };

    /// Makes a graph that can be launched. The log stays as it is.
    fn hipGraphInstantiate(
        made: *mut *mut c_void,
        graph: *mut c_void,
        error: *mut *mut c_void,
        log: *mut std::ffi::c_char,
        size: usize,
    ) |runtime| {
        let _ = (error, log, size);
        // SAFETY: by this function's contract.
        unsafe { instantiate(runtime, made, graph) }
    };

    /// Makes a graph that can be launched.
    fn hipGraphInstantiateWithFlags(made: *mut *mut c_void, graph: *mut c_void, flags: u64) |runtime| {
        if !INSTANTIATE_FLAGS.contains(&flags) {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: by this function's contract.
        unsafe { instantiate(runtime, made, graph) }
    };

    /// Runs a graph, node after node.
    fn hipGraphLaunch(graph: *mut c_void, stream: *mut c_void) |runtime| {
        let nodes = nodes(runtime, graph, true)?;
        not_captured(runtime, stream, "a graph")?;
        nodes.iter().try_for_each(|node| do_now(runtime, node))
    };

    /// Ends a graph.
    fn hipGraphDestroy(graph: *mut c_void) |runtime| {
        if graph.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        nodes(runtime, graph, false).map_err(|_| Status::ILLEGAL_STATE)?;
        runtime.handles().remove(graph as usize);
        Ok(())
    };

    /// Ends a graph that can be launched.
    fn hipGraphExecDestroy(graph: *mut c_void) |runtime| {
        nodes(runtime, graph, true)?;
        runtime.handles().remove(graph as usize);
        Ok(())
    };
}
