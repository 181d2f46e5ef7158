// What this GPU can do at best, one kernel per constant: docs/explanation/limits.md says what they are for.
//
// All take the same arguments: zeroed memory, its size, and a number of rounds. Whoever launches them takes the
// time of many rounds less that of few, divided by the difference (worker/limits.py).

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

// Looks that a wait may take: far more than any round. Then something is wrong: the caller hears of it by memory[0],
// and nothing is waited for any more.
#define PATIENCE (1 << 18)

#define CLUSTER_BARRIER() \
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory")

__device__ __forceinline__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Launching alone.
KERNEL(32) limit_launch(unsigned*, unsigned long long, int) {}

// --- exchanges: in a round every block gets a word of every other, and sends only after it has

// One block: through its shared memory, and as a block of one warp is the fastest.
KERNEL(32) limit_block(unsigned* memory, unsigned long long, int rounds) {
    __shared__ unsigned words[2][32];
    unsigned word = threadIdx.x;
    for (int round = 0; round < rounds; ++round) {
        words[round & 1][threadIdx.x] = word;
        __syncthreads();
        word = words[round & 1][threadIdx.x ^ 16] + 1;
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
    CLUSTER_BARRIER();
    unsigned word = lane;
    int patience = PATIENCE;
    for (int round = 0; round < rounds; ++round) {
        const int buffer = round & 1;
        __syncwarp();
        if (lane < blocks)
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%1,%1,%1}, [%2];" ::"r"(
                             address(&inbox[buffer][mine]) + far),
                         "r"(word), "r"(here + 8 * buffer + far)
                         : "memory");
        unsigned came = 0;
        for (int spin = 0; !came && spin < patience; ++spin)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(came)
                         : "r"(here + 8 * buffer), "r"(round >> 1 & 1)
                         : "memory");
        if (!came) memory[0] = 1, patience = 0;
        if (lane == 0) expect(buffer);
        word = reinterpret_cast<volatile unsigned&>(inbox[buffer][lane % blocks].x) + 1;
    }
    CLUSTER_BARRIER();
    if (word == 0xFFFFFFFF) memory[1] = word;
#endif
}

// The same by a barrier of the cluster, without data.
KERNEL(32) limit_cluster_barrier(unsigned*, unsigned long long, int rounds) {
#if __CUDA_ARCH__ >= 900
    for (int round = 0; round < rounds; ++round)
        CLUSTER_BARRIER();
#endif
}

// Any blocks: through L2. A word says by itself in which round it was written; a thread waits for one block's.
KERNEL(256) limit_grid(unsigned* memory, unsigned long long, int rounds) {
    unsigned* const words = memory + 64;  // [round % 2][256]
    int patience = PATIENCE;
    for (unsigned round = 1; round <= unsigned(rounds); ++round) {
        unsigned* const mine = words + (round & 1) * 256;
        if (threadIdx.x == 0) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(mine + blockIdx.x), "r"(round) : "memory");
        if (threadIdx.x < gridDim.x) {
            unsigned word = 0;
            for (int spin = 0; word != round && spin < patience; ++spin)
                asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(mine + threadIdx.x) : "memory");
            if (word != round) memory[0] = 1, patience = 0;
        }
        __syncthreads();
    }
}

// The same into inboxes, one for each block: none looks where others look, and words are written as often as read.
KERNEL(256) limit_grid_inbox(unsigned* memory, unsigned long long, int rounds) {
    unsigned* const inboxes = memory + 64;  // [round % 2][256 readers][256 writers]
    int patience = PATIENCE;
    for (unsigned round = 1; round <= unsigned(rounds); ++round) {
        unsigned* const turn = inboxes + (round & 1) * 65536;
        if (threadIdx.x < gridDim.x) {
            asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(turn + threadIdx.x * 256 + blockIdx.x), "r"(round) : "memory");
            unsigned word = 0;
            for (int spin = 0; word != round && spin < patience; ++spin)
                asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(turn + blockIdx.x * 256 + threadIdx.x) : "memory");
            if (word != round) memory[0] = 1, patience = 0;
        }
        __syncthreads();
    }
}

// And by a barrier: one counter for all.
KERNEL(32) limit_grid_barrier(unsigned* memory, unsigned long long, int rounds) {
    unsigned* const counter = memory + 64;
    int patience = PATIENCE;
    for (unsigned round = 1; round <= unsigned(rounds); ++round) {
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
            unsigned came = 0;
            for (int spin = 0; came < round * gridDim.x && spin < patience; ++spin)
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(came) : "l"(counter) : "memory");
            if (came < round * gridDim.x) memory[0] = 1, patience = 0;
        }
        __syncwarp();
    }
}

