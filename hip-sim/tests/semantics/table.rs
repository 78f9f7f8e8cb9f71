//! Lines of the tables in `semantics/`.

use hip_sim::isa::{Arch, Dialect, decode};

use crate::machine::{Machine, Ram};

/// A register, or a field of the setup, by name; and a lane of it.
struct Place<'a> {
    name: &'a str,
    lane: Option<usize>,
}

/// A case of a table.
pub struct Case<'a> {
    arch: Arch,
    words: Vec<u32>,
    text: &'a str,
    inputs: Vec<(Place<'a>, &'a str)>,
    outputs: Vec<(Place<'a>, &'a str)>,
}

fn assignments(text: &str) -> Result<Vec<(Place<'_>, &str)>, String> {
    text.split_whitespace()
        .map(|part| {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part}: no ="))?;
            let (name, lane) = match name.split_once('.') {
                Some((name, lane)) => (name, Some(lane.parse().map_err(|_| format!("{part}: no lane"))?)),
                None => (name, None),
            };
            Ok((Place { name, lane }, value))
        })
        .collect()
}

/// The bits of a number.
fn number(text: &str, lane: usize) -> Result<u64, String> {
    let wrong = || format!("{text}: no number");
    if text == "lane" {
        return Ok(lane as u64);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong());
    }
    if let Some(value) = text.strip_suffix('f') {
        return value.parse::<f32>().map(|value| value.to_bits().into()).map_err(|_| wrong());
    }
    if let Some(value) = text.strip_suffix('d') {
        return value.parse::<f64>().map(f64::to_bits).map_err(|_| wrong());
    }
    if let Some(value) = text.strip_suffix('h') {
        return half(value.parse().map_err(|_| wrong())?).ok_or_else(wrong);
    }
    text.parse::<i64>().map(|value| u64::from(value as u32)).map_err(|_| wrong())
}

/// The bits of an f16 that has the value exactly and is normal or zero.
fn half(value: f32) -> Option<u64> {
    let bits = value.to_bits();
    let (sign, exponent, fraction) = (bits >> 31, (bits >> 23 & 255) as i32 - 127, bits >> 13 & 0x3ff);
    if value == 0.0 {
        return Some(u64::from(sign << 15));
    }
    ((-14..16).contains(&exponent) && bits & 0x1fff == 0)
        .then(|| u64::from(sign << 15 | ((exponent + 15) as u32) << 10 | fraction))
}

/// The first register of a name such as `s4` or `v[2:3]`, and how many there are.
fn registers(name: &str, prefix: char) -> Option<(usize, usize)> {
    let rest = name.strip_prefix(prefix)?;
    match rest.strip_prefix('[') {
        None => Some((rest.parse().ok()?, 1)),
        Some(range) => {
            let (first, last) = range.strip_suffix(']')?.split_once(':')?;
            let first: usize = first.parse().ok()?;
            Some((first, last.parse::<usize>().ok()? + 1 - first))
        }
    }
}

/// A scalar register's number.
fn scalar(name: &str) -> Option<(usize, usize)> {
    match name {
        "vcc_lo" => Some((106, 1)),
        "exec" => Some((126, 1)),
        _ => registers(name, 's'),
    }
}

impl<'a> Case<'a> {
    pub fn parse(line: &'a str) -> Result<Self, String> {
        let columns: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [arch, words, text, values, ..] = columns[..] else { return Err("too few columns".to_owned()) };
        let (inputs, outputs) = values.split_once("->").ok_or("no ->")?;
        let words = words.split(' ').map(|word| u32::from_str_radix(word, 16).map_err(|_| format!("{word}: no word")));
        Ok(Self {
            arch: arch.parse()?,
            words: words.collect::<Result<_, _>>()?,
            text,
            inputs: assignments(inputs)?,
            outputs: assignments(outputs)?,
        })
    }

