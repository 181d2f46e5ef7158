// The vector family, for few sequences: plain multiply-adds in fp32 instead of tensor cores, which always take eight
// sequences. Weights are fp32 numbers in registers, so that nothing is split, scaled or rounded.
//
// A TEAM of BLOCKS blocks holds W_hh and takes its sequences one after another: while the h of one travels, the next
// is multiplied. A block owns GROUPS octets of eight units, with all four gates of each. SLICES warps share the
// columns of an octet. In a warp eight lanes share its columns, and four groups of lanes the octet's units, two each:
// a lane multiplies K / SLICES / 8 columns with eight rows, and three rounds of shuffles leave each lane with the sum
// of one gate. These go through shared memory to one more warp, which adds up the slices, does the cells, a lane per
// gate, and sends h. Meanwhile the others wait for the next h already.
//
// How h travels (EXCHANGE):
//   THROUGH_L2  between any blocks, as in whole_gpu.cu, but each number has the turn in which it was written in its
//               lowest bit: h loses 2^-23 of itself, less than where it travels as halves. Octets lie SPREAD bytes
//               apart, so that not all blocks look at the same few slices of the L2 cache.
//   IN_WORDS    in a cluster (or one block), the same through distributed shared memory
// A warp waits as one: no lane goes on, or leaves the loop, before all of them have what they need.
// There are two buffers for each sequence. No block can overtake another: to compute h(t+2), which goes where h(t)
// was, it needs h(t+1) of all others, and they send that after they have read h(t).
//
// Napkin, H = 1024, 128 blocks of 8 units through L2, 8 slices, one sequence, 1.98 GHz:
//   weights    4 * 1024 * 1024 * 4 B = 16 MiB, 128 KiB a block: 128 registers in each of 256 threads
//   FLOPs      8.4 M a step; 128 multiply-adds a lane, two warps for each quarter of a multiprocessor   256 cycles
//   bytes      every block reads all of h, 4 KiB: 512 KiB a step from L2 at 5 TB/s                      200 cycles
//   exchange   a store to L2 and the load that finds it                                                 900 cycles
//   sums       three rounds of shuffles, and one through shared memory                                  200 cycles
//   cell       two levels of exponential and reciprocal, shuffles                                       250 cycles
// so about 1,600 cycles, 0.8 us a step, the bytes within the exchange. In a cluster the exchange takes 300 cycles.
//
// Constants come with -D: K (the hidden size padded with zeros: 32 * SLICES divides it), BLOCKS, GROUPS, SLICES,
// EXCHANGE, SPREAD and STORAGE.

#include "call.cuh"

#define THROUGH_L2 0
#define IN_WORDS 1

constexpr int WARPS = GROUPS * SLICES;          // that multiply
constexpr int THREADS = (WARPS + GROUPS) * 32;  // and one warp for the cells of each octet
constexpr int PIECES = K / SLICES / 32;         // of four columns, per lane
constexpr int OWNED = BLOCKS * GROUPS;          // octets that exist: above them K is padding
constexpr unsigned TURN_BIT = 1;
constexpr unsigned ALL = 0xFFFFFFFF;

static_assert(K % (32 * SLICES) == 0 && K / 8 >= OWNED && GROUPS < 16, "impossible sizes");
static_assert(EXCHANGE == THROUGH_L2 || BLOCKS <= 16, "a cluster has 16 blocks at most");

// Where a thread stands. A warp multiplies for a slice, or does the cells of its octet.
struct Place {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bool multiplies = warp < WARPS;
    int group = multiplies ? warp / SLICES : warp - WARPS, slice = warp % SLICES;
    int rank = blockIdx.x % BLOCKS;  // of its block in the team
    int share;                       // the team's sequences
    __device__ explicit Place(const Team& team) : share(team.share) {}
    __device__ static Team team() { return Team::kept(0); }
    __device__ int octet() const { return rank * GROUPS + group; }
    // Four neighbouring columns of this lane, counted in fours.
    __device__ int columns(int piece) const { return (slice * PIECES + piece) * 8 + lane % 8; }
    // Whether somebody sends them.
    __device__ bool real(int piece) const { return K / 8 == OWNED || columns(piece) < OWNED * 2; }
};

// --- h on its way

