// libcudart, opened at run time: every function used, and what a failed call turns into.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include "cuda_api.hpp"
#include "../../errors.hpp"

namespace lstm_kernels {

// A member of a library's struct: the function of that name.
#define FUNCTION(name) decltype(&::name) name = library.symbol<decltype(&::name)>({#name})

struct Cuda {
    explicit Cuda(const std::string& path) : library(path) {}
    Library library;
    FUNCTION(cudaRuntimeGetVersion);
    FUNCTION(cudaDriverGetVersion);
    FUNCTION(cudaGetLastError);
    FUNCTION(cudaGetErrorName);
    FUNCTION(cudaGetErrorString);
    FUNCTION(cudaSetDevice);
    FUNCTION(cudaMalloc);
    FUNCTION(cudaFree);
    FUNCTION(cudaHostAlloc);
    FUNCTION(cudaFreeHost);
    FUNCTION(cudaDeviceGetAttribute);
    FUNCTION(cudaMemcpyAsync);
    FUNCTION(cudaMemsetAsync);
    FUNCTION(cudaStreamCreateWithFlags);
    FUNCTION(cudaStreamSynchronize);
    FUNCTION(cudaStreamBeginCapture);
    FUNCTION(cudaStreamEndCapture);
    FUNCTION(cudaGraphDestroy);
    FUNCTION(cudaGraphInstantiateWithFlags);  // not cudaGraphInstantiate: its arguments changed between CUDA 11 and 12
    FUNCTION(cudaGraphExecDestroy);
    FUNCTION(cudaGraphLaunch);
    FUNCTION(cudaEventCreateWithFlags);
    FUNCTION(cudaEventRecord);
    FUNCTION(cudaEventElapsedTime);
    FUNCTION(cudaEventDestroy);

    // `about` says what the call was for.
    void check(cudaError_t code, const char* call, const std::string& about) const {
        if (code == cudaSuccess) return;
        cudaGetLastError();  // CUDA repeats an error until it is read
        const std::string message =
            std::string(call) + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code) + " (" + about + ")";
        if (code == cudaErrorMemoryAllocation) throw OutOfMemory(message);
        throw LibraryError(message);
    }
};

// A handle that its library destroys. Empty until `made` gives it one.
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, std::function<void(Handle)>>;

// Device memory, which knows its size.
struct Free {
    decltype(&::cudaFree) free = nullptr;
    size_t bytes = 0;
    void operator()(void* p) const { free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

}  // namespace lstm_kernels
