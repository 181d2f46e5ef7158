// One LSTM layer by kernels of our own: all inputs are multiplied at once, one kernel does all timesteps.
//
// That kernel is one of ../*.cu; W_ih x is input_product.hpp's matter. They explain themselves. Python chooses, has
// them compiled for the GPU at hand and lays the weights out as they want them (layer.py); here they are launched
// and timed, or run on the arrays and the stream of a caller.
//
// libcudart, libcuda and libcublas are opened at run time; nothing of CUDA is needed to build.
#pragma once
#include "gpu_device.hpp"
#include "gpu_layer.hpp"
#include "input_product.hpp"

namespace lstm_kernels {

// How many clusters run at the same time.
inline int resident(const std::vector<std::string>& libraries, const char* code, const Launch& launch) {
    const std::string about = "a team of " + std::to_string(launch.blocks) + " blocks";
    const Device& device = *Device::of(libraries, about);
    const GpuKernel kernel(device.driver, code, "lstm_recurrence", about);
    launch.prepare(device.driver, kernel.function, about);
    auto attributes = launch.attributes();
    const CUlaunchConfig config = launch.config(1, attributes, device.stream);
    int clusters = 0;
    device.driver.check(device.driver.cuOccupancyMaxActiveClusters(&clusters, kernel.function, &config), "cuOccupancyMaxActiveClusters",
                        about);
    return clusters;
}

// ---------------------------------------------------------------------------------------------
// What a kernel is called with, as in call.cuh.
struct Call {
    const void *weights, *projected, *bias, *h0, *c0;
    void *y, *h_last, *c_last, *exchange, *late;
    float scale;
    int hidden, batch, timesteps, share;
};

// ---------------------------------------------------------------------------------------------
// The layer. x, h0, c0, w_ih and the outputs are as Python stores them: fp32, or 16 bits of fp16 or bf16.

struct Options {
    std::string storage, projection;
    Launch launch;
};

// Where the arrays of a call are, and where it runs. `scratch` is read and written by this call only.
struct Arrays {
    const void *x, *h0, *c0;
    void *y, *h_last, *c_last, *scratch, *late;
    int timesteps;
    cudaStream_t stream;
    Cublas::Handle blas;
};

class KernelLayer : public GpuLayer {
public:
    KernelLayer(const std::vector<std::string>& libraries, const char* code, const char* input, const Shape& shape,
          const Options& options)
        : KernelLayer(*Device::of(libraries, shape.text()), code, input, shape, options) {}

    KernelLayer(const Device& device, const char* code, const char* input, const Shape& shape, const Options& options)
        : GpuLayer(device.cuda, device.stream, shape, shape.text() + ", " + options.storage), device_(device), options_(options),
          kernel_(device.driver, code, "lstm_recurrence", about_),
          product_(device, input, shape, options.storage, options.projection, about_) {
        shape_.check(false);
        const auto [H, I, B, T] = shape_;
        check_vectors(T);
        options_.launch.prepare(device_.driver, kernel_.function, about_);
        attributes_ = options_.launch.attributes();
        const size_t element = options_.storage == "fp32" ? 4 : 2, state = element * B * H;
        x_ = buffer(element * T * B * I);
        h0_ = buffer(state);
        c0_ = buffer(state);
        y_ = buffer(element * T * B * H);
        h_last_ = buffer(state);
        c_last_ = buffer(state);
        scratch_ = buffer(parts(T).end);
        void* late = nullptr;
        check(cuda_.cudaHostAlloc(&late, 4, cudaHostAllocMapped), "cudaHostAlloc");
        late_ = {static_cast<int*>(late), cuda_.cudaFreeHost};
        *late_ = 0;
        poison();
        wait();
    }

    ~KernelLayer() { settle(); }

    // `weights` is W_hh as the kernel wants it, times 1 / scale; `bias` and the rows of `w_ih` have a unit's gates together.
    // For a product in tiles, `w_ih` is high and low halves, times 1 / input_scale.
    struct Loaded {
        Array x, h0, c0, w_ih, weights, bias;
        float scale, input_scale;
    };
    void load(const Loaded& a) {
        for (const auto& [array, name, buffer] : {std::tuple(&a.x, "x", &x_), std::tuple(&a.h0, "h0", &h0_), std::tuple(&a.c0, "c0", &c0_)})
            if (array->bytes != bytes(*buffer)) throw std::invalid_argument(std::string(name) + " does not have the size of " + shape_.text());
        for (const auto& [array, to] : {std::pair(&a.w_ih, &w_ih_), std::pair(&a.weights, &weights_), std::pair(&a.bias, &bias_)})
            *to = buffer(array->bytes);
        for (const auto& [array, to] : {std::pair(&a.x, &x_), std::pair(&a.h0, &h0_), std::pair(&a.c0, &c0_), std::pair(&a.w_ih, &w_ih_),
                                        std::pair(&a.weights, &weights_), std::pair(&a.bias, &bias_)})
            copy_in(to->get(), *array);
        scale_ = a.scale;
        input_scale_ = a.input_scale;
        set(scratch_, 0);
        wait();
        loaded(false);
    }

