//! NVRTC: CUDA's compiler as a library.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;

use cudarc::nvrtc::sys::nvrtcProgram;

use super::functions::{NvrtcFunctions, NvrtcStatus};
use crate::DriverError;
use crate::driver::table::Lookup;

const SUCCESS: NvrtcStatus = 0;

/// A loaded NVRTC. Every call may come from any thread.
#[derive(Debug)]
pub struct Nvrtc {
    functions: NvrtcFunctions,
    origin: String,
}

/// A source with its headers, each under the name by which it is included.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The source's name in messages.
    pub name: &'a str,
    /// The source.
    pub text: &'a str,
    /// Names and texts.
    pub headers: &'a [(&'a str, &'a str)],
}

impl Nvrtc {
    /// The library whose symbols `lookup` finds.
    ///
    /// # Errors
    ///
    /// The names of required functions that it lacks.
    ///
    /// # Safety
    ///
    /// As for [`NvrtcFunctions::resolve`].
    pub(super) unsafe fn of(lookup: &Lookup<'_>, origin: String) -> Result<Self, Vec<&'static str>> {
        // SAFETY: the caller's promise.
        let functions = unsafe { NvrtcFunctions::resolve(lookup) }?;
        Ok(Self { functions, origin })
    }

    /// Where the library comes from: the name that loaded it.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    fn check(&self, status: NvrtcStatus, call: impl FnOnce() -> String) -> Result<(), Box<DriverError>> {
        if status == SUCCESS { Ok(()) } else { Err(self.error(status, call(), String::new())) }
    }

    #[cold]
    fn error(&self, status: NvrtcStatus, call: String, log: String) -> Box<DriverError> {
        // SAFETY: takes any integer and returns null or a text that lives as long as the library.
        let name = unsafe { (self.functions.nvrtcGetErrorString)(status) };
        // SAFETY: as above.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        let builtins = log.contains("nvrtc-builtins");
        Box::new(DriverError {
            call: format!("{call} ({})", self.origin),
            code: status.into(),
            name: name.unwrap_or_else(|| "an error without a name".to_owned()),
            text: if log.is_empty() { "NVRTC gives no text".to_owned() } else { log },
            advice: match status {
                _ if builtins => {
                    "NVRTC consists of two libraries: put the folder of both into LD_LIBRARY_PATH".to_owned()
                }
                1 => "free memory".to_owned(),
                _ => String::new(),
            },
        })
    }

