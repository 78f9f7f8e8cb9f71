// Divisions and roots as compilers lower them: by approximation, refinement, scaling and fixing up.

#define KERNEL extern "C" __attribute__((global)) void

#if defined(__HIP_DEVICE_COMPILE__)

#define INDEX (__builtin_amdgcn_workgroup_id_x() * 32 + __builtin_amdgcn_workitem_id_x())

KERNEL divide_f16(const _Float16 *a, const _Float16 *b, _Float16 *out) { out[INDEX] = a[INDEX] / b[INDEX]; }
KERNEL divide_f32(const float *a, const float *b, float *out) { out[INDEX] = a[INDEX] / b[INDEX]; }
KERNEL divide_f64(const double *a, const double *b, double *out) { out[INDEX] = a[INDEX] / b[INDEX]; }
KERNEL root_f32(const float *a, const float *, float *out) { out[INDEX] = __builtin_sqrtf(a[INDEX]); }
KERNEL root_f64(const double *a, const double *, double *out) { out[INDEX] = __builtin_sqrt(a[INDEX]); }

#endif
