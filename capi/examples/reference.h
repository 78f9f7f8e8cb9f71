/* What the examples compare with: a step in double, of one contiguous batch in f32, and the distance of two results. */

#ifndef EXAMPLE_REFERENCE_H
#define EXAMPLE_REFERENCE_H

#include <math.h>
#include <stddef.h>

#include <ssm_update.h>

/* The step as its definition has it. The state is advanced in place; y is written. */
static inline void reference_step(const ssm_update_dims *dims, const float *x, const float *b, const float *c, const float *dt,
                                  const float *a_log, const float *d, const float *dt_bias, double *state, double *y) {
    const size_t per_group = dims->heads / dims->groups;
    for (size_t row = 0; row < dims->batch; row++) {
        for (size_t h = 0; h < dims->heads; h++) {
            const float *b_row = b + (row * dims->groups + h / per_group) * dims->d_state;
            const float *c_row = c + (row * dims->groups + h / per_group) * dims->d_state;
            const double raw = (double)dt[row * dims->heads + h] + dt_bias[h];
            const double step = raw > 0 ? raw + log1p(exp(-raw)) : log1p(exp(raw)); /* softplus, without overflow */
            const double decay = exp(-exp((double)a_log[h]) * step);
            for (size_t p = 0; p < dims->head_dim; p++) {
                const size_t channel = (row * dims->heads + h) * dims->head_dim + p;
                double *s = state + channel * dims->d_state;
                double sum = (double)d[h] * x[channel];
                for (size_t n = 0; n < dims->d_state; n++) {
                    s[n] = decay * s[n] + step * x[channel] * b_row[n];
                    sum += s[n] * c_row[n];
                }
                y[channel] = sum;
            }
        }
    }
}

/* Root of the mean square of the difference, over that of the reference. */
static inline double distance(const float *got, const double *expected, size_t len) {
    double difference = 0, scale = 0;
    for (size_t i = 0; i < len; i++) {
        difference += (got[i] - expected[i]) * (got[i] - expected[i]);
        scale += expected[i] * expected[i];
    }
    return sqrt(difference / scale);
}

/* Numbers from -scale to scale that depend on the seed. */
static inline void fill(float *out, size_t len, unsigned seed, float scale) {
    unsigned at = seed * 2654435761u + 1;
    for (size_t i = 0; i < len; i++) {
        at ^= at << 13, at ^= at >> 17, at ^= at << 5;
        out[i] = ((float)at / 2147483648.0f - 1.0f) * scale;
    }
}

#endif