// --- the chain of a cell: from h to the h after it, each step waiting for the one before

// A sum of 16 products, by tensor cores: nothing else has it sooner. The sums go where the next factors come from.
__device__ __forceinline__ void product(float (&sums)[4], unsigned weights, unsigned h) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%6,%6,%6,%6};"
                 : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                 : "r"(weights), "r"(h), "f"(0.1f));
}

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
    const unsigned weights = memory[threadIdx.x];
    float h = 0.5f, c = 0.5f, gates[4];
    for (int round = 0; round < rounds; ++round) {
        product(gates, weights, __float_as_uint(h));
        const float i = sigmoid<EXACT>(gates[0]), f = sigmoid<EXACT>(gates[1]), g = hyperbolic<EXACT>(gates[2]);
        c = fmaf(f, c, i * g);
        h = sigmoid<EXACT>(gates[3]) * hyperbolic<EXACT>(c);
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

// 16 products of 16 x 16 weights with 8 columns a warp and round, in 8 chains: as tensor cores have it for few sequences,
// where weights are fetched from registers as often as they are used. wgmma is slower there.
KERNEL(256) limit_mma(unsigned* memory, unsigned long long, int rounds) {
    unsigned weights[8], h[2];
#pragma unroll
    for (int i = 0; i < 8; ++i) weights[i] = memory[threadIdx.x + i];
    h[0] = memory[threadIdx.x + 8], h[1] = memory[threadIdx.x + 9];
    float sums[8][4] = {};
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            float(&sum)[4] = sums[i % 8];
            const unsigned* const w = weights + i % 2 * 4;
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                         : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                         : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(h[0]), "r"(h[1]));
        }
    float all = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) all += sums[i / 4][i % 4];
    if (all == 0.5f) memory[1] = 1;
}

// All of the memory, past the L1 caches: from L2 if it fits there. Its size is a multiple of what the grid reads at a time.
KERNEL(512) limit_read(unsigned* memory, unsigned long long bytes, int rounds) {
    const unsigned long long count = bytes / 16, stride = (unsigned long long)gridDim.x * blockDim.x;
    const uint4* const from = reinterpret_cast<const uint4*>(memory) + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned all = 0;
    for (int round = 0; round < rounds; ++round)
        for (unsigned long long at = 0; at < count; at += 4 * stride) {
            uint4 read[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                             : "=r"(read[i].x), "=r"(read[i].y), "=r"(read[i].z), "=r"(read[i].w)
                             : "l"(from + at + i * stride));
#pragma unroll
            for (int i = 0; i < 4; ++i) all ^= read[i].x ^ read[i].y ^ read[i].z ^ read[i].w;
        }
    if (all == 1) memory[1] = all;
}

// Blocks of a cluster bring parts from L2 and hand each to all of them (multicast): what a multiprocessor can take in.
// Four buffers in turn; a buffer is filled again when every block of the cluster has it whole.
#define BUFFER_BYTES 49152
KERNEL(32) limit_multicast(unsigned* memory, unsigned long long bytes, int rounds) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char buffers[];
    __shared__ __align__(8) unsigned long long whole[4];
    unsigned blocks, mine;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(mine));
    const unsigned part = BUFFER_BYTES / blocks, here = address(whole);
    const auto fill = [&](int buffer) {
        const unsigned long long from = (blockIdx.x * 4ull + buffer) * part % (bytes - part) / 128 * 128;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(here + 8 * buffer), "r"(BUFFER_BYTES) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
                address(buffers) + buffer * BUFFER_BYTES + mine * part),
            "l"(reinterpret_cast<const unsigned char*>(memory) + from), "r"(part), "r"(here + 8 * buffer),
            "h"((unsigned short)((1u << blocks) - 1))
            : "memory");
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < 4; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here + 8 * i));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncwarp();
    CLUSTER_BARRIER();
    for (int i = 0; i < 4 && i < rounds; ++i)
        if (threadIdx.x == 0) fill(i);
    int patience = PATIENCE;
    for (int round = 0; round < rounds; ++round) {
        unsigned came = 0;
        for (int spin = 0; !came && spin < patience; ++spin)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(came)
                         : "r"(here + 8 * (round & 3)), "r"(round >> 2 & 1)
                         : "memory");
        if (!came) memory[0] = 1, patience = 0;
        __syncwarp();
        CLUSTER_BARRIER();
        if (threadIdx.x == 0 && round + 4 < rounds) fill(round & 3);
        __syncwarp();
    }
    CLUSTER_BARRIER();
#endif
}
