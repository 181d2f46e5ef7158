// The same LSTM call as deepbench_ext/cudnn.cpp makes (fp32, STANDARD, input projection), with no Python near
// it: a bare loop, linked the ordinary way. It shows what the binding costs. benchmarks/gpu_sweep.py builds it,
// runs it beside the binding and compares. By hand:
//
//     g++ -std=c++17 -O3 -I $CUDNN/include -I $CUDA/include benchmarks/bare_cudnn.cpp -o bare_cudnn
//         -L $CUDNN/lib -L $CUDA/lib -l:libcudnn.so.9 -l:libcudart.so.13 -Wl,-rpath,$CUDNN/lib:$CUDA/lib
//     ./bare_cudnn 512 16 25 2000 20      hidden batch timesteps calls blocks
//
// Prints one line per block: median latency and queued time per call, in nanoseconds.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#define CHECK(call) \
    do { \
        if (const int code = int(call)) { \
            std::fprintf(stderr, "%s: code %d\n", #call, code); \
            return 1; \
        } \
    } while (0)

int main(int count, char** arguments) {
    if (count != 6) return std::fprintf(stderr, "usage: bare_cudnn hidden batch timesteps calls blocks\n"), 2;
    const int H = std::atoi(arguments[1]), B = std::atoi(arguments[2]), T = std::atoi(arguments[3]);
    const int calls = std::atoi(arguments[4]), blocks = std::atoi(arguments[5]);

    cudaStream_t stream;
    cudnnHandle_t handle;
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t sequence;  // x and y alike: input size and hidden size are equal
    cudnnTensorDescriptor_t state;
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
    size_t weight_bytes, workspace_bytes, reserve_bytes;
    CHECK(cudnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    CHECK(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_INFERENCE, sequence, &workspace_bytes, &reserve_bytes));

    // Random numbers of the usual size: zeros would draw less power and clock higher.
    std::mt19937 random(0);
    const auto filled = [&](void** to, size_t bytes, float spread) {
        std::uniform_real_distribution<float> value(-spread, spread);
        std::vector<float> host(bytes / sizeof(float));
        for (float& v : host) v = value(random);
        if (const auto code = cudaMalloc(to, bytes)) return code;
        return cudaMemcpy(*to, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
    };
    void *weights, *workspace, *x, *h0, *c0, *y, *h_last, *c_last;
    const size_t sequence_bytes = sizeof(float) * T * B * H, state_bytes = sizeof(float) * B * H;
    CHECK(filled(&weights, weight_bytes, 1.0f / std::max(1, H / 16)));
    CHECK(filled(&x, sequence_bytes, 1.0f));
    CHECK(filled(&h0, state_bytes, 1.0f));
    CHECK(filled(&c0, state_bytes, 1.0f));
    CHECK(cudaMalloc(&y, sequence_bytes));
    CHECK(cudaMalloc(&h_last, state_bytes));
    CHECK(cudaMalloc(&c_last, state_bytes));
    CHECK(cudaMalloc(&workspace, workspace_bytes));
    CHECK(cudaDeviceSynchronize());

    const auto forward = [&] {
        return cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_INFERENCE, nullptr, sequence, x, sequence, y, state, h0, h_last, state, c0,
                               c_last, weight_bytes, weights, workspace_bytes, workspace, 0, nullptr);
    };
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); };
    for (int i = 0; i < 50; ++i) CHECK(forward());
    CHECK(cudaStreamSynchronize(stream));
    for (int block = 0; block < blocks; ++block) {
        std::vector<long long> samples(calls);
        for (long long& sample : samples) {
            const long long start = now();
            CHECK(forward());
            CHECK(cudaStreamSynchronize(stream));
            sample = now() - start;
        }
        const long long start = now();
        for (int i = 0; i < calls; ++i) CHECK(forward());
        CHECK(cudaStreamSynchronize(stream));
        const long long queued = (now() - start) / calls;
        std::nth_element(samples.begin(), samples.begin() + calls / 2, samples.end());
        std::printf("%lld %lld\n", samples[calls / 2], queued);
        std::fflush(stdout);
    }
    return 0;  // the process ends here, and the driver takes everything back
}
