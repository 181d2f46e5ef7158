// What both kernel families share: the recurrent product on tensor cores, and the cell.
//
// A TEAM of BLOCKS blocks holds W_hh for the whole call and works on its own sequences of the batch. A
// block owns GROUPS octets of eight units, with all four gates of each. SLICES warps share the columns
// of an octet's weights (32 * SLICES divides K, the hidden size padded with zeros) and add up through
// shared memory. A team takes its sequences in chunks of SEQUENCES; while the h of one chunk travels, the
// next is multiplied. How h travels is the family's matter: see `Exchange` in each.
//
// Operands are 16 bits wide, sums 32. The weights are scaled by a power of two to the top of fp16's range
// and |h| < 1, so fp16 has the significand of TF32 at twice its rate and half its size. SPLIT makes it as
// accurate as fp32: w = w_hi + w_lo, h = h_hi + h_lo, and w h = w_hi h_hi + w_hi h_lo + w_lo h_hi; what is
// left out is 2^-22 of it.
//
// Constants come with -D: K, BLOCKS, GROUPS, SLICES, SEQUENCES, SPLIT, HELD (fragments of the weights that
// a thread keeps in registers; the others lie in shared memory) and STORAGE (of h0, c0 and the outputs).

#include "halves.cuh"

constexpr int THREADS = GROUPS * SLICES * 32;
constexpr int TILES = SEQUENCES / 8;           // of eight sequences, as mma takes them
constexpr int STEPS = K / 16 / SLICES;         // of mma along a warp's columns
constexpr int FRAGMENTS = 2 * STEPS * COPIES;  // of weights per thread, 16 bytes each
constexpr int OWNED = BLOCKS * GROUPS;         // octets that exist: above them K is padding
constexpr int CHAINS = !SPLIT || TILES > 2 ? 1 : TILES == 2 ? 2 : 3;  // sums that do not wait for each other
constexpr int PASSES = (SEQUENCES + 4 * SLICES - 1) / (4 * SLICES);   // of a warp over its cells
// An octet of h for all sequences of a chunk: 16 bytes each, and 32 so that the four octets of a
// fragment lie in different banks.
constexpr int OCTET_BYTES = SEQUENCES * 16 + 32;
constexpr int H_BYTES = COPIES * (K / 8) * OCTET_BYTES;
constexpr int SUM_ROW = 9;  // gate sums of eight units, and one to keep banks apart
constexpr int SUMS = GROUPS * SLICES * SEQUENCES * SUM_ROW;
constexpr int SUM_BUFFERS = SEQUENCES == 8 ? 2 : 1;
constexpr int WEIGHT_BYTES = (FRAGMENTS - HELD) * THREADS * 16;
constexpr int WORKERS = SLICES < SEQUENCES / 4 ? SLICES : SEQUENCES / 4;  // slices that have cells: a warp takes four sequences
constexpr int LANES = GROUPS * WORKERS * 32;
constexpr int AHEAD = SEQUENCES == 8 ? 4 : 2;  // inputs of the cells that are held or on their way
constexpr int INPUT_BYTES = AHEAD * PASSES * LANES * 16;
constexpr int STEP_BYTES = WEIGHT_BYTES + SUM_BUFFERS * SUMS * 16 + INPUT_BYTES;  // of shared memory, before cells and h

static_assert(K % (32 * SLICES) == 0 && K / 8 >= OWNED && HELD <= FRAGMENTS && (GROUPS < 16 || SLICES == 1), "impossible sizes");

// --- waiting

// Among the warps that share an octet.
__device__ __forceinline__ void group_barrier(int group) {
    if (SLICES == 1) __syncwarp();
    else barrier(1 + group, SLICES * 32);
}

// --- the step

