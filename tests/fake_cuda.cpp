// A CUDA runtime, driver, cuDNN and cuBLAS that run on the host, with the functions that deepbench_ext/cudnn.cpp and
// persistent.cpp use.
//
// It lets a machine without a GPU check what those files do with them: where it puts weights, what it
// frees, what it does when a call fails, and whether a graph replays the right call. It keeps to the
// libraries' contracts and refuses what cuDNN refuses; it says nothing about the real library's speed.
//
//     g++ -std=c++20 -shared -fPIC tests/fake_cuda.cpp -o libfake_cuda.so
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "../deepbench_ext/cudnn_api.hpp"

// What a test can set and see.
static size_t limit = size_t(1) << 34, used = 0;
static std::map<void*, size_t> allocations;
static int objects = 0, wrong_algorithm = -1;
static cudaError_t sticky = cudaSuccess;
static int lost_copies = 0;
extern "C" void fake_set_lost_copies(int kind) { lost_copies = kind; }  // those of this cudaMemcpyKind do nothing
extern "C" void fake_set_limit(size_t bytes) { limit = bytes; }
extern "C" void fake_set_wrong(int algorithm) { wrong_algorithm = algorithm; }
extern "C" int fake_live() { return objects + int(allocations.size()); }
extern "C" int fake_sticky() { return sticky; }

static cudaError_t answer(cudaError_t code) { return code == cudaSuccess ? code : sticky = code; }

struct CUgraph_st { std::vector<std::function<void()>> calls; };
struct CUgraphExec_st : CUgraph_st {};
struct CUevent_st { std::chrono::steady_clock::time_point at; bool recorded = false; };
struct CUstream_st { CUgraph_st* capture = nullptr; };
struct cudnnContext { cudaStream_t stream = nullptr; };
struct cudnnDropoutStruct { bool set = false; };
struct cudnnTensorStruct { int sizes[3] = {}; };
struct cudnnRNNDataStruct { cudnnDataType_t type; int timesteps = 0, batch = 0, width = 0; };
struct cudnnRNNStruct {
    cudnnRNNAlgo_t algorithm;
    cudnnRNNInputMode_t input_mode;
    cudnnDataType_t type;
    int inputs = 0, hidden = 0, built_for = 0;
    size_t element() const { return type == CUDNN_DATA_HALF ? 2 : 4; }
    size_t width() const { return input_mode == CUDNN_SKIP_INPUT ? 0 : inputs; }
    size_t weights() const { return 4 * size_t(hidden) * (width() + hidden) + 8 * size_t(hidden); }
};

template <typename T> static auto made(T** out) { *out = new T; ++objects; return 0; }
template <typename T> static auto gone(T* object) { delete object; --objects; return 0; }

