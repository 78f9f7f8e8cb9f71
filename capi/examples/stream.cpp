// The C interface from C++17: three tokens on the CPU port, and the same on an AMD GPU in device memory, on a stream of this
// program's own.
//
// usage: stream [HIP_LIBRARY]
//
// HIP_LIBRARY is what the port rocm loads too (SSM_UPDATE_HIP_LIBRARY, or libamdhip64.so): without it, only the CPU port runs. A program
// that is built with ROCm calls the same functions by its headers.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference.h"

namespace {

// Two sequences of a shard of Nemotron-H's heads.
constexpr ssm_update_dims dims{2, 32, 64, 2, 128, 2};
constexpr std::size_t channels = dims.batch * dims.heads * dims.head_dim;
constexpr std::size_t columns = dims.batch * dims.groups * dims.d_state;

void check(ssm_update_status status) {
    if (status != SSM_UPDATE_STATUS_OK) throw std::runtime_error(ssm_update_last_error());
}

struct Close {
    void operator()(ssm_update_kernel *kernel) const { ssm_update_kernel_close(kernel); }
};
using Kernel = std::unique_ptr<ssm_update_kernel, Close>;

Kernel open(const char *port) {
    ssm_update_kernel *kernel = nullptr;
    check(ssm_update_kernel_open(port, &kernel));
    std::printf("%s: %s\n", ssm_update_kernel_port(kernel), ssm_update_kernel_description(kernel));
    return Kernel(kernel);
}

ssm_update_launch contiguous() {
    ssm_update_launch launch;
    check(ssm_update_launch_init(&launch, sizeof launch, &dims));
    return launch;
}

std::vector<float> numbers(std::size_t len, unsigned seed, float scale) {
    std::vector<float> out(len);
    fill(out.data(), len, seed, scale);
    return out;
}

// What a layer has, and what comes with each token.
struct Layer {
    std::vector<float> a_log = numbers(dims.heads, 1, 1), d = numbers(dims.heads, 2, 1), dt_bias = numbers(dims.heads, 3, 2);
};
struct Token {
    explicit Token(unsigned number)
        : x(numbers(channels, 10 + number, 1)), b(numbers(columns, 20 + number, 1)), c(numbers(columns, 30 + number, 1)),
          dt(numbers(dims.batch * dims.heads, 40 + number, 2)) {}
    std::vector<float> x, b, c, dt;
};

// The HIP functions that this program uses.
class Hip {
public:
    explicit Hip(const char *library) : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
        if (!library_) throw std::runtime_error(dlerror());
        find(malloc, "hipMalloc");
        find(free, "hipFree");
        find(copy, "hipMemcpyAsync");
        find(create_stream, "hipStreamCreate");
        find(destroy_stream, "hipStreamDestroy");
        find(synchronize, "hipStreamSynchronize");
    }

    static void check(int status, const char *call) {
        if (status != 0) throw std::runtime_error(std::string(call) + " returned " + std::to_string(status));
    }

    int (*malloc)(void **, std::size_t);
    int (*free)(void *);
    int (*copy)(void *, const void *, std::size_t, int, void *);
    int (*create_stream)(void **);
    int (*destroy_stream)(void *);
    int (*synchronize)(void *);

private:
    template <typename F> void find(F &function, const char *name) {
        void *at = dlsym(library_, name);
        if (!at) throw std::runtime_error(std::string("the library has no ") + name);
        function = reinterpret_cast<F>(at);
    }

    void *library_; // loaded as long as the process lives
};

class Stream {
public:
    explicit Stream(const Hip &hip) : hip(hip) { Hip::check(hip.create_stream(&at), "hipStreamCreate"); }
    ~Stream() { hip.destroy_stream(at); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    const Hip &hip;
    void *at = nullptr;
};

// Device memory that is filled from, and copied to, host memory in the stream's order.
class Device {
public:
    Device(const Stream &stream, const std::vector<float> &from) : stream_(stream), len_(from.size()) {
        Hip::check(stream.hip.malloc(&at, len_ * sizeof(float)), "hipMalloc");
        upload(from);
    }
    ~Device() { stream_.hip.free(at); }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    void upload(const std::vector<float> &from) {
        Hip::check(stream_.hip.copy(at, from.data(), len_ * sizeof(float), 1, stream_.at), "hipMemcpyAsync to the device");
    }
    std::vector<float> download() const {
        std::vector<float> to(len_);
        Hip::check(stream_.hip.copy(to.data(), at, len_ * sizeof(float), 2, stream_.at), "hipMemcpyAsync to the host");
        Hip::check(stream_.hip.synchronize(stream_.at), "hipStreamSynchronize");
        return to;
    }