__device__ __forceinline__ unsigned local(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Buffers start as zeros, so the first turn in each sets the bit.
__device__ __forceinline__ unsigned mark(unsigned turn) { return turn & 2 ? 0 : TURN_BIT; }

__device__ __forceinline__ unsigned marked(float h, unsigned turn) { return __float_as_uint(h) & ~TURN_BIT | mark(turn); }

__device__ __forceinline__ bool has(const uint4& v, unsigned wanted) {
    return (((v.x ^ wanted) | (v.y ^ wanted) | (v.z ^ wanted) | (v.w ^ wanted)) & TURN_BIT) == 0;
}

__device__ __forceinline__ float4 unmarked(const uint4& v) {
    return make_float4(__uint_as_float(v.x & ~TURN_BIT), __uint_as_float(v.y & ~TURN_BIT), __uint_as_float(v.z & ~TURN_BIT),
                       __uint_as_float(v.w & ~TURN_BIT));
}

// Whether a lane of the warp misses something that it still waits for.
__device__ __forceinline__ bool again(bool missing, Patience& patience) { return __any_sync(ALL, missing && !patience.over()); }

#if EXCHANGE == THROUGH_L2
struct Exchange {
    const Call& call;
    const Place& at;
    unsigned packets;  // where in L2: [turn % 2][sequence][octet], SPREAD bytes apart
    unsigned base;     // turns of this team before this call
    Patience patience;

    __device__ Exchange(const Call& call, const Team& team, const Place& at, unsigned char* space) : call(call), at(at) {
        const int teams = gridDim.x / BLOCKS;
        packets = (teams * 4 + 127) / 128 * 128 + team.number * 2 * call.share * OWNED * SPREAD;
        patience.late = call.late;
        unsigned* shared = reinterpret_cast<unsigned*>(space);
        if (threadIdx.x == 0) *shared = *const_cast<volatile unsigned*>(call.exchange + team.number);
        __syncthreads();
        base = *shared;
    }

    __device__ __forceinline__ unsigned char* packet(unsigned turn, int sequence) const {
        return reinterpret_cast<unsigned char*>(call.exchange) + (packets + ((turn & 1) * call.share + sequence) * (OWNED * SPREAD));
    }

    __device__ __forceinline__ void receive(float4 (&h)[PIECES], int t, int sequence) {
        const unsigned wanted = mark(base + t - 1);
        const unsigned char* from = packet(base + t - 1, sequence) + at.columns(0) / 2 * SPREAD + at.lane % 2 * 16;
        const auto fetched = [&](int piece) {
            uint4 v;
            asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "l"(from + piece * (4 * SPREAD))
                         : "memory");
            return v;
        };
        uint4 words[PIECES];
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece)
            words[piece] = at.real(piece) ? fetched(piece) : make_uint4(wanted, wanted, wanted, wanted);
        while (true) {  // what is missing is asked for again all at once
            bool missing = false;
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece)
                if (!has(words[piece], wanted)) missing = true, words[piece] = fetched(piece);
            if (!again(missing, patience)) break;
        }
        patience.done();
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) h[piece] = unmarked(words[piece]);
    }

    // Four lanes have the same h.
    __device__ __forceinline__ void send(float h, int t, int sequence) const {
        if (at.lane % 4) return;
        unsigned char* to = packet(base + t, sequence) + at.octet() * SPREAD + at.lane;
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(marked(h, base + t)) : "memory");
    }

    // The warp that does cells: the others of its octet had the last h of all blocks, so all have read `turns`.
    __device__ void ended() const {
        if (at.rank == 0 && threadIdx.x == WARPS * 32) call.exchange[blockIdx.x / BLOCKS] = base + (LENGTHS ? at.team().timesteps : call.timesteps) - 1;
    }
    __device__ void finish() const {}
};
#else
struct Exchange {
    const Call& call;
    const Place& at;
    unsigned buffers;  // [t % 2][sequence][K] floats
    unsigned away = 0;  // from an address here to the same address in the block that this lane sends to
    Patience patience;

    __device__ Exchange(const Call& call, const Team&, const Place& at, unsigned char* space) : call(call), at(at), buffers(local(space)) {
        patience.late = call.late;
        for (int i = threadIdx.x * 16; i < 2 * at.share * K * 4; i += THREADS * 16)
            asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(buffers + i), "r"(0) : "memory");
#if BLOCKS > 1
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(away) : "r"(buffers), "r"(at.lane / 2 < BLOCKS ? at.lane / 2 : 0));
        away -= buffers;
