// libcudart and libcudnn, opened at run time: every function used, with the type that its header
// gives it, and what a failed call of each turns into.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <functional>
#include <memory>
#include <type_traits>

#include "errors.hpp"

namespace deepbench {

#define FUNCTION(name) decltype(&::name) name = library.symbol<decltype(&::name)>({#name})

struct Cuda {
    explicit Cuda(const std::string& path) : library(path) {}
    Library library;
    FUNCTION(cudaRuntimeGetVersion);
    FUNCTION(cudaDriverGetVersion);
    FUNCTION(cudaGetLastError);
    FUNCTION(cudaGetErrorName);
    FUNCTION(cudaGetErrorString);
    FUNCTION(cudaMalloc);
    FUNCTION(cudaFree);
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

struct Cudnn {
    // Global: cuDNN's own parts (libcudnn_adv and others) are opened by it later and share symbols.
    explicit Cudnn(const std::string& path) : library(path, RTLD_GLOBAL) {}
    Library library;
    FUNCTION(cudnnGetVersion);
    FUNCTION(cudnnGetErrorString);
    FUNCTION(cudnnGetLastErrorString);
    FUNCTION(cudnnCreate);
    FUNCTION(cudnnSetStream);
    FUNCTION(cudnnCreateDropoutDescriptor);
    FUNCTION(cudnnDestroyDropoutDescriptor);
    FUNCTION(cudnnSetDropoutDescriptor);
    FUNCTION(cudnnCreateTensorDescriptor);
    FUNCTION(cudnnDestroyTensorDescriptor);
    FUNCTION(cudnnSetTensorNdDescriptor);
    FUNCTION(cudnnCreateRNNDescriptor);
    FUNCTION(cudnnDestroyRNNDescriptor);
    FUNCTION(cudnnSetRNNDescriptor_v8);
    FUNCTION(cudnnCreateRNNDataDescriptor);
    FUNCTION(cudnnDestroyRNNDataDescriptor);
    FUNCTION(cudnnSetRNNDataDescriptor);
    FUNCTION(cudnnBuildRNNDynamic);
    FUNCTION(cudnnGetRNNWeightSpaceSize);
    FUNCTION(cudnnGetRNNWeightParams);
    FUNCTION(cudnnGetRNNTempSpaceSizes);
    FUNCTION(cudnnRNNForward);

    void check(cudnnStatus_t code, const char* call, const std::string& about, const Cuda& cuda) const {
        if (code == CUDNN_STATUS_SUCCESS) return;
        cuda.cudaGetLastError();
        char why[512] = "";
        cudnnGetLastErrorString(why, sizeof why);
        std::string message = std::string(call) + ": " + cudnnGetErrorString(code);
        if (why[0]) message += ", " + std::string(why);
        message += " (" + about + ")";
        if (code / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) throw Unsupported(message);
        if (code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
            code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
            throw OutOfMemory(message);
        throw LibraryError(message);
    }
};

#undef FUNCTION

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

}  // namespace deepbench
