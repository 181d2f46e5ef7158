// The whole-GPU family: a team is as many blocks as the layer needs, all of a GPU's or a part of them, and h
// travels through the L2 cache. For layers that no cluster can hold, and for GPUs without clusters.
//
// There are no flags and no fences. |h| < 2, so the highest bit of the exponent of every 16-bit value is
// free: it says in which turn the value was written. Who needs h(t) reads it until all words carry the turn
// that he waits for; a word is data and flag at once, so nothing depends on the order of two stores. There are
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
// so about 1.5 us a step, and bytes win from 16 sequences on: teams with more units a block, of which each
// takes a part of the batch, read less.

#include "lstm_step.cuh"

static_assert(!EARLY || STAGES == 2, "the next chunk needs a place of its own");
constexpr unsigned TURN_BITS = 0x40004000u;
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
    unsigned* turns;         // of this team before this call
    unsigned base;
    int chunks;
    Patience patience;
    // Of the chunk at hand: what its words carry, what is left of them, what was wrong with them.
    unsigned wanted = 0, keep = 0, odd = 0;
    int here = 0;
    bool asked = false, early = false;  // the next chunk is on its way; this one came so

    __device__ WholeGpu(const Call& call, const Place& at, unsigned char* space)
        : call(call), at(at), stage(space), chunks(at.chunks()) {
        const int teams = gridDim.x / BLOCKS, most = (call.share + SEQUENCES - 1) / SEQUENCES;
        turns = call.exchange + at.team;
        packets = reinterpret_cast<unsigned char*>(call.exchange) + (teams * 4 + 127) / 128 * 128 + (size_t)at.team * 2 * most * PACKET;
        base = *reinterpret_cast<volatile unsigned*>(turns);
        patience.late = call.late;
    }

    __device__ unsigned char* packet(unsigned turn, int chunk) const { return packets + ((turn & 1) * (size_t)chunks + chunk) * PACKET; }
    // Memory starts as zeros, so the first turn in each buffer sets the bits.
    __device__ static unsigned mark(unsigned turn) { return turn & 2 ? 0 : TURN_BITS; }

    __device__ void start() {
        for (int i = threadIdx.x; i < STAGES * H_BYTES / 16; i += THREADS) reinterpret_cast<uint4*>(stage)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
    }

    // The warps of a slice bring its part of h into shared memory together, piece by piece: octets first, sequences
    // last, so that a few sequences are a few pieces.
    __device__ static int copy_of(int p) { return p / OCTETS % COPIES; }
    __device__ static int sequence_of(int p) { return p / (OCTETS * COPIES); }
    __device__ int octet_of(int p) const { return p % OCTETS + at.slice * OCTETS; }
    __device__ int piece_of(int i) const { return (i * GROUPS + at.group) * 32 + at.lane; }
    __device__ bool real(int p, int here) const { return sequence_of(p) < here && octet_of(p) < OWNED; }
    __device__ uint4* target(unsigned char* to, int p) const {
        return reinterpret_cast<uint4*>(to + (copy_of(p) * (K / 8) + octet_of(p)) * OCTET_BYTES + sequence_of(p) * 16);
    }
    __device__ const unsigned char* source(const unsigned char* from, int p) const {
        return from + ((sequence_of(p) * COPIES + copy_of(p)) * OWNED + octet_of(p)) * 16;
    }
    __device__ unsigned char* buffer(int turn) const { return stage + (STAGES == 2 ? turn * H_BYTES : 0); }

    __device__ __forceinline__ const unsigned char* receive(int t, int chunk, int turn) {
        if (STAGES == 1) slice_barrier();  // all have read what was there
        early = EARLY && asked;
        here = at.here(chunk);
        keep = t ? ~TURN_BITS : ~0u;
        wanted = mark(base + t - 1);
        if (early) asm volatile("cp.async.wait_group 1;" ::: "memory");  // all but the cells' inputs of this turn
        else if (t) poll(t, chunk, turn);
        else
#pragma unroll 1
            for (int i = 0; i < PIECES; ++i)
                if (const int p = piece_of(i); real(p, here))
                    *target(buffer(turn), p) = initial(call, octet_of(p), at.first + chunk * SEQUENCES + sequence_of(p), copy_of(p));
        slice_barrier();
        if (EARLY) ask(chunk + 1 < chunks ? t : t + 1, chunk + 1 < chunks ? chunk + 1 : 0, turn ^ 1);
        return buffer(turn);
    }

    // EARLY is for several chunks: the next one's h was mostly sent long ago, and travels while this one is multiplied.
    // Whether it really had been sent is seen when it is used.
    __device__ __forceinline__ void ask(int t, int chunk, int turn) {
        asked = chunks > 1 && t > 0 && t < call.timesteps;
        if (!asked) return;
        const int count = at.here(chunk);
        const unsigned char* from = packet(base + t - 1, chunk);
#pragma unroll 4
        for (int i = 0; i < PIECES; ++i)
            if (const int p = piece_of(i); real(p, count))
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(target(buffer(turn), p))),
                             "l"(source(from, p))
                             : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    // Reads until all is there. What is missing is asked for again all at once.
    __device__ __forceinline__ void poll(int t, int chunk, int turn) {
        const unsigned char* from = packet(base + t - 1, chunk);
#pragma unroll 1
        for (int begin = 0; begin < PIECES && begin * GROUPS * 32 / (OCTETS * COPIES) < here; begin += FLIGHT) {
            uint4 piece[FLIGHT];
#pragma unroll
            for (int i = 0; i < FLIGHT; ++i) {
                const int p = piece_of(begin + i);
                piece[i] = real(p, here) ? fetched(source(from, p)) : make_uint4(wanted, wanted, wanted, wanted);
            }
            while (true) {
                bool missing = false;
#pragma unroll
                for (int i = 0; i < FLIGHT; ++i)
                    if (differs(piece[i])) missing = true, piece[i] = fetched(source(from, piece_of(begin + i)));
                if (!missing || patience.over()) break;
            }
            patience.done();
#pragma unroll
            for (int i = 0; i < FLIGHT; ++i)
                if (const int p = piece_of(begin + i); real(p, here)) *target(buffer(turn), p) = EARLY ? piece[i] : without_turn(piece[i]);
        }
    }

    // Of a fragment: remembers whether it came too early, and takes the turn out of it.
    __device__ __forceinline__ uint4 seen(const uint4& v, int pair, int tile) {
        if (!EARLY) return v;
        if (at.lane / 4 + tile * 8 < here && (K / 8 == OWNED || at.slice * OCTETS + pair * 4 + at.lane % 4 < OWNED))
            odd |= (v.x ^ wanted) | (v.y ^ wanted) | (v.z ^ wanted) | (v.w ^ wanted);
        return without_turn(v);
    }

    __device__ uint4 without_turn(const uint4& v) const { return make_uint4(v.x & keep, v.y & keep, v.z & keep, v.w & keep); }

    // Whether a warp of the slice read something too early; then all of it is brought again.
    __device__ __forceinline__ bool stale(int t, int chunk, int turn) {
        if (!EARLY) return false;
        if (!early) {
            odd = 0;
            return false;
        }
        const bool again = any_of_slice(odd & TURN_BITS);
        odd = 0;
        if (again) {
            early = false;
            poll(t, chunk, turn);
            slice_barrier();
        }
        return again;
    }

    __device__ __forceinline__ bool any_of_slice(bool mine) const {
        if (GROUPS == 1) return __any_sync(0xFFFFFFFF, mine);
        if (GROUPS > 7) return __syncthreads_or(mine);
        unsigned found;
        asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.or.pred q, %2, %3, p; selp.u32 %0, 1, 0, q; }"
                     : "=r"(found)
                     : "r"((unsigned)mine), "r"(8 + at.slice), "r"(GROUPS * 32)
                     : "memory");
        return found;
    }

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

    __device__ bool differs(const uint4& v) const {
        return ((v.x ^ wanted) | (v.y ^ wanted) | (v.z ^ wanted) | (v.w ^ wanted)) & TURN_BITS;
    }

    __device__ __forceinline__ void send(int t, int chunk, int sequence, unsigned word) const {
        const int copy = at.lane & 1;
        if (copy >= COPIES || sequence >= at.here(chunk)) return;
        unsigned char* to = packet(base + t, chunk) + ((sequence * COPIES + copy) * OWNED + at.octet()) * 16 + at.lane % 8 / 2 * 4;
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word | mark(base + t)) : "memory");
    }

    __device__ void sent(int, int) const {}

    // Whoever is here has h of all blocks of the team, so all have read `turns`.
    __device__ void finish() const {
        if (at.rank == 0 && threadIdx.x == 0) *turns = base + call.timesteps - 1;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) recurrence(const __grid_constant__ Call call) {
    extern __shared__ __align__(16) unsigned char shared[];
    layer<WholeGpu>(call, shared);
}
