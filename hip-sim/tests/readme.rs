//! The README lists what there is.

use hip_sim::device::VARIABLES;
use hip_sim::isa::Arch;

#[test]
fn variables_and_architectures_are_described() {
    let readme = include_str!("../README.md");
    let rows: Vec<&str> =
        readme.lines().filter_map(|line| line.strip_prefix("| `HIP_SIM_")?.split('`').next()).collect();
    let expected: Vec<&str> = VARIABLES.iter().filter_map(|name| name.strip_prefix("HIP_SIM_")).collect();
    assert_eq!(rows, expected, "the table of variables");
    for arch in [Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1150, Arch::Gfx1200, Arch::Gfx1201] {
        assert!(readme.contains(arch.name()), "{arch}");
    }
}