    pub fn run(&self) -> Result<(), String> {
        let inst = decode(self.arch, &self.words).map_err(|unknown| format!("unknown: {:x?}", unknown.words))?;
        let text = inst.text(Dialect::Llvm22).to_string();
        if text != self.text || usize::from(inst.size) != 4 * self.words.len() {
            return Err(format!("decoded as {text}, {} bytes", inst.size));
        }
        let mut code = self.words.clone();
        code.push(if self.arch == Arch::Gfx1030 { 0xbf81_0000 } else { 0xbfb0_0000 });
        let mut machine = Machine::with(self.arch, &code, |setup| {
            for (place, value) in &self.inputs {
                let value = number(value, 0).unwrap_or(0);
                match place.name {
                    "round" => setup.float_mode = setup.float_mode & 0xf0 | value as u8,
                    "denormals" => setup.float_mode = setup.float_mode & 0x0f | (value as u8) << 4,
                    "ieee" => setup.ieee = value != 0,
                    "dx10_clamp" => setup.dx10_clamp = value != 0,
                    "exec" => setup.exec = value as u32,
                    _ => {}
                }
            }
        });
        self.set(&mut machine)?;
        machine.run(&mut Ram::new(0, 0)).map_err(|fault| fault.to_string())?;
        self.check(&machine)
    }

    fn set(&self, machine: &mut Machine) -> Result<(), String> {
        // Whole registers first, then single lanes.
        let (lanes, whole): (Vec<_>, Vec<_>) = self.inputs.iter().partition(|(place, _)| place.lane.is_some());
        for (place, value) in whole.into_iter().chain(lanes) {
            if place.name == "scc" {
                machine.wave.set_scc(*value == "1");
            } else if let Some((first, count)) = scalar(place.name) {
                let value = number(value, 0)?;
                for index in 0..count {
                    machine.wave.set_sgpr(first + index, (value >> (32 * index)) as u32);
                }
            } else if let Some((first, count)) = registers(place.name, 'v') {
                for index in 0..count {
                    let mut values = *machine.wave.vgpr(first + index);
                    for (lane, slot) in values.iter_mut().enumerate() {
                        if place.lane.is_none_or(|only| only == lane) {
                            *slot = (number(value, lane)? >> (32 * index)) as u32;
                        }
                    }
                    machine.wave.set_vgpr(first + index, values);
                }
            } else if !["round", "denormals", "ieee", "dx10_clamp"].contains(&place.name) {
                return Err(format!("{}: no register", place.name));
            }
        }
        Ok(())
    }

    fn check(&self, machine: &Machine) -> Result<(), String> {
        let active = self
            .inputs
            .iter()
            .find(|(place, _)| place.name == "exec")
            .map_or(Ok(u64::from(u32::MAX)), |(_, value)| number(value, 0))?;
        let mut wrong = Vec::new();
        for (place, value) in &self.outputs {
            if place.name == "scc" {
                if machine.wave.scc() != (*value == "1") {
                    wrong.push(format!("scc={}", u8::from(machine.wave.scc())));
                }
            } else if let Some((first, count)) = scalar(place.name) {
                let got =
                    (0..count).rev().fold(0, |bits, index| bits << 32 | u64::from(machine.wave.sgpr(first + index)));
                if got != number(value, 0)? {
                    wrong.push(format!("{}={got:#x}", place.name));
                }
            } else if let Some((first, count)) = registers(place.name, 'v') {
                let lanes = (0..32).filter(|&lane| place.lane.map_or(active >> lane & 1 == 1, |only| only == lane));
                for lane in lanes {
                    let dword = |index: usize| u64::from(machine.wave.vgpr(first + index)[lane]);
                    let got = (0..count).rev().fold(0, |bits, index| bits << 32 | dword(index));
                    if got != number(value, lane)? {
                        wrong.push(format!("{}.{lane}={got:#x}", place.name));
                        break;
                    }
                }
            } else {
                return Err(format!("{}: no register", place.name));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("got {}", wrong.join(" "))) }
    }
}