    // Bytes that `run` wants as scratch.
    size_t scratch(int timesteps) const {
        check_vectors(timesteps);
        return parts(timesteps).end + (product_.by_cublas() ? Device::WORKSPACE : 0);
    }

    // One call of any number of timesteps on a caller's arrays and stream, with the weights of this layer. It allocates
    // nothing and waits for nothing, so that the stream may be captured, and leaves nothing for the next call.
    void run(Arrays given) {
        check(cuda_.cudaSetDevice(0), "cudaSetDevice");  // the driver needs a context, which a new thread has not
        const Parts at = parts(given.timesteps);
        char* scratch = static_cast<char*>(given.scratch);
        if (const size_t bytes = options_.launch.exchange_bytes)
            check(cuda_.cudaMemsetAsync(scratch + at.exchange, 0, bytes, given.stream), "cudaMemsetAsync");
        if (!product_.by_cublas()) return queue(given);
        const std::lock_guard alone(device_.lending);  // callers share the handle
        given.blas = device_.lent(given.stream, scratch + at.end, about_);
        queue(given);
    }

    void copy_outputs(void* y, void* h_last, void* c_last) const {
        copy_out(y, y_);
        copy_out(h_last, h_last_);
        copy_out(c_last, c_last_);
    }

    Sizes sizes() const {
        return {bytes(w_ih_) + bytes(weights_) + bytes(bias_), bytes(x_) + bytes(h0_) + bytes(c0_),
                bytes(y_) + bytes(h_last_) + bytes(c_last_), bytes(scratch_)};
    }

private:
    void check_vectors(int timesteps) const {
        if (timesteps < 1) throw std::invalid_argument("timesteps must be at least 1");
        if (int64_t(timesteps) * shape_.batch > INT32_MAX / 4) throw Unsupported("more than 2^29 vectors (" + about_ + ")");
    }

    // Where in the scratch of a call its parts begin.
    struct Parts {
        size_t product, projected, exchange, end;
    };
    Parts parts(int timesteps) const {
        const size_t rows = size_t(timesteps) * shape_.batch;
        size_t end = 0;
        const auto part = [&](size_t bytes) { return std::exchange(end, end + (bytes + 255) / 256 * 256); };
        return {part(product_.scratch(rows)), part(4 * rows * 4 * shape_.hidden), part(options_.launch.exchange_bytes), end};
    }

    void launch() override {
        queue({x_.get(), h0_.get(), c0_.get(), y_.get(), h_last_.get(), c_last_.get(), scratch_.get(), late_.get(), shape_.timesteps,
               stream_, device_.handle});
    }

    void queue(const Arrays& arrays) {
        char* scratch = static_cast<char*>(arrays.scratch);
        const Parts at = parts(arrays.timesteps);
        product_.queue(arrays.x, w_ih_, input_scale_, scratch + at.projected, arrays.timesteps * shape_.batch, scratch + at.product,
                       arrays.stream, arrays.blas);
        recur(arrays);
    }

    // All timesteps.
    void recur(const Arrays& arrays) {
        const int B = shape_.batch, share = options_.launch.share;
        const Parts at = parts(arrays.timesteps);
        char* scratch = static_cast<char*>(arrays.scratch);
        Call call{weights_.get(), scratch + at.projected, bias_.get(), arrays.h0, arrays.c0, arrays.y, arrays.h_last, arrays.c_last,
                  scratch + at.exchange, arrays.late, scale_, shape_.hidden, B, arrays.timesteps, share};
        void* arguments[] = {&call};
        const CUlaunchConfig config = options_.launch.config((B + share - 1) / share, attributes_, arrays.stream);
        device_.driver.check(device_.driver.cuLaunchKernelEx(&config, kernel_.function, arguments, nullptr), "cuLaunchKernelEx", about_);
    }

    void verify() const override {
        if (late_ && *static_cast<volatile int*>(late_.get()))
            throw LibraryError("the kernel waited 2 seconds for one step of another block and gave up: is the GPU shared with other work? (" +
                               about_ + ")");
    }

    const Device& device_;
    const Options options_;
    GpuKernel kernel_;
    const GpuProduct product_;
    std::vector<CUlaunchAttribute> attributes_;
    float scale_ = 1, input_scale_ = 1;
    Buffer w_ih_, weights_, bias_, scratch_;
    std::unique_ptr<int, decltype(&::cudaFreeHost)> late_{nullptr, nullptr};  // written by the kernel
};

}  // namespace lstm_kernels
