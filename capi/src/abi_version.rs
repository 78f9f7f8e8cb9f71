/// Version of the binary interface: the number behind the shared library's name (`libssm_update.so.0`). A library that removes or
/// changes anything of this header has another one; one that only adds to it keeps its number. ssm_update_abi_version() tells the
/// library's own.
pub const SSM_UPDATE_ABI_VERSION: u32 = 0;
