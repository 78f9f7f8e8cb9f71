//! The metadata note: what the runtime has to know of each kernel, as MessagePack.
//!
//! Keys: LLVM's "User Guide for AMDGPU Backend", "Code Object V5 Metadata"; version 6 has the same.

use rmpv::Value;

use super::{LoadError, malformed};

/// What an argument is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// The caller passes it: a value, a pointer, or an offset into dynamic LDS.
    Explicit,
    /// The runtime fills it in; the name without `hidden_`.
    Hidden(String),
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Byte offset in the argument segment.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Whose it is.
    pub kind: ArgumentKind,
}

/// A kernel's metadata, as far as it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMetadata {
    /// The name that it is asked for by.
    pub name: String,
    /// The symbol of its descriptor.
    pub symbol: String,
    /// Bytes of the argument segment.
    pub kernarg_size: usize,
    /// Its alignment.
    pub kernarg_align: usize,
    /// Lanes of a wave.
    pub wavefront_size: u32,
    /// Most work-items of a work-group that it was compiled for.
    pub max_workgroup: u32,
    /// The only size of a work-group that it was compiled for, if it was.
    pub required_workgroup: Option<[u32; 3]>,
    /// It was compiled for grids of whole work-groups only.
    pub whole_workgroups: bool,
    /// Arguments, by offset.
    pub arguments: Vec<Argument>,
}

impl KernelMetadata {
    /// The arguments that a caller passes.
    pub fn explicit(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|argument| argument.kind == ArgumentKind::Explicit)
    }
}

fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
}

fn number(map: &Value, key: &str) -> Result<u64, LoadError> {
    field(map, key).and_then(Value::as_u64).ok_or_else(|| malformed(format!("the metadata note has no number {key}")))
}

fn size(map: &Value, key: &str) -> Result<usize, LoadError> {
    /// Far above any segment of arguments, and far below overflow.
    const SANE: u64 = 1 << 20;
    let value = number(map, key)?;
    if value > SANE { Err(malformed(format!("{key} is {value}"))) } else { Ok(value as usize) }
}

fn text<'a>(map: &'a Value, key: &str) -> Result<&'a str, LoadError> {
    field(map, key).and_then(Value::as_str).ok_or_else(|| malformed(format!("the metadata note has no text {key}")))
}

fn argument(value: &Value) -> Result<Argument, LoadError> {
    let kind = text(value, ".value_kind")?;
    let kind = kind.strip_prefix("hidden_").map_or(ArgumentKind::Explicit, |name| ArgumentKind::Hidden(name.into()));
    Ok(Argument { offset: size(value, ".offset")?, size: size(value, ".size")?, kind })
}

fn kernel(value: &Value) -> Result<KernelMetadata, LoadError> {
    let arguments = field(value, ".args").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let required = field(value, ".reqd_workgroup_size").and_then(Value::as_array);
    let required = required.and_then(|sizes| {
        let sizes: Option<Vec<u32>> = sizes.iter().map(|size| size.as_u64()?.try_into().ok()).collect();
        sizes?.try_into().ok()
    });
    Ok(KernelMetadata {
        name: text(value, ".name")?.into(),
        symbol: text(value, ".symbol")?.into(),
        kernarg_size: size(value, ".kernarg_segment_size")?,
        kernarg_align: size(value, ".kernarg_segment_align")?,
        wavefront_size: number(value, ".wavefront_size")? as u32,
        max_workgroup: number(value, ".max_flat_workgroup_size")? as u32,
        required_workgroup: required,
        whole_workgroups: field(value, ".uniform_work_group_size").and_then(Value::as_u64) == Some(1),
        arguments: arguments.iter().map(argument).collect::<Result<_, _>>()?,
    })
}

/// The kernels that a note lists.
pub(super) fn read(note: &[u8]) -> Result<Vec<KernelMetadata>, LoadError> {
    let mut rest = note;
    let value = rmpv::decode::read_value(&mut rest).map_err(|error| malformed(format!("metadata note: {error}")))?;
    let version = field(&value, "amdhsa.version").and_then(Value::as_array).map(|parts| parts[..].to_vec());
    // Version 1.2 of the note is that of code object 5 and 6. Older ones place hidden arguments differently.
    let version = version.unwrap_or_default();
    if version.first().and_then(Value::as_u64) != Some(1) || version.get(1).and_then(Value::as_u64) < Some(2) {
        return Err(malformed(format!("metadata version {version:?}: code objects 5 and 6 have 1.2")));
    }
    let kernels = field(&value, "amdhsa.kernels").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    kernels.iter().map(kernel).collect()
}
