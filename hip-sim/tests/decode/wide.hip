// More of the instruction sets than other programs reach: for decoding only, it is never run.

#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE static inline __attribute__((device, always_inline))

typedef unsigned u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned short u16;
typedef short i16;
typedef unsigned char u8;
typedef signed char i8;
typedef float f32;
typedef double f64;
typedef _Float16 f16;
typedef __bf16 bf16;
typedef f16 f16x2 __attribute__((ext_vector_type(2)));
typedef i16 i16x2 __attribute__((ext_vector_type(2)));
typedef u16 u16x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#if defined(__HIP_DEVICE_COMPILE__)

DEVICE u32 id() { return __builtin_amdgcn_workitem_id_x(); }

KERNEL wide_f16(f16 *x, f16 *y, u32 n)
{
    const u32 i = id();
    f16 a = x[i], b = y[i], c = x[i + n];
    y[i] = a * b + c;
    y[i + 1] = __builtin_elementwise_max(a, b) - __builtin_elementwise_min(b, c);
    y[i + 2] = a < b ? c : (f16)-a;
    y[i + 3] = __builtin_fabsf16(a) * (f16)2.0f;
    y[i + 4] = __builtin_elementwise_floor(a) + __builtin_elementwise_ceil(b) + __builtin_elementwise_trunc(c);
    y[i + 5] = __builtin_elementwise_roundeven(a);
    y[i + 6] = __builtin_amdgcn_rcph(a);
    y[i + 7] = __builtin_amdgcn_sqrth(b);
    y[i + 8] = __builtin_amdgcn_rsqh(b);
    y[i + 9] = a / b;
    y[i + 10] = (f16)(i16)n;
    y[i + 11] = (f16)(u16)n;
    y[i + 12] = (f16)(f64)n;
    y[i + 13] = (i16)a;
    y[i + 14] = __builtin_amdgcn_ldexph(a, (i32)n);
    y[i + 15] = __builtin_amdgcn_frexp_manth(a);
    y[i + 16] = __builtin_amdgcn_fracth(a);
    y[i + 17] = __builtin_amdgcn_classh(a, 0x1f8) ? a : b;
    y[i + 18] = __builtin_amdgcn_fmed3h(a, b, c);
}

KERNEL wide_packed(f16x2 *x, i16x2 *z, u32 *out)
{
    const u32 i = id();
    f16x2 a = x[i], b = x[i + 64], c = x[i + 128];
    x[i] = a * b + c;
    x[i + 1] = __builtin_elementwise_max(a, b);
    x[i + 2] = __builtin_elementwise_min(a, -b);
    x[i + 3] = a.yx + b;
    x[i + 4] = a + (f16)1.0f;
    x[i + 5] = __builtin_elementwise_fma(a, b.yy, -c);
    i16x2 p = z[i], q = z[i + 64];
    z[i] = p + q;
    z[i + 1] = p * q - p;
    z[i + 2] = p << (i16)3;
    z[i + 3] = p >> q;
    z[i + 4] = __builtin_elementwise_max(p, q);
    u16x2 u = (u16x2)p, v = (u16x2)q;
    z[i + 5] = (i16x2)(u >> v);
    z[i + 6] = (i16x2)__builtin_elementwise_min(u, v);
    z[i + 7] = (i16x2)__builtin_elementwise_add_sat(u, v);
    z[i + 8] = __builtin_elementwise_sub_sat(p, q);
    out[i] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pkrtz((f32)a.x, (f32)b.x));
    out[i + 1] = __builtin_amdgcn_udot4(out[i + 2], out[i + 3], out[i + 4], true);
    out[i + 5] = __builtin_amdgcn_udot8(out[i + 2], out[i + 3], out[i + 4], false);
}

KERNEL wide_mixed(f32 *x, f16 *y)
{
    const u32 i = id();
    x[i] = __builtin_fmaf((f32)y[i], (f32)y[i + 1], x[i + 1]);
    y[i] = (f16)__builtin_fmaf((f32)y[i + 2], x[i + 2], (f32)y[i + 3]);
    x[i + 5] = __builtin_fmaf(-(f32)y[i], __builtin_fabsf((f32)y[i + 1]), x[i + 6]);
}

KERNEL wide_bf16(bf16 *x, bf16 *y, f32 *z)
{
    const u32 i = id();
    y[i] = x[i] * y[i] + x[i + 1];
    y[i + 1] = (bf16)z[i];
    z[i + 1] = (f32)x[i + 2];
    y[i + 2] = x[i + 3] < y[i + 3] ? x[i] : y[i];
}

