/* What bindgen reads: HIP's own header, with the two generations of the device properties under names of their own.
 *
 * The struct changed its layout in HIP 6, and since then two symbols fill two structs:
 *
 *   hipGetDeviceProperties        hipDeviceProp_tR0000   the layout until HIP 5, still exported by later libraries
 *   hipGetDevicePropertiesR0600   hipDeviceProp_tR0600   the layout since HIP 6
 *
 * The headers hide that: those of HIP 5 call the old struct hipDeviceProp_t, and in later ones both plain names are macros for
 * the new pair. Whoever then loads the symbol `hipGetDeviceProperties` by its name gets the old struct's bytes. */

#include <hip/hip_version.h>

#if HIP_VERSION_MAJOR < 6

#define hipDeviceProp_t hipDeviceProp_tR0000
#include <hip/hip_runtime_api.h>

#else

#include <hip/hip_runtime_api.h>
#include <hip/hip_deprecated.h>
#undef hipGetDeviceProperties
hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000* prop, int deviceId);

#endif
