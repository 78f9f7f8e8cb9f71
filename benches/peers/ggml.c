// ggml's SSM_SCAN for one token behind plain C functions, so that the benchmark can call it beside our ports.
// Built by scripts/ggml-peer.sh; nothing of ggml is kept in this project.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-cpu.h"
#include "ggml.h"

struct peer {
    struct ggml_context * ctx;
    struct ggml_cgraph * graph;
    struct ggml_cplan plan;
    struct ggml_threadpool * pool;
    struct ggml_tensor *s, *x, *dt, *a, *b, *c, *ids, *out;
};

// A graph of one SSM_SCAN over f32 tensors, with a thread pool that polls as ggml's tools have it by default.
// A single `out` holds y and, behind it, the new state: ggml's step is always out of place.
struct peer * peer_new(int64_t batch, int64_t heads, int64_t head_dim, int64_t groups, int64_t d_state, int threads) {
    struct peer * p = calloc(1, sizeof *p);
    if (!p) return NULL;
    ggml_cpu_init();
    const size_t state = (size_t) (batch * heads * head_dim * d_state);
    struct ggml_init_params params = {.mem_size = state * 4 * 3 + ((size_t) 64 << 20)};
    p->ctx = ggml_init(params);
    if (!p->ctx) return NULL;
    p->s = ggml_new_tensor_4d(p->ctx, GGML_TYPE_F32, d_state, head_dim, heads, batch);
    p->x = ggml_new_tensor_4d(p->ctx, GGML_TYPE_F32, head_dim, heads, 1, batch);
    p->dt = ggml_new_tensor_3d(p->ctx, GGML_TYPE_F32, heads, 1, batch);
    p->a = ggml_new_tensor_2d(p->ctx, GGML_TYPE_F32, 1, heads);
    p->b = ggml_new_tensor_4d(p->ctx, GGML_TYPE_F32, d_state, groups, 1, batch);
    p->c = ggml_new_tensor_4d(p->ctx, GGML_TYPE_F32, d_state, groups, 1, batch);
    p->ids = ggml_new_tensor_1d(p->ctx, GGML_TYPE_I32, batch);
    for (int64_t i = 0; i < batch; i++) ((int32_t *) p->ids->data)[i] = (int32_t) i;
    p->out = ggml_ssm_scan(p->ctx, p->s, p->x, p->dt, p->a, p->b, p->c, p->ids, 1);
    p->graph = ggml_new_graph(p->ctx);
    ggml_build_forward_expand(p->graph, p->out);
    struct ggml_threadpool_params tp = ggml_threadpool_params_default(threads);
    p->pool = ggml_threadpool_new(&tp);
    p->plan = ggml_graph_plan(p->graph, threads, p->pool);
    p->plan.work_data = p->plan.work_size ? malloc(p->plan.work_size) : NULL;
    return p;
}

// Copies inputs in. `a` is -exp(A_log), as ggml's checkpoints store it.
void peer_set(struct peer * p, const float * s, const float * x, const float * dt, const float * a, const float * b,
              const float * c) {
    memcpy(p->s->data, s, ggml_nbytes(p->s));
    memcpy(p->x->data, x, ggml_nbytes(p->x));
    memcpy(p->dt->data, dt, ggml_nbytes(p->dt));
    memcpy(p->a->data, a, ggml_nbytes(p->a));
    memcpy(p->b->data, b, ggml_nbytes(p->b));
    memcpy(p->c->data, c, ggml_nbytes(p->c));
}

int peer_run(struct peer * p) {
    return ggml_graph_compute(p->graph, &p->plan);
}

// Threads of a paused pool sleep; they poll otherwise and would take time from whatever else is measured.
void peer_pause(struct peer * p) {
    ggml_threadpool_pause(p->pool);
}

void peer_resume(struct peer * p) {
    ggml_threadpool_resume(p->pool);
}

// y, [batch, heads, head_dim]; the new state follows it.
const float * peer_out(const struct peer * p) {
    return p->out->data;
}

void peer_free(struct peer * p) {
    if (!p) return;
    ggml_threadpool_free(p->pool);
    ggml_free(p->ctx);
    free(p->plan.work_data);
    free(p);
}