KERNEL wide_f32(f32 *x, u32 *out, u32 n)
{
    const u32 i = id();
    f32 a = x[i], b = x[i + 64], c = x[i + 128];
    x[i] = __builtin_amdgcn_exp2f(a) + __builtin_amdgcn_logf(b) + __builtin_amdgcn_rcpf(c);
    x[i + 1] = __builtin_amdgcn_sqrtf(a) * __builtin_amdgcn_rsqf(b) * __builtin_amdgcn_sinf(c) * __builtin_amdgcn_cosf(a);
    x[i + 2] = __builtin_amdgcn_ldexpf(a, (i32)n) + __builtin_amdgcn_frexp_mantf(b);
    out[i] = (u32)__builtin_amdgcn_frexp_expf(b);
    x[i + 3] = __builtin_amdgcn_fractf(a) + __builtin_amdgcn_fmed3f(a, b, c);
    x[i + 4] = __builtin_floorf(a) + __builtin_ceilf(b) + __builtin_truncf(c) + __builtin_rintf(a);
    x[i + 5] = a / b;
    x[i + 6] = __builtin_fminf(a, __builtin_fmaxf(b, c));
    x[i + 7] = __builtin_fmaxf(__builtin_fmaxf(a, b), c) + __builtin_fminf(__builtin_fminf(a, b), -c);
    out[i + 1] = __builtin_amdgcn_classf(a, 0x207) ? 1 : n;
    out[i + 2] = (u32)a + (u32)(i32)b;
    x[i + 8] = (f32)(u8)n + (f32)(u8)(n >> 8) + (f32)(u8)(n >> 24) + (f32)(i32)n + (f32)n;
    x[i + 9] = (f32)(u64)out[i + 5] * 0.15915494f;
    out[i + 3] = a > b && b > c ? 1 : 2;
    x[i + 10] = __builtin_copysignf(a, b);
    x[i + 11] = __builtin_amdgcn_fmed3f(a * 2.0f, 0.0f, 1.0f);
    x[i + 12] = 2.0f * (a + b);
    x[i + 13] = __builtin_fmaf(a, 3.5f, b) + __builtin_fmaf(a, b, 12.25f);
    out[i + 4] = __builtin_amdgcn_cvt_pk_u8_f32(a, 2, n);
    out[i + 6] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pknorm_i16(a, b));
    out[i + 7] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pknorm_u16(a, b));
}

KERNEL wide_f64(f64 *x, f32 *y, u32 *out, u32 n)
{
    const u32 i = id();
    f64 a = x[i], b = x[i + 64], c = x[i + 128];
    x[i] = a * b + c;
    x[i + 1] = __builtin_fma(a, 0.5, 3.25);
    x[i + 2] = a / b;
    x[i + 3] = __builtin_floor(a) + __builtin_rint(b) + __builtin_trunc(c) + __builtin_ceil(a);
    x[i + 4] = __builtin_fmin(a, b) + __builtin_fmax(b, -c);
    x[i + 5] = (f64)n + (f64)(i32)n + (f64)y[i];
    x[i + 6] = (f64)(i64)out[i] + (f64)(((u64)out[i] << 32) | n);
    y[i] = (f32)a;
    out[i] = (u32)a + (u32)(i32)b;
    ((u64 *)out)[i + 9] = (u64)a + (u64)(i64)b;
    x[i + 7] = a < b ? c : __builtin_fabs(a);
    x[i + 8] = __builtin_amdgcn_rcp(a) + __builtin_amdgcn_rsq(b) + __builtin_amdgcn_sqrt(c) + __builtin_amdgcn_fract(a);
    x[i + 9] = __builtin_amdgcn_ldexp(a, (i32)n) + __builtin_amdgcn_frexp_mant(b);
    out[i + 1] = (u32)__builtin_amdgcn_frexp_exp(a);
    x[i + 10] = __builtin_amdgcn_trig_preop(a, (i32)n);
    out[i + 2] = __builtin_amdgcn_class(a, 0x3f) ? 1 : 0;
}

