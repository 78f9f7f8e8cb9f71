//! What system and GPU have to be: pure, from facts that the device part reads.

use super::key::Key;
use crate::{Error, Unavailable};

/// An operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// macOS.
    MacOs,
    /// iOS and iPadOS.
    Ios,
}

impl System {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MacOs => "macOS",
            Self::Ios => "iOS",
        }
    }
}

/// A version of the Metal Shading Language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// 2.4.
    V2_4,
    /// 3.1, the first with `bfloat`.
    V3_1,
}

impl Language {
    /// The version's number in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2_4 => "2.4",
            Self::V3_1 => "3.1",
        }
    }

    /// The first major version of a system that compiles it.
    pub const fn since(self, system: System) -> isize {
        match (self, system) {
            (Self::V2_4, System::MacOs) => 12,
            (Self::V2_4, System::Ios) => 15,
            (Self::V3_1, System::MacOs) => 14,
            (Self::V3_1, System::Ios) => 17,
        }
    }
}

/// What is known of system and GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The system.
    pub system: System,
    /// Its version, major and minor.
    pub version: (isize, isize),
    /// The GPU's name.
    pub gpu: String,
    /// It is of the family Apple6 (A13) or a later Apple one.
    pub apple6: bool,
    /// It is of the family Mac2.
    pub mac2: bool,
    /// It is of the family Metal3.
    pub metal3: bool,
}

impl Facts {
    fn version(&self) -> String {
        format!("{} {}.{}", self.system.name(), self.version.0, self.version.1)
    }

    fn has(&self, language: Language) -> bool {
        self.version.0 >= language.since(self.system)
    }

    /// Whether the port can run at all.
    ///
    /// # Errors
    ///
    /// What stands in the way.
    pub fn check(&self) -> Result<(), Unavailable> {
        if !self.has(Language::V2_4) {
            return Err(Unavailable::NoDevice(format!(
                "this is {}, and the kernel needs Metal Shading Language 2.4: {} {} or newer",
                self.version(),
                self.system.name(),
                Language::V2_4.since(self.system)
            )));
        }
        if !self.apple6 && !self.mac2 {
            return Err(Unavailable::NoDevice(format!(
                "{} is of neither of the GPU families Apple6 (A13) and Mac2, and older ones have no SIMD-group shuffles",
                self.gpu
            )));
        }
        Ok(())
    }

    /// The language in which a key's kernel is compiled.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a kernel with `bfloat` where system or GPU lacks it. Kernels without it are not concerned.
    pub fn language(&self, key: &Key) -> Result<Language, Error> {
        if !key.needs_bfloat() {
            return Ok(Language::V2_4);
        }
        let (field, dtype) = [("dtypes.x", key.x), ("dtypes.bc", key.bc), ("dtypes.state", key.state)]
            .into_iter()
            .find(|(_, dtype)| *dtype == crate::Dtype::Bf16)
            .unwrap_or(("dtypes", key.x));
        let refuse = |why: String| {
            Err(Error::unsupported(field, format!("f32 or f16 on the metal port here, since {why}"), dtype))
        };
        if !self.has(Language::V3_1) {
            let (system, since) = (self.system.name(), Language::V3_1.since(self.system));
            return refuse(format!("bfloat came with {system} {since}, and this is {}", self.version()));
        }
        if !self.apple6 && !self.metal3 {
            return refuse(format!(
                "{} is of neither of the GPU families Apple6 and Metal3, which have bfloat",
                self.gpu
            ));
        }
        Ok(Language::V3_1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    fn facts(system: System, version: (isize, isize)) -> Facts {
        Facts { system, version, gpu: "Some GPU".to_owned(), apple6: true, mac2: true, metal3: true }
    }

    const PLAIN: Key = Key { x: Dtype::F16, bc: Dtype::F32, state: Dtype::F32, chunks: 1 };

    #[test]
    fn systems_before_the_language_are_refused_with_their_version() {
        for (system, first) in [(System::MacOs, 12), (System::Ios, 15)] {
            assert_eq!(facts(system, (first, 0)).check(), Ok(()));
            let text = facts(system, (first - 1, 7)).check().expect_err("too old").to_string();
            for part in
                [format!("{} {}.7", system.name(), first - 1), format!("{} {first}", system.name()), "2.4".into()]
            {
                assert!(text.contains(&part), "{part} in: {text}");
            }
        }
    }

    #[test]
    fn gpus_without_shuffles_are_refused_by_name() {
        let with = |apple6, mac2| Facts { apple6, mac2, metal3: false, ..facts(System::MacOs, (13, 0)) };
        assert!(with(true, false).check().is_ok() && with(false, true).check().is_ok());
        let text = with(false, false).check().expect_err("too old").to_string();
        assert!(text.contains("Some GPU") && text.contains("shuffles"), "{text}");
    }

    #[test]
    fn without_bfloat_only_its_keys_are_refused() {
        for (system, first) in [(System::MacOs, 14), (System::Ios, 17)] {
            let (old, new) = (facts(system, (first - 1, 6)), facts(system, (first, 0)));
            let lacking = Facts { apple6: false, metal3: false, ..new.clone() };
            for key in Key::all() {
                assert_eq!(new.language(&key), Ok(if key.needs_bfloat() { Language::V3_1 } else { Language::V2_4 }));
                for (facts, part) in [(&old, "and this is"), (&lacking, "Some GPU")] {
                    match facts.language(&key) {
                        Ok(language) => assert!(!key.needs_bfloat() && language == Language::V2_4, "{key}"),
                        Err(error) => {
                            let text = error.to_string();
                            assert!(key.needs_bfloat(), "{key}");
                            for part in [part, "unsupported shapes", "bfloat", "got bf16"] {
                                assert!(text.contains(part), "{part} in: {text}");
                            }
                        }
                    }
                }
            }
            assert_eq!(old.language(&PLAIN), Ok(Language::V2_4));
            assert!(Facts { apple6: false, ..new.clone() }.language(&Key { x: Dtype::Bf16, ..PLAIN }).is_ok());
            assert!(Facts { metal3: false, ..new }.language(&Key { x: Dtype::Bf16, ..PLAIN }).is_ok());
        }
    }

    #[test]
    fn the_field_with_bfloat_is_named() {
        let old = facts(System::MacOs, (13, 0));
        for (key, field) in
            [(Key { x: Dtype::Bf16, ..PLAIN }, "dtypes.x"), (Key { state: Dtype::Bf16, ..PLAIN }, "dtypes.state")]
        {
            let error = old.language(&key).expect_err("no bfloat");
            assert_eq!(error.mismatch().map(|mismatch| mismatch.field), Some(field));
        }
    }
}
