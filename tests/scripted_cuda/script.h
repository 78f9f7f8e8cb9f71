/* How a test steers the scripted CUDA driver and the scripted NVRTC beside what tests/scripted/calls.h has.
 * tests/common/scripted_cuda.rs has the same declarations in Rust.
 *
 * One library plays both, so that calls of the two stand in one record, in order.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdint.h>

/* The version that the driver serves: 12040 for 12.4. */
void script_set_driver(int32_t version);
/* Devices 0 to count - 1, each of compute capability 9.0 until told otherwise. At most 8. */
void script_set_devices(int32_t count);
void script_set_device(int32_t device, int32_t major, int32_t minor, int32_t l2_bytes);

/* A context of the caller's own on a device; ends with script_end_context, also while it is somewhere current. */
uint64_t script_make_context(int32_t device);
void script_end_context(uint64_t context);
/* The device's primary context, retained once more, as CUDA's runtime does for the program around the port. */
uint64_t script_retain_primary(int32_t device);
void script_release_primary(int32_t device);
uint32_t script_primary_references(int32_t device);
/* The calling thread's stack of contexts: emptied, added to, and asked for its depth and its top (0 where it is empty). */
void script_clear_stack(void);
void script_push(uint64_t context);
uint32_t script_depth(void);
uint64_t script_current(void);

/* Whether a stream is being captured. Meanwhile nothing can be loaded, allocated, copied or waited for. */
void script_set_capturing(uint64_t stream, int32_t on);

/* Gives up every handle, as the end of the process would. */
void script_reset(void);
uint32_t script_live_modules(void);
uint32_t script_live_programs(void);

/* NVRTC's version, and what it compiles for: `count` numbers such as 90. */
void script_set_nvrtc(int32_t major, int32_t minor);
void script_set_architectures(const int32_t *architectures, int32_t count);
/* What the compiler says of each program from now on, good or bad; null for what it says by itself. */
void script_set_log(const char *text);
/* Bytes of every CUBIN from now on, instead of its own; -1 for its own. 0 is what there is for a virtual architecture. */
void script_set_cubin_bytes(int64_t bytes);
/* Each compilation waits until so many are under way at once, but no longer than so many milliseconds. */
void script_set_meeting(uint32_t count, uint32_t milliseconds);
/* The most compilations that were under way at once since the last call of script_set_meeting. */
uint32_t script_most_compiling(void);

#endif
