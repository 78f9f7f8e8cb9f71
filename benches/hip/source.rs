//! Sources that hipRTC compiles: the step's kernel as an engine would hand it over, and a plain copy.

/// The copy's source and name; it has so many lanes a work-group, each with so many pieces of 16 bytes.
pub const COPY: &str = include_str!("copy.hip");
/// Its name.
pub const COPY_NAME: &str = "copy";
/// Lanes of a work-group of it.
pub const COPY_BLOCK: u32 = 256;
/// Bytes that a work-group copies.
pub const COPY_BYTES: usize = COPY_BLOCK as usize * 4 * 16;

/// Types of <stdint.h>: hipRTC has no system headers, and what it declares by itself differs between versions.
pub const STDINT: (&str, &str) = ("stdint.h", include_str!("../../cuda/stdint.h"));

/// The kernel's text.
const KERNEL: &str = include_str!("../../hip/ssm_update.hip");
/// What it includes: the line as it is written there, and the text.
const INCLUDED: [(&str, &str); 4] = [
    ("#include \"../gpu/abi.h\"", include_str!("../../gpu/abi.h")),
    ("#include \"wave32.h\"", include_str!("../../hip/wave32.h")),
    ("#include \"elements.h\"", include_str!("../../hip/elements.h")),
    ("#include \"../gpu/arithmetic.h\"", include_str!("../../gpu/arithmetic.h")),
];
/// Begins the lines that make the kernels, five variants of inputs with every state each.
const INSTANCES: &str = "BY_STATE(";

/// The source of one kernel, by its name: who compiles at run time compiles what is needed.
///
/// # Errors
///
/// The name is not that of a kernel, or the kernel's text is written differently than this expects.
pub fn of_one(name: &str) -> Result<String, String> {
    let fault = || format!("{name} is no kernel's name, such as ssm_update_bf16_bf16_f32_k1");
    let key = name.strip_prefix("ssm_update_").ok_or_else(fault)?;
    let [x, bc, state, chunks] = key.split('_').collect::<Vec<_>>()[..] else { return Err(fault()) };
    let instance = format!("KERNEL({x}, {bc}, {state}, {})", chunks.strip_prefix('k').ok_or_else(fault)?);
    let (mut text, mut includes, mut instances) = (String::new(), 0, 0);
    for line in KERNEL.lines() {
        if let Some((_, included)) = INCLUDED.iter().find(|(include, _)| *include == line) {
            text += included;
            includes += 1;
        } else if line.starts_with(INSTANCES) {
            if instances == 0 {
                text += &instance;
            }
            instances += 1;
        } else {
            text += line;
        }
        text.push('\n');
    }
    if includes != INCLUDED.len() || instances == 0 {
        return Err(format!("hip/ssm_update.hip has {includes} of {} includes, {instances} instances", INCLUDED.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kernel_is_left_and_nothing_to_include_but_types() {
        let text = of_one("ssm_update_bf16_f32_f16_k2").expect("a kernel");
        let kernels: Vec<_> = text.lines().filter(|line| line.starts_with("KERNEL(")).collect();
        assert_eq!(kernels, ["KERNEL(bf16, f32, f16, 2)"]);
        let includes: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with("#include")).collect();
        assert!(!includes.is_empty() && includes.iter().all(|line| *line == "#include <stdint.h>"), "{includes:?}");
        assert!(of_one("copy").is_err());
    }

    #[test]
    fn the_copy_has_the_sizes_that_it_is_launched_with() {
        let value = |name: &str| {
            COPY.lines().find_map(|line| line.strip_prefix(&format!("#define {name} "))?.parse::<usize>().ok())
        };
        assert_eq!(value("BLOCK"), Some(COPY_BLOCK as usize));
        assert_eq!(value("PIECES").map(|pieces| pieces * 16 * COPY_BLOCK as usize), Some(COPY_BYTES));
    }
}
