//! The source that Metal compiles for a key: the key as macros, then `metal/ssm_update.metal` with its includes in place, since the
//! run-time compiler has no files. Line directives keep each line's file and number in its messages.

use std::fmt::Write as _;

use super::key::Key;

/// The kernel's file, as messages name it.
const KERNEL: &str = "metal/ssm_update.metal";

/// The kernel's text.
const TEXT: &str = include_str!("../../../metal/ssm_update.metal");

/// What it includes: the line as it is written there, the file, and its text.
const INCLUDED: [(&str, &str, &str); 2] = [
    ("#include \"abi.h\"", "metal/abi.h", include_str!("../../../metal/abi.h")),
    ("#include \"../gpu/arithmetic.h\"", "gpu/arithmetic.h", include_str!("../../../gpu/arithmetic.h")),
];

/// Name of the one function in it.
pub const FUNCTION: &str = "ssm_update";

/// The source for a key.
pub fn of(key: &Key) -> String {
    let mut text = String::new();
    for (name, dtype) in [("SSM_X", key.x), ("SSM_BC", key.bc), ("SSM_STATE", key.state)] {
        let _ = writeln!(text, "#define {name} {dtype}");
    }
    let _ = writeln!(text, "#define SSM_CHUNKS {}", key.chunks);
    text + &expand(TEXT)
}

/// The text with its includes in place.
fn expand(kernel: &str) -> String {
    let mut text = format!("#line 1 \"{KERNEL}\"\n");
    for (number, line) in (1..).zip(kernel.lines()) {
        match INCLUDED.iter().find(|(include, _, _)| *include == line) {
            Some((_, file, included)) => {
                let _ = write!(text, "#line 1 \"{file}\"\n{included}#line {} \"{KERNEL}\"\n", number + 1);
            }
            None => text = text + line + "\n",
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn nothing_is_included_but_the_standard_library() {
        for key in Key::all() {
            let text = of(&key);
            let includes: Vec<&str> = text.lines().filter(|line| line.starts_with("#include")).collect();
            // Behind `#ifndef __METAL_VERSION__`, for C.
            assert_eq!(includes, ["#include <metal_stdlib>", "#include <stdint.h>"], "{key}");
        }
    }

    #[test]
    fn the_key_comes_first() {
        let key = Key { x: Dtype::Bf16, bc: Dtype::F32, state: Dtype::F16, chunks: 2 };
        let text = of(&key);
        let lines: Vec<&str> = text.lines().take(5).collect();
        let wanted = [
            "#define SSM_X bf16",
            "#define SSM_BC f32",
            "#define SSM_STATE f16",
            "#define SSM_CHUNKS 2",
            "#line 1 \"metal/ssm_update.metal\"",
        ];
        assert_eq!(lines, wanted);
    }

    /// Each line of the result is the line that the directives in front of it say.
    #[test]
    fn line_directives_are_right() {
        let text = of(&Key::all().next().expect("there are keys"));
        let (mut at, mut seen) = (None, 0);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("#line ") {
                let (number, file) = rest.split_once(' ').expect("a number and a file");
                at = Some((number.parse::<usize>().expect("a number"), file.trim_matches('"').to_owned()));
            } else if let Some((number, file)) = &mut at {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&*file);
                let whole = std::fs::read_to_string(path).expect("the file that is named");
                assert_eq!(whole.lines().nth(*number - 1), Some(line), "{file}:{number}");
                (*number, seen) = (*number + 1, seen + 1);
            }
        }
        let all = TEXT.lines().count() + INCLUDED.map(|(_, _, text)| text.lines().count()).iter().sum::<usize>();
        assert_eq!(seen, all - INCLUDED.len());
    }
}
