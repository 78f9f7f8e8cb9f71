//! The kernels that a code object holds, named by their key: dtype of x, z and y; of B and C; of the state; and the 16-byte
//! pieces that a lane holds of one row of the state. The dtypes of dt and the per-head vectors are tags in the parameter struct.
//!
//! Names are text here, since the build script includes this file too.

/// Dtypes of x, z, y with those of B and C.
pub const X_AND_BC: [(&str, &str); 5] =
    [("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32")];

/// Dtypes of the state, with the pieces per lane that its kernels exist for. 32 lanes of 4 pieces are 512 columns of f32.
pub const STATES: [(&str, &[u32]); 3] = [("f32", &[1, 2, 4]), ("f16", &[1, 2]), ("bf16", &[1, 2])];

/// Work-items of a work-group: four waves.
pub const WORK_GROUP: u32 = 128;

/// Lanes of a wave.
pub const WAVE: u32 = 32;

/// Bytes that one lane moves at once.
pub const PIECE: u32 = 16;

/// Rows' tiles that a wave has in flight: as many as its registers hold. `tiles` in the kernel.
pub const fn tiles(state_bytes: u32, chunks: u32) -> u32 {
    let most = if state_bytes == 4 { 4 } else { 2 };
    if most > chunks { most / chunks } else { 1 }
}

/// The name of a kernel.
pub fn name(x: &str, bc: &str, state: &str, chunks: u32) -> String {
    format!("ssm_update_{x}_{bc}_{state}_k{chunks}")
}

/// Every name. The position in this list is the kernel's number.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for (x, bc) in X_AND_BC {
        for (state, chunks) in STATES {
            names.extend(chunks.iter().map(|&chunks| name(x, bc, state, chunks)));
        }
    }
    names
}
