// What we use of cuDNN 9, declared by hand like cuda_api.hpp.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gpu/host/cuda_api.hpp"

extern "C" {

typedef struct cudnnContext* cudnnHandle_t;
typedef struct cudnnDropoutStruct* cudnnDropoutDescriptor_t;
typedef struct cudnnTensorStruct* cudnnTensorDescriptor_t;
typedef struct cudnnRNNStruct* cudnnRNNDescriptor_t;
typedef struct cudnnRNNDataStruct* cudnnRNNDataDescriptor_t;

enum cudnnStatus_t : int {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_NOT_SUPPORTED_SHAPE = 3002,
    CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003,
    CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004,
};
enum cudnnDataType_t : int { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_HALF = 2 };
enum cudnnMathType_t : int { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_FMA_MATH = 3 };
enum cudnnForwardMode_t : int { CUDNN_FWD_MODE_INFERENCE = 0, CUDNN_FWD_MODE_TRAINING = 1 };
enum cudnnWgradMode_t : int { CUDNN_WGRAD_MODE_ADD = 0 };
enum cudnnRNNAlgo_t : int {
    CUDNN_RNN_ALGO_STANDARD = 0,
    CUDNN_RNN_ALGO_PERSIST_STATIC = 1,
    CUDNN_RNN_ALGO_PERSIST_DYNAMIC = 2,
    CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H = 3,
};
enum cudnnRNNMode_t : int { CUDNN_LSTM = 2 };
enum cudnnRNNBiasMode_t : int { CUDNN_RNN_DOUBLE_BIAS = 2 };
enum cudnnDirectionMode_t : int { CUDNN_UNIDIRECTIONAL = 0, CUDNN_BIDIRECTIONAL = 1 };
enum cudnnRNNInputMode_t : int { CUDNN_LINEAR_INPUT = 0, CUDNN_SKIP_INPUT = 1 };
enum cudnnRNNDataLayout_t : int { CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED = 1 };
enum : uint32_t { CUDNN_RNN_PADDED_IO_DISABLED = 0, CUDNN_RNN_PADDED_IO_ENABLED = 1 };

size_t cudnnGetVersion();
const char* cudnnGetErrorString(cudnnStatus_t);
void cudnnGetLastErrorString(char* message, size_t bytes);
cudnnStatus_t cudnnCreate(cudnnHandle_t*);
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t);

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t*);
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t);
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t, float dropout, void* states, size_t bytes,
                                        unsigned long long seed);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t*);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t);
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t, cudnnDataType_t, int dimensions, const int* sizes, const int* strides);

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t*);
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t);
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t, cudnnRNNAlgo_t, cudnnRNNMode_t, cudnnRNNBiasMode_t, cudnnDirectionMode_t,
                                       cudnnRNNInputMode_t, cudnnDataType_t stored, cudnnDataType_t computed, cudnnMathType_t,
                                       int32_t inputs, int32_t hidden, int32_t projection, int32_t layers, cudnnDropoutDescriptor_t,
                                       uint32_t flags);
cudnnStatus_t cudnnBuildRNNDynamic(cudnnHandle_t, cudnnRNNDescriptor_t, int batch);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t*);
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t);
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t, cudnnDataType_t, cudnnRNNDataLayout_t, int timesteps, int batch, int width,
                                        const int* lengths, void* padding);

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t, size_t* bytes);
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t, int32_t layer, size_t bytes, const void* weights, int32_t part,
                                      cudnnTensorDescriptor_t, void** matrix, cudnnTensorDescriptor_t, void** bias);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnForwardMode_t, cudnnRNNDataDescriptor_t x,
                                        size_t* workspace, size_t* reserve);
cudnnStatus_t cudnnRNNForward(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnForwardMode_t, const int32_t* device_lengths,
                              cudnnRNNDataDescriptor_t x_shape, const void* x, cudnnRNNDataDescriptor_t y_shape, void* y,
                              cudnnTensorDescriptor_t h_shape, const void* h0, void* h_last, cudnnTensorDescriptor_t c_shape,
                              const void* c0, void* c_last, size_t weight_bytes, const void* weights, size_t workspace_bytes,
                              void* workspace, size_t reserve_bytes, void* reserve);
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t, cudnnRNNDescriptor_t, const int32_t* device_lengths, cudnnRNNDataDescriptor_t y_shape,
                                      const void* y, const void* dy, cudnnRNNDataDescriptor_t x_shape, void* dx,
                                      cudnnTensorDescriptor_t h_shape, const void* h0, const void* dh_last, void* dh0,
                                      cudnnTensorDescriptor_t c_shape, const void* c0, const void* dc_last, void* dc0, size_t weight_bytes,
                                      const void* weights, size_t workspace_bytes, void* workspace, size_t reserve_bytes, void* reserve);
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnWgradMode_t, const int32_t* device_lengths,
                                         cudnnRNNDataDescriptor_t x_shape, const void* x, cudnnTensorDescriptor_t h_shape, const void* h0,
                                         cudnnRNNDataDescriptor_t y_shape, const void* y, size_t weight_bytes, void* dweights,
                                         size_t workspace_bytes, void* workspace, size_t reserve_bytes, void* reserve);

}  // extern "C"
