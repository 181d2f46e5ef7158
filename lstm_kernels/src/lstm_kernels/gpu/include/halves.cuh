// What the families with tensor cores share: h as the 16-bit halves that these take.
//
// The weights are scaled by a power of two to the top of fp16's range and |h| < 1, so fp16 has the significand of
// TF32 at twice its rate and half its size. SPLIT makes it as accurate as fp32: w = w_hi + w_lo, h = h_hi + h_lo, and
// w h = w_hi h_hi + w_hi h_lo + w_lo h_hi; what is left out is 2^-22 of it.

#include "call.cuh"

constexpr int COPIES = SPLIT ? 2 : 1;  // high and low halves

// The high half of x, and above it the low half.
__device__ __forceinline__ unsigned halves(float x) {
    const unsigned high = rounded(x);
    return SPLIT ? high | rounded(x - widened(high)) << 16 : high;
}

// Two neighbouring units as one word: of their high halves, or of their low ones.
__device__ __forceinline__ unsigned joined(unsigned first, unsigned second, bool low) {
    return low ? __byte_perm(first, second, 0x7632) : __byte_perm(first, second, 0x5410);
}

// The words of h0 for one octet of the sequence whose units begin at `from`: high (or low) halves of units 2i and 2i + 1.
__device__ __forceinline__ uint4 initial(const Call& call, size_t from, int octet, bool low) {
    unsigned v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int unit = octet * 8 + i;
        v[i] = call.h0 && unit < call.hidden ? halves(loaded(call.h0 + from + unit)) : 0;
    }
    return make_uint4(joined(v[0], v[1], low), joined(v[2], v[3], low), joined(v[4], v[5], low), joined(v[6], v[7], low));
}

// One cell: c becomes the new c; h. `sums` are the recurrent products, times 1 / scale.
__device__ __forceinline__ float cell(const float4& sums, float scale, const float4& input, const float4& bias, float& c) {
    const float i = sigmoid(fmaf(sums.x, scale, input.x + bias.x));
    const float f = sigmoid(fmaf(sums.y, scale, input.y + bias.y));
    const float g = hyperbolic(fmaf(sums.z, scale, input.z + bias.z));
    const float o = sigmoid(fmaf(sums.w, scale, input.w + bias.w));
    c = fmaf(f, c, i * g);
    return o * hyperbolic(c);
}