    void *at = nullptr;

private:
    const Stream &stream_;
    std::size_t len_;
};

struct Result {
    std::vector<float> y, state;
};

Result on_the_cpu(const Layer &layer, const std::vector<Token> &tokens) {
    const Kernel kernel = open("cpu");
    Result result{std::vector<float>(channels), std::vector<float>(channels * dims.d_state)};
    auto launch = contiguous();
    launch.a_log = layer.a_log.data(), launch.d = layer.d.data(), launch.dt_bias = layer.dt_bias.data();
    launch.state_in = launch.state_out = result.state.data(), launch.y = result.y.data();
    for (const Token &token : tokens) {
        launch.x = token.x.data(), launch.b = token.b.data(), launch.c = token.c.data(), launch.dt = token.dt.data();
        check(ssm_update_kernel_launch(kernel.get(), &launch)); // on this port done when it returns
    }
    return result;
}

Result on_a_stream(const Hip &hip, const Layer &layer, const std::vector<Token> &tokens) {
    const Kernel kernel = open("rocm");
    const Stream stream(hip);
    const Device a_log(stream, layer.a_log), d(stream, layer.d), dt_bias(stream, layer.dt_bias);
    const Device state(stream, std::vector<float>(channels * dims.d_state)), y(stream, std::vector<float>(channels));
    Device x(stream, tokens[0].x), b(stream, tokens[0].b), c(stream, tokens[0].c), dt(stream, tokens[0].dt);

    auto launch = contiguous();
    launch.x = x.at, launch.b = b.at, launch.c = c.at, launch.dt = dt.at;
    launch.a_log = a_log.at, launch.d = d.at, launch.dt_bias = dt_bias.at;
    launch.state_in = launch.state_out = state.at, launch.y = y.at;
    launch.stream = stream.at;
    const ssm_update_launch *launches[] = {&launch};
    check(ssm_update_kernel_prepare(kernel.get(), launches, 1));
    for (const Token &token : tokens) {
        // The stream's order is all that is needed: each copy waits for the step before it.
        x.upload(token.x), b.upload(token.b), c.upload(token.c), dt.upload(token.dt);
        check(ssm_update_kernel_launch(kernel.get(), &launch));
    }
    return {y.download(), state.download()}; // waits for the stream
}

double compare(const char *what, const Result &result, const std::vector<double> &y, const std::vector<double> &state) {
    const double of_y = distance(result.y.data(), y.data(), y.size());
    const double of_state = distance(result.state.data(), state.data(), state.size());
    std::printf("%s: nrms of y %.1e, of the state %.1e\n", what, of_y, of_state);
    return std::fmax(of_y, of_state);
}

} // namespace

int main(int argc, char **argv) try {
    const Layer layer;
    const std::vector<Token> tokens{Token(0), Token(1), Token(2)};
    std::vector<double> y(channels), state(channels * dims.d_state);
    for (const Token &token : tokens) {
        reference_step(&dims, token.x.data(), token.b.data(), token.c.data(), token.dt.data(), layer.a_log.data(), layer.d.data(),
                       layer.dt_bias.data(), state.data(), y.data());
    }

    const Result cpu = on_the_cpu(layer, tokens);
    double worst = compare("cpu against double", cpu, y, state);
    if (argc > 1) {
        const Hip hip(argv[1]);
        const Result rocm = on_a_stream(hip, layer, tokens);
        worst = std::fmax(worst, compare("rocm against double", rocm, y, state));
        const std::vector<double> cpu_y(cpu.y.begin(), cpu.y.end()), cpu_state(cpu.state.begin(), cpu.state.end());
        worst = std::fmax(worst, compare("rocm against cpu", rocm, cpu_y, cpu_state));
    }
    if (!(worst < 1e-5)) throw std::runtime_error("too far from the reference");
    return EXIT_SUCCESS;
} catch (const std::exception &error) {
    std::fprintf(stderr, "stream: %s\n", error.what());
    return EXIT_FAILURE;
}
