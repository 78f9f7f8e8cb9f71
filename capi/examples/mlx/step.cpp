// The step as a primitive of MLX: a node of its graph that calls the C interface when it is evaluated, in the order of MLX's stream.
//
// For MLX's CPU. An engine for MLX on a GPU writes eval_gpu in the same way: allocate the outputs, tell the command encoder of inputs and
// outputs, and launch on the encoder's stream (docs/engines.md).

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/variant.h>

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/mlx.h>
#include <mlx/primitives.h>

#include <ssm_update.h>

namespace nb = nanobind;
namespace mx = mlx::core;

namespace {

void check(ssm_update_status status) {
    if (status == SSM_UPDATE_STATUS_OK) return;
    const std::string text = ssm_update_last_error();
    // What the caller can do something about is a ValueError in Python.
    if (status == SSM_UPDATE_STATUS_UNSUPPORTED || status == SSM_UPDATE_STATUS_INVALID) throw std::invalid_argument(text);
    throw std::runtime_error(text);
}

// By name: MLX has chosen the device already. It lives as long as the process.
const ssm_update_kernel *cpu_kernel() {
    static ssm_update_kernel *const kernel = [] {
        ssm_update_kernel *opened = nullptr;
        check(ssm_update_kernel_open("cpu", &opened));
        return opened;
    }();
    return kernel;
}

std::int32_t dtype_of(const mx::array &a) {
    if (a.dtype() == mx::float32) return SSM_UPDATE_DTYPE_F32;
    if (a.dtype() == mx::float16) return SSM_UPDATE_DTYPE_F16;
    if (a.dtype() == mx::bfloat16) return SSM_UPDATE_DTYPE_BF16;
    throw std::invalid_argument("unsupported shapes for the fused SSM step: a tensor is not of f32, f16 or bf16");
}

// Order of the primitive's inputs.
enum Input { X, A_LOG, B, C, D, DT, DT_BIAS, STATE };

class SsmStep : public mx::Primitive {
public:
    SsmStep(mx::Stream stream, float dt_min, float dt_max) : Primitive(stream), dt_min_(dt_min), dt_max_(dt_max) {}

    void eval_cpu(const std::vector<mx::array> &inputs, std::vector<mx::array> &outputs) override;
    void eval_gpu(const std::vector<mx::array> &, std::vector<mx::array> &) override {
        throw std::runtime_error("this module is for MLX's CPU");
    }