KERNEL wide_integer(u32 *x, u64 *y, u8 *bytes, u16 *shorts)
{
    const u32 i = id();
    u32 a = x[i], b = x[i + 1], c = x[i + 2];
    x[i] = a * b + c;
    x[i + 1] = a / b + (u32)((i32)a % (i32)c);
    x[i + 2] = __builtin_popcount(a) + __builtin_clz(b | 1) + __builtin_ctz(c | 2) + __builtin_bitreverse32(a);
    x[i + 3] = __builtin_rotateleft32(a, b) + (a << 7 | c) + (a + b + c) + ((a & b) | c) + (a ^ b ^ c);
    x[i + 4] = __builtin_amdgcn_ubfe(a, b, c) + (u32)__builtin_amdgcn_sbfe((i32)a, b, c);
    x[i + 5] = __builtin_amdgcn_perm(a, b, c) + __builtin_amdgcn_alignbyte(a, b, c) + __builtin_amdgcn_alignbit(a, b, c);
    x[i + 6] = __builtin_elementwise_max((i32)a, __builtin_elementwise_min((i32)b, (i32)c));
    x[i + 7] = __builtin_elementwise_add_sat(a, b) + __builtin_elementwise_sub_sat(b, c);
    x[i + 8] = (u32)__builtin_elementwise_add_sat((i32)a, (i32)b);
    x[i + 9] = __builtin_amdgcn_sad_u8(a, b, c) + __builtin_amdgcn_sad_hi_u8(a, b, c) + __builtin_amdgcn_sad_u16(a, b, c);
    x[i + 10] = __builtin_amdgcn_lerp(a, b, c) + __builtin_amdgcn_mbcnt_lo(a, b) + __builtin_amdgcn_mbcnt_hi(a, c);
    x[i + 11] = (a & 0xffffff) * (b & 0xffffff) + c;
    y[i] = (u64)a * b + y[i + 1];
    y[i + 2] = (y[i + 3] << b) + (y[i + 4] >> c) + (u64)((i64)y[i + 5] >> a);
    y[i + 6] = y[i + 7] * y[i + 8] - y[i + 9];
    y[i + 10] = y[i + 11] / y[i + 12] + (u64)((i64)y[i + 13] % (i64)y[i + 14]);
    y[i + 15] = (i64)y[i] < (i64)y[i + 1] ? y[i + 2] : __builtin_popcountll(y[i + 3]);
    shorts[i] = shorts[i + 1] * shorts[i + 2] + shorts[i + 3];
    shorts[i + 4] = (u16)((i16)shorts[i + 5] >> (shorts[i + 6] & 15)) | shorts[i + 7] << 2;
    shorts[i + 8] = __builtin_elementwise_max((i16)shorts[i], (i16)shorts[i + 1]) & ~shorts[i + 2];
    bytes[i] = bytes[i + 1] + (u8)(i8)bytes[i + 2] / 3;
    x[i + 12] = (u32)(i32)(i8)bytes[i + 3] + (u32)(i32)(i16)shorts[i + 9];
}

KERNEL wide_lanes(u32 *x, u32 n)
{
    const u32 i = id();
    u32 a = x[i], b = x[i + 64];
#define DPP(CONTROL) a += (u32)__builtin_amdgcn_update_dpp((i32)b, (i32)a, CONTROL, 0xf, 0xf, false);
    DPP(0x1b) DPP(0x101) DPP(0x112) DPP(0x123) DPP(0x140) DPP(0x141) DPP(0x153) DPP(0x164)
    a += (u32)__builtin_amdgcn_update_dpp(0, (i32)a, 0x111, 0x5, 0x3, true);
    a += __builtin_amdgcn_mov_dpp8(a, 0x53977);
    a += (u32)__builtin_amdgcn_ds_swizzle((i32)a, 0x401f) + (u32)__builtin_amdgcn_ds_swizzle((i32)a, 0x80b1);
    a += (u32)__builtin_amdgcn_ds_swizzle((i32)a, 0x7c1f) + (u32)__builtin_amdgcn_ds_swizzle((i32)a, 0x0018);
    a += (u32)__builtin_amdgcn_ds_swizzle((i32)a, 0x041e) + (u32)__builtin_amdgcn_ds_swizzle((i32)a, 0x00a5);
    a += (u32)__builtin_amdgcn_ds_bpermute((i32)b, (i32)a) + (u32)__builtin_amdgcn_ds_permute((i32)b, (i32)a);
    a += __builtin_amdgcn_permlane16(b, a, n, 7, true, false) + __builtin_amdgcn_permlanex16(b, a, n, n + 1, false, true);
    a += (u32)__builtin_amdgcn_readlane((i32)a, (i32)n) + (u32)__builtin_amdgcn_readfirstlane((i32)b);
    a += __builtin_amdgcn_ballot_w32(a > b) + __builtin_amdgcn_uicmp(a, b, 34);
    x[i] = a;
}

