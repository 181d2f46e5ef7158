// The whole-GPU family: a team is as many blocks as the layer needs, all of a GPU's or a part of them, and h
// travels through the L2 cache. For layers that no cluster can hold, and for GPUs without clusters.
//
// There are no flags and no fences. A word of 32 bits has h of two units. |h| < 2, so the highest bit of the exponent of
// the second is free, unless it is NaN: it says in which turn the word was written. Who needs h(t) reads it until all words
// carry the turn that he waits for; a word is data and flag at once, so nothing depends on the order of two stores. There are
// two buffers. No block can overtake another: to compute h(t+2), which goes where h(t) was, it needs h(t+1)
// of all others, and they write that after they have read h(t). The count of turns goes on from call to call.
//
// All blocks must run at the same time: the launch is cooperative.
//
// Napkin, TF32 class, H = 1024, 128 blocks of 8 units, 16 sequences, 1.98 GHz:
//   weights    4 * 1024 * 1024 * 2 B = 8 MiB, 64 KiB a block: 64 registers in each of 256 threads
//   FLOPs      134 M a step, 1 M a block; a warp's chain is 8 mma deep: 8 * 33 cycles         0.13 us
//   bytes      every block reads all of h, 32 KiB: 4 MiB a step from L2 at 5 TB/s             0.8 us
//   exchange   a store to L2 and the load that finds it                                       0.7 us
//   sums, cell as in a cluster                                                                0.2 us
// so about 1.8 us a step. Measured: a call of 100 steps takes 278 us by the best plan, input product included. Bytes win
// from 16 sequences on: teams with more units a block, of which each takes a part of the batch, read less.

#include "step.cuh"

constexpr unsigned TURN_BIT = 0x40000000u;
constexpr unsigned NOTHING = 0x7FFF;  // a word whose first unit is NaN
constexpr int PACKET = SEQUENCES * COPIES * OWNED * 16;  // bytes of one chunk of h in L2: [sequence][copy][octet]

struct WholeGpu {
    static constexpr int OCTETS = K / 8 / SLICES;  // that a slice needs
    static constexpr int PIECES = (COPIES * OCTETS * SEQUENCES + GROUPS * 32 - 1) / (GROUPS * 32);  // of 16 bytes, per thread
    static constexpr int MOST = THREADS > 256 ? 4 : 8;
    static constexpr int FLIGHT = PIECES < MOST ? PIECES : MOST;  // at a time

    const Call& call;
    const Place& at;
    unsigned char* stage;    // STAGES chunks of h, in turns
    unsigned char* packets;  // in L2: [turn % 2][chunk]
    unsigned base;           // turns of this team before this call
    int chunks;
    Patience patience;

    __device__ WholeGpu(const Call& call, const Team& team, const Place& at, unsigned char* space)
        : call(call), at(at), stage(space), chunks(at.chunks()) {
        const int teams = gridDim.x / BLOCKS, most = (call.share + SEQUENCES - 1) / SEQUENCES;
        packets = reinterpret_cast<unsigned char*>(call.exchange) + (teams * 4 + 127) / 128 * 128 + (size_t)team.number * 2 * most * PACKET;
        base = *const_cast<volatile unsigned*>(call.exchange + team.number);
        patience.late = call.late;
    }

    __device__ unsigned char* packet(unsigned turn, int chunk) const { return packets + ((turn & 1) * (size_t)chunks + chunk) * PACKET; }
    // Memory starts as zeros, so the first turn in each buffer sets the bit.
    __device__ static unsigned mark(unsigned turn) { return turn & 2 ? 0 : TURN_BIT; }

    __device__ void start(const Team&) {
        for (int i = threadIdx.x; i < STAGES * H_BYTES / 16; i += THREADS) reinterpret_cast<uint4*>(stage)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
    }

