/* The C interface from C11: the table of ports, a choice, three tokens through the step on host memory, and a refusal.
 *
 * usage: step [PORT]     the library's choice where no port is named */

#include <stdio.h>
#include <stdlib.h>

#include "reference.h"

/* Granite-4.0-H-tiny's heads. */
enum { HEADS = 48, HEAD_DIM = 64, GROUPS = 1, D_STATE = 128, CHANNELS = HEADS * HEAD_DIM, STATE = CHANNELS * D_STATE };

static void fail(const char *what) {
    fprintf(stderr, "%s: status %d: %s\n", what, (int)ssm_update_last_status(), ssm_update_last_error());
    exit(1);
}

static void *memory(size_t bytes) {
    void *at = calloc(1, bytes);
    if (!at) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return at;
}

int main(int argc, char **argv) {
    if (ssm_update_abi_version() != SSM_UPDATE_ABI_VERSION) {
        fprintf(stderr, "the library has another interface than this program was compiled for\n");
        return 1;
    }
    printf("ssm_update %s\n", ssm_update_version());
    for (size_t i = 0; i < ssm_update_port_count(); i++) {
        const char *name = ssm_update_port_name(i);
        printf("  %-6s %s\n", name, ssm_update_available(name) ? "opens" : ssm_update_last_error());
    }

    /* Once per model. */
    const ssm_update_dims dims = {.batch = 1, .heads = HEADS, .head_dim = HEAD_DIM, .groups = GROUPS, .d_state = D_STATE, .slots = 1};
    ssm_update_kernel *kernel = NULL;
    if (ssm_update_check_dims(&dims) != SSM_UPDATE_STATUS_OK) fail("check_dims");
    if (ssm_update_kernel_open(argc > 1 ? argv[1] : NULL, &kernel) != SSM_UPDATE_STATUS_OK) fail("open");
    printf("taken: %s, %s\n", ssm_update_kernel_port(kernel), ssm_update_kernel_description(kernel));

    /* Once per sequence and layer. */
    float *state = memory(STATE * sizeof *state), *y = memory(CHANNELS * sizeof *y), *x = memory(CHANNELS * sizeof *x);
    double *expected_state = memory(STATE * sizeof *expected_state), *expected_y = memory(CHANNELS * sizeof *expected_y);
    float b[GROUPS * D_STATE], c[GROUPS * D_STATE], dt[HEADS], a_log[HEADS], d[HEADS], dt_bias[HEADS];
    fill(a_log, HEADS, 1, 1.0f);
    fill(d, HEADS, 2, 1.0f);
    fill(dt_bias, HEADS, 3, 2.0f);
    ssm_update_launch launch;
    if (ssm_update_launch_init(&launch, sizeof launch, &dims) != SSM_UPDATE_STATUS_OK) fail("launch_init");
    launch.x = x, launch.b = b, launch.c = c, launch.dt = dt;
    launch.a_log = a_log, launch.d = d, launch.dt_bias = dt_bias;
    launch.state_in = state, launch.state_out = state, launch.y = y;

    /* Once per token. */
    for (unsigned token = 0; token < 3; token++) {
        fill(x, CHANNELS, 10 + token, 1.0f);
        fill(b, GROUPS * D_STATE, 20 + token, 1.0f);
        fill(c, GROUPS * D_STATE, 30 + token, 1.0f);
        fill(dt, HEADS, 40 + token, 2.0f);
        if (ssm_update_kernel_step_host(kernel, &launch) != SSM_UPDATE_STATUS_OK) fail("step_host");
        reference_step(&dims, x, b, c, dt, a_log, d, dt_bias, expected_state, expected_y);
        const double of_y = distance(y, expected_y, CHANNELS), of_state = distance(state, expected_state, STATE);
        printf("token %u: y[0] = %.6f, in double %.6f; nrms of y %.1e, of the state %.1e\n", token, y[0], expected_y[0], of_y, of_state);
        if (!(of_y < 1e-5 && of_state < 1e-5)) {
            fprintf(stderr, "too far from the reference\n");
            return 1;
        }
    }

    /* What no kernel serves is an error with its reason, and nothing is written: the engine takes its graph. */
    launch.dims.d_state = 100;
    if (ssm_update_kernel_step_host(kernel, &launch) != SSM_UPDATE_STATUS_UNSUPPORTED) fail("a refusal");
    printf("refused: %s\n", ssm_update_last_error());

    ssm_update_kernel_close(kernel);
    free(state), free(y), free(x), free(expected_state), free(expected_y);
    return 0;
}
