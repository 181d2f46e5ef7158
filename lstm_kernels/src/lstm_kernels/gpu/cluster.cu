// The cluster family: a team is one thread-block cluster (or one block), and h travels through distributed
// shared memory. For layers whose W_hh fits into the registers and shared memory of 16 blocks.
//
// After the cell each block stores its part of h(t+1) straight into the shared memory of all blocks of its
// cluster (st.async, 16 bytes at a time), which counts the bytes on an mbarrier there. There are two buffers
// for h, one mbarrier each and per chunk. No block can overtake another: to compute h(t+2), which goes where
// h(t) was, it needs h(t+1) of all others, and they send that after they have read h(t).
//
// Napkin, TF32 class, H = 256, 8 blocks, 8 sequences a cluster, 1.98 GHz:
//   weights    4 * 256 * 256 * 2 B = 512 KiB, 64 KiB a block: 32 registers in each of 512 threads
//   FLOPs      4.2 M a step and cluster; a warp's chain is 4 mma deep: 4 * 33 cycles          0.07 us
//   bytes      of h, 256 * 8 * 2 B = 4 KiB into each block, 512 B out to each of 8
//   exchange   one way through the cluster, about a cluster barrier                           0.2 us
//   sums, cell two rounds through shared memory, five sigmoids                                0.2 us
// so about 0.5 us a step. Measured: a call of 100 steps takes 85 us, 8 of them the input product; cell and send take
// longer than this says (docs/explanation/kernel.md).

#include "step.cuh"

__device__ __forceinline__ unsigned local(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

struct Cluster {
    const Call& call;
    const Place& at;
    unsigned char* h;  // [t % 2][chunk]
    int chunks;

    __device__ Cluster(const Call& call, const Team&, const Place& at, unsigned char* space)
        : call(call), at(at), h(space + bars(at.chunks())), chunks(at.chunks()) {
#if BLOCKS > 1
        arrived = local(space);
        patience.late = call.late;
#pragma unroll
        for (int i = 0; i < SENDS; ++i) {
            const int block = i * SENDERS + at.lane % 8 / COPIES;
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(away[i]) : "r"(arrived), "r"(block < BLOCKS ? block : 0));
            away[i] -= arrived;
        }
#endif
    }

    __device__ static int bars(int chunks) { return (2 * chunks * 8 + 15) / 16 * 16; }
    __device__ unsigned char* buffer(int t, int chunk) const { return h + ((t & 1) * chunks + chunk) * H_BYTES; }

    // h0 into the first buffer, zeros where nobody will write.
    __device__ void start(const Team& team) {
        for (int i = threadIdx.x; i < 2 * chunks * H_BYTES / 16; i += THREADS)
            reinterpret_cast<uint4*>(h)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
        for (int i = threadIdx.x; i < at.share * OWNED * COPIES; i += THREADS) {
            const int octet = i % OWNED, copy = i / OWNED % COPIES, sequence = i / OWNED / COPIES;
            unsigned char* to = buffer(0, sequence / SEQUENCES) + (copy * (K / 8) + octet) * OCTET_BYTES + sequence % SEQUENCES * 16;
            *reinterpret_cast<uint4*>(to) = initial(call, team.at_state(call, sequence), octet, copy);
        }
#if BLOCKS > 1
        if (threadIdx.x == 0 && team.timesteps > 1) {  // else nothing is sent
            for (int i = 0; i < 2 * chunks; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(arrived + 8 * i));
            asm volatile("fence.mbarrier_init.release.cluster;");
            for (int t = 1; t < min(3, team.timesteps); ++t)
                for (int chunk = 0; chunk < chunks; ++chunk) expect(t, chunk);
        }
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
        __syncthreads();
#endif
    }

#if BLOCKS > 1
    static constexpr int SENDERS = 8 / COPIES, SENDS = (BLOCKS + SENDERS - 1) / SENDERS;
    unsigned arrived;      // mbarriers: [t % 2][chunk]
    unsigned away[SENDS];  // from an address here to the same address in a block that this lane sends to
    Patience patience;

    __device__ unsigned bar(int t, int chunk) const { return arrived + 8 * ((t & 1) * chunks + chunk); }

    __device__ void expect(int t, int chunk) const {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar(t, chunk)),
                     "r"(at.here(chunk) * OWNED * 16 * COPIES)
                     : "memory");
    }

    __device__ __forceinline__ const unsigned char* receive(int t, int chunk, int) {
        if (t && !patience.lost()) {
            unsigned came;
            do asm volatile(
                    "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                    : "=r"(came)
                    : "r"(bar(t, chunk)), "r"((t - 1) >> 1 & 1)
                    : "memory");
            while (!came && !patience.over());
            patience.done();
            if (threadIdx.x == 0 && t + 2 < at.timesteps && !patience.lost()) expect(t, chunk);
        }
        return buffer(t, chunk);
    }

    __device__ float poison() const { return patience.poison(); }

    // Eight lanes have the words of one sequence's octet. Each gathers all of them, and sends them to some blocks;
    // with SPLIT even lanes do so for the high halves, odd ones for the low. Who gave up would overtake others: he sends no more.
    __device__ __forceinline__ void send(int t, int chunk, int sequence, unsigned word) const {
        const int odd = SPLIT ? at.lane & 1 : 0, from = (at.lane & 24) + odd, sender = at.lane % 8 / COPIES;
        const unsigned w0 = __shfl_sync(0xFFFFFFFF, word, from), w1 = __shfl_sync(0xFFFFFFFF, word, from + 2),
                       w2 = __shfl_sync(0xFFFFFFFF, word, from + 4), w3 = __shfl_sync(0xFFFFFFFF, word, from + 6);
        if (sequence >= at.here(chunk) || patience.lost()) return;
        const unsigned to = local(buffer(t + 1, chunk)) + (odd * (K / 8) + at.octet()) * OCTET_BYTES + sequence * 16;
        const unsigned signal = bar(t + 1, chunk);
#pragma unroll
        for (int i = 0; i < SENDS; ++i)
            if (BLOCKS % SENDERS == 0 || i * SENDERS + sender < BLOCKS)
                asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to + away[i]),
                             "r"(w0), "r"(w1), "r"(w2), "r"(w3), "r"(signal + away[i])
                             : "memory");
    }

    __device__ void sent(int, int) const {}

    // Nobody leaves while another may still write to it.
    __device__ void finish() const {
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
#else
    __device__ __forceinline__ const unsigned char* receive(int t, int chunk, int) const { return buffer(t, chunk); }
    __device__ static float poison() { return 0.0f; }

    __device__ __forceinline__ void send(int t, int chunk, int sequence, unsigned word) const {
        const int copy = at.lane & 1;
        if (copy >= COPIES || sequence >= at.here(chunk)) return;
        unsigned char* to = buffer(t + 1, chunk) + (copy * (K / 8) + at.octet()) * OCTET_BYTES + sequence * 16;
        reinterpret_cast<unsigned*>(to)[at.lane % 8 / 2] = word;
    }

    __device__ void sent(int, int chunk) const {
        if (chunk + 1 == chunks) __syncthreads();  // all of h(t+1) is there
    }

    __device__ void finish() const {}
#endif
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) lstm_recurrence(const __grid_constant__ Call call) {
    layer<Cluster>(call);
}