    // The warps of a slice bring its part of h into shared memory together.
    __device__ __forceinline__ const unsigned char* receive(int t, int chunk, int turn) {
        unsigned char* to = stage + (STAGES == 2 ? turn * H_BYTES : 0);
        if (STAGES == 1) slice_barrier();  // all have read what was there
        const int here = at.here(chunk);
        const auto octet = [&](int p) { return p % OCTETS + at.slice * OCTETS; };
        const auto copy = [&](int p) { return p / OCTETS % COPIES; };
        const auto sequence = [&](int p) { return p / (OCTETS * COPIES); };
        const auto index = [&](int i) { return (i * GROUPS + at.group) * 32 + at.lane; };
        const auto real = [&](int p) { return sequence(p) < here && octet(p) < OWNED; };
        const auto target = [&](int p) {
            return reinterpret_cast<uint4*>(to + (copy(p) * (K / 8) + octet(p)) * OCTET_BYTES + sequence(p) * 16);
        };
        if (t == 0) {
#pragma unroll 1
            for (int i = 0; i < PIECES; ++i)
                if (const int p = index(i); real(p)) *target(p) = initial(call, at.team().at_state(call, chunk * SEQUENCES + sequence(p)), octet(p), copy(p));
        } else {
            const unsigned wanted = mark(base + t - 1);
            const unsigned char* from = packet(base + t - 1, chunk);
            const auto source = [&](int p) { return from + ((sequence(p) * COPIES + copy(p)) * OWNED + octet(p)) * 16; };
            // Octets first, sequences last: a few sequences are a few loads. What is missing is asked for again all at once.
#pragma unroll 1
            for (int begin = 0; begin < PIECES && begin * GROUPS * 32 / (OCTETS * COPIES) < here; begin += FLIGHT) {
                uint4 piece[FLIGHT];
#pragma unroll
                for (int i = 0; i < FLIGHT; ++i) {
                    const int p = index(begin + i);
                    piece[i] = real(p) ? fetched(source(p)) : make_uint4(wanted, wanted, wanted, wanted);
                }
                while (true) {
                    bool missing = false;
#pragma unroll
                    for (int i = 0; i < FLIGHT; ++i)
                        if (!all(piece[i], wanted)) missing = true, piece[i] = fetched(source(index(begin + i)));
                    if (!missing || patience.over()) break;
                }
                patience.done();
                const unsigned lost = patience.lost() ? NOTHING : 0;
                const auto plain = [&](unsigned word) { return word & ~TURN_BIT | lost; };
#pragma unroll
                for (int i = 0; i < FLIGHT; ++i) {
                    const int p = index(begin + i);
                    const uint4 v = piece[i];
                    if (real(p)) *target(p) = make_uint4(plain(v.x), plain(v.y), plain(v.z), plain(v.w));
                }
            }
        }
        slice_barrier();
        return to;
    }

    __device__ static float poison() { return 0.0f; }  // h itself has it

    // Among the warps of a slice; the first seven names are the groups'.
    __device__ __forceinline__ void slice_barrier() const {
        if (GROUPS == 1) __syncwarp();
        else if (GROUPS > 7) __syncthreads();
        else barrier(8 + at.slice, GROUPS * 32);
    }

    __device__ static uint4 fetched(const unsigned char* p) {
        uint4 v;
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
        return v;
    }

    __device__ static bool all(const uint4& v, unsigned wanted) {
        return (((v.x ^ wanted) | (v.y ^ wanted) | (v.z ^ wanted) | (v.w ^ wanted)) & TURN_BIT) == 0;
    }

    __device__ __forceinline__ void send(int t, int chunk, int sequence, unsigned word) const {
        const int copy = at.lane & 1;
        if (copy >= COPIES || sequence >= at.here(chunk)) return;
        unsigned char* to = packet(base + t, chunk) + ((sequence * COPIES + copy) * OWNED + at.octet()) * 16 + at.lane % 8 / 2 * 4;
        if (word & TURN_BIT) word |= NOTHING;  // a NaN that the turn will hide: its neighbour tells of it
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word & ~TURN_BIT | mark(base + t)) : "memory");
    }

    __device__ void sent(int, int) const {}

    // Whoever is here has h of all blocks of the team, so all have read `base`.
    __device__ void finish() const {
        if (at.rank == 0 && threadIdx.x == 0) call.exchange[blockIdx.x / BLOCKS] = base + at.timesteps - 1;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) lstm_recurrence(const __grid_constant__ Call call) {
    layer<WholeGpu>(call);
}