KERNEL wide_memory(u8 *p, u32 *out, u32 n)
{
    __attribute__((shared)) static u32 local[1024];
    __attribute__((shared)) static u64 doubles[64];
    const u32 i = id();
    local[i] = n;
    doubles[i & 63] = n;
    *(u8 *)&local[i + 3] = p[i];
    *(u16 *)&local[i + 4] = *(u16 *)(p + 4 * i);
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    out[i] = local[i ^ 1] + local[i + 64] + local[i + 65] + *(u8 *)&local[i + 5] + (u32)*(i16 *)&local[i + 6];
    *(u32x4 *)(out + 4 * i + 64) = *(u32x4 *)(local + 4 * i);
    __atomic_fetch_add(&local[n], 3u, __ATOMIC_RELAXED);
    out[i + 1] = __atomic_fetch_max(&local[n + 1], i, __ATOMIC_RELAXED);
    out[i + 2] = __atomic_fetch_xor(&out[n + 1], i, __ATOMIC_SEQ_CST);
    out[i + 3] = __atomic_exchange_n(&out[n + 2], i, __ATOMIC_ACQ_REL);
    u32 expected = n;
    out[i + 4] = __atomic_compare_exchange_n(&out[n + 3], &expected, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    __atomic_fetch_and((u64 *)out + n + 7, (u64)i, __ATOMIC_RELAXED);
    __atomic_fetch_min((i32 *)out + n + 9, (i32)i, __ATOMIC_RELAXED);
    __atomic_compare_exchange_n(&local[n + 3], &expected, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&doubles[n & 63], 5ull, __ATOMIC_RELAXED);
    out[i + 5] = __builtin_nontemporal_load(&out[i + 6]);
    __builtin_nontemporal_store(n, &out[i + 7]);
    *(volatile u32 *)&out[i + 8] = n;
    out[i + 9] = __atomic_load_n(&out[i + 10], __ATOMIC_ACQUIRE);
    __atomic_store_n(&out[i + 11], n, __ATOMIC_RELEASE);
}

KERNEL wide_scalar(u32 *x, u64 *y, f32 *z, f16 *h, u32 n, u64 m, f32 f, f32 g)
{
    x[0] = n * 5 + (n << 3) + __builtin_popcount(n) + __builtin_clz(n | 1) + __builtin_ctz(n | 4);
    x[1] = n / 7 + n % 11 + (u32)((i32)n / 3) + __builtin_bitreverse32(n) + __builtin_abs((i32)n);
    y[0] = m * 3 + (m << n) + (m >> 5) + __builtin_popcountll(m) + (u64)((i64)m >> n);
    y[1] = m / n + (m & (u64)n << 20) + ~m;
    z[0] = f * g + 1.5f;
    z[1] = __builtin_floorf(f) + __builtin_ceilf(g) + __builtin_truncf(f) + __builtin_rintf(g);
    z[2] = (f32)n + (f32)(i32)n + __builtin_fminf(f, g) * __builtin_fmaxf(f, 2.0f);
    x[2] = (u32)f + (u32)(i32)g + (f < g) + (f != g);
    h[0] = (f16)f * (f16)g + (f16)1.0f;
    z[3] = (f32)(f16)f;
    x[3] = (i32)n < 5 ? n : (n & 0xff) - 3;
    x[4] = (u32)__builtin_amdgcn_s_getreg(0x1801) + (u32)__builtin_readcyclecounter();
    x[5] = (u32)(i32)(i8)n + (u32)(i32)(i16)(n >> 3) + (n >> 5 & 0x7f) + (u32)((i32)(n << 8) >> 20);
    __builtin_amdgcn_s_sleep(2);
    __builtin_amdgcn_s_setprio(1);
    __builtin_amdgcn_s_sendmsg(1, 0);
}

__attribute__((device, noinline)) u32 recursive(u32 n) { return n < 2 ? n : recursive(n - 1) + recursive(n - 2); }

KERNEL wide_calls(u32 *x, u32 n)
{
    u32 stack[32];
    for (u32 i = 0; i < 32; i++) stack[i] = x[i] * n;
    x[id()] = recursive(n) + stack[n & 31];
    u8 *bytes = (u8 *)stack;
    x[id() + 1] = bytes[n & 127] + ((u16 *)stack)[n & 63];
}

#endif
