// One LSTM layer in one direction with arrays of its own, for the benchmark's rows: launched, replayed and timed.
#pragma once
#include "gpu_layer.hpp"
#include "gpu_stack.hpp"

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

struct Options {
    std::string storage, projection;
    Launch launch;
};

// x, h0, c0, w_ih and the outputs are as Python stores them: fp32, or 16 bits of fp16 or bf16.
class KernelLayer : public GpuLayer {
public:
    KernelLayer(const std::vector<std::string>& libraries, const char* code, const char* input, const Shape& shape,
                const Options& options)
        : KernelLayer(*Device::of(libraries, shape.text()), code, input, shape, options) {}

    KernelLayer(const Device& device, const char* code, const char* input, const Shape& shape, const Options& options)
        : GpuLayer(device.cuda, device.stream, shape, shape.text() + ", " + options.storage), device_(device), launch_(options.launch),
          stack_(device, {shape.input, shape.hidden, 1, 1}, code, input, input, options.storage, options.projection, 0, options.launch,
                 about_) {
        shape_.check(false);
        const auto [H, I, B, T] = shape_;
        stack_.check_rows(int64_t(T) * B);
        const size_t element = options.storage == "fp32" ? 4 : 2, state = element * B * H;
        x_ = buffer(element * T * B * I);
        h0_ = buffer(state);
        c0_ = buffer(state);
        y_ = buffer(element * T * B * H);
        h_last_ = buffer(state);
        c_last_ = buffer(state);
        scratch_ = buffer(stack_.scratch(int64_t(T) * B, launch_.exchange_bytes, false));
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
        const LayerWeights given{w_ih_.get(), nullptr, weights_.get(), bias_.get(), bytes(w_ih_), a.scale, a.input_scale};
        stack_.load(&given);
        set(scratch_, 0);
        wait();
        loaded(false);
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
    void launch() override {
        const Share share{launch_.share, int64_t(launch_.shared_bytes), int64_t(launch_.exchange_bytes), 0};
        stack_.queue({shape_.batch, shape_.timesteps, int64_t(shape_.timesteps) * shape_.batch, share, x_.get(), h0_.get(), c0_.get(),
                      y_.get(), h_last_.get(), c_last_.get(), scratch_.get(), late_.get(), nullptr, nullptr, stream_, 0},
                     device_.handle);
    }

    void verify() const override {
        if (late_ && *static_cast<volatile int*>(late_.get()))
            throw LibraryError("the kernel waited 2 seconds for one step of another block and gave up: is the GPU shared with other work? (" +
                               about_ + ")");
    }

    const Device& device_;
    const Launch launch_;
    GpuStack stack_;
    Buffer w_ih_, weights_, bias_, scratch_;
    std::unique_ptr<int, decltype(&::cudaFreeHost)> late_{nullptr, nullptr};  // written by the kernel
};

}  // namespace lstm_kernels