    /// Its version: (13, 0).
    pub fn version(&self) -> Result<(i32, i32), Box<DriverError>> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two ints.
        let status = unsafe { (self.functions.nvrtcVersion)(&raw mut major, &raw mut minor) };
        self.check(status, || "nvrtcVersion".to_owned()).map(|()| (major, minor))
    }

    /// Loads the library that NVRTC itself looks for when it compiles, from the folder that NVRTC comes from: the system's search
    /// does not know that folder where NVRTC was named by its path. Where it is not there, NVRTC says so when it compiles.
    pub fn load_builtins(&self) -> Result<(), Box<DriverError>> {
        let (major, minor) = self.version()?;
        let folder = Path::new(&self.origin).parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|_| cfg!(target_os = "linux")) {
            let path = folder.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
            // SAFETY: NVRTC's own library, which it would load anyway; never unloaded.
            match unsafe { libloading::Library::new(&path) } {
                Ok(library) => std::mem::forget(library),
                Err(error) => log::debug!("{}: {error}", path.display()),
            }
        }
        Ok(())
    }

    /// The architectures that it compiles for, ascending: 90 for sm_90.
    pub fn architectures(&self) -> Result<Vec<i32>, Box<DriverError>> {
        let mut count = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.functions.nvrtcGetNumSupportedArchs)(&raw mut count) };
        self.check(status, || "nvrtcGetNumSupportedArchs".to_owned())?;
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: writes as many ints as it said.
        let status = unsafe { (self.functions.nvrtcGetSupportedArchs)(architectures.as_mut_ptr()) };
        self.check(status, || "nvrtcGetSupportedArchs".to_owned())?;
        architectures.sort_unstable();
        Ok(architectures)
    }

    /// Compiles a source to a CUBIN, which the options' architecture makes it. Gives the compiler's remarks beside it.
    pub fn compile(&self, source: &Source<'_>, options: &[String]) -> Result<(Vec<u8>, String), Box<DriverError>> {
        // Texts with a zero byte inside are not compiled, but there are none.
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let (name, code) = (text(source.name), text(source.text));
        let names: Vec<CString> = source.headers.iter().map(|(name, _)| text(name)).collect();
        let texts: Vec<CString> = source.headers.iter().map(|(_, content)| text(content)).collect();
        let options: Vec<CString> = options.iter().map(|option| text(option)).collect();
        let pointers = |texts: &[CString]| -> Vec<*const c_char> { texts.iter().map(|text| text.as_ptr()).collect() };
        let (names, texts, flags) = (pointers(&names), pointers(&texts), pointers(&options));

        let mut handle = std::ptr::null_mut();
        // SAFETY: texts that end in zero, as many as are counted; writes one handle.
        let status = unsafe {
            (self.functions.nvrtcCreateProgram)(
                &raw mut handle,
                code.as_ptr(),
                name.as_ptr(),
                names.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check(status, || "nvrtcCreateProgram".to_owned())?;
        let program = Program { nvrtc: self, handle };
        // SAFETY: a live program, texts that end in zero, as many as are counted.
        let status = unsafe { (self.functions.nvrtcCompileProgram)(handle, flags.len() as c_int, flags.as_ptr()) };
        let log = program.log();
        if status != SUCCESS {
            let call = format!("nvrtcCompileProgram({})", described(source, &options));
            return Err(self.error(status, call, log));
        }
        let mut bytes = 0;
        // SAFETY: a live program; writes one number.
        let status = unsafe { (self.functions.nvrtcGetCUBINSize)(handle, &raw mut bytes) };
        self.check(status, || "nvrtcGetCUBINSize".to_owned())?;
        if bytes == 0 {
            let call = format!("nvrtcGetCUBINSize({})", described(source, &options));
            return Err(self.error(status, call, "there is no code for a device".to_owned()));
        }
        let mut cubin = vec![0_u8; bytes];
        // SAFETY: writes as many bytes as it said.
        let status = unsafe { (self.functions.nvrtcGetCUBIN)(handle, cubin.as_mut_ptr().cast()) };
        self.check(status, || "nvrtcGetCUBIN".to_owned())?;
        Ok((cubin, log))
    }
}

/// What was compiled and how, for people.
#[cold]
fn described(source: &Source<'_>, options: &[CString]) -> String {
    let options: Vec<_> = options.iter().map(|option| option.to_string_lossy()).collect();
    format!("{} {}", source.name, options.join(" "))
}

/// A program, destroyed when dropped.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: nvrtcProgram,
}

impl Program<'_> {
    /// What the compiler said; empty where it does not tell.
    fn log(&self) -> String {
        let mut bytes = 0;
        // SAFETY: a live program; writes one number.
        let status = unsafe { (self.nvrtc.functions.nvrtcGetProgramLogSize)(self.handle, &raw mut bytes) };
        if status != SUCCESS || bytes == 0 {
            return String::new();
        }
        let mut log = vec![0_u8; bytes];
        // SAFETY: writes as many bytes as it said, a zero at the end.
        let status = unsafe { (self.nvrtc.functions.nvrtcGetProgramLog)(self.handle, log.as_mut_ptr().cast()) };
        let text = if status == SUCCESS { CStr::from_bytes_until_nul(&log).unwrap_or_default() } else { c"" };
        text.to_string_lossy().trim().to_owned()
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let status = unsafe { (self.nvrtc.functions.nvrtcDestroyProgram)(&raw mut self.handle) };
        if let Err(error) = self.nvrtc.check(status, || "nvrtcDestroyProgram".to_owned()) {
            log::warn!("{error}");
        }
    }
}