__device__ __forceinline__ void mma(float (&sum)[4], const uint4& a, unsigned b0, unsigned b1) {
#if STORAGE == BF16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Where a thread stands.
struct Place {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int group = warp / SLICES, slice = warp % SLICES;
    int rank = blockIdx.x % BLOCKS;  // of its block in the team
    int share, timesteps;            // the team's
    Team::Begin begin;
    __device__ explicit Place(const Team& team) : share(team.share), timesteps(team.timesteps), begin(team) {}
    __device__ __forceinline__ Team team() const { return begin.team(share, timesteps); }
    __device__ int chunks() const { return (share + SEQUENCES - 1) / SEQUENCES; }
    __device__ int here(int chunk) const { return min(SEQUENCES, share - chunk * SEQUENCES); }  // sequences
    __device__ int octet() const { return rank * GROUPS + group; }
    __device__ int unit() const { return octet() * 8 + lane % 8; }                      // of its cells
    __device__ int sequence(int pass) const { return (pass * SLICES + slice) * 4 + lane / 8; }  // in the chunk
};

// One layer, all timesteps. Exchange brings h: `start`, `receive` (its address in shared memory), `poison` (added to sums:
// NaN if what was received is not h), `send`, `finish`.
template <typename Exchange>
__device__ __forceinline__ void layer(const Call& call) {
    const Team team(call);
    const Place at(team);
    const int chunks = at.chunks(), tid = threadIdx.x;
    uint4* rest = reinterpret_cast<uint4*>(shared);
    float4* sums = reinterpret_cast<float4*>(shared + WEIGHT_BYTES);
    float4* inputs = sums + SUM_BUFFERS * SUMS;                    // [turn][pass][lane]
    float* cells = reinterpret_cast<float*>(shared + STEP_BYTES);  // [chunk][pass][lane]
    unsigned char* h_space = shared + STEP_BYTES + chunks * PASSES * LANES * 4;

    uint4 held[HELD ? HELD : 1];
    const uint4* weights = call.weights + (size_t)(team.direction * BLOCKS + at.rank) * FRAGMENTS * THREADS + tid;
#pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f) {
        if (f < HELD) held[f] = weights[f * THREADS];
        else rest[(f - HELD) * THREADS + tid] = weights[f * THREADS];
    }
    const int unit = at.unit();
    const bool exists = unit < call.hidden;
    const float4 nothing = make_float4(0, 0, 0, 0), bias = exists ? call.bias[team.direction * call.hidden + unit] : nothing;

    Exchange exchange(call, team, at, h_space);
    const bool worker = at.slice < WORKERS;
    const int lane = (at.group * WORKERS + at.slice) * 32 + at.lane;
    const auto kept = [&](int chunk, int pass) -> float& { return cells[(chunk * PASSES + pass) * LANES + lane]; };
    const auto sequence_of = [&](int chunk, int pass) { return chunk * SEQUENCES + at.sequence(pass); };
    const auto works = [&](int chunk, int pass) { return exists && at.sequence(pass) < at.here(chunk); };
    for (int chunk = 0; worker && chunk < chunks; ++chunk)
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass)
            kept(chunk, pass) = call.c0 && works(chunk, pass) ? loaded(call.c0 + team.at_state(call, sequence_of(chunk, pass)) + unit) : 0.0f;
    exchange.start(team);

    // The inputs of cells are asked for some chunks ahead, each by the lane that will need it.
    int next_t = 0, next_chunk = 0, next_slot = 0;
    const auto fetch = [&] {
        if (worker && next_t < at.timesteps) {
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass)
                if (works(next_chunk, pass)) {
                    const unsigned to = (unsigned)__cvta_generic_to_shared(inputs + (next_slot * PASSES + pass) * LANES + lane);
                    const float4* from = call.projected + at.team().at_step(call, next_t, sequence_of(next_chunk, pass)) + unit;
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
                }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        next_slot = (next_slot + 1) % AHEAD;
        if (++next_chunk == chunks) next_chunk = 0, ++next_t;
    };
    for (int i = 0; i < AHEAD * PASSES && worker; ++i) inputs[i * LANES + lane] = nothing;  // for cells beyond the ends
    for (int i = 1; i < AHEAD; ++i) fetch();

    int turn = 0, slot = 0;
    for (int t = 0; t < at.timesteps; ++t) {
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; ++chunk, turn ^= 1, slot = (slot + 1) % AHEAD) {
            fetch();
            const unsigned char* h = exchange.receive(t, chunk, turn);
            float sum[CHAINS][TILES][2][4];
#pragma unroll
            for (int i = 0; i < CHAINS * TILES * 8; ++i) (&sum[0][0][0][0])[i] = 0.0f;
            // A lane reads eight units of one sequence at once: k is permuted, in the weights as well.
            const unsigned char* mine = h + (at.slice * STEPS * 2 + at.lane % 4) * OCTET_BYTES + at.lane / 4 * 16;
#pragma unroll
            for (int pair = 0; pair < STEPS / 2; ++pair) {
                uint4 b[COPIES][TILES];
#pragma unroll
                for (int copy = 0; copy < COPIES; ++copy)
#pragma unroll
                    for (int tile = 0; tile < TILES; ++tile)
                        b[copy][tile] = *reinterpret_cast<const uint4*>(mine + (copy * (K / 8) + pair * 4) * OCTET_BYTES + tile * 128);
#pragma unroll
                for (int s = 0; s < 2; ++s)
#pragma unroll
                    for (int m = 0; m < 2; ++m) {
                        const auto fragment = [&](int copy) -> uint4 {
                            const int f = (copy * STEPS + pair * 2 + s) * 2 + m;
                            return f < HELD ? held[f < HELD ? f : 0] : rest[(f - HELD) * THREADS + tid];
                        };
                        const uint4 a = fragment(0), low = SPLIT ? fragment(COPIES - 1) : a;
#pragma unroll
                        for (int tile = 0; tile < TILES; ++tile) {
                            const auto add = [&](int chain, const uint4& w, const uint4& x) {
                                mma(sum[chain % CHAINS][tile][m], w, s ? x.z : x.x, s ? x.w : x.y);
                            };
                            add(0, a, b[0][tile]);
                            if (SPLIT) {
                                add(1, a, b[COPIES - 1][tile]);
                                add(CHAINS - 1, low, b[0][tile]);
                            }
                        }
                    }
            }

            // A lane has i, f, g, o of unit lane / 4 for sequences 2 (lane % 4) and the next.
            float4* group_sums = sums + (SUM_BUFFERS == 2 ? turn * SUMS : 0) + at.group * SLICES * SEQUENCES * SUM_ROW;
            if (SUM_BUFFERS == 1) group_barrier(at.group);  // the last chunk's were read
            const float poison = exchange.poison();
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float4 gates = make_float4(poison, poison, poison, poison);
#pragma unroll
                    for (int chain = 0; chain < CHAINS; ++chain) {
                        gates.x += sum[chain][tile][0][e];
                        gates.y += sum[chain][tile][0][2 + e];
                        gates.z += sum[chain][tile][1][e];
                        gates.w += sum[chain][tile][1][2 + e];
                    }
                    group_sums[(at.slice * SEQUENCES + tile * 8 + at.lane % 4 * 2 + e) * SUM_ROW + at.lane / 4] = gates;
                }
            asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
            float4 input[PASSES];
            float before[PASSES];
