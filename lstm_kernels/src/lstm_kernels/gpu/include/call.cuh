// What all kernel families share: what a kernel is called with, numbers as they are stored, gates, and waits that end.
//
// STORAGE comes with -D: what h0, c0 and the outputs are stored in.

#define FP32 0
#define FP16 1
#define BF16 2

#if STORAGE == FP32
typedef float Stored;
#else
typedef unsigned short Stored;
#endif

struct Call {
    const uint4* weights;     // of W_hh: [block][fragment][thread]
    const float4* projected;  // W_ih x: [timestep][sequence][unit] of i, f, g, o
    const float4* bias;       // [unit]
    const Stored *h0, *c0;
    Stored *y, *h_last, *c_last;
    unsigned* exchange;  // h on its way through L2, where a family has it go there
    unsigned* late;      // set when a wait took too long: outputs that depend on it are NaN
    float scale;         // takes the weights' scale out of a sum
    int hidden, batch, timesteps;
    int share;  // sequences per team
};

// --- numbers

__device__ __forceinline__ unsigned rounded(float x) {  // to the 16 bits of an operand
    unsigned short r;
#if STORAGE == BF16
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
#endif
    return r;
}

__device__ __forceinline__ float widened(unsigned x) {
    float r;
#if STORAGE == BF16
    r = __uint_as_float(x << 16);
#else
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((unsigned short)x));
#endif
    return r;
}

__device__ __forceinline__ float loaded(const Stored* p) {
#if STORAGE == FP32
    return *p;
#else
    return widened(*p);
#endif
}

__device__ __forceinline__ void stored(Stored* p, float x) {
#if STORAGE == FP32
    *p = x;
#else
    *p = rounded(x);
#endif
}

#if STORAGE == FP32
__device__ __forceinline__ float sigmoid(float x) {
    float power, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-1.44269504f * x));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
    return inverse;
}
__device__ __forceinline__ float hyperbolic(float x) { return fmaf(2.0f, sigmoid(2.0f * x), -1.0f); }
// Either of the two, without a branch.
__device__ __forceinline__ float activated(float x, bool tanh) {
    return fmaf(tanh ? 2.0f : 1.0f, sigmoid(tanh ? 2.0f * x : x), tanh ? -1.0f : 0.0f);
}
#else
// One instruction, right to 2^-11: what 16 bits can tell.
__device__ __forceinline__ float hyperbolic(float x) {
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ float sigmoid(float x) { return fmaf(0.5f, hyperbolic(0.5f * x), 0.5f); }
__device__ __forceinline__ float activated(float x, bool tanh) {
    return fmaf(tanh ? 1.0f : 0.5f, hyperbolic(tanh ? x : 0.5f * x), tanh ? 0.0f : 0.5f);
}
#endif

// --- waiting

__device__ __forceinline__ unsigned milliseconds() {  // of 2^20 ns
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return unsigned(t >> 20);
}

// Ends a wait that can only be a fault: no step takes seconds. Once late, a thread waits no more, and others soon know.
// What it would have waited for it takes for NaN.
struct Patience {
    static constexpr unsigned LIMIT = 2000, LOST = 0xFFFFFFFF;
    unsigned* late;
    unsigned polls = 0;
    unsigned since = 0;

    __device__ __forceinline__ bool over() {
        if (lost()) return true;
        if (++polls % 1024) return false;
        const unsigned now = milliseconds();
        if (polls == 1024) since = now & ~1u;  // not LOST
        if (now - since < LIMIT && !*static_cast<volatile unsigned*>(late)) return false;
        since = LOST;
        *late = 1;
        return true;
    }
    __device__ __forceinline__ bool lost() const { return since == LOST; }
    __device__ __forceinline__ float poison() const { return lost() ? __uint_as_float(LOST) : 0.0f; }  // to be added to sums
    __device__ __forceinline__ void done() { polls = 0; }
};

// The lanes of a warp must come together: those that waited for different words need not leave their loop at once.
__device__ __forceinline__ void barrier(int name, int threads) {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

