/* How a test steers the scripted HIP runtime beside what tests/scripted/calls.h has. tests/common/scripted.rs has the same
 * declarations in Rust.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdint.h>

/* Devices 0 to count - 1, each a gfx1151 with 32 lanes until told otherwise. At most 8. */
void script_set_devices(int32_t count);
void script_set_device(int32_t device, const char *architecture, int32_t lanes);

uint32_t script_live_modules(void);
/* The calling thread's device. */
int32_t script_current_device(void);
void script_set_current_device(int32_t device);

#endif