#endif
        together();
    }

    __device__ __forceinline__ static void together() {
        __syncthreads();
#if BLOCKS > 1
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
    }

    __device__ __forceinline__ unsigned slot(int t, int sequence) const { return (t & 1) * at.share + sequence; }

    __device__ __forceinline__ void receive(float4 (&h)[PIECES], int t, int sequence) {
        const unsigned from = buffers + slot(t, sequence) * (K * 4) + at.columns(0) * 16;
        const auto fetched = [&](int piece) {
            uint4 v;
            asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(from + piece * 128)
                         : "memory");
            return v;
        };
        const unsigned wanted = mark(t - 1);
        uint4 words[PIECES];
        while (true) {
            bool missing = false;
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                words[piece] = fetched(piece);
                missing |= at.real(piece) && !has(words[piece], wanted);
            }
            if (!again(missing, patience)) break;
        }
        patience.done();
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) h[piece] = unmarked(words[piece]);
    }

    // Every lane sends half of the octet's h to one block.
    __device__ __forceinline__ void send(float h, int t, int sequence) const {
        const unsigned word = marked(h, t);
        const int half = at.lane % 2 * 16;
        const unsigned w0 = __shfl_sync(ALL, word, half), w1 = __shfl_sync(ALL, word, half + 4), w2 = __shfl_sync(ALL, word, half + 8),
                       w3 = __shfl_sync(ALL, word, half + 12);
        if (at.lane / 2 >= BLOCKS) return;
        const unsigned to = buffers + slot(t + 1, sequence) * (K * 4) + at.octet() * 32 + half + away;
#if BLOCKS > 1
        asm volatile("st.relaxed.cluster.shared::cluster.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(w0), "r"(w1), "r"(w2), "r"(w3)
                     : "memory");
#else
        asm volatile("st.volatile.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(w0), "r"(w1), "r"(w2), "r"(w3) : "memory");
#endif
    }

    __device__ void ended() const {}
    // Nobody leaves while another may still write to it.
    __device__ void finish() const { together(); }
};
#endif

// --- the step

// Lanes whose numbers differ in bit N share their sums: each keeps those of half of the rows.
template <int N>
__device__ __forceinline__ void fold(float (&sum)[8], int lane) {
    const bool upper = lane & N;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float kept = upper ? sum[i + N] : sum[i], given = upper ? sum[i] : sum[i + N];
        sum[i] = kept + __shfl_xor_sync(ALL, given, N);
    }
}

// Warps come to it from two instructions: those that multiply, and the one that does the cells.
__device__ __forceinline__ void octet_barrier(int group) {
    asm volatile("barrier.sync %0, %1;" ::"r"(1 + group), "r"((SLICES + 1) * 32) : "memory");
}

__device__ __forceinline__ float part(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// All products of a warp's columns. `sums` is [turn % 2][warp][lane].
__device__ __forceinline__ void multiply(const Call& call, const Place& at, Exchange& exchange, float* sums) {
    float4 weights[PIECES * 8];  // [piece][row]
    const float4* from = reinterpret_cast<const float4*>(call.weights) + (size_t)(at.team().direction * BLOCKS + at.rank) * PIECES * 8 * WARPS * 32 + threadIdx.x;
#pragma unroll
    for (int i = 0; i < PIECES * 8; ++i) weights[i] = from[i * WARPS * 32];
    int turn = 0;
    for (int t = 0; t < (LENGTHS ? at.team().timesteps : call.timesteps); ++t)
#pragma unroll 1
        for (int sequence = 0; sequence < at.share; ++sequence, turn ^= 1) {
            float4 h[PIECES];
            if (t) {
                exchange.receive(h, t, sequence);
            } else {
                const int first = at.columns(0) * 4, real = call.h0 ? call.hidden - first : 0;
                const Stored* h0 = call.h0 + at.team().at_state(call, sequence) + first;
#pragma unroll
                for (int piece = 0; piece < PIECES; ++piece) {
                    const auto value = [&](int i) { return piece * 32 + i < real ? loaded(h0 + piece * 32 + i) : 0.0f; };
                    h[piece] = make_float4(value(0), value(1), value(2), value(3));
                }
            }
            float sum[8];
#pragma unroll
            for (int row = 0; row < 8; ++row) sum[row] = exchange.patience.poison();
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece)
#pragma unroll
                for (int column = 0; column < 4; ++column)
#pragma unroll
                    for (int row = 0; row < 8; ++row)
                        sum[row] = fmaf(part(weights[piece * 8 + row], column), part(h[piece], column), sum[row]);
            fold<4>(sum, at.lane);
            fold<2>(sum, at.lane);
            fold<1>(sum, at.lane);
            sums[(turn * WARPS + at.warp) * 32 + at.lane] = sum[0];
            octet_barrier(at.group);
        }
}

