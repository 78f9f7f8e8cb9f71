//! The architectures that the kernel is built for: those of `hip/targets.txt`, or those of `SSM_UPDATE_ARCHS` instead.

use super::code_object::is_known_target;
use super::failure::Failure;

/// The architectures, without repetitions, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Their names. At least one.
    pub names: Vec<String>,
    /// Whether somebody asked for exactly these: then each of them has to be built.
    pub asked: bool,
}

/// Reads the list that holds. `listed` is the text of `hip/targets.txt`, `archs` the value of `SSM_UPDATE_ARCHS`.
///
/// # Errors
///
/// The first entry that is no architecture of waves of 32 lanes.
pub fn targets(listed: &str, archs: Option<&str>) -> Result<Wanted, Failure> {
    let (list, entries): (_, Vec<&str>) = match archs {
        Some(archs) => ("SSM_UPDATE_ARCHS", archs.split([';', ',']).map(str::trim).collect()),
        None => {
            let lines = listed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            ("hip/targets.txt", lines.collect())
        }
    };
    let failure = |item: &str, why| Failure::Target { list, item: item.to_owned(), why };
    let mut names = Vec::new();
    for entry in entries {
        judge(entry).map_err(|why| failure(entry, why))?;
        if !names.iter().any(|name| name == entry) {
            names.push(entry.to_owned());
        }
    }
    if names.is_empty() {
        return Err(failure("", "names no architecture".to_owned()));
    }
    Ok(Wanted { names, asked: archs.is_some() })
}

/// What is wrong with a name: it is written like `gfx1151`, the generation in decimal, then minor and stepping in hexadecimal.
fn judge(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is an empty entry; separate the names by one `;` or `,`".to_owned());
    }
    if let Some((alone, _)) = name.split_once(':') {
        return Err(format!("names features, which are left to the device; write {alone:?}"));
    }
    let generation = name.strip_prefix("gfx").and_then(|rest| {
        let (generation, rest) = rest.split_at_checked(rest.len().checked_sub(2)?)?;
        let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if rest.bytes().all(hexadecimal) { generation.parse::<u32>().ok() } else { None }
    });
    match generation {
        None => Err("is no name of an architecture, such as gfx1151".to_owned()),
        Some(..10) => Err("runs waves of 64 lanes, and the kernel is right for 32 only: gfx10 and later".to_owned()),
        Some(_) if is_known_target(name) => Ok(()),
        Some(_) => {
            Err("is not known to this version of ssm-update (src/code_object.rs lists those that are)".to_owned())
        }
    }
}
