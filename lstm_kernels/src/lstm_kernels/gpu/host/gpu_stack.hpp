// The layers and directions of an LSTM on a GPU by one plan, for calls of any size.
//
// A layer is one product of all inputs, for both directions, and one kernel that does all timesteps (../*.cu), with the
// teams of both directions side by side if they fit. Python chooses the plan, has it compiled and lays the weights
// out as it wants them (layer.py, stack.py); they are in the caller's memory.
//
// libcudart, libcuda and libcublas are opened at run time; nothing of CUDA is needed to build.
#pragma once
#include "gpu_device.hpp"
#include "input_product.hpp"

namespace lstm_kernels {

// What a kernel is called with, as in call.cuh.
struct Call {
    const void *weights, *projected, *bias, *h0, *c0;
    void *y, *h_last, *c_last, *exchange, *late;
    const int *lengths, *rows;
    float scale;
    int hidden, batch, timesteps, share, directions, direction;
};

// The weights of a layer on the GPU, as call.cuh and input_product.hpp want them. `few_w_ih` is for products by vectors.
struct LayerWeights {
    const void *w_ih, *few_w_ih, *weights, *bias;
    size_t w_ih_bytes;
    float scale, input_scale;
};

// How a plan runs calls of one batch size: sequences per team, bytes of shared memory and of `exchange`, and 1 where
// the directions run side by side.
struct Share {
    int64_t sequences, shared_bytes, exchange_bytes, together;
};

// A call. `rows` are all vectors of x; where `lengths` is given, sequences end after so many timesteps, and rows are
// packed if `first_rows` says where each timestep's begin. `scratch` is read and written by this call only; `fresh` says
// that no call with the same sizes has left it. States are (layers x directions, batch, hidden); null: zeros.
struct GpuCall {
    int64_t batch, timesteps, rows;
    Share share;
    const void *x, *h0, *c0;
    void *y, *h_last, *c_last, *scratch, *late;
    const int *lengths, *first_rows;
    cudaStream_t stream;
    int64_t fresh;
};

struct GpuStackSizes {
    int input, hidden, layers, directions;
};

class GpuStack {
public:
    // `code` is the kernel's, `product` and `few` those of input products; `few` is for at most `few_rows` vectors.
    GpuStack(const Device& device, const GpuStackSizes& sizes, const char* code, const char* product, const char* few,
             const std::string& storage, const std::string& projection, int few_rows, const Launch& launch, std::string about)
        : about_(std::move(about)), device_(device), sizes_(sizes), element_(storage == "fp32" ? 4 : 2), few_rows_(few_rows),
          launch_(launch), kernel_(device.driver, code, "lstm_recurrence", about_), attributes_(launch.attributes()) {
        launch_.prepare(device.driver, kernel_.function, about_);
        const int columns = 4 * sizes.hidden * sizes.directions;
        for (int i = 0; i < std::min(sizes.layers, 2); ++i) {  // the first, and all others
            const int width = i ? sizes.directions * sizes.hidden : sizes.input;
            products_.emplace_back(std::make_unique<GpuProduct>(device, product, width, columns, storage, projection, about_));
            if (few_rows) few_.emplace_back(std::make_unique<GpuProduct>(device, few, width, columns, storage, "vectors", about_));
        }
    }

    void load(const LayerWeights* weights) { weights_.assign(weights, weights + sizes_.layers); }

    // Bytes that a call wants as scratch; `run` wants room for cuBLAS, too.
    size_t scratch(int64_t rows, size_t exchange_bytes, bool to_run) const {
        return parts(rows, exchange_bytes).end + (to_run && product(0, rows).by_cublas() ? Device::WORKSPACE : 0);
    }

    // It allocates nothing and waits for nothing, so that the stream may be captured.
    void run(const GpuCall& call) const {
        device_.cuda.check(device_.cuda.cudaSetDevice(0), "cudaSetDevice", about_);  // the driver needs a context, which a new thread has not
        if (!product(0, call.rows).by_cublas()) return queue(call, nullptr);
        const std::lock_guard alone(device_.lending);  // callers share the handle
        queue(call, device_.lent(call.stream, static_cast<char*>(call.scratch) + parts(call.rows, size_t(call.share.exchange_bytes)).end, about_));
    }

