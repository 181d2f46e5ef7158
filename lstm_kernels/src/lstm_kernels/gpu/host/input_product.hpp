// W_ih x for all timesteps of a call, by cuBLAS or by a kernel of our own.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "gpu_device.hpp"

namespace lstm_kernels {

class GpuProduct {
public:
    // `way` is the precision that cuBLAS multiplies in, "tiles" (input_tiles.cu) or "vectors" (input_vectors.cu);
    // `code` is that file's machine code. x and W_ih are stored in `storage`, except that tiles want high and low halves.
    GpuProduct(const Device& device, const char* code, int width, int columns, const std::string& storage, const std::string& way,
               const std::string& about)
        : device_(device), about_(about), width_(width), columns_(columns),
          type_(storage == "fp32" ? CUDA_R_32F : storage == "fp16" ? CUDA_R_16F : CUDA_R_16BF),
          in_(way == "tf32" ? Cublas::IN_TF32 : Cublas::IN_FP32),
          most_(way == "tiles" ? HIGHEST * TILE : way == "vectors" ? HIGHEST * VECTOR_ROWS : INT32_MAX) {
        const auto kernel = [&](const char* name) { return std::make_unique<GpuKernel>(device.driver, code, name, about); };
        if (way == "vectors") vectors_ = kernel("input_vectors");
        if (way != "tiles") return;
        split_ = kernel("input_split");
        const auto roomy = [&](const char* name, int bytes) {
            auto one = kernel(name);
            device.driver.check(device.driver.cuFuncSetAttribute(one->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
                                "cuFuncSetAttribute", about);
            return one;
        };
        tiles_ = roomy("input_gemm", TILE_BYTES);
        if (device.hopper) hopper_ = roomy("input_gemm_hopper", HOPPER_BYTES);
    }

    bool by_cublas() const { return !tiles_ && !vectors_; }

    // Bytes of scratch that a call wants.
    size_t scratch(size_t rows) const { return tiles_ ? halves(std::min(rows, most_)).end : 0; }

    // The product of `rows` vectors, of no more than a grid can be high at a time. `factor` undoes the scale of W_ih in tiles;
    // `bytes` are those of the weights; `blas` is for cuBLAS.
    void queue(const void* x, const void* weights, size_t bytes, float factor, void* out, int rows, void* scratch, cudaStream_t stream,
               Cublas::Handle blas) const {
        const size_t element = type_ == CUDA_R_32F ? 4 : 2;
        for (size_t first = 0; first < size_t(rows); first += most_) {
            const void* const from = static_cast<const char*>(x) + first * width_ * element;
            void* const to = static_cast<float*>(out) + first * columns_;
            const int count = int(std::min(rows - first, most_));
            if (tiles_) in_tiles(from, weights, bytes, factor, to, count, static_cast<char*>(scratch), stream);
            else if (vectors_) in_vectors(from, weights, to, count, stream);
            else in_cublas(from, weights, to, count, blas);
        }
    }

private:
    // As in input_tiles.cu and input_vectors.cu.
    enum { TILE = 128, DEPTH = 32, TILE_BYTES = 3 * 4 * TILE * DEPTH * 2, TILE_THREADS = 256, FEW_ROWS = 2048 };
    enum { HOPPER_BYTES = 6 * 4 * (DEPTH / 8) * (TILE + 1) * 16 };
    static constexpr size_t HIGHEST = 65535;  // blocks of a grid along y
    enum { VECTOR_ROWS = 16, VECTOR_COLUMNS = 4, VECTOR_THREADS = 128 };

    int padded() const { return (width_ + DEPTH - 1) / DEPTH * DEPTH; }

    // Where in the scratch of a call its parts begin.
    struct Halves {
        size_t high, low, factors, end;
    };
    Halves halves(size_t rows) const {
        const auto whole = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
        const size_t half = whole(2 * rows * padded());
        return {0, half, 2 * half, 2 * half + whole(4 * rows)};
    }

    void in_tiles(const void* x, const void* weights, size_t bytes, float factor, void* out, int rows, char* scratch, cudaStream_t stream) const {
        const Halves at = halves(rows);
        void *high = scratch + at.high, *low = scratch + at.low, *factors = scratch + at.factors;
        int width = width_, columns = columns_, depth = padded();
        const char *w_high = static_cast<const char*>(weights), *w_low = w_high + bytes / 2;
        int together = rows < FEW_ROWS;  // a block splits a row, instead of a warp
        void* to_split[] = {&x, &high, &low, &factors, &rows, &width, &depth, &together};
        start(*split_, {unsigned(together ? rows : (rows + 7) / 8), 1, 1}, TILE_THREADS, 0, to_split, stream);
        void* to_tiles[] = {&high, &low, &w_high, &w_low, &factors, &factor, &out, &rows, &columns, &depth};
        const unsigned wide = unsigned((columns + TILE - 1) / TILE), tall = unsigned((rows + TILE - 1) / TILE);
        if (hopper_ && wide * tall >= device_.multiprocessors) start(*hopper_, {wide, tall, 1}, TILE_THREADS, HOPPER_BYTES, to_tiles, stream);
        else start(*tiles_, {wide, tall, sharers(wide * tall)}, TILE_THREADS, TILE_BYTES, to_tiles, stream);
    }

    void in_vectors(const void* x, const void* weights, void* out, int rows, cudaStream_t stream) const {
        int columns = columns_, width = width_;
        void* arguments[] = {&x, &weights, &out, &rows, &columns, &width};
        const int block = VECTOR_THREADS / 32 * VECTOR_COLUMNS;  // columns
        start(*vectors_, {unsigned((columns + block - 1) / block), unsigned((rows + VECTOR_ROWS - 1) / VECTOR_ROWS), 1}, VECTOR_THREADS, 0,
              arguments, stream);
    }

    void in_cublas(const void* x, const void* weights, void* out, int rows, Cublas::Handle blas) const {
        const float one = 1, zero = 0;
        device_.blas.check(device_.blas.cublasGemmEx(blas, Cublas::TRANSPOSED, Cublas::AS_IT_IS, columns_, rows, width_, &one, weights, type_,
                                                     width_, x, type_, width_, &zero, out, CUDA_R_32F, columns_, in_,
                                                     Cublas::ANY_ALGORITHM),
                           "cublasGemmEx", about_);
    }

    // Blocks that share a tile: a cluster of as many as keep all multiprocessors busy, with two steps each.
    unsigned sharers(unsigned tiles) const {
        unsigned blocks = 1;
        while (device_.clusters && blocks < 8 && tiles * blocks * 2 <= device_.multiprocessors && unsigned(padded()) >= DEPTH * blocks * 4)
            blocks *= 2;
        return blocks;
    }

    // Blocks along z are a cluster.
    void start(const GpuKernel& kernel, const std::array<unsigned, 3>& grid, unsigned threads, unsigned shared_bytes, void** arguments,
               cudaStream_t stream) const {
        CUlaunchConfig config{};
        config.gridDimX = grid[0], config.gridDimY = grid[1], config.gridDimZ = grid[2];
        config.blockDimX = threads, config.blockDimY = config.blockDimZ = 1;
        config.sharedMemBytes = shared_bytes;
        config.hStream = stream;
        CUlaunchAttribute cluster{};
        cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        cluster.value.clusterDim = {1, 1, grid[2]};
        config.attrs = &cluster;
        config.numAttrs = grid[2] > 1;
        device_.driver.check(device_.driver.cuLaunchKernelEx(&config, kernel.function, arguments, nullptr), "cuLaunchKernelEx", about_);
    }

    const Device& device_;
    const std::string about_;
    const int width_, columns_;
    const cudaDataType type_;
    const int in_;  // what cuBLAS multiplies in
    const size_t most_;  // rows at a time
    std::unique_ptr<GpuKernel> split_, tiles_, hopper_, vectors_;
};

}  // namespace lstm_kernels