// The cells of an octet: a lane has one gate of a unit, and four have the same cell. `cells` is [sequence][group][lane].
__device__ __forceinline__ void cell(const Call& call, const Place& at, Exchange& exchange, const float* sums, float* cells) {
    const int unit = at.octet() * 8 + at.lane / 4, gate = at.lane % 4, quad = at.lane & ~3;
    const Team team(call);
    const bool exists = unit < call.hidden;
    const float bias = exists ? reinterpret_cast<const float*>(call.bias)[(team.direction * call.hidden + unit) * 4 + gate] : 0.0f;
    cells += at.group * 32 + at.lane;
    for (int sequence = 0; sequence < at.share; ++sequence)
        cells[sequence * GROUPS * 32] = call.c0 && exists ? loaded(call.c0 + team.at_state(call, sequence) + unit) : 0.0f;

    // Inputs are asked for two turns ahead.
    int next_t = 0, next_sequence = 0;
    const auto fetched = [&] {
        const bool there = exists && next_t < team.timesteps;
        const float input = there ? reinterpret_cast<const float*>(call.projected)[(team.at_step(call, next_t, next_sequence) + unit) * 4 + gate] : 0.0f;
        if (++next_sequence == at.share) next_sequence = 0, ++next_t;
        return input;
    };
    float input = fetched(), next = fetched();
    int turn = 0;
    for (int t = 0; t < team.timesteps; ++t)
#pragma unroll 1
        for (int sequence = 0; sequence < at.share; ++sequence, turn ^= 1) {
            const float before = cells[sequence * GROUPS * 32], start = input + bias;
            input = next;
            next = fetched();
            octet_barrier(at.group);
            float slices[SLICES];
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) slices[slice] = sums[(turn * WARPS + at.group * SLICES + slice) * 32 + at.lane];
#pragma unroll
            for (int half = SLICES / 2; half; half /= 2)
#pragma unroll
                for (int slice = 0; slice < half; ++slice) slices[slice] += slices[slice + half];
            const float open = activated(slices[0] + start, gate == 2);
            const float i = __shfl_sync(ALL, open, quad), f = __shfl_sync(ALL, open, quad + 1), g = __shfl_sync(ALL, open, quad + 2),
                        o = __shfl_sync(ALL, open, quad + 3);
            const float c = fmaf(f, before, i * g), h = o * hyperbolic(c);
            if (t + 1 < team.timesteps) exchange.send(h, t, sequence);
            cells[sequence * GROUPS * 32] = c;
            if (!exists || gate) continue;
            const int left = team.length(call, sequence) - t;
            if (!LENGTHS || left > 0) stored(call.y + team.at_step(call, t, sequence) + unit, h);
            if (left == 1) {
                stored(call.h_last + team.at_state(call, sequence) + unit, h);
                stored(call.c_last + team.at_state(call, sequence) + unit, c);
            }
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) lstm_recurrence(const __grid_constant__ Call call) {
    float* sums = reinterpret_cast<float*>(shared + Team::BYTES);
    float* cells = sums + 2 * WARPS * 32;
    const Team team(call);
    const Place at(team);
    team.keep(0);
    __syncthreads();
    Exchange exchange(call, team, at, reinterpret_cast<unsigned char*>(cells + at.share * GROUPS * 32));
    if (at.multiplies) {
        multiply(call, at, exchange, sums);
    } else {
        cell(call, at, exchange, sums, cells);
        exchange.ended();
    }
    exchange.finish();
}
