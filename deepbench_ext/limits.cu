// What this GPU can do at best, one kernel per constant: docs/explanation/limits.md says what they are for.
//
// All take the same arguments: zeroed memory, its size, and a number of rounds. Whoever launches them takes the
// time of many rounds less that of few, divided by the difference (worker/limits.py).

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

// A wait that takes longer than any round: something is wrong, and the caller must hear of it.
#define PATIENCE (1 << 22)

__device__ __forceinline__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Launching alone.
KERNEL(32) limit_launch(unsigned*, unsigned long long, int) {}

// --- exchanges: in a round every block gets a word of every other, and sends only after it has

// One block: through its shared memory.
KERNEL(128) limit_block(unsigned* memory, unsigned long long, int rounds) {
    __shared__ unsigned words[2][128];
    unsigned word = threadIdx.x;
    for (int round = 0; round < rounds; ++round) {
        words[round & 1][threadIdx.x] = word;
        __syncthreads();
        word = words[round & 1][threadIdx.x ^ 64] + 1;
    }
    if (word == 0xFFFFFFFF) memory[1] = word;
}

// A cluster: 16 bytes from each block straight into the shared memory of the others (st.async), counted there.
// Two buffers are enough: a block sends again when it has heard of all others, and a warp reads before it sends.
KERNEL(32) limit_cluster(unsigned* memory, unsigned long long, int rounds) {
#if __CUDA_ARCH__ >= 900
    __shared__ __align__(16) uint4 inbox[2][16];
    __shared__ __align__(8) unsigned long long arrived[2];
    unsigned blocks, mine, far;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(mine));
    const unsigned lane = threadIdx.x, here = address(arrived);
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(here), "r"(lane < blocks ? lane : 0));
    far -= here;  // from an address here to the same in the block that this lane sends to
    const auto expect = [&](int buffer) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(here + 8 * buffer), "r"(16 * blocks) : "memory");
    };
    if (lane == 0) {
        for (int i = 0; i < 2; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here + 8 * i));
        asm volatile("fence.mbarrier_init.release.cluster;");
        for (int i = 0; i < 2; ++i) expect(i);
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    unsigned word = lane;
    for (int round = 0; round < rounds; ++round) {
        const int buffer = round & 1;
        __syncwarp();
        if (lane < blocks)
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%1,%1,%1}, [%2];" ::"r"(
                             address(&inbox[buffer][mine]) + far),
                         "r"(word), "r"(here + 8 * buffer + far)
                         : "memory");
        unsigned came = 0;
        for (int spin = 0; !came && spin < PATIENCE; ++spin)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(came)
                         : "r"(here + 8 * buffer), "r"(round >> 1 & 1)
                         : "memory");
        if (!came) memory[0] = 1;
        if (lane == 0) expect(buffer);
        word = reinterpret_cast<volatile unsigned&>(inbox[buffer][lane % blocks].x) + 1;
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (word == 0xFFFFFFFF) memory[1] = word;
#endif
}

// The same by a barrier of the cluster, without data.
KERNEL(32) limit_cluster_barrier(unsigned*, unsigned long long, int rounds) {
#if __CUDA_ARCH__ >= 900
    for (int round = 0; round < rounds; ++round)
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Any blocks: through L2. A word says by itself in which round it was written; a thread waits for one block's.
KERNEL(256) limit_grid(unsigned* memory, unsigned long long, int rounds) {
    unsigned* const words = memory + 64;  // [round % 2][256]
    for (unsigned round = 1; round <= unsigned(rounds); ++round) {
        unsigned* const mine = words + (round & 1) * 256;
        if (threadIdx.x == 0) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(mine + blockIdx.x), "r"(round) : "memory");
        if (threadIdx.x < gridDim.x) {
            unsigned word = 0;
            for (int spin = 0; word != round && spin < PATIENCE; ++spin)
                asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(mine + threadIdx.x) : "memory");
            if (word != round) memory[0] = 1;
        }
        __syncthreads();
    }
}

// --- the chain of a cell: from h to the h after it, each step waiting for the one before

// `EXACT`: as right as fp32 can be; else by the instruction that is right to 2^-11.
template <bool EXACT>
__device__ __forceinline__ float sigmoid(float x) {
    float r;
    if (EXACT) {
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(-1.44269504f * x));
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + r));
        return r;
    }
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(0.5f * x));
    return fmaf(0.5f, r, 0.5f);
}

template <bool EXACT>
__device__ __forceinline__ float hyperbolic(float x) {
    if (EXACT) return fmaf(2.0f, sigmoid<true>(2.0f * x), -1.0f);
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

template <bool EXACT>
__device__ __forceinline__ void cells(unsigned* memory, int rounds) {
    const float* weights = reinterpret_cast<const float*>(memory);
    const float wi = weights[threadIdx.x], wf = weights[32 + threadIdx.x], wg = weights[64 + threadIdx.x], wo = weights[96 + threadIdx.x];
    float h = 0.5f, c = 0.5f;
#pragma unroll 4
    for (int round = 0; round < rounds; ++round) {
        const float i = sigmoid<EXACT>(fmaf(wi, h, 0.1f)), f = sigmoid<EXACT>(fmaf(wf, h, 0.2f));
        const float g = hyperbolic<EXACT>(fmaf(wg, h, 0.3f)), o = sigmoid<EXACT>(fmaf(wo, h, 0.4f));
        c = fmaf(f, c, i * g);
        h = o * hyperbolic<EXACT>(c);
    }
    if (h == 2.0f) memory[1] = 1;
}

KERNEL(32) limit_cell(unsigned* memory, unsigned long long, int rounds) { cells<true>(memory, rounds); }
KERNEL(32) limit_cell_fast(unsigned* memory, unsigned long long, int rounds) { cells<false>(memory, rounds); }

// --- rates

// 64 multiply-adds of fp32 a thread and round, in 16 chains.
KERNEL(256) limit_fma(unsigned* memory, unsigned long long, int rounds) {
    const float factor = 1.0f + reinterpret_cast<const float*>(memory)[threadIdx.x], addend = 1e-3f * threadIdx.x;
    float sums[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) sums[i] = i;
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int i = 0; i < 64; ++i) sums[i % 16] = fmaf(sums[i % 16], factor, addend);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += sums[i];
    if (sum == 0.5f) memory[1] = 1;
}

// All of the memory, past the L1 caches: from L2 if it fits there.
KERNEL(512) limit_read(unsigned* memory, unsigned long long bytes, int rounds) {
    const uint4* const from = reinterpret_cast<const uint4*>(memory);
    const unsigned long long count = bytes / 16, stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned all = 0;
    for (int round = 0; round < rounds; ++round)
        for (unsigned long long at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += 8 * stride) {
            uint4 read[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const unsigned long long one = at + i * stride;
                asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                             : "=r"(read[i].x), "=r"(read[i].y), "=r"(read[i].z), "=r"(read[i].w)
                             : "l"(from + (one < count ? one : at)));
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) all ^= read[i].x ^ read[i].y ^ read[i].z ^ read[i].w;
        }
    if (all == 1) memory[1] = all;
}
