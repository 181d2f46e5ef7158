// A cuDNN that runs on the host, over a fake CUDA, with the functions that deepbench_ext/cudnn.cpp uses. It refuses what
// cuDNN refuses, and says nothing about the real library's speed.
//
//     g++ -std=c++20 -shared -fPIC -Ilstm_kernels/src/lstm_kernels tests/fake_cudnn.cpp -o libfake_cudnn.so
#include <cmath>
#include <string>

#include "../deepbench_ext/cudnn_api.hpp"
#include "../lstm_kernels/tests/fake_cuda.cpp"

static int wrong_algorithm = -1;
extern "C" void fake_set_wrong(int algorithm) { wrong_algorithm = algorithm; }

struct cudnnContext { cudaStream_t stream = nullptr; };
struct cudnnDropoutStruct { bool set = false; };
struct cudnnTensorStruct { int sizes[3] = {}; };
struct cudnnRNNDataStruct { cudnnDataType_t type; int timesteps = 0, batch = 0, width = 0; bool padded = false; std::vector<int> lengths; };
struct cudnnRNNStruct {
    cudnnRNNAlgo_t algorithm;
    cudnnRNNInputMode_t input_mode;
    cudnnDataType_t type;
    int inputs = 0, hidden = 0, layers = 1, directions = 1, built_for = 0;
    bool padded = false;
    size_t element() const { return type == CUDNN_DATA_HALF ? 2 : 4; }
    size_t width() const { return input_mode == CUDNN_SKIP_INPUT ? 0 : inputs; }
    size_t width_of(int place) const { return place < directions ? width() : size_t(directions) * hidden; }
    size_t weights_of(int place) const { return 4 * size_t(hidden) * (width_of(place) + hidden) + 8 * size_t(hidden); }
    int places() const { return layers * directions; }
    size_t before(int place) const { return place ? before(place - 1) + weights_of(place - 1) : 0; }
    size_t weights() const { return before(places()); }
    // Of the reserve, in floats: of each step and sequence of a layer and direction its input, h before, gates, c before, c.
    size_t kept_of(int place) const { return width_of(place) + 7 * size_t(hidden); }
    size_t kept_before(int place) const { return place ? kept_before(place - 1) + kept_of(place - 1) : 0; }
};

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
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input_mode, cudnnDataType_t type, cudnnDataType_t, cudnnMathType_t,
                                       int32_t inputs, int32_t hidden, int32_t projection, int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t padded) {
    if (mode != CUDNN_LSTM || bias != CUDNN_RNN_DOUBLE_BIAS || projection != hidden || !dropout->set) return CUDNN_STATUS_BAD_PARAM;
    if (algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC && hidden > 64) return CUDNN_STATUS_NOT_SUPPORTED;
    *d = {algorithm, input_mode, type, inputs, hidden, layers, direction == CUDNN_BIDIRECTIONAL ? 2 : 1, 0, padded != 0};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBuildRNNDynamic(cudnnHandle_t, cudnnRNNDescriptor_t d, int batch) { d->built_for = batch; return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type, cudnnRNNDataLayout_t layout, int timesteps, int batch,
                                        int width, const int* lengths, void*) {
    const bool padded = layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    if (!padded && layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) return CUDNN_STATUS_BAD_PARAM;
    for (int b = 0; b < batch; ++b)
        if (lengths[b] < 1 || lengths[b] > timesteps || (!padded && lengths[b] != timesteps)) return CUDNN_STATUS_BAD_PARAM;
    *d = {type, timesteps, batch, width, padded, {lengths, lengths + batch}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t d, size_t* bytes) { *bytes = d->weights() * d->element(); return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x, size_t* work, size_t* reserve) {
    *work = 1000; *reserve = mode == CUDNN_FWD_MODE_TRAINING ? 4 * d->kept_before(d->places()) * x->timesteps * x->batch : 0; return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t d, int32_t place, size_t bytes, const void* space, int32_t part,
                                      cudnnTensorDescriptor_t, void** matrix, cudnnTensorDescriptor_t, void** bias) {
    if (bytes != d->weights() * d->element() || place >= d->places()) return CUDNN_STATUS_BAD_PARAM;
    const size_t H = d->hidden, W = d->width_of(place);
    const size_t at = part < 4 ? part * H * W : 4 * H * W + (part - 4) * H * H;
    char* base = static_cast<char*>(const_cast<void*>(space)) + d->before(place) * d->element();
    *matrix = part < 4 && !W ? nullptr : base + at * d->element();
    *bias = base + (4 * H * (W + H) + part * H) * d->element();
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode, const int32_t*, cudnnRNNDataDescriptor_t xd,
                              const void* x, cudnnRNNDataDescriptor_t yd, void* y, cudnnTensorDescriptor_t hd, const void* h0, void* h_last,
                              cudnnTensorDescriptor_t, const void* c0, void* c_last, size_t bytes, const void* weights, size_t, void*, size_t reserve_bytes, void* reserve) {
    const size_t H = d->hidden, I = d->inputs, B = xd->batch, T = xd->timesteps, D = d->directions;
    const bool training = mode == CUDNN_FWD_MODE_TRAINING;
    if (reserve_bytes != (training ? 4 * d->kept_before(d->places()) * T * B : 0) || bytes != d->weights() * d->element() || size_t(yd->width) != D * H || hd->sizes[0] != d->places() ||
        size_t(hd->sizes[1]) != B || xd->type != d->type || size_t(xd->width) != I || xd->padded != d->padded || yd->padded != d->padded)
        return CUDNN_STATUS_BAD_PARAM;
    if (d->algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC && size_t(d->built_for) != B) return CUDNN_STATUS_BAD_PARAM;
    if (d->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H) return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    const bool capturing = handle->stream->capture;
    const std::vector<int> lengths = xd->lengths;
    auto work = [=] {
        const auto value = [&](const void* p, size_t i) { return get(p, i, d->type); };
        std::vector<float> below(T * B * I);
        for (size_t i = 0; i < below.size(); ++i) below[i] = value(x, i);
        for (int place = 0; place < d->places(); place += D) {
            const size_t W = d->width_of(place), columns = W ? W : I;
            std::vector<float> above(T * B * D * H);
            for (size_t direction = 0; direction < D; ++direction) {
                const size_t own = place + direction, at = d->before(own), biases = at + 4 * H * (W + H);
                for (size_t b = 0; b < B; ++b) {
                    std::vector<float> h(H), c(H), next(H);
                    for (size_t u = 0; u < H; ++u) { h[u] = value(h0, (own * B + b) * H + u); c[u] = value(c0, (own * B + b) * H + u); }
                    for (int step = 0; step < lengths[b]; ++step) {
                        const size_t t = direction ? lengths[b] - 1 - step : step;
                        const float* in = &below[(t * B + b) * columns];
                        float* kept = training ? static_cast<float*>(reserve) + d->kept_before(own) * T * B + (t * B + b) * d->kept_of(own) : nullptr;
                        if (kept) std::copy(c.begin(), c.end(), std::copy(h.begin(), h.end(), std::copy_n(in, W, kept)) + 4 * H);
                        for (size_t u = 0; u < H; ++u) {
                            float gate[4];
                            for (size_t g = 0; g < 4; ++g) {
                                float sum = value(weights, biases + (4 + g) * H + u);  // recurrent bias
                                if (W) sum += value(weights, biases + g * H + u);      // input bias: only with an input product
                                else sum += in[u];
                                for (size_t k = 0; k < W; ++k) sum += value(weights, at + (g * H + u) * W + k) * in[k];
                                for (size_t k = 0; k < H; ++k) sum += value(weights, at + 4 * H * W + (g * H + u) * H + k) * h[k];
                                gate[g] = g == 2 ? std::tanh(sum) : 1 / (1 + std::exp(-sum));
                            }
                            c[u] = gate[1] * c[u] + gate[0] * gate[2];
                            for (size_t g = 0; kept && g < 4; ++g) kept[W + (1 + g) * H + u] = gate[g];
                            if (kept) kept[W + 6 * H + u] = c[u];
                            next[u] = gate[3] * std::tanh(c[u]);
                        }
                        h = next;
                        for (size_t u = 0; u < H; ++u) above[(t * B + b) * D * H + direction * H + u] = h[u];
                    }
                    for (size_t u = 0; u < H; ++u) {
                        put(h_last, (own * B + b) * H + u, d->type, h[u]);
                        put(c_last, (own * B + b) * H + u, d->type, c[u]);
                    }
                }
            }
            below = above;
        }
        for (size_t i = 0; i < below.size(); ++i) put(y, i, d->type, below[i] + (d->algorithm == wrong_algorithm ? 1 : 0));
        // STANDARD is slow, a graph saves half of it, DYNAMIC is fast either way.
        const int us = d->algorithm == CUDNN_RNN_ALGO_STANDARD ? (capturing ? 1000 : 2000) : d->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC ? 1500 : 500;
        std::this_thread::sleep_for(std::chrono::microseconds(us));
    };
    if (capturing) handle->stream->capture->calls.push_back(work);
    else work();
    return CUDNN_STATUS_SUCCESS;
}


// Reads what a forward pass left in the reserve, and leaves there the gradients of the gates.
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t d, const int32_t*, cudnnRNNDataDescriptor_t yd, const void*, const void* dy,
                                      cudnnRNNDataDescriptor_t xd, void* dx, cudnnTensorDescriptor_t, const void*, const void* dh_last, void* dh0,
                                      cudnnTensorDescriptor_t, const void*, const void* dc_last, void* dc0, size_t bytes, const void* weights, size_t, void*,
                                      size_t reserve_bytes, void* reserve) {
    const size_t H = d->hidden, B = xd->batch, T = xd->timesteps, D = d->directions;
    if (bytes != d->weights() * d->element() || size_t(yd->width) != D * H || reserve_bytes != 4 * d->kept_before(d->places()) * T * B) return CUDNN_STATUS_BAD_PARAM;
    const std::vector<int> lengths = xd->lengths;
    auto work = [=] {
        const auto value = [&](const void* p, size_t i) { return get(p, i, d->type); };
        std::vector<float> above(T * B * D * H);
        for (size_t i = 0; i < above.size(); ++i) above[i] = value(dy, i);
        for (int first = d->places() - int(D); first >= 0; first -= int(D)) {
            const size_t W = d->width_of(first);
            std::vector<float> below(T * B * W);
            for (size_t own = first; own < first + D; ++own) {
                const size_t at = d->before(own), direction = own - first;
                for (size_t b = 0; b < B; ++b) {
                    std::vector<float> dh(H), dc(H);
                    for (size_t u = 0; u < H; ++u) { dh[u] = value(dh_last, (own * B + b) * H + u); dc[u] = value(dc_last, (own * B + b) * H + u); }
                    for (int step = lengths[b] - 1; step >= 0; --step) {
                        const size_t t = direction ? lengths[b] - 1 - step : step;
                        float* kept = static_cast<float*>(reserve) + d->kept_before(own) * T * B + (t * B + b) * d->kept_of(own) + W;
                        std::vector<float> before(H);
                        for (size_t u = 0; u < H; ++u) {
                            float* gates = kept + H + u;
                            const float i = gates[0], f = gates[H], g = gates[2 * H], o = gates[3 * H], tanh_c = std::tanh(kept[6 * H + u]);
                            const float to_h = dh[u] + above[(t * B + b) * D * H + direction * H + u], to_c = dc[u] + to_h * o * (1 - tanh_c * tanh_c);
                            gates[0] = to_c * g * i * (1 - i);
                            gates[H] = to_c * kept[5 * H + u] * f * (1 - f);
                            gates[2 * H] = to_c * i * (1 - g * g);
                            gates[3 * H] = to_h * tanh_c * o * (1 - o);
                            dc[u] = to_c * f;
                        }
                        for (size_t row = 0; row < 4 * H; ++row) {
                            for (size_t k = 0; k < W; ++k) below[(t * B + b) * W + k] += kept[H + row] * value(weights, at + row * W + k);
                            for (size_t k = 0; k < H; ++k) before[k] += kept[H + row] * value(weights, at + 4 * H * W + row * H + k);
                        }
                        dh = before;
                    }
                    for (size_t u = 0; u < H; ++u) { put(dh0, (own * B + b) * H + u, d->type, dh[u]); put(dc0, (own * B + b) * H + u, d->type, dc[u]); }
                }
            }
            above = below;
        }
        for (size_t i = 0; i < above.size(); ++i)
            if (int(i / (B * d->inputs)) < lengths[i / d->inputs % B]) put(dx, i, d->type, above[i]);
    };
    if (handle->stream->capture) handle->stream->capture->calls.push_back(work);
    else work();
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t d, cudnnWgradMode_t mode, const int32_t*, cudnnRNNDataDescriptor_t xd,
                                         const void*, cudnnTensorDescriptor_t, const void*, cudnnRNNDataDescriptor_t, const void*, size_t bytes,
                                         void* dweights, size_t, void*, size_t reserve_bytes, void* reserve) {
    const size_t H = d->hidden, B = xd->batch, T = xd->timesteps;
    if (mode != CUDNN_WGRAD_MODE_ADD || bytes != d->weights() * d->element() || reserve_bytes != 4 * d->kept_before(d->places()) * T * B) return CUDNN_STATUS_BAD_PARAM;
    const std::vector<int> lengths = xd->lengths;
    auto work = [=] {
        for (int own = 0; own < d->places(); ++own) {
            const size_t W = d->width_of(own), at = d->before(own);
            std::vector<float> sums(d->weights_of(own));
            for (size_t b = 0; b < B; ++b)
                for (size_t t = 0; t < size_t(lengths[b]); ++t) {
                    const float* kept = static_cast<const float*>(reserve) + d->kept_before(own) * T * B + (t * B + b) * d->kept_of(own);
                    for (size_t row = 0; row < 4 * H; ++row) {
                        const float gradient = kept[W + H + row];
                        for (size_t k = 0; k < W; ++k) sums[row * W + k] += gradient * kept[k];
                        for (size_t k = 0; k < H; ++k) sums[4 * H * W + row * H + k] += gradient * kept[W + k];
                        for (size_t bias : {0, 1}) sums[4 * H * (W + H) + 4 * H * bias + row] += gradient;
                    }
                }
            for (size_t i = 0; i < sums.size(); ++i) put(dweights, at + i, d->type, get(dweights, at + i, d->type) + sums[i]);
        }
    };
    if (handle->stream->capture) handle->stream->capture->calls.push_back(work);
    else work();
    return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
