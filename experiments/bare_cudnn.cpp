// The same LSTM call as deepbench_ext/cudnn.cpp makes (fp32, STANDARD, input projection) in a bare loop, linked
// the ordinary way and with nothing between: it shows what the binding costs. experiments/gpu_sweep.py builds it
// as a shared library and runs blocks of it in turns with blocks of the binding, in one process, as the host's own
// changes of speed are larger than what is looked for.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "cudnn_api.hpp"

#define CHECK(call) \
    do { \
        if (const int code = int(call)) { \
            std::fprintf(stderr, "%s: code %d\n", #call, code); \
            std::exit(1); \
        } \
    } while (0)

struct Bare {
    cudaStream_t stream;
    cudnnHandle_t handle;
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t sequence;  // x and y alike: input size and hidden size are equal
    cudnnTensorDescriptor_t state;
    size_t weight_bytes, workspace_bytes, reserve_bytes;
    void *weights, *workspace, *x, *h0, *c0, *y, *h_last, *c_last;

    Bare(int H, int B, int T);
    void forward() {
        CHECK(cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_INFERENCE, nullptr, sequence, x, sequence, y, state, h0, h_last, state, c0,
                              c_last, weight_bytes, weights, workspace_bytes, workspace, 0, nullptr));
    }
};

Bare::Bare(int H, int B, int T) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudnnCreate(&handle));
    CHECK(cudnnSetStream(handle, stream));
    CHECK(cudnnCreateDropoutDescriptor(&dropout));
    CHECK(cudnnSetDropoutDescriptor(dropout, handle, 0.0f, nullptr, 0, 0));
    CHECK(cudnnCreateRNNDescriptor(&rnn));
    CHECK(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                                   CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, H, H, H, 1, dropout,
                                   CUDNN_RNN_PADDED_IO_DISABLED));
    const std::vector<int> lengths(B, T);
    CHECK(cudnnCreateRNNDataDescriptor(&sequence));
    CHECK(cudnnSetRNNDataDescriptor(sequence, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, T, B, H, lengths.data(), nullptr));
    const int sizes[] = {1, B, H}, strides[] = {B * H, H, 1};
    CHECK(cudnnCreateTensorDescriptor(&state));
    CHECK(cudnnSetTensorNdDescriptor(state, CUDNN_DATA_FLOAT, 3, sizes, strides));
    CHECK(cudnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    CHECK(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_INFERENCE, sequence, &workspace_bytes, &reserve_bytes));

    // Random numbers of the usual size: zeros would draw less power and clock higher.
    std::mt19937 random(0);
    const auto filled = [&](void** to, size_t bytes, float spread) {
        std::uniform_real_distribution<float> value(-spread, spread);
        std::vector<float> host(bytes / sizeof(float));
        for (float& v : host) v = value(random);
        if (const auto code = cudaMalloc(to, bytes)) return code;
        if (const auto code = cudaMemcpyAsync(*to, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice, stream)) return code;
        return cudaStreamSynchronize(stream);
    };
    const size_t sequence_bytes = sizeof(float) * T * B * H, state_bytes = sizeof(float) * B * H;
    CHECK(filled(&weights, weight_bytes, 1.0f / std::max(1, H / 16)));
    CHECK(filled(&x, sequence_bytes, 1.0f));
    CHECK(filled(&h0, state_bytes, 1.0f));
    CHECK(filled(&c0, state_bytes, 1.0f));
    CHECK(cudaMalloc(&y, sequence_bytes));
    CHECK(cudaMalloc(&h_last, state_bytes));
    CHECK(cudaMalloc(&c_last, state_bytes));
    CHECK(cudaMalloc(&workspace, workspace_bytes));
}

static long long now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

extern "C" Bare* bare_open(int hidden, int batch, int timesteps) { return new Bare(hidden, batch, timesteps); }

extern "C" void bare_close(Bare* bare) {
    for (void* p : {bare->weights, bare->workspace, bare->x, bare->h0, bare->c0, bare->y, bare->h_last, bare->c_last}) cudaFree(p);
    delete bare;  // the descriptors stay with the process
}

// One call, one synchronise, `calls` times.
extern "C" void bare_each(Bare* bare, int calls, long long* nanoseconds) {
    for (int i = 0; i < calls; ++i) {
        CHECK(cudaStreamSynchronize(bare->stream));
        const long long start = now();
        bare->forward();
        CHECK(cudaStreamSynchronize(bare->stream));
        nanoseconds[i] = now() - start;
    }
}

// `calls` calls, one synchronise.
extern "C" long long bare_queued(Bare* bare, int calls) {
    CHECK(cudaStreamSynchronize(bare->stream));
    const long long start = now();
    for (int i = 0; i < calls; ++i) bare->forward();
    CHECK(cudaStreamSynchronize(bare->stream));
    return now() - start;
}