    const char *name() const override { return "SsmStep"; }
    bool is_equivalent(const Primitive &other) const override {
        const auto &step = static_cast<const SsmStep &>(other);
        return dt_min_ == step.dt_min_ && dt_max_ == step.dt_max_;
    }
    std::vector<mx::Shape> output_shapes(const std::vector<mx::array> &inputs) override {
        return {inputs[X].shape(), inputs[STATE].shape()};
    }

private:
    float dt_min_, dt_max_;
};

ssm_update_dims dims_of(const mx::array &x, const mx::array &b) {
    const auto size = [](const mx::array &a, int axis) { return static_cast<std::size_t>(a.shape(axis)); };
    return {size(x, 0), size(x, 2), size(x, 3), size(b, 2), size(b, 3), size(x, 0)};
}

void SsmStep::eval_cpu(const std::vector<mx::array> &inputs, std::vector<mx::array> &outputs) {
    auto &encoder = mx::cpu::get_command_encoder(stream());
    const auto dims = dims_of(inputs[X], inputs[B]);
    const auto &x = inputs[X], &a_log = inputs[A_LOG], &b = inputs[B], &c = inputs[C], &d = inputs[D], &dt = inputs[DT];
    const auto &dt_bias = inputs[DT_BIAS], &state = inputs[STATE];

    auto &y = outputs[0], &next = outputs[1];
    y.set_data(mx::allocator::malloc(y.nbytes()));
    // Out of place: somebody may hold the old state, such as a snapshot. MLX cannot tell for a node of two outputs, each of which holds
    // the inputs: is_donatable() is never true here.
    next.set_data(mx::allocator::malloc(next.nbytes()));

    ssm_update_launch launch;
    check(ssm_update_launch_init(&launch, sizeof launch, &dims));
    launch.x_dtype = dtype_of(x), launch.bc_dtype = dtype_of(b), launch.dt_dtype = dtype_of(dt);
    launch.a_log_dtype = dtype_of(a_log), launch.d_dtype = dtype_of(d), launch.dt_bias_dtype = dtype_of(dt_bias);
    launch.state_dtype = dtype_of(state);
    launch.dt_min = dt_min_, launch.dt_max = dt_max_;
    launch.x = x.data<void>(), launch.b = b.data<void>(), launch.c = c.data<void>(), launch.dt = dt.data<void>();
    launch.a_log = a_log.data<void>(), launch.d = d.data<void>(), launch.dt_bias = dt_bias.data<void>();
    launch.state_in = state.data<void>(), launch.state_out = next.data<void>(), launch.y = y.data<void>();
    check(ssm_update_check(&launch));

    for (const auto &input : inputs) encoder.set_input_array(input);
    for (auto &output : outputs) encoder.set_output_array(output);
    encoder.dispatch([launch, kernel = cpu_kernel()] { check(ssm_update_kernel_launch(kernel, &launch)); });
}

// Builds the node. Shapes that no kernel serves are refused here, where the caller can still take the graph.
std::pair<mx::array, mx::array> step(const mx::array &x, const mx::array &a_log, const mx::array &b, const mx::array &c,
                                     const mx::array &d, const mx::array &dt, const mx::array &dt_bias, const mx::array &state,
                                     std::pair<float, float> time_step_limit, mx::StreamOrDevice s) {
    const auto refuse = [](const char *what) {
        throw std::invalid_argument(std::string("unsupported shapes for the fused SSM step; use the graph path: ") + what);
    };
    if (x.ndim() != 4 || b.ndim() != 4 || x.shape(1) != 1 || b.shape(1) != 1)
        refuse("x is [batch, 1, heads, head_dim], and B is [batch, 1, groups, d_state]");
    const auto dims = dims_of(x, b);
    check(ssm_update_check_dims(&dims));
    const int batch = x.shape(0), heads = x.shape(2);
    const mx::Shape per_head{heads}, pool{batch, heads, x.shape(3), b.shape(3)};
    if (b.shape(0) != batch || c.shape() != b.shape() || c.dtype() != b.dtype()) refuse("B and C are [batch, 1, groups, d_state] of one dtype");
    if (b.dtype() != x.dtype() && b.dtype() != mx::float32) refuse("B and C have x's dtype, or f32");
    if (dt.shape() != mx::Shape{batch, 1, heads}) refuse("dt is [batch, 1, heads]");
    if (a_log.shape() != per_head || d.shape() != per_head || dt_bias.shape() != per_head) refuse("A_log, D and dt_bias are [heads]");
    if (state.shape() != pool) refuse("the state is [batch, heads, head_dim, d_state]");
    for (const auto *tensor : {&x, &a_log, &b, &d, &dt, &dt_bias, &state}) dtype_of(*tensor);

    // MLX copies where an array is a slice of something wider; with one row of batch, as engines decode, none of them counts as one.
    std::vector<mx::array> inputs{x, a_log, b, c, d, dt, dt_bias, state};
    for (auto &input : inputs) input = mx::contiguous(input, false, s);
    auto primitive = std::make_shared<SsmStep>(mx::to_stream(s), time_step_limit.first, time_step_limit.second);
    auto out = mx::array::make_arrays({x.shape(), pool}, {x.dtype(), state.dtype()}, primitive, inputs);
    return {out[0], out[1]};
}

} // namespace

NB_MODULE(ssm_update_mlx, module) {
    using namespace nb::literals;
    nb::module_::import_("mlx.core"); // brings the array type
    module.def("step", &step, "x"_a, "A_log"_a, "B"_a, "C"_a, "D"_a, "dt"_a, "dt_bias"_a, "state"_a, nb::kw_only(),
               "time_step_limit"_a = std::pair(0.0f, std::numeric_limits<float>::infinity()), "stream"_a = nb::none(),
               "One token through the state update: (y [batch, 1, heads, head_dim], the state after it).");
}
