/* How a test steers the scripted HIP runtime and what it asks it. tests/common/scripted.rs has the same declarations in Rust.
 *
 * The state is that of one loaded copy of the library. Every function here may be called from any thread, never fails, and is
 * itself neither recorded nor made to fail.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdint.h>

enum { SCRIPT_PARAMS = 200, SCRIPT_ARGUMENTS = 10, SCRIPT_TEXT = 64 };

/* One call of a HIP function that returns a status. */
typedef struct script_call {
    const char *function;
    int32_t status;                        /* what it returned */
    int32_t device;                        /* the calling thread's device when it was called */
    uint64_t thread;                       /* names the calling thread */
    uint64_t arguments[SCRIPT_ARGUMENTS];  /* numbers and addresses in the function's own order, without results */
    char text[SCRIPT_TEXT];                /* hipModuleGetFunction, hipModuleLaunchKernel: the kernel's name */
    uint8_t params[SCRIPT_PARAMS];         /* hipModuleLaunchKernel: what the first kernel argument points to */
} script_call;

/* Devices 0 to count - 1, each a gfx1151 with 32 lanes until told otherwise. At most 8. */
void script_set_devices(int32_t count);
void script_set_device(int32_t device, const char *architecture, int32_t lanes);
/* Bytes that all allocations together may have. */
void script_set_memory(uint64_t bytes);
/* Whether hipGetErrorName and hipGetErrorString return null. */
void script_set_mute(int32_t mute);
/* Whether calls are recorded and counted; without, a launch does nothing at all. */
void script_set_recording(int32_t on);

/* The nth call of a function from now on, counted from 1, returns a status instead of doing its work. A null name stands for
 * any function. With `lasting`, so does every call after it. hipFree and hipModuleUnload give up what they are given all the
 * same: what counts as a leak is a handle that nobody tried to give back. */
void script_fail(const char *function, uint32_t nth, int32_t status, int32_t lasting);
/* No faults from now on, and nothing recorded. Handles stay. */
void script_forget(void);

uint32_t script_calls(void);
void script_read_call(uint32_t number, script_call *call);
uint32_t script_live_modules(void);
uint32_t script_live_allocations(void);
/* Modules and allocations that were made since the library was loaded. */
uint32_t script_made(void);
/* Things that no correct caller does: freeing or using what is not there. */
uint32_t script_misuses(void);
/* The calling thread's device. */
int32_t script_current_device(void);
void script_set_current_device(int32_t device);

#endif