#pragma unroll
            for (int pass = 0; pass < PASSES && worker; ++pass) {
                input[pass] = inputs[(slot * PASSES + pass) * LANES + lane];
                before[pass] = kept(chunk, pass);
            }
            group_barrier(at.group);

            const bool last = t + 1 == at.timesteps;
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass) {
                if ((pass * SLICES + at.slice) * 4 >= at.here(chunk)) break;  // the whole warp is beyond the end
                const int sequence = at.sequence(pass);
                float4 gates = nothing;
#pragma unroll
                for (int slice = 0; slice < SLICES; ++slice) {
                    const float4 part = group_sums[(slice * SEQUENCES + sequence) * SUM_ROW + at.lane % 8];
                    gates.x += part.x, gates.y += part.y, gates.z += part.z, gates.w += part.w;
                }
                float c = before[pass];
                const float out = cell(gates, call.scale, input[pass], bias, c);
                kept(chunk, pass) = c;
                if (!last) {  // even lanes have the word of two units' high halves, odd ones that of the low
                    const unsigned v = halves(out), other = __shfl_xor_sync(0xFFFFFFFF, v, 1);
                    const bool odd = at.lane & 1;
                    exchange.send(t, chunk, sequence, joined(odd ? other : v, odd ? v : other, SPLIT && odd));
                }
                if (!works(chunk, pass)) continue;
                const int which = sequence_of(chunk, pass), left = at.team().length(call, which) - t;
                if (!LENGTHS || left > 0) stored(call.y + at.team().at_step(call, t, which) + unit, out);
                if (left == 1) {
                    stored(call.h_last + at.team().at_state(call, which) + unit, out);
                    stored(call.c_last + at.team().at_state(call, which) + unit, c);
                }
            }
            exchange.sent(t, chunk);
        }
    }
    exchange.finish();
}
