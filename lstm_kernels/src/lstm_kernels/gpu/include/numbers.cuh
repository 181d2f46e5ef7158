// Numbers as they are stored. STORAGE comes with -D: what x, h0, c0 and the outputs are stored in.

#define FP32 0
#define FP16 1
#define BF16 2

#if STORAGE == FP32
typedef float Stored;
#else
typedef unsigned short Stored;
#endif

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