    void queue(const GpuCall& call, Cublas::Handle blas) const {
        check_rows(call.rows);
        const Parts at = parts(call.rows, size_t(call.share.exchange_bytes));
        char* const scratch = static_cast<char*>(call.scratch);
        if (call.share.exchange_bytes && call.fresh)
            device_.cuda.check(device_.cuda.cudaMemsetAsync(scratch + at.exchange, 0, size_t(call.share.exchange_bytes), call.stream),
                               "cudaMemsetAsync", about_);
        const void* x = call.x;
        for (int layer = 0; layer < sizes_.layers; ++layer) {
            void* const y = layer + 1 == sizes_.layers ? call.y : scratch + at.between[layer % 2];
            const GpuProduct& way = product(layer, call.rows);
            const LayerWeights& w = weights_[size_t(layer)];
            way.queue(x, by_few(call.rows) ? w.few_w_ih : w.w_ih, w.w_ih_bytes, w.input_scale, scratch + at.projected, int(call.rows),
                      scratch + at.product, call.stream, blas);
            recur(call, layer, scratch + at.projected, scratch + at.exchange, y);
            x = y;
        }
    }

    void check_rows(int64_t rows) const {
        if (rows < 1) throw std::invalid_argument("timesteps must be at least 1");
        if (rows > INT32_MAX / 4 / sizes_.directions) throw Unsupported("more than 2^29 vectors (" + about_ + ")");
    }

private:
    // Where in the scratch of a call its parts begin.
    struct Parts {
        size_t product, projected, exchange, between[2], end;
    };
    Parts parts(int64_t count, size_t exchange_bytes) const {
        const size_t rows = size_t(count), wide = size_t(sizes_.directions) * size_t(sizes_.hidden);
        size_t end = 0, own = 0;
        const auto part = [&](size_t bytes) { return std::exchange(end, end + (bytes + 255) / 256 * 256); };
        for (int layer = 0; layer < sizes_.layers; ++layer) own = std::max(own, product(layer, count).scratch(rows));
        const size_t y = rows * wide * element_;
        return {part(own), part(4 * 4 * rows * wide), part(exchange_bytes), {part(sizes_.layers > 1 ? y : 0), part(sizes_.layers > 2 ? y : 0)}, end};
    }

    bool by_few(int64_t rows) const { return rows <= few_rows_; }
    const GpuProduct& product(int layer, int64_t rows) const { return *(by_few(rows) ? few_ : products_)[layer > 0]; }

    // All timesteps of a layer.
    void recur(const GpuCall& given, int layer, void* projected, void* exchange, void* y) const {
        const LayerWeights& w = weights_[size_t(layer)];
        const size_t first = size_t(layer) * size_t(sizes_.directions) * size_t(given.batch) * size_t(sizes_.hidden) * element_;
        const auto state = [&](auto* states) { return states ? (decltype(states))((char*)states + first) : nullptr; };
        const int batch = int(given.batch), share = int(given.share.sequences), teams = (batch + share - 1) / share;
        Call call{w.weights, projected, w.bias, state(given.h0), state(given.c0), y, state(given.h_last), state(given.c_last),
                  exchange, given.late, given.lengths, given.first_rows, w.scale, sizes_.hidden,
                  batch, int(given.timesteps), share, sizes_.directions, 0};
        Launch launch = launch_;
        launch.shared_bytes = size_t(given.share.shared_bytes);
        void* arguments[] = {&call};
        for (; call.direction < sizes_.directions; call.direction += given.share.together ? sizes_.directions : 1) {
            const int beside = given.share.together ? sizes_.directions : 1;
            const CUlaunchConfig config = launch.config(teams * beside, attributes_, given.stream);
            device_.driver.check(device_.driver.cuLaunchKernelEx(&config, kernel_.function, arguments, nullptr), "cuLaunchKernelEx", about_);
        }
    }

    const std::string about_;
    const Device& device_;
    const GpuStackSizes sizes_;
    const size_t element_;
    const int few_rows_;
    const Launch launch_;
    const GpuKernel kernel_;
    mutable std::vector<CUlaunchAttribute> attributes_;
    std::vector<std::unique_ptr<GpuProduct>> products_, few_;
    std::vector<LayerWeights> weights_;
};

}  // namespace lstm_kernels
