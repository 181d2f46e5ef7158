// Prints what cuda_api.hpp and cudnn_api.hpp declare, or, with -DNVIDIA, what NVIDIA's headers do: the kinds and sizes of all
// arguments, the layout of structs, the values of constants. -DWITHOUT_CUDNN leaves cuDNN out.
//
// test_gpu_api.py compares both with gpu_api.txt. What is new there is printed where NVIDIA's headers are:
//
//     g++ -std=c++20 -Wno-invalid-offsetof -DNVIDIA -I <headers> tests/gpu_api_check.cpp -o check && ./check > tests/gpu_api.txt
#ifndef NVIDIA
#include "../deepbench_ext/cudnn_api.hpp"
#else
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#ifndef WITHOUT_CUDNN
#include <cudnn.h>
#endif
#endif

#include <cstddef>
#include <cstdio>
#include <type_traits>

template <typename T>
static void kind() {
    if constexpr (std::is_void_v<T>) std::printf(" void");
    else if constexpr (std::is_pointer_v<T>) std::printf(" pointer");
    else std::printf(" %s%zu", std::is_floating_point_v<T> ? "float" : "integer", sizeof(T));
}

template <typename Result, typename... Arguments>
static void function(const char* name, Result (*)(Arguments...)) {
    std::printf("%s:", name);
    kind<Result>();
    (kind<Arguments>(), ...);
    std::printf("\n");
}

// Never called, so never linked: the type is all that counts.
#define FUNCTION(name) function(#name, decltype(&::name)(nullptr));
#define CONSTANT(name) std::printf(#name " = %lld\n", static_cast<long long>(name));
#define STRUCT(name) std::printf(#name ": %zu bytes\n", sizeof(name));
#define MEMBER(name, member) std::printf(#name "::" #member " at %zu\n", offsetof(name, member));