// Half precision by hand: g++ 12 has no type for it on every machine. 10 bits after the point, no infinities needed.
static float get(const void* p, size_t i, cudnnDataType_t type) {
    if (type != CUDNN_DATA_HALF) return static_cast<const float*>(p)[i];
    const uint16_t bits = static_cast<const uint16_t*>(p)[i];
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float size = exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(float(fraction), -24);
    return bits >> 15 ? -size : size;
}
static void put(void* p, size_t i, cudnnDataType_t type, float value) {
    if (type != CUDNN_DATA_HALF) { static_cast<float*>(p)[i] = value; return; }
    int exponent;
    std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
    const int unit = std::max(exponent - 11, -24);
    const long count = std::lrint(std::ldexp(std::fabs(value), -unit));  // 0 .. 2048
    const long bits = unit == -24 ? count : ((unit + 25L) << 10) + count - 1024;
    static_cast<uint16_t*>(p)[i] = uint16_t((std::signbit(value) ? 0x8000 : 0) | bits);
}

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { *v = 13010; return cudaSuccess; }
cudaError_t cudaGetLastError() { const auto last = sticky; sticky = cudaSuccess; return last; }
const char* cudaGetErrorName(cudaError_t code) { return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorFake"; }
const char* cudaGetErrorString(cudaError_t) { return "said by the fake"; }
cudaError_t cudaSetDevice(int device) { return answer(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaMalloc(void** p, size_t bytes) {
    if (used + bytes > limit) return answer(cudaErrorMemoryAllocation);
    *p = std::malloc(bytes);
    allocations[*p] = bytes;
    used += bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
    if (!p) return cudaSuccess;
    if (!allocations.count(p)) return answer(cudaErrorInvalidValue);
    used -= allocations[p];
    allocations.erase(p);
    std::free(p);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) { return cudaMalloc(p, bytes); }
cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
    *value = what == cudaDevAttrMultiProcessorCount ? 132 : what == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232448
             : what == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
    const auto copy = [=] { if (kind != lost_copies) std::memcpy(to, from, bytes); };
    if (!s->capture) { copy(); return cudaSuccess; }
    if (!allocations.count(const_cast<void*>(from)) || !allocations.count(to)) return answer(cudaErrorStreamCaptureUnsupported);  // pageable
    s->capture->calls.push_back(copy);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t) { if (bytes) std::memset(to, byte, bytes); return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { made(s); return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return answer(s->capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess); }
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) { made(&s->capture); return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) { *g = s->capture; s->capture = nullptr; return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { gone(g); return cudaSuccess; }
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) { made(e); (*e)->calls = g->calls; return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { gone(e); return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t) { for (auto& call : e->calls) call(); return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { made(e); return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { gone(e); return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) { *e = {std::chrono::steady_clock::now(), true}; return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from->recorded || !to->recorded) return answer(cudaErrorInvalidResourceHandle);
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
    return cudaSuccess;
}

size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(cudnnStatus_t code) { return code / 1000 == 3 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_FAKE"; }
void cudnnGetLastErrorString(char* message, size_t size) { std::strncpy(message, "why, as the fake sees it", size); }
#define PAIR(Type, Name) \
    cudnnStatus_t cudnnCreate##Name(Type* out) { made(out); return CUDNN_STATUS_SUCCESS; } \
    cudnnStatus_t cudnnDestroy##Name(Type object) { gone(object); return CUDNN_STATUS_SUCCESS; }
PAIR(cudnnHandle_t, )
PAIR(cudnnDropoutDescriptor_t, DropoutDescriptor)
PAIR(cudnnTensorDescriptor_t, TensorDescriptor)
PAIR(cudnnRNNDescriptor_t, RNNDescriptor)
PAIR(cudnnRNNDataDescriptor_t, RNNDataDescriptor)
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) { h->stream = s; return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t, float, void*, size_t, unsigned long long) { d->set = true; return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t, int n, const int* sizes, const int* strides) {
    if (n != 3 || strides[2] != 1 || strides[1] != sizes[2] || strides[0] != sizes[1] * sizes[2]) return CUDNN_STATUS_BAD_PARAM;
    std::memcpy(d->sizes, sizes, sizeof d->sizes);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t, cudnnRNNInputMode_t input_mode, cudnnDataType_t type, cudnnDataType_t, cudnnMathType_t,
                                       int32_t inputs, int32_t hidden, int32_t projection, int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t) {
    if (mode != CUDNN_LSTM || bias != CUDNN_RNN_DOUBLE_BIAS || projection != hidden || layers != 1 || !dropout->set) return CUDNN_STATUS_BAD_PARAM;
    if (algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC && hidden > 64) return CUDNN_STATUS_NOT_SUPPORTED;
    *d = {algorithm, input_mode, type, inputs, hidden, 0};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBuildRNNDynamic(cudnnHandle_t, cudnnRNNDescriptor_t d, int batch) { d->built_for = batch; return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type, cudnnRNNDataLayout_t layout, int timesteps, int batch,
                                        int width, const int* lengths, void*) {
    for (int b = 0; b < batch; ++b) if (lengths[b] != timesteps) return CUDNN_STATUS_BAD_PARAM;
    if (layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) return CUDNN_STATUS_BAD_PARAM;
    *d = {type, timesteps, batch, width};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t d, size_t* bytes) { *bytes = d->weights() * d->element(); return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnForwardMode_t, cudnnRNNDataDescriptor_t, size_t* work, size_t* reserve) {
    *work = 1000; *reserve = 0; return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t d, int32_t, size_t bytes, const void* space, int32_t part,
                                      cudnnTensorDescriptor_t, void** matrix, cudnnTensorDescriptor_t, void** bias) {
    if (bytes != d->weights() * d->element()) return CUDNN_STATUS_BAD_PARAM;
    const size_t H = d->hidden, W = d->width();
    const size_t at = part < 4 ? part * H * W : 4 * H * W + (part - 4) * H * H;
    char* base = static_cast<char*>(const_cast<void*>(space));
    *matrix = part < 4 && !W ? nullptr : base + at * d->element();
    *bias = base + (4 * H * (W + H) + part * H) * d->element();
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode, const int32_t*, cudnnRNNDataDescriptor_t xd,
                              const void* x, cudnnRNNDataDescriptor_t yd, void* y, cudnnTensorDescriptor_t hd, const void* h0, void* h_last,
                              cudnnTensorDescriptor_t, const void* c0, void* c_last, size_t bytes, const void* weights, size_t, void*, size_t, void*) {
    const size_t H = d->hidden, I = d->inputs, B = xd->batch, T = xd->timesteps;
    if (mode != CUDNN_FWD_MODE_INFERENCE || bytes != d->weights() * d->element() || size_t(yd->width) != H || size_t(hd->sizes[1]) != B ||
        xd->type != d->type || size_t(xd->width) != I) return CUDNN_STATUS_BAD_PARAM;
    if (d->algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC && size_t(d->built_for) != B) return CUDNN_STATUS_BAD_PARAM;
    if (d->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H) return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    const bool capturing = handle->stream->capture;
    auto work = [=] {
        const auto value = [&](const void* p, size_t i) { return get(p, i, d->type); };
        const size_t W = d->width();
        std::vector<float> h(B * H), c(B * H), next(B * H);
        for (size_t i = 0; i < B * H; ++i) { h[i] = value(h0, i); c[i] = value(c0, i); }
        for (size_t t = 0; t < T; ++t) {
            for (size_t b = 0; b < B; ++b)
                for (size_t u = 0; u < H; ++u) {
                    float gate[4];
                    for (size_t g = 0; g < 4; ++g) {
                        float sum = value(weights, 4 * H * (W + H) + (4 + g) * H + u);  // recurrent bias
                        if (W) sum += value(weights, 4 * H * (W + H) + g * H + u);      // input bias: only with an input product
                        else sum += value(x, (t * B + b) * I + u);
                        for (size_t k = 0; k < W; ++k) sum += value(weights, (g * H + u) * W + k) * value(x, (t * B + b) * I + k);
                        for (size_t k = 0; k < H; ++k) sum += value(weights, 4 * H * W + (g * H + u) * H + k) * h[b * H + k];
                        gate[g] = g == 2 ? std::tanh(sum) : 1 / (1 + std::exp(-sum));
                    }
                    float& cell = c[b * H + u];
                    cell = gate[1] * cell + gate[0] * gate[2];
                    next[b * H + u] = gate[3] * std::tanh(cell);
                }
            h = next;
            for (size_t i = 0; i < B * H; ++i) put(y, t * B * H + i, d->type, h[i] + (d->algorithm == wrong_algorithm ? 1 : 0));
        }
        for (size_t i = 0; i < B * H; ++i) { put(h_last, i, d->type, h[i]); put(c_last, i, d->type, c[i]); }
        // STANDARD is slow, a graph saves half of it, DYNAMIC is fast either way.
        const int us = d->algorithm == CUDNN_RNN_ALGO_STANDARD ? (capturing ? 1000 : 2000) : d->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC ? 1500 : 500;
        std::this_thread::sleep_for(std::chrono::microseconds(us));
    };
    if (capturing) handle->stream->capture->calls.push_back(work);
    else work();
    return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"

// --- the driver and cuBLAS, as persistent.cpp uses them

// What the kernels get, as in lstm_step.cuh.
struct Call {
    const void* weights;
    const float *projected, *bias, *h0, *c0;
    float *y, *h_last, *c_last;
    void* exchange;
    int* late;
    float scale;
    int hidden, batch, timesteps, share;
};
struct CUmod_st {
    std::string functions[17] = {"lstm_recurrence", "input_split", "input_gemm", "input_gemm_hopper", "limit_launch", "limit_block", "limit_cluster",
                                 "limit_cluster_barrier", "limit_grid", "limit_grid_inbox", "limit_grid_barrier", "limit_cell", "limit_cell_fast", "limit_fma", "limit_read", "limit_mma", "limit_multicast"};
};
static CUlaunchConfig last_launch;
static unsigned last_cluster, last_cooperative;
static int late = 0;
struct Blas { CUstream_st* stream; };
static CUstream_st* product_stream = nullptr;  // of the last product
static void queued(CUstream_st* stream, std::function<void()> call) {
    if (stream && stream->capture) stream->capture->calls.push_back(call);
    else call();
}

extern "C" {

void fake_set_late(int on) { late = on; }
void fake_last_streams(void** found) { found[0] = product_stream; found[1] = last_launch.hStream; }
void fake_last_launch(unsigned* found) {
    const unsigned values[] = {last_launch.gridDimX, last_launch.blockDimX, last_launch.sharedMemBytes, last_cluster, last_cooperative};
    std::copy(values, values + 5, found);
}

CUresult cuGetErrorName(CUresult, const char** name) { *name = "CUDA_ERROR_FAKE"; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { *text = "said by the fake"; return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule* m, const void* image) { return *static_cast<const char*>(image) ? (made(m), CUDA_SUCCESS) : CUDA_ERROR_INVALID_IMAGE; }
CUresult cuModuleUnload(CUmodule m) { gone(m); return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* name) {
    for (auto& known : m->functions)
        if (known == name) { *f = reinterpret_cast<CUfunction>(&known); return CUDA_SUCCESS; }
    return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int value) { return value > 232448 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig* config) { *clusters = 112 / int(config->attrs->value.clusterDim.x); return CUDA_SUCCESS; }
// No LSTM: y is the projected input gate, h_last and c_last are h0 and c0. What a kernel does only a GPU can show.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** arguments, void**) {
    const std::string& name = *reinterpret_cast<std::string*>(f);
    if (name.substr(0, 6) == "limit_") {  // a round takes 10 ns; of memory 10 us
        const int round_ns = name == "limit_read" ? 10000 : 10;
        const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(round_ns * *static_cast<int*>(arguments[2]));
        while (std::chrono::steady_clock::now() < until) {}
        if (late) **static_cast<int**>(arguments[0]) = 1;
        return CUDA_SUCCESS;
    }
    if (name != "lstm_recurrence") return CUDA_ERROR_NOT_SUPPORTED;
    last_launch = *config;
    last_cluster = last_cooperative = 0;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) last_cluster = config->attrs[i].value.clusterDim.x;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) last_cooperative = unsigned(config->attrs[i].value.cooperative);
    }
    const Call call = *static_cast<Call*>(arguments[0]);
    queued(config->hStream, [call] {
        const size_t state = size_t(call.batch) * call.hidden;
        for (size_t i = 0; i < state * call.timesteps; ++i) call.y[i] = call.projected[4 * i] + call.bias[i % call.hidden * 4];
        std::memcpy(call.h_last, call.h0, state * 4);
        std::memcpy(call.c_last, call.c0, state * 4);
        if (late) *call.late = 1;
    });
    return CUDA_SUCCESS;
}

int cublasCreate_v2(void** handle) { *handle = new Blas{}; return 0; }
int cublasSetStream_v2(void* handle, cudaStream_t stream) { static_cast<Blas*>(handle)->stream = stream; return 0; }
int cublasSetWorkspace_v2(void*, void*, size_t) { return 0; }
int cublasGemmEx(void* handle, int a_transposed, int b_transposed, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda, const void* b,
                 int, int ldb, const void* beta, void* c, int, int ldc, int, int) {
    if (a_type != 0 || !a_transposed || b_transposed || *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0) return 15;
    product_stream = static_cast<Blas*>(handle)->stream;
    queued(product_stream, [=] {
        for (int j = 0; j < n; ++j)
            for (int i = 0; i < m; ++i) {
                float sum = 0;
                for (int l = 0; l < k; ++l) sum += static_cast<const float*>(a)[size_t(i) * lda + l] * static_cast<const float*>(b)[size_t(j) * ldb + l];
                static_cast<float*>(c)[size_t(j) * ldc + i] = sum;
            }
    });
    return 0;
}

}  // extern "C"
