// A CUDA runtime, driver and cuBLAS that run on the host, with the functions that gpu/host uses.
//
// It lets a machine without a GPU check what that code does with them: where it puts weights, what it frees, what it does
// when a call fails, and whether a graph replays the right call. It keeps to the libraries' contracts; what a kernel
// computes only a GPU can show.
//
//     g++ -std=c++20 -shared -fPIC lstm_kernels/tests/fake_cuda.cpp -o libfake_cuda.so
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "../src/lstm_kernels/gpu/host/cuda_api.hpp"

// What a test can set and see.
static size_t limit = size_t(1) << 34, used = 0;
static std::map<void*, size_t> allocations;
static int objects = 0;
static cudaError_t sticky = cudaSuccess;
static int lost_copies = 0;
extern "C" void fake_set_lost_copies(int kind) { lost_copies = kind; }  // those of this cudaMemcpyKind do nothing
extern "C" void fake_set_limit(size_t bytes) { limit = bytes; }
extern "C" int fake_live() { return objects + int(allocations.size()); }
extern "C" int fake_sticky() { return sticky; }

static cudaError_t answer(cudaError_t code) { return code == cudaSuccess ? code : sticky = code; }

struct CUgraph_st { std::vector<std::function<void()>> calls; };
struct CUgraphExec_st : CUgraph_st {};
struct CUevent_st { std::chrono::steady_clock::time_point at; bool recorded = false; };
struct CUstream_st { CUgraph_st* capture = nullptr; };

template <typename T> static auto made(T** out) { *out = new T; ++objects; return 0; }
template <typename T> static auto gone(T* object) { delete object; --objects; return 0; }

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
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t s) {
    const auto set = [=] { if (bytes) std::memset(to, byte, bytes); };
    if (s && s->capture) s->capture->calls.push_back(set);
    else set();
    return cudaSuccess;
}
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

}  // extern "C"

// --- the driver and cuBLAS, as layer.cpp uses them

// What the kernels get, as in call.cuh.
struct Call {
    const void* weights;
    const float *projected, *bias, *h0, *c0;
    float *y, *h_last, *c_last;
    void* exchange;
    int* late;
    const int *lengths, *rows;
    float scale;
    int hidden, batch, timesteps, share, directions, direction;
};
struct CUmod_st {
    std::string functions[18] = {"lstm_recurrence", "input_split", "input_gemm", "input_gemm_hopper", "input_vectors", "limit_launch", "limit_block", "limit_cluster",
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
// In tiles no product: each column of a row of the result is the first value of the row of x. Where x lies the halves say.
static CUresult multiplied(const std::string& name, const CUlaunchConfig& config, void** arguments) {
    if (config.gridDimY > 65535) return CUDA_ERROR_INVALID_VALUE;
    const auto pointer = [&](int i) { return *static_cast<void**>(arguments[i]); };
    const auto number = [&](int i) { return *static_cast<int*>(arguments[i]); };
    const bool split = name == "input_split", vectors = name == "input_vectors";
    struct Rows { float* x; int width; };
    const auto halves = static_cast<Rows*>(pointer(vectors ? 0 : split ? 1 : 0));
    const Rows given{static_cast<float*>(pointer(0)), number(split ? 5 : vectors ? 5 : 9)};
    const int rows = split ? 0 : number(vectors ? 3 : 7), columns = split ? 0 : number(vectors ? 4 : 8);
    const void* const pointer_of_weights = vectors ? pointer(1) : nullptr;
    float* const out = split ? nullptr : static_cast<float*>(pointer(vectors ? 2 : 6));
    queued(config.hStream, [=] {
        if (split) { *halves = given; return; }
        const Rows from = vectors ? given : *halves;
        const float* const weights = static_cast<const float*>(pointer_of_weights);
        for (size_t i = 0; i < size_t(rows); ++i)
            for (int column = 0; column < columns; ++column) {
                float& sum = out[i * columns + column] = vectors ? 0 : from.x[i * from.width];
                for (int k = 0; vectors && k < from.width; ++k) sum += from.x[i * from.width + k] * weights[column * from.width + k];
            }
    });
    return CUDA_SUCCESS;
}
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
    if (name.substr(0, 6) == "input_") return multiplied(name, *config, arguments);
    last_launch = *config;
    last_cluster = last_cooperative = 0;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) last_cluster = config->attrs[i].value.clusterDim.x;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) last_cooperative = unsigned(config->attrs[i].value.cooperative);
    }
    const Call call = *static_cast<Call*>(arguments[0]);
    queued(config->hStream, [call] {
        const size_t H = call.hidden, state = size_t(call.batch) * H;
        for (size_t d = call.direction; d < size_t(call.directions); ++d)
            for (int s = 0; s < call.batch; ++s)
                for (int t = 0; t < (call.lengths ? call.lengths[s] : call.timesteps); ++t) {
                    const size_t at = ((call.rows ? call.rows[t] : t * call.batch) + s) * call.directions + d;
                    for (size_t i = 0; i < H; ++i) call.y[at * H + i] = call.projected[4 * (at * H + i)] + call.bias[4 * (d * H + i)];
                }
        for (size_t i = call.direction * state; i < call.directions * state; ++i) {
            call.h_last[i] = call.h0 ? call.h0[i] : 0;
            call.c_last[i] = call.c0 ? call.c0[i] : 0;
        }
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