int main() {
    FUNCTION(cudaRuntimeGetVersion)
    FUNCTION(cudaDriverGetVersion)
    FUNCTION(cudaGetLastError)
    FUNCTION(cudaGetErrorName)
    FUNCTION(cudaGetErrorString)
    FUNCTION(cudaSetDevice)
    FUNCTION(cudaMalloc)
    FUNCTION(cudaFree)
    FUNCTION(cudaHostAlloc)
    FUNCTION(cudaFreeHost)
    FUNCTION(cudaDeviceGetAttribute)
    FUNCTION(cudaMemcpyAsync)
    FUNCTION(cudaMemsetAsync)
    FUNCTION(cudaStreamCreateWithFlags)
    FUNCTION(cudaStreamSynchronize)
    FUNCTION(cudaStreamBeginCapture)
    FUNCTION(cudaStreamEndCapture)
    FUNCTION(cudaGraphDestroy)
    FUNCTION(cudaGraphInstantiateWithFlags)
    FUNCTION(cudaGraphExecDestroy)
    FUNCTION(cudaGraphLaunch)
    FUNCTION(cudaEventCreateWithFlags)
    FUNCTION(cudaEventRecord)
    FUNCTION(cudaEventElapsedTime)
    FUNCTION(cudaEventDestroy)
    CONSTANT(cudaSuccess)
    CONSTANT(cudaErrorInvalidValue)
    CONSTANT(cudaErrorMemoryAllocation)
    CONSTANT(cudaErrorInvalidDevice)
    CONSTANT(cudaErrorInvalidResourceHandle)
    CONSTANT(cudaErrorStreamCaptureUnsupported)
    CONSTANT(cudaDevAttrMultiProcessorCount)
    CONSTANT(cudaDevAttrL2CacheSize)
    CONSTANT(cudaDevAttrComputeCapabilityMajor)
    CONSTANT(cudaDevAttrComputeCapabilityMinor)
    CONSTANT(cudaDevAttrMaxRegistersPerMultiprocessor)
    CONSTANT(cudaDevAttrMaxSharedMemoryPerBlockOptin)
    CONSTANT(cudaMemcpyHostToDevice)
    CONSTANT(cudaMemcpyDeviceToHost)
    CONSTANT(cudaStreamNonBlocking)
    CONSTANT(cudaStreamCaptureModeRelaxed)
    CONSTANT(cudaEventDefault)
    CONSTANT(cudaHostAllocDefault)
    CONSTANT(cudaHostAllocMapped)
    CONSTANT(CUDA_R_32F)
    CONSTANT(CUDA_R_16F)
    CONSTANT(CUDA_R_16BF)

    FUNCTION(cuGetErrorName)
    FUNCTION(cuGetErrorString)
    FUNCTION(cuModuleLoadData)
    FUNCTION(cuModuleUnload)
    FUNCTION(cuModuleGetFunction)
    FUNCTION(cuFuncSetAttribute)
    FUNCTION(cuOccupancyMaxActiveClusters)
    FUNCTION(cuLaunchKernelEx)
    CONSTANT(CUDA_SUCCESS)
    CONSTANT(CUDA_ERROR_INVALID_VALUE)
    CONSTANT(CUDA_ERROR_OUT_OF_MEMORY)
    CONSTANT(CUDA_ERROR_INVALID_IMAGE)
    CONSTANT(CUDA_ERROR_NOT_FOUND)
    CONSTANT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
    CONSTANT(CUDA_ERROR_NOT_SUPPORTED)
    CONSTANT(CUDA_ERROR_INVALID_CLUSTER_SIZE)
    CONSTANT(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    CONSTANT(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
    CONSTANT(CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
    CONSTANT(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    STRUCT(CUlaunchAttribute)
    MEMBER(CUlaunchAttribute, id)
    MEMBER(CUlaunchAttribute, value)
    MEMBER(CUlaunchAttribute, value.cooperative)
    MEMBER(CUlaunchAttribute, value.clusterDim.x)
    MEMBER(CUlaunchAttribute, value.clusterDim.y)
    MEMBER(CUlaunchAttribute, value.clusterDim.z)
    STRUCT(CUlaunchConfig)
    MEMBER(CUlaunchConfig, gridDimX)
    MEMBER(CUlaunchConfig, gridDimY)
    MEMBER(CUlaunchConfig, gridDimZ)
    MEMBER(CUlaunchConfig, blockDimX)
    MEMBER(CUlaunchConfig, blockDimY)
    MEMBER(CUlaunchConfig, blockDimZ)
    MEMBER(CUlaunchConfig, sharedMemBytes)
    MEMBER(CUlaunchConfig, hStream)
    MEMBER(CUlaunchConfig, attrs)
    MEMBER(CUlaunchConfig, numAttrs)

#ifndef WITHOUT_CUDNN
    FUNCTION(cudnnGetVersion)
    FUNCTION(cudnnGetErrorString)
    FUNCTION(cudnnGetLastErrorString)
    FUNCTION(cudnnCreate)
    FUNCTION(cudnnSetStream)
    FUNCTION(cudnnCreateDropoutDescriptor)
    FUNCTION(cudnnDestroyDropoutDescriptor)
    FUNCTION(cudnnSetDropoutDescriptor)
    FUNCTION(cudnnCreateTensorDescriptor)
    FUNCTION(cudnnDestroyTensorDescriptor)
    FUNCTION(cudnnSetTensorNdDescriptor)
    FUNCTION(cudnnCreateRNNDescriptor)
    FUNCTION(cudnnDestroyRNNDescriptor)
    FUNCTION(cudnnSetRNNDescriptor_v8)
    FUNCTION(cudnnCreateRNNDataDescriptor)
    FUNCTION(cudnnDestroyRNNDataDescriptor)
    FUNCTION(cudnnSetRNNDataDescriptor)
    FUNCTION(cudnnBuildRNNDynamic)
    FUNCTION(cudnnGetRNNWeightSpaceSize)
    FUNCTION(cudnnGetRNNWeightParams)
    FUNCTION(cudnnGetRNNTempSpaceSizes)
    FUNCTION(cudnnRNNForward)
    FUNCTION(cudnnRNNBackwardData_v8)
    FUNCTION(cudnnRNNBackwardWeights_v8)
    CONSTANT(CUDNN_STATUS_SUCCESS)
    CONSTANT(CUDNN_STATUS_BAD_PARAM)
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED)
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_SHAPE)
    CONSTANT(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    CONSTANT(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    CONSTANT(CUDNN_DATA_FLOAT)
    CONSTANT(CUDNN_DATA_HALF)
    CONSTANT(CUDNN_DEFAULT_MATH)
    CONSTANT(CUDNN_TENSOR_OP_MATH)
    CONSTANT(CUDNN_FMA_MATH)
    CONSTANT(CUDNN_FWD_MODE_INFERENCE)
    CONSTANT(CUDNN_FWD_MODE_TRAINING)
    CONSTANT(CUDNN_WGRAD_MODE_ADD)
    CONSTANT(CUDNN_RNN_ALGO_STANDARD)
    CONSTANT(CUDNN_RNN_ALGO_PERSIST_STATIC)
    CONSTANT(CUDNN_RNN_ALGO_PERSIST_DYNAMIC)
    CONSTANT(CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H)
    CONSTANT(CUDNN_LSTM)
    CONSTANT(CUDNN_RNN_DOUBLE_BIAS)
    CONSTANT(CUDNN_UNIDIRECTIONAL)
    CONSTANT(CUDNN_BIDIRECTIONAL)
    CONSTANT(CUDNN_LINEAR_INPUT)
    CONSTANT(CUDNN_SKIP_INPUT)
    CONSTANT(CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED)
    CONSTANT(CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED)
    CONSTANT(CUDNN_RNN_PADDED_IO_DISABLED)
    CONSTANT(CUDNN_RNN_PADDED_IO_ENABLED)
#endif
}
