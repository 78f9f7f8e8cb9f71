//! A readable trace of one wave.
#![deny(unsafe_code)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use crate::exec::{AccessKind, LaneAccess, Step, Wave};
use crate::isa::{Inst, Operand};

/// Which wave of each launch is traced, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceTarget {
    /// The file; each launch is appended.
    pub path: PathBuf,
    /// The work-group, in linear order.
    pub group: u32,
    /// The wave within it.
    pub wave: u32,
}

impl FromStr for TraceTarget {
    type Err = String;

    /// `path[:workgroup[:wave]]`; the first wave of the first work-group where they are left out.
    fn from_str(text: &str) -> Result<Self, String> {
        // Colons that no number follows belong to the path.
        let mut numbers = Vec::new();
        let mut path = text;
        while numbers.len() < 2 {
            let Some((rest, last)) = path.rsplit_once(':') else { break };
            let Ok(number) = last.parse() else { break };
            numbers.insert(0, number);
            path = rest;
        }
        if path.is_empty() {
            return Err("no path; path[:workgroup[:wave]] is expected".into());
        }
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        Ok(Self { path: path.into(), group: number(0), wave: number(1) })
    }
}

/// The text of a traced wave.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// A line per instruction, and one for each register that it wrote.
    pub text: String,
}

impl Trace {
    /// Longer traces are cut off here, with a line that says so.
    const BYTES_MAX: usize = 256 << 20;

    /// Whether there is room for more.
    fn has_room(&mut self) -> bool {
        if self.text.len() <= Self::BYTES_MAX {
            return true;
        }
        if !self.text.ends_with("...\n") {
            self.text.push_str("...\n");
        }
        false
    }

    /// Adds an instruction. `place` is its function and the offset in it.
    pub fn step(&mut self, step: &Step<'_>, place: Option<(&str, u64)>) {
        if !self.has_room() {
            return;
        }
        let text = &mut self.text;
        let offset = place.map_or(step.pc, |(_, offset)| offset);
        // Writing to a string cannot fail.
        let _ = write!(text, "+{offset:#07x}  exec {:08x}  {}", step.exec, step.inst);
        for accesses in step.accesses.chunk_by(|a, b| next(a) == Some(*b)) {
            let (first, count) = (accesses[0], accesses.len());
            let verb = match first.kind {
                AccessKind::Load => "load",
                AccessKind::Store => "store",
                AccessKind::Atomic => "atomic",
            };
            let lanes = match (first.access.lane, count) {
                (None, _) => String::new(),
                (Some(lane), 1) => format!(" lane {lane}"),
                (Some(lane), _) => format!(" lanes {lane}-{}", usize::from(lane) + count - 1),
            };
            let _ = write!(text, "  [{verb}{lanes} {:#x}+{}]", first.access.address, first.access.size * count as u32);
        }
        text.push('\n');
    }

    /// Adds what the registers hold that an instruction named as its destinations, in the lanes that were active.
    pub fn results(&mut self, inst: &Inst, wave: &Wave, exec: u32) {
        if !self.has_room() {
            return;
        }
        let destinations = [(inst.dst, 0), (inst.sdst, 1)];
        for (operand, index) in destinations {
            let dwords = inst.dst_ty.get(index).map_or(1, |ty| ty.dwords());
            for dword in 0..dwords {
                self.register(operand, dword, wave, exec);
            }
        }
        if let Some(second) = &inst.second {
            self.results(second, wave, exec);
        }
    }

    fn register(&mut self, operand: Operand, dword: u8, wave: &Wave, exec: u32) {
        match operand {
            Operand::Sgpr(first) => {
                let number = first.saturating_add(dword);
                if let Some(name) = scalar_name(number) {
                    let _ = writeln!(self.text, "            {name} = {:#x}", wave.sgpr(number.into()));
                }
            }
            Operand::Vgpr(first) => {
                let number = usize::from(first) + usize::from(dword);
                let lanes = wave.vgpr(number);
                let _ = write!(self.text, "            v{number} =");
                for (_, value) in lanes.iter().enumerate().filter(|(lane, _)| exec >> lane & 1 != 0) {
                    let _ = write!(self.text, " {value:x}");
                }
                self.text.push('\n');
            }
            _ => {}
        }
    }
}

/// What a scalar register is called; none for the one that is no register.
fn scalar_name(number: u8) -> Option<String> {
    Some(match number {
        0..=105 => format!("s{number}"),
        106 => "vcc_lo".into(),
        107 => "vcc_hi".into(),
        108..=123 => format!("ttmp{}", number - 108),
        125 => "m0".into(),
        126 => "exec_lo".into(),
        127 => "exec_hi".into(),
        _ => return None,
    })
}

/// What the next lane would access if the lanes' accesses lay side by side.
fn next(access: &LaneAccess) -> Option<LaneAccess> {
    let mut next = *access;
    next.access.lane = Some(next.access.lane? + 1);
    next.access.address = next.access.address.checked_add(next.access.size.into())?;
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let target = |path: &str, group, wave| Ok(TraceTarget { path: path.into(), group, wave });
        assert_eq!("out.txt".parse::<TraceTarget>(), target("out.txt", 0, 0));
        assert_eq!("out.txt:7".parse::<TraceTarget>(), target("out.txt", 7, 0));
        assert_eq!("a:b/out.txt:7:3".parse::<TraceTarget>(), target("a:b/out.txt", 7, 3));
        assert!(":7:3".parse::<TraceTarget>().is_err());
    }
}
