// gpu/arithmetic.h and hip/elements.h on the host: evaluates one of their functions over a file of f32 and writes the results to
// another.
//
//     evaluate FUNCTION ERROR INPUT OUTPUT
//
// ERROR is `-`, `0` or `+`: the units in the last place that the hardware's 1/x, of which no function has more than one, is off
// from the correctly rounded result. The instruction promises an error of at most 1 ulp, so that this is a little worse than any
// device. It flushes subnormal results to zero.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#define DEVICE static inline
#include "../../hip/elements.h"

static char error;

DEVICE f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }

DEVICE f32 reciprocal_estimate(f32 x)
{
    float result = static_cast<float>(1.0 / static_cast<double>(x));
    // Zero, infinity and NaN are right.
    if (std::isnormal(result) && error != '0') {
        const float infinity = std::numeric_limits<float>::infinity();
        result = std::nextafter(result, error == '+' ? infinity : -infinity);
    }
    return std::fabs(result) < std::numeric_limits<float>::min() ? std::copysign(0.0f, result) : result;
}

#include "../../gpu/arithmetic.h"

// Bits of a 16-bit result, as a number that a f32 holds exactly.
template <typename T> static float bits_of(T value)
{
    uint16_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

struct function {
    const char *name;
    int arguments;
    float (*call)(const float *);
};

static const function functions[] = {
    {"exp", 1, [](const float *in) { return exponential(in[0]); }},
    {"reciprocal", 1, [](const float *in) { return reciprocal(in[0]); }},
    {"softplus", 1, [](const float *in) { return softplus(in[0]); }},
    {"silu", 1, [](const float *in) { return silu(in[0]); }},
    // A_log and dt'
    {"decay", 2, [](const float *in) { return exponential(-exponential(in[0]) * in[1]); }},
    {"clamp", 3, [](const float *in) { return clamp(in[0], in[1], in[2]); }},
    {"bf16", 1, [](const float *in) { return bits_of(narrow<bf16>(in[0])); }},
    {"f16", 1, [](const float *in) { return bits_of(narrow<f16>(in[0])); }},
};

int main(int count, char **arguments)
{
    if (count != 5) return 2;
    error = arguments[2][0];
    std::FILE *const input = std::fopen(arguments[3], "rb");
    std::FILE *const output = std::fopen(arguments[4], "wb");
    if (!input || !output) return 3;
    for (const function &function : functions) {
        if (std::strcmp(function.name, arguments[1]) != 0) continue;
        float in[3];
        while (std::fread(in, sizeof(float), function.arguments, input) == static_cast<size_t>(function.arguments)) {
            const float out = function.call(in);
            if (std::fwrite(&out, sizeof out, 1, output) != 1) return 4;
        }
        return std::fclose(output) == 0 ? 0 : 4;
    }
    return 2;
}
