//! What the process has: devices, and the handles that were given out.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::graphs::{Capture, Node};
use super::status::Status;
use crate::device::{Config, Device, ModuleId};

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// What a handle stands for.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// A loaded code object, and its device.
    Module(usize, ModuleId),
    /// A kernel of one.
    Function(Function),
    /// A stream.
    Stream(Stream),
    /// An event, with the time it was recorded at.
    Event(Option<Instant>),
    /// Page-locked memory of the host.
    Host(Box<HostBlock>),
    /// What was captured of a stream.
    Graph(Arc<[Node]>),
    /// The same, ready to be launched.
    LaunchableGraph(Arc<[Node]>),
}

/// A stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub device: usize,
    /// It waits for the default stream, and the other way round.
    pub blocking: bool,
    /// What is asked of it is captured.
    pub capture: Option<Capture>,
}

/// A kernel that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub device: usize,
    /// The handle of its module.
    pub handle: usize,
    pub module: ModuleId,
    pub name: String,
}

/// Host memory that was handed out, aligned to a page as the driver does it.
#[derive(Clone, Debug)]
pub(super) struct HostBlock {
    pub layout: std::alloc::Layout,
}

/// Handles are numbers, not addresses, so that one that is followed as a pointer crashes.
const HANDLES: usize = 0x7a00;

#[derive(Debug, Default)]
pub(super) struct Handles {
    objects: BTreeMap<usize, Object>,
    given: usize,
}

impl Handles {
    pub fn add(&mut self, object: Object) -> usize {
        self.given += 1;
        // Multiples of 16, as pointers would be.
        let handle = HANDLES + 16 * self.given;
        self.objects.insert(handle, object);
        handle
    }

    pub fn add_at(&mut self, handle: usize, object: Object) {
        self.objects.insert(handle, object);
    }

    pub fn get(&self, handle: usize) -> Option<&Object> {
        self.objects.get(&handle)
    }

    pub fn get_mut(&mut self, handle: usize) -> Option<&mut Object> {
        self.objects.get_mut(&handle)
    }

    pub fn remove(&mut self, handle: usize) -> Option<Object> {
        self.objects.remove(&handle)
    }

    /// Every stream.
    pub fn streams_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.objects.values_mut().filter_map(|object| match object {
            Object::Stream(stream) => Some(stream),
            _ => None,
        })
    }

    /// Forgets the kernels of a module.
    pub fn remove_functions(&mut self, module: usize) {
        self.objects.retain(|_, object| !matches!(object, Object::Function(function) if function.handle == module));
    }
}

/// The library's state.
#[derive(Debug)]
pub(super) struct Runtime {
    pub config: Arc<Config>,
    devices: Vec<Mutex<Device>>,
    handles: Mutex<Handles>,
    calls: Mutex<HashMap<&'static str, u32>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in another call is reported there; the state is kept, since the process goes on.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    /// The library's state, made by the first call; none where a variable makes no sense, which is told once.
    pub fn get() -> Option<&'static Self> {
        static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
        let made = RUNTIME.get_or_init(|| match Config::from_env() {
            Ok(config) => Some(Self::new(config)),
            Err(error) => {
                eprintln!("hip-sim: {error}");
                None
            }
        });
        made.as_ref()
    }

    fn new(config: Config) -> Self {
        let config = Arc::new(config);
        let devices = (0..config.devices).map(|number| Mutex::new(Device::new(number, config.clone()))).collect();
        Self { config, devices, handles: Mutex::default(), calls: Mutex::default() }
    }

    /// What a call was told to answer instead of being carried out.
    pub fn told_to_fail(&self, function: &'static str) -> Option<Status> {
        if self.config.failures.is_empty() {
            return None;
        }
        let mut calls = lock(&self.calls);
        let count = calls.entry(function).or_default();
        *count += 1;
        let failure = self.config.failures.iter().find(|told| told.function == function && told.call == *count)?;
        Some(Status(failure.code))
    }

    /// How many devices there are.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// The calling thread's device.
    pub fn current(&self) -> usize {
        CURRENT.get()
    }

    /// Chooses the calling thread's device.
    pub fn set_current(&self, device: usize) {
        CURRENT.set(device);
    }

    /// A number that the caller gave as a device.
    pub fn checked(&self, device: i32) -> Result<usize, Status> {
        usize::try_from(device).ok().filter(|&device| device < self.device_count()).ok_or(Status::INVALID_DEVICE)
    }

    /// A device, whatever its state.
    pub fn any_device(&self, number: usize) -> Result<MutexGuard<'_, Device>, Status> {
        self.devices.get(number).map(lock).ok_or(Status::NO_DEVICE)
    }

    /// A device that no launch has failed on.
    pub fn device(&self, number: usize) -> Result<MutexGuard<'_, Device>, Status> {
        let device = self.any_device(number)?;
        if device.failed() { Err(Status::LAUNCH_FAILURE) } else { Ok(device) }
    }

    /// The calling thread's device, if no launch has failed on it.
    pub fn here(&self) -> Result<MutexGuard<'_, Device>, Status> {
        self.device(self.current())
    }

    /// The handles.
    pub fn handles(&self) -> MutexGuard<'_, Handles> {
        lock(&self.handles)
    }
}
