//! What a device is told to be, from environment variables. `README.md` describes them; a test compares the two.

use std::env;
use std::ffi::OsString;

use crate::dispatch::Limits;
use crate::isa::Arch;
use crate::memory::DEVICES_MAX;
use crate::trace::TraceTarget;

/// Every variable that is read.
pub const VARIABLES: [&str; 10] = [
    "HIP_SIM_ARCH",
    "HIP_SIM_DEVICES",
    "HIP_SIM_WAVEFRONT",
    "HIP_SIM_MEMORY",
    "HIP_SIM_THREADS",
    "HIP_SIM_LIMIT",
    "HIP_SIM_ULP",
    "HIP_SIM_FAIL",
    "HIP_SIM_TRACE",
    "HIP_SIM_COMPILER",
];

/// A call that is told to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The function's name.
    pub function: &'static str,
    /// Which call of it, from 1.
    pub call: u32,
    /// What it answers.
    pub code: i32,
}

/// What a device is told to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The architecture.
    pub arch: Arch,
    /// Devices, all alike.
    pub devices: usize,
    /// Lanes of a wave that it reports; it always runs 32.
    pub wavefront: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Threads that run work-groups; none: as many as the machine has.
    pub threads: Option<usize>,
    /// Bounds of launches.
    pub limits: Limits,
    /// Units in the last place by which approximated functions (reciprocal, exponential, ...) are off.
    pub error_ulp: u32,
    /// Calls that fail.
    pub failures: Vec<Failure>,
    /// The wave that is traced.
    pub trace: Option<TraceTarget>,
    /// The compiler behind hipRTC; none: the newest clang.
    pub compiler: Option<OsString>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            arch: Arch::Gfx1151,
            devices: 1,
            wavefront: 32,
            // Pages exist once touched, so that this costs nothing.
            memory: 128 << 30,
            threads: None,
            limits: Limits::default(),
            error_ulp: 0,
            failures: Vec::new(),
            trace: None,
            compiler: None,
        }
    }
}

/// A variable with a value that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {why}")]
pub struct ConfigError {
    /// Its name.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What was expected.
    pub why: String,
}

impl Config {
    /// From the environment.
    ///
    /// # Errors
    ///
    /// With the first variable that makes no sense.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| env::var_os(name))
    }

    /// From variables that `get` knows. Empty counts as unset.
    ///
    /// # Errors
    ///
    /// With the first variable that makes no sense.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for variable in VARIABLES {
            let Some(value) = get(variable).filter(|value| !value.is_empty()) else { continue };
            let refused = |why| ConfigError { variable, value: value.to_string_lossy().into_owned(), why };
            let text = value.to_str().ok_or_else(|| refused("not UTF-8".into()))?;
            config.set(variable, text).map_err(refused)?;
        }
        Ok(config)
    }

    fn set(&mut self, variable: &str, text: &str) -> Result<(), String> {
        match variable {
            "HIP_SIM_ARCH" => self.arch = text.parse()?,
            "HIP_SIM_DEVICES" => self.devices = number(text, 0, DEVICES_MAX as u64)? as usize,
            "HIP_SIM_WAVEFRONT" => match text {
                "32" => self.wavefront = 32,
                "64" => self.wavefront = 64,
                _ => return Err("32 or 64 is expected".into()),
            },
            "HIP_SIM_MEMORY" => self.memory = bytes(text)?,
            "HIP_SIM_THREADS" => self.threads = Some(number(text, 1, 1024)? as usize),
            "HIP_SIM_LIMIT" => self.limits.wave = number(text, 1, u64::MAX)?,
            "HIP_SIM_ULP" => self.error_ulp = number(text, 0, 4)? as u32,
            "HIP_SIM_FAIL" => self.failures = text.split([',', ';']).map(failure).collect::<Result<_, _>>()?,
            "HIP_SIM_COMPILER" => self.compiler = Some(text.into()),
            "HIP_SIM_TRACE" => self.trace = Some(text.parse()?),
            _ => unreachable!("{variable} is listed and not read"),
        }
        Ok(())
    }
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("a number from {least} to {most} is expected"))
}

/// Bytes, with K, M or G for powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let value = digits.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift));
    value.filter(|&value| value <= 1 << 42).ok_or_else(|| "bytes are expected, up to 4096G; K, M, G for 1024s".into())
}

/// `function:call:code`.
fn failure(text: &str) -> Result<Failure, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [function, call, code] = parts[..] else {
        return Err(format!("{text}: function:call:code is expected, such as hipMalloc:3:2"));
    };
    let known = crate::api::functions().find(|known| *known == function);
    let function = known.ok_or_else(|| format!("{function} is no function of this library"))?;
    let call = number(call, 1, u32::MAX.into()).map_err(|why| format!("{text}: call: {why}"))? as u32;
    let code = number(code, 1, 100_000).map_err(|why| format!("{text}: code: {why}"))? as i32;
    Ok(Failure { function, call, code })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variable: &'static str, value: &str) -> Result<Config, ConfigError> {
        Config::from_variables(|name| (name == variable).then(|| value.into()))
    }

    #[test]
    fn values_that_make_sense() {
        assert_eq!(Config::from_variables(|_| None), Ok(Config::default()));
        assert_eq!(Config::from_variables(|_| Some(OsString::new())), Ok(Config::default()));
        assert_eq!(with("HIP_SIM_ARCH", "gfx1100").map(|config| config.arch), Ok(Arch::Gfx1100));
        assert_eq!(with("HIP_SIM_WAVEFRONT", "64").map(|config| config.wavefront), Ok(64));
        assert_eq!(with("HIP_SIM_MEMORY", "3M").map(|config| config.memory), Ok(3 << 20));
        assert_eq!(with("HIP_SIM_DEVICES", "0").map(|config| config.devices), Ok(0));
        let failures = with("HIP_SIM_FAIL", "hipMalloc:3:2;hipInit:1:100").map(|config| config.failures);
        let expected = [("hipMalloc", 3, 2), ("hipInit", 1, 100)];
        assert_eq!(failures, Ok(expected.map(|(function, call, code)| Failure { function, call, code }).into()));
    }

    #[test]
    fn others_are_refused_by_name() {
        for (variable, value, part) in [
            ("HIP_SIM_ARCH", "gfx900", "gfx1151"),
            ("HIP_SIM_DEVICES", "9", "from 0 to 8"),
            ("HIP_SIM_WAVEFRONT", "33", "32 or 64"),
            ("HIP_SIM_MEMORY", "much", "bytes"),
            ("HIP_SIM_MEMORY", "9999999G", "bytes"),
            ("HIP_SIM_THREADS", "0", "from 1"),
            ("HIP_SIM_LIMIT", "-1", "from 1"),
            ("HIP_SIM_ULP", "5", "from 0 to 4"),
            ("HIP_SIM_FAIL", "hipNothing:1:1", "hipNothing"),
            ("HIP_SIM_FAIL", "hipMalloc:1", "function:call:code"),
            ("HIP_SIM_FAIL", "hipMalloc:0:1", "from 1"),
            ("HIP_SIM_TRACE", ":1", "no path"),
        ] {
            let told = with(variable, value).expect_err(value).to_string();
            assert!(told.starts_with(&format!("{variable}={value}: ")) && told.contains(part), "{told}");
        }
    }
}
