//! What `config.json` says about quantised weights, in the form of `mlx-lm`: an object `quantization` with the bits and the
//! group size of all modules, and, under a module's name, of those that differ.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::matrix::Affine;

/// What MLX takes for a module whose entry does not say.
const DEFAULT: Affine = Affine { bits: 4, group_size: 64 };

/// How the modules of a checkpoint are quantised.
#[derive(Clone, Debug)]
pub struct Quantization {
    /// The configuration file, for messages.
    path: PathBuf,
    all: Affine,
    /// Modules with an entry of their own; `None`: not quantised.
    modules: BTreeMap<String, Option<Affine>>,
}

/// What is said of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stated {
    /// Nothing of its own: quantised like all others, if the file has scales for it.
    Common(Affine),
    /// That it is quantised, and how.
    Own(Affine),
    /// That it is not quantised.
    Not,
}

impl Quantization {
    /// Reads the field `quantization`, or `quantization_config` where that is all there is; `None` where neither is set.
    ///
    /// # Errors
    ///
    /// A mode other than affine, bits or a group size that are not served, another program's quantisation.
    pub fn read(config: &Config) -> Result<Option<Self>> {
        // mlx-lm writes the same object under both names. Other programs write the second one only.
        let field = if config.get("quantization").is_some() { "quantization" } else { "quantization_config" };
        let Some(value) = config.get(field) else { return Ok(None) };
        let reader = Reader { config, field };
        let object = value.as_object().ok_or_else(|| config.error(field, "an object", Some(value)))?;
        if let Some(method) = object.get("quant_method") {
            let expected = "the affine quantisation of mlx-lm, which has no such field";
            return Err(config.error(&format!("{field}.quant_method"), expected, Some(method)));
        }
        let all = reader.affine("", object, None)?;
        // Only modules have entries of these types. `true`: as all others.
        let entry = |(module, value): (&String, &Value)| match value {
            Value::Bool(quantized) => Some(Ok((module.clone(), quantized.then_some(all)))),
            Value::Object(entry) => {
                Some(reader.affine(module, entry, Some(DEFAULT)).map(|affine| (module.clone(), Some(affine))))
            }
            _ => None,
        };
        let modules = object.iter().filter_map(entry).collect::<Result<_>>()?;
        Ok(Some(Self { path: config.path().to_owned(), all, modules }))
    }

    pub(super) fn of(&self, module: &str) -> Stated {
        match self.modules.get(module) {
            None => Stated::Common(self.all),
            Some(Some(affine)) => Stated::Own(*affine),
            Some(None) => Stated::Not,
        }
    }

    /// The error for a module whose columns are no whole number of groups.
    pub(super) fn indivisible(&self, module: &str, affine: Affine, columns: usize) -> Error {
        Error::Config {
            path: self.path.clone(),
            field: "quantization.group_size".to_owned(),
            expected: format!("a divisor of {columns}, the columns of `{module}`"),
            got: affine.group_size.to_string(),
        }
    }
}

/// Reads the objects inside of one field.
struct Reader<'a> {
    config: &'a Config,
    field: &'a str,
}

impl Reader<'_> {
    /// The bits and the group size in the entry of `module`, or in the outermost object if that is empty.
    fn affine(&self, module: &str, entry: &Map<String, Value>, default: Option<Affine>) -> Result<Affine> {
        let error = |name: &str, expected: String, got: Option<&Value>| {
            let names = [self.field, module, name].into_iter().filter(|name| !name.is_empty());
            self.config.error(&names.collect::<Vec<_>>().join("."), expected, got)
        };
        let get = |name: &str| entry.get(name).filter(|value| !value.is_null());
        if let Some(mode) = get("mode").filter(|mode| *mode != "affine") {
            return Err(error("mode", "\"affine\", the only mode that is served".to_owned(), Some(mode)));
        }
        let one_of = |name: &str, served: &[usize], default: Option<usize>| match (get(name), default) {
            (None, Some(default)) => Ok(default),
            (value, _) => {
                let size = value.and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
                let size = size.filter(|size| served.contains(size));
                size.ok_or_else(|| error(name, format!("one of {served:?}"), value))
            }
        };
        Ok(Affine {
            bits: one_of("bits", &Affine::BITS, default.map(|affine| affine.bits))?,
            group_size: one_of("group_size", &Affine::GROUP_SIZES, default.map(|affine| affine.group_size))?,
        })
    }
}
