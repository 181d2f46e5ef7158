// The limits of the GPU: kernels of limits.cu, and products of cuBLAS.
#pragma once
#include <chrono>
#include <cmath>

#include "gpu/host/gpu_device.hpp"

namespace deepbench {

using namespace lstm_kernels;

// What some calls on a stream took, each the best of many, in seconds.
struct Took {
    double device = INFINITY;  // between events before and behind it
    double waited = INFINITY;  // from the call until the stream is empty
    double queued = INFINITY;  // of many in a row, each
};

inline Took took(const Device& device, int calls, const std::function<void()>& before, const std::function<void()>& call) {
    using Clock = std::chrono::steady_clock;
    const Cuda& cuda = device.cuda;
    const auto seconds = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
    const auto wait = [&] { cuda.check(cuda.cudaStreamSynchronize(device.stream), "cudaStreamSynchronize", "limits"); };
    const auto event = [&] {
        cudaEvent_t made = nullptr;
        cuda.check(cuda.cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags", "limits");
        return Owned<cudaEvent_t>(made, cuda.cudaEventDestroy);
    };
    const auto start = event(), end = event();
    Took best;
    for (int i = 0; i < calls; ++i) {
        before();
        cuda.check(cuda.cudaEventRecord(start.get(), device.stream), "cudaEventRecord", "limits");
        call();
        cuda.check(cuda.cudaEventRecord(end.get(), device.stream), "cudaEventRecord", "limits");
        wait();
        float milliseconds = 0;
        cuda.check(cuda.cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "cudaEventElapsedTime", "limits");
        best.device = std::min(best.device, milliseconds * 1e-3);
        before();
        wait();
        const auto from = Clock::now();
        call();
        wait();
        best.waited = std::min(best.waited, seconds(from));
    }
    before();
    wait();
    const auto from = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    wait();
    best.queued = seconds(from) / calls;
    return best;
}

// A kernel of limits.cu.
inline Took time_limit(const std::vector<std::string>& libraries, const std::string& code, const std::string& name, const Launch& launch,
                int teams, size_t bytes, int rounds, int calls) {
    const Device& device = *Device::of(libraries, name);
    const GpuKernel kernel(device.driver, code.data(), name.c_str(), name);
    launch.prepare(device.driver, kernel.function, name);
    auto attributes = launch.attributes();
    const CUlaunchConfig config = launch.config(teams, attributes, device.stream);
    bytes = std::max<size_t>(bytes, 4096);
    void* memory = nullptr;
    device.cuda.check(device.cuda.cudaMalloc(&memory, bytes), "cudaMalloc", name);
    const Buffer held(memory, Free{device.cuda.cudaFree, bytes});
    unsigned long long size = bytes;
    void* arguments[] = {&memory, &size, &rounds};
    device.cuda.check(device.cuda.cudaMemsetAsync(memory, 0, bytes, device.stream), "cudaMemsetAsync", name);
    const Took best = took(
        device, calls, [&] { device.cuda.check(device.cuda.cudaMemsetAsync(memory, 0, std::min(bytes, size_t(1) << 20), device.stream), "cudaMemsetAsync", name); },
        [&] { device.driver.check(device.driver.cuLaunchKernelEx(&config, kernel.function, arguments, nullptr), "cuLaunchKernelEx", name); });
    unsigned late = 0;
    device.cuda.check(device.cuda.cudaMemcpyAsync(&late, memory, sizeof late, cudaMemcpyDeviceToHost, device.stream), "cudaMemcpyAsync", name);
    device.cuda.check(device.cuda.cudaStreamSynchronize(device.stream), "cudaStreamSynchronize", name);
    if (late) throw LibraryError(name + ": a block waited too long for another: is the GPU shared with other work?");
    return best;
}

// A product of square matrices of zeros by cuBLAS, in "fp32", "tf32", "fp16" or "bf16".
inline Took time_product(const std::vector<std::string>& libraries, const std::string& precision, int size, int calls) {
    const Device& device = *Device::of(libraries, precision);
    const bool half = precision == "fp16" || precision == "bf16";
    const size_t count = size_t(size) * size, bytes = count * (2 * (half ? 2 : 4) + 4);
    void* memory = nullptr;
    device.cuda.check(device.cuda.cudaMalloc(&memory, bytes), "cudaMalloc", precision);
    const Buffer held(memory, Free{device.cuda.cudaFree, bytes});
    device.cuda.check(device.cuda.cudaMemsetAsync(memory, 0, bytes, device.stream), "cudaMemsetAsync", precision);
    float* c = static_cast<float*>(memory);
    char *a = reinterpret_cast<char*>(c + count), *b = a + count * (half ? 2 : 4);
    const float one = 1, zero = 0;
    const auto type = precision == "fp16" ? CUDA_R_16F : precision == "bf16" ? CUDA_R_16BF : CUDA_R_32F;
    const int in = precision == "tf32" ? Cublas::IN_TF32 : Cublas::IN_FP32;
    return took(device, calls, [] {}, [&] {
        device.blas.check(device.blas.cublasGemmEx(device.handle, Cublas::TRANSPOSED, Cublas::AS_IT_IS, size, size, size, &one, a, type, size,
                                                   b, type, size, &zero, c, CUDA_R_32F, size, in, Cublas::ANY_ALGORITHM),
                          "cublasGemmEx", precision);
    });
}

}  // namespace deepbench
