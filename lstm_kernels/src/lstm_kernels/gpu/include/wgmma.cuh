// wgmma of Hopper: a warpgroup multiplies 64 rows of weights, 16 columns, by some sequences of h, and adds up in fp32.
//
// STORAGE says of what 16 bits the factors are: see call.cuh.

#if STORAGE == BF16
#define TYPES ".f32.bf16.bf16 "
#else
#define TYPES ".f32.f16.f16 "
#endif
#define TEXT(x) #x

// Registers of a thread, and their numbers in a line of assembly.
#define EIGHT(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SIXTEEN(i) EIGHT(i), EIGHT(i + 8)
#define THIRTY_TWO(i) SIXTEEN(i), SIXTEEN(i + 16)
#define OF_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define OF_8 "%8,%9,%10,%11,%12,%13,%14,%15"
#define OF_16 "%16,%17,%18,%19,%20,%21,%22,%23"
#define OF_24 "%24,%25,%26,%27,%28,%29,%30,%31"
#define OF_32 "%32,%33,%34,%35,%36,%37,%38,%39"
#define OF_40 "%40,%41,%42,%43,%44,%45,%46,%47"
#define OF_48 "%48,%49,%50,%51,%52,%53,%54,%55"
#define OF_56 "%56,%57,%58,%59,%60,%61,%62,%63"
#define TO_15 OF_0 "," OF_8
#define TO_31 TO_15 "," OF_16 "," OF_24
#define TO_63 TO_31 "," OF_32 "," OF_40 "," OF_48 "," OF_56

// d = weights h, or added to d (`more`). It is queued. Weights come in registers, or as a `factor` like h.
#define WGMMA(n, into, weights, h, more, transposed) \
    "{.reg .pred p; setp.ne.b32 p, " more ", 0; wgmma.mma_async.sync.aligned.m64n" TEXT(n) "k16" TYPES "{" into "}, " weights ", " h ", p, 1, 1, " transposed ";}"
#define MULTIPLY(n, into, h_at, more_at, at, held, registers) \
    __device__ __forceinline__ void multiply(float (&d)[n / 2], const uint4& weights, unsigned long long h, int more) { \
        asm volatile(WGMMA(n, into, held, h_at, more_at, "0") \
                     : registers \
                     : "l"(h), "r"(more), "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w)); \
    } \
    __device__ __forceinline__ void multiply(float (&d)[n / 2], unsigned long long weights, unsigned long long h, int more) { \
        asm volatile(WGMMA(n, into, at, h_at, more_at, "0, 0") : registers : "l"(h), "r"(more), "l"(weights)); \
    }
MULTIPLY(16, OF_0, "%8", "%9", "%10", "{%10,%11,%12,%13}", EIGHT(0))
MULTIPLY(32, TO_15, "%16", "%17", "%18", "{%18,%19,%20,%21}", SIXTEEN(0))
MULTIPLY(64, TO_31, "%32", "%33", "%34", "{%34,%35,%36,%37}", THIRTY_TWO(0))
#define SIXTY_FOUR(i) THIRTY_TWO(i), THIRTY_TWO(i + 32)
MULTIPLY(128, TO_63, "%64", "%65", "%66", "{%66,%67,%68,%69}", SIXTY_FOUR(0))

// Where a factor lies in shared memory: pieces of 16 bytes, eights of columns. Eight rows follow one another, and so do
// eights of rows; eights of columns are `columns` bytes apart. `at` counts in 16 bytes and must be known to be the same for
// a warp (`uniform`): else it is moved to a uniform register for each product, and that takes longer than the product.
__device__ __forceinline__ unsigned long long factor(unsigned at, int offset, int columns) {
    return 8ull << 32 | (at + (offset >> 4) + ((unsigned)columns >> 4 << 16));
}
__device__ __forceinline__ unsigned uniform(unsigned address) { return __shfl_sync(0xFFFFFFFF, address, 0); }

__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most LEFT of the commits are under way. The sums are ready to be read.
template <int LEFT, int COUNT>
__device__ __forceinline__ void finish(float (&d)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
