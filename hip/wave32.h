/* The compile-time part of the wave32 guard. The kernel's mapping of lanes to columns, its shuffles and its geometry are for
 * waves of 32 lanes; on 64 it would give wrong results without any error. Included by ssm_update.hip and nothing else.
 *
 * No single layer holds on every compiler: up to clang 21 and ROCm 7.1 the two macros say the width, later ones have
 * neither; the builtin exists only where the feature wavefrontsize32 is on, with every version.
 */
#ifndef SSM_UPDATE_WAVE32_H
#define SSM_UPDATE_WAVE32_H

/* Only in the device pass: __AMDGCN__ and the width's macros are visible to the host pass too, where they say nothing. */
#if defined(__HIP_DEVICE_COMPILE__)

/* Layer 1. */
#if defined(__AMDGCN_WAVEFRONT_SIZE__) && __AMDGCN_WAVEFRONT_SIZE__ != 32
#error "ssm-update needs waves of 32 lanes: compile for gfx10 or later, without -mwavefrontsize64"
#endif
#if defined(__AMDGCN_WAVEFRONT_SIZE) && __AMDGCN_WAVEFRONT_SIZE != 32
#error "ssm-update needs waves of 32 lanes: compile for gfx10 or later, without -mwavefrontsize64"
#endif

/* Layer 2: a real use, so that no compiler may leave it out. Gives the lanes for which `predicate` holds. */
static inline __attribute__((device, always_inline)) unsigned wave32_ballot(bool predicate)
{
    return __builtin_amdgcn_ballot_w32(predicate);
}

#endif

#endif
