// hip/arithmetic.h on the host: evaluates one of its functions over a file of f32 and writes the results to another.
//
//     evaluate FUNCTION ERRORS INPUT OUTPUT
//
// ERRORS has a character for each use that the function makes of the hardware's 2^x and 1/x, in their order: `-`, `0` or `+`,
// the units in the last place that the result is off from the correctly rounded one. The instructions promise an error of at
// most 1 ulp, so that this is a little worse than any device. They flush subnormal results to zero.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

static const char *errors;
static int uses;

static float instruction(double exact)
{
    const char error = errors[uses++];
    float result = static_cast<float>(exact);
    // Zero, infinity and NaN are right.
    if (std::isnormal(result) && error != '0') {
        const float infinity = std::numeric_limits<float>::infinity();
        result = std::nextafter(result, error == '+' ? infinity : -infinity);
    }
    return std::fabs(result) < std::numeric_limits<float>::min() ? std::copysign(0.0f, result) : result;
}

#define __builtin_amdgcn_exp2f(x) instruction(std::exp2(static_cast<double>(x)))
#define __builtin_amdgcn_rcpf(x) instruction(1.0 / static_cast<double>(x))
#define DEVICE static inline
#include "arithmetic.h"

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
    {"exp", 1, [](const float *in) { return exp_accurate(in[0]); }},
    {"reciprocal", 1, [](const float *in) { return reciprocal(in[0]); }},
    {"softplus", 1, [](const float *in) { return softplus(in[0]); }},
    {"silu", 1, [](const float *in) { return silu(in[0]); }},
    // A_log and dt'
    {"decay", 2, [](const float *in) { return exp_accurate(-exp_accurate(in[0]) * in[1]); }},
    {"clamp", 3, [](const float *in) { return clamp(in[0], in[1], in[2]); }},
    {"bf16", 1, [](const float *in) { return bits_of(narrow<bf16>(in[0])); }},
    {"f16", 1, [](const float *in) { return bits_of(narrow<f16>(in[0])); }},
};

int main(int count, char **arguments)
{
    if (count != 5) return 2;
    errors = arguments[2];
    std::FILE *const input = std::fopen(arguments[3], "rb");
    std::FILE *const output = std::fopen(arguments[4], "wb");
    if (!input || !output) return 3;
    for (const function &function : functions) {
        if (std::strcmp(function.name, arguments[1]) != 0) continue;
        float in[3];
        while (std::fread(in, sizeof(float), function.arguments, input) == static_cast<size_t>(function.arguments)) {
            uses = 0;
            const float out = function.call(in);
            if (std::fwrite(&out, sizeof out, 1, output) != 1) return 4;
        }
        return std::fclose(output) == 0 ? 0 : 4;
    }
    return 2;
}
