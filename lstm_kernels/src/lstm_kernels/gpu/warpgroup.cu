// The warpgroup family, for many sequences on Hopper: the recurrent product by wgmma, and h through L2 by the copy engine.
//
// A TEAM of BLOCKS blocks holds W_hh for the whole call and works on its own sequences of the batch, SEQUENCES at a
// time. A TILE is 16 units with all four gates, 64 rows; a block owns TILES of them, and SLICES warpgroups share the
// columns of each. Of its weights a warpgroup holds some in registers (HELD), the others lie in shared memory.
//
// h of a tile is a packet: [octet][copy][sequence][8 units of 16 bits], which is how wgmma wants it. Four more warps of
// each block move packets: two senders write those of the block's tiles to L2 and count them there, for each chunk of
// sequences, and two loaders wait until all of the team are counted and have the copy engine bring them into a ring of
// slots in shared memory. Packets are 16 columns each: SLOT_STEPS of them fill a slot, and a warpgroup multiplies a
// slot as soon as it is full.
//
// L2 holds two of h for each chunk. Nobody can overtake: to write h(t+2), which goes where h(t) was, a tile needs
// h(t+1) of all others, and they write that after they have read h(t). Counters go on from call to call.
//
// All blocks must run at the same time: the launch is cooperative.
//
// Napkin, fp16, H = 1024, batch 256: 2 teams of 64 blocks with a tile in two slices, 128 sequences in two chunks of 64:
//   FLOPs      two chunks, two warpgroups that share the tensor cores, 32 wgmma of 32 cycles  2.3 us
//   bytes      128 sequences of h into each block, 34 MB a step from L2 at 7.9 TB/s           4.2 us, beside the product
//   exchange   write, count, look, copy: while the other chunk is multiplied                  0
//   cells      8 a thread                                                                     0.5 us
// so L2 binds, at about 4.2 us a step. Measured on an H200: 8.0.

#include "halves.cuh"
#include "wgmma.cuh"

constexpr int GROUP = 128;                              // threads of a warpgroup
constexpr int UNITS = 16;                               // of a tile
constexpr int PRODUCERS = BLOCKS * TILES;               // packets of h; each is 16 columns
constexpr int STEPS = PRODUCERS / SLICES;               // of wgmma along the columns of a warpgroup
constexpr int FRAGMENTS = STEPS * COPIES;               // of weights per thread, 16 bytes each
constexpr int TILE_THREADS = SLICES * GROUP;
constexpr int MATH = TILES * TILE_THREADS, THREADS = MATH + GROUP;  // and four warps that move h
constexpr int WIDTH = COPIES * SEQUENCES;               // of h: high halves, then low ones
constexpr int OCTET = WIDTH * 16;                       // bytes of eight units
constexpr int PACKET = 2 * OCTET;
constexpr int SLOTS = PRODUCERS / SLOT_STEPS;           // of one chunk
constexpr int SLOT = SLOT_STEPS * PACKET;
constexpr int CELLS = SEQUENCES / 8 / SLICES;           // of a thread in a chunk
// Registers of a thread as a block starts, and later: what those that move h do not need the others get.
constexpr int AT_START = 65536 / THREADS / 8 * 8, OF_MOVERS = 40;
constexpr int OF_OTHERS = (AT_START * (TILES * SLICES + 1) - OF_MOVERS) / (TILES * SLICES) / 8 * 8;
constexpr bool MOVES_REGISTERS = AT_START < 255;        // else all have the most that there are

constexpr int FRAGMENT_BYTES = 2048;                    // of a warpgroup's fragment in shared memory
constexpr int REST = (FRAGMENTS - HELD) * FRAGMENT_BYTES;
constexpr int RING_AT = TILES * SLICES * REST;
constexpr int STAGE_AT = RING_AT + RING * SLOT;         // a packet on its way out
constexpr int SUMS_AT = STAGE_AT + TILES * PACKET;
constexpr int BARS_AT = SUMS_AT + (SLICES > 1 ? CELLS * MATH * 16 : 0);
constexpr int LOST_AT = BARS_AT + 16 * RING;            // set when the block gives up: it sends no more
constexpr int STATE_AT = LOST_AT + 16;                  // [chunk][cell][thread] of c

static_assert(SLICES <= 2 && PRODUCERS % (SLOT_STEPS * SLICES) == 0 && HELD <= FRAGMENTS &&
                  RING >= 2 * SLICES && (RING == 2 * SLOTS || (SLOTS % RING == 0 && RING % SLICES == 0)) && (RING <= 32 || SLOTS <= 32),
              "impossible sizes");

// --- slots

// Slots in shared memory are as many as those of two chunks, of one, or a whole part of these: then where a slot of a
// chunk lies is known when this is compiled, and a product need not work it out. Each has two signals: `full` counts
// bytes, `empty` the warps that have multiplied it.
struct Ring {
    static constexpr bool TWO = RING == 2 * SLOTS;
    static constexpr unsigned USES = TWO ? 1 : SLOTS / RING;  // of a slot by one chunk
    unsigned slots, bars;
    unsigned turn = 0;  // chunks before this one

    // Of the `number`-th slot of a chunk, beyond the first.
    __device__ static constexpr int offset(int number) { return number % RING * SLOT; }
    __device__ static constexpr int signal(int number) { return number % RING * 8; }
    static constexpr int EMPTY = RING * 8;
    __device__ unsigned first() const { return slots + (TWO && turn & 1 ? SLOTS * SLOT : 0); }
    __device__ unsigned first_signal() const { return bars + (TWO && turn & 1 ? SLOTS * 8 : 0); }
    __device__ unsigned phase(int number) const { return (TWO ? turn >> 1 : turn * USES + number / RING) & 1; }
};

// Whether a signal has passed that phase. `try_wait` may wait a little for it, `test_wait` does not.
#define PASSED(how) "{.reg .pred p; mbarrier." how ".parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
__device__ __forceinline__ bool passed(unsigned signal, unsigned phase) {
    unsigned yes;
    asm volatile(PASSED("test_wait") : "=r"(yes) : "r"(signal), "r"(phase) : "memory");
    return yes;
}

// Who gives up says so at `lost`.
__device__ __forceinline__ void await(unsigned signal, unsigned phase, Patience& patience, unsigned lost) {
    if (patience.lost()) return;
    while (true) {
        unsigned yes;
        asm volatile(PASSED("try_wait") : "=r"(yes) : "r"(signal), "r"(phase) : "memory");
        if (yes) break;
        if (patience.over()) {
            asm volatile("st.volatile.shared.u32 [%0], 1;" ::"r"(lost) : "memory");
            break;
        }
    }
    patience.done();
}

// --- moving h

// Named barriers.
constexpr int OF_GROUP = 1, OF_SUMS = OF_GROUP + TILES * SLICES, PACKED = OF_SUMS + (SLICES > 1 ? TILES : 0),
              UNPACKED = PACKED + TILES, ISSUED = UNPACKED + TILES;
static_assert(ISSUED + 2 <= 16, "too many barriers");

__device__ __forceinline__ void arrive(int name, int threads) {
    __syncwarp();
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// What a team has in L2.
struct Exchange {
    static constexpr int LINE = 32;  // words that a counter has for itself
    unsigned* turns;                 // of each chunk before this call
    unsigned* sent;                  // [chunk]: packets, of all calls
    unsigned char* packets;          // [t % 2][chunk][producer]
    int chunks, timesteps;

    __device__ Exchange(const Call& call, const Team& team, int chunks) : chunks(chunks), timesteps(team.timesteps) {
        const int teams = gridDim.x / BLOCKS, most = (call.share + SEQUENCES - 1) / SEQUENCES;
        turns = call.exchange + team.number * (1 + most) * LINE;
        sent = turns + LINE;
        packets = reinterpret_cast<unsigned char*>(call.exchange + teams * (1 + most) * LINE) + (size_t)team.number * 2 * most * PRODUCERS * PACKET;
    }
    __device__ unsigned char* packet(int t, int chunk, int producer) const {
        return packets + (((t & 1) * (size_t)chunks + chunk) * PRODUCERS + producer) * PACKET;
    }
};

// Who gave up stays for a millisecond, until the copy engine has brought what was asked for: it must find the block
// still there.
__device__ __forceinline__ void linger(const Patience& patience) {
    if (!patience.lost()) return;
    const unsigned now = milliseconds();
    while (milliseconds() - now < 2) {}
}

// One of two warps that bring h of all tiles of the team into the ring: a chunk each, in turns. While one has the copy
// engine bring a chunk, the other sees whether the next has been sent.
__device__ __forceinline__ void load(const Exchange& exchange, unsigned before, int loader, Ring ring, Patience patience) {
    const unsigned total = exchange.timesteps * exchange.chunks;
    int t = 0, chunk = 0;
    const auto skip = [&] {
        if (++chunk == exchange.chunks) chunk = 0, ++t;
    };
    constexpr int ROUND = RING < SLOTS ? RING : SLOTS;
    const int lane = threadIdx.x % 32;
    if (loader) skip();
#pragma unroll 1
    for (ring.turn = loader; ring.turn < total; ring.turn += 2, skip(), skip()) {
        const unsigned wanted = before + (t + 1) * PRODUCERS;
        while (true) {
            unsigned sent;
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(sent) : "l"(exchange.sent + chunk * Exchange::LINE) : "memory");
            if ((int)(sent - wanted) >= 0 || patience.over()) break;
        }
        patience.done();
        if (ring.turn) barrier(ISSUED + 1 - loader, 64);
        // A lane for each slot, as soon as that is empty.
#pragma unroll 1
        for (int begin = 0; begin < SLOTS; begin += ROUND) {
            const int slot = begin + lane;
            const unsigned signal = ring.first_signal() + Ring::signal(slot), to = ring.first() + Ring::offset(slot);
            const unsigned char* from = exchange.packet(t, chunk, slot % SLICES * STEPS + slot / SLICES * SLOT_STEPS);
            bool waits = lane < ROUND;
            while (__any_sync(0xFFFFFFFF, waits) && !__any_sync(0xFFFFFFFF, patience.over())) {
                if (waits && passed(signal + Ring::EMPTY, ring.phase(slot) ^ 1)) {
                    waits = false;
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(signal), "r"(SLOT) : "memory");
                    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                                 "l"(from), "r"(SLOT), "r"(signal)
                                 : "memory");
                }
            }
            patience.done();
        }
        if (ring.turn + 1 < total) arrive(ISSUED + loader, 64);
        else if (blockIdx.x % BLOCKS == 0) *exchange.turns = wanted;  // all have sent their last, so all have read it
    }
    linger(patience);
}

// One of two warps that send what tiles have packed. Once the block is lost it waits for nobody: what it sent would count as
// what others have not sent yet.
__device__ __forceinline__ void send(const Exchange& exchange, int first_producer, int sender, const unsigned char* shared) {
    const unsigned char* stage = shared + STAGE_AT;
    const volatile unsigned* lost = reinterpret_cast<const unsigned*>(shared + LOST_AT);
    const int total = exchange.timesteps * exchange.chunks, lane = threadIdx.x % 32;
    int t = 0, chunk = 0;
#pragma unroll 1
    for (int turn = 0; turn < total; ++turn) {
#pragma unroll
        for (int tile = sender; tile < TILES; tile += 2) {
            barrier(PACKED + tile, TILE_THREADS + 32);
            const uint4* from = reinterpret_cast<const uint4*>(stage + tile * PACKET);
            uint4* to = reinterpret_cast<uint4*>(exchange.packet(t, chunk, first_producer + tile));
#pragma unroll 4
            for (int i = lane; i < PACKET / 16; i += 32) to[i] = from[i];
            const bool counts = lane == 0 && !*lost;
            if (turn + 1 < total) arrive(UNPACKED + tile, TILE_THREADS + 32);
            asm volatile("fence.proxy.async.global;" ::: "memory");  // for the copy engines that will read it
            __syncwarp();
            if (counts) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(exchange.sent + chunk * Exchange::LINE) : "memory");
        }
        if (++chunk == exchange.chunks) chunk = 0, ++t;
    }
}

// --- the step

// The sums of a chunk, from slots as they come.
struct Product {
    uint4 held[HELD ? HELD : 1];
    unsigned rest;  // where the other fragments are, in 16 bytes of shared memory

    // Those in registers are spread evenly among the others.
    __device__ static constexpr int before(int f) { return f * HELD / FRAGMENTS; }
    __device__ static constexpr bool holds(int f) { return before(f + 1) > before(f); }

    __device__ __forceinline__ void fetch(const uint4* weights, unsigned char* shared, int thread) {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f) {
            const uint4 w = weights[f * MATH];
            if (holds(f)) {
                held[before(f)] = w;
                continue;
            }
            unsigned* to = reinterpret_cast<unsigned*>(shared + (f - before(f)) * FRAGMENT_BYTES) + (thread / 32 * 16 + thread % 32 / 4) * 4 + thread % 4;
            to[0] = w.x, to[32] = w.y, to[256] = w.z, to[288] = w.w;  // eight rows further, eight columns, both
        }
    }

    template <int COUNT>
    __device__ __forceinline__ void add(float (&d)[COUNT], int f, unsigned h, int offset, bool more) const {
        const unsigned long long b = factor(h, offset, OCTET);
        if (holds(f)) multiply(d, held[before(f)], b, more);
        else multiply(d, factor(rest, (f - before(f)) * FRAGMENT_BYTES, 1024), b, more);
    }

    // One slot. With SPLIT the low halves of the weights are multiplied by the high ones of h alone, which come first. These
    // products have sums of their own: PTX orders those on the same sums only if all have the same shape.
    __device__ __forceinline__ void slot(float (&d)[WIDTH / 2], float (&e)[SEQUENCES / 2], int number, unsigned h, bool fresh) const {
        const int first = number * SLOT_STEPS * COPIES, at = Ring::offset(number * SLICES);
        begin();
#pragma unroll
        for (int i = 0; i < SLOT_STEPS; ++i) {
            add(d, first + i * COPIES, h, at + i * PACKET, i || !fresh);
            if (SPLIT) add(e, first + i * 2 + 1, h, at + i * PACKET, i);
        }
        commit();
    }

    __device__ __forceinline__ void operator()(float (&sum)[SEQUENCES / 2], const Ring& ring, Patience& patience, unsigned lost) const {
        constexpr int COUNT = STEPS / SLOT_STEPS;
        const bool signals = threadIdx.x % 32 == 0;
        const unsigned h = uniform(ring.first()) >> 4, bars = uniform(ring.first_signal());
        const auto leave = [&](int number) {
            // Who gave up may not have seen the slot full: it leaves none, so no loader fills it again.
            if (signals && !patience.lost())
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bars + Ring::signal(number * SLICES) + Ring::EMPTY) : "memory");
        };
        float d[WIDTH / 2], e[SEQUENCES / 2] = {};
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) d[i] = 0;
#pragma unroll
        for (int number = 0; number < COUNT; ++number) {
            await(bars + Ring::signal(number * SLICES), ring.phase(number * SLICES), patience, lost);
            slot(d, e, number, h, SPLIT || !number);
            const bool last = number + 1 == COUNT;
            if (SPLIT || last) finish<0>(d);
            else asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (SPLIT) finish<0>(e);
            if (SPLIT || last) {
                // Tensor cores cut off when they add: with SPLIT the sums of a slot are taken out, and added in plain fp32.
                const float poison = patience.poison();
#pragma unroll
                for (int i = 0; i < SEQUENCES / 2; ++i) {
                    const float more = SPLIT ? d[i] + (d[SEQUENCES / 2 * (COPIES - 1) + i] + e[i]) : d[i];
                    sum[i] = SPLIT && number ? sum[i] + more : more;
                    if (last) sum[i] += poison;
                }
            }
            if (!SPLIT && number) leave(number - 1);
            if (SPLIT || last) leave(number);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) lstm_recurrence(const __grid_constant__ Call call) {
    const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    const Team team(call);
    const int rank = blockIdx.x % BLOCKS, share = team.share, chunks = (share + SEQUENCES - 1) / SEQUENCES;
    const int tile = threadIdx.x / TILE_THREADS, slice = threadIdx.x / GROUP % SLICES;
    const int thread = threadIdx.x % GROUP, warp = thread / 32, lane = threadIdx.x % 32;
    const Exchange exchange(call, team, chunks);
    Ring ring{base + RING_AT, base + BARS_AT};
    Patience patience{call.late};
    const unsigned before = *static_cast<volatile unsigned*>(exchange.turns);

    if (threadIdx.x == 0) {
        *reinterpret_cast<unsigned*>(shared + LOST_AT) = 0;
        for (int i = 0; i < RING; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(base + BARS_AT + 8 * i));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(base + BARS_AT + 8 * (RING + i)), "r"(TILES * 4));
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // for the copy engine, which counts with them
    }
    __syncthreads();
    if (threadIdx.x >= MATH) {
        if (MOVES_REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(OF_MOVERS));
        if (warp < 2) load(exchange, before, warp, ring, patience);
        else send(exchange, rank * TILES, warp - 2, shared);
        return;
    }
    if (MOVES_REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MOVES_REGISTERS ? OF_OTHERS : OF_MOVERS));
    ring.slots += slice * SLOT, ring.bars += slice * 8;
    const int group = tile * SLICES + slice;
    Product product;
    product.rest = uniform(base + group * REST) >> 4;
    product.fetch(call.weights + (size_t)(team.direction * BLOCKS + rank) * FRAGMENTS * MATH + threadIdx.x, shared + group * REST, thread);
    asm volatile("fence.proxy.async;" ::: "memory");  // for wgmma, which reads what its warpgroup has written
    barrier(OF_GROUP + group, GROUP);

    // A lane has rows lane / 4 and 8 more of its warp's: i and f of a unit, or 16 lanes further its g and o.
    const int producer = rank * TILES + tile, inside = warp * 4 + lane / 4 % 4, unit = producer * UNITS + inside;
    const bool exists = unit < call.hidden, upper = lane >= 16;
    const float4 nothing = make_float4(0, 0, 0, 0), bias = exists ? call.bias[team.direction * call.hidden + unit] : nothing;
    const auto sequence = [&](int n) { return (slice * CELLS + n) * 8 + lane % 4 * 2 + upper; };  // in its chunk
    const auto works = [&](const Team& team, int chunk, int n) { return exists && chunk * SEQUENCES + sequence(n) < team.share; };
    const auto state = [&](int chunk, int n) -> float& {
        return reinterpret_cast<float*>(shared + STATE_AT)[(chunk * CELLS + n) * MATH + threadIdx.x];
    };

    // Packs what `piece` gives: the last packet has been taken from there, and this one can be.
    unsigned char* stage = shared + STAGE_AT + tile * PACKET;
    int packed = 0;
    const auto begin_packing = [&] {
        if (packed++) barrier(UNPACKED + tile, TILE_THREADS + 32);
    };
    const auto end_packing = [&] {
        arrive(PACKED + tile, TILE_THREADS + 32);
    };
    for (int chunk = 0; chunk < chunks; ++chunk) {
        for (int n = 0; n < CELLS; ++n) state(chunk, n) = call.c0 && works(team, chunk, n) ? loaded(call.c0 + team.at_state(call, chunk * SEQUENCES + sequence(n)) + unit) : 0.0f;
        begin_packing();
        for (int i = threadIdx.x % TILE_THREADS; i < PACKET / 16; i += TILE_THREADS) {
            const int at = chunk * SEQUENCES + i % SEQUENCES, octet = producer * 2 + i / WIDTH;
            reinterpret_cast<uint4*>(stage)[i] =
                at < share ? initial(call, team.at_state(call, at), octet, i / SEQUENCES % COPIES) : make_uint4(0, 0, 0, 0);
        }
        end_packing();
    }

    const Team::Begin begin(team);
    const int timesteps = LENGTHS ? team.timesteps : call.timesteps;
    for (int t = 0; t < timesteps; ++t) {
        const bool last = t + 1 == timesteps;
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const Team reads = begin.team(share, timesteps);
            float4 input[CELLS];
#pragma unroll
            for (int n = 0; n < CELLS; ++n) {
                input[n] = nothing;
                if (works(reads, chunk, n))
                    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
                                 : "=f"(input[n].x), "=f"(input[n].y), "=f"(input[n].z), "=f"(input[n].w)
                                 : "l"(call.projected + reads.at_step(call, t, chunk * SEQUENCES + sequence(n)) + unit));
            }
            float sum[SEQUENCES / 2];
            product(sum, ring, patience, base + LOST_AT);
            ++ring.turn;
            const Team writes = begin.team(share, timesteps);

            // With two slices each has the cells of half of the sequences, and gives its sums of the others away.
            if (SLICES > 1) {
                float4* away = reinterpret_cast<float4*>(shared + SUMS_AT) + threadIdx.x;
                const float4* from = reinterpret_cast<float4*>(shared + SUMS_AT) + (threadIdx.x ^ GROUP);
#pragma unroll
                for (int n = 0; n < CELLS; ++n) {
                    const float *low = sum + n * 4, *high = sum + (SLICES - 1) * CELLS * 4 + n * 4;
                    away[n * MATH] = slice ? make_float4(low[0], low[1], low[2], low[3]) : make_float4(high[0], high[1], high[2], high[3]);
                }
                barrier(OF_SUMS + tile, TILE_THREADS);
#pragma unroll
                for (int n = 0; n < CELLS; ++n) {
                    const float4 other = from[n * MATH];
                    const float *low = sum + n * 4, *high = sum + (SLICES - 1) * CELLS * 4 + n * 4;
                    float* mine = sum + n * 4;
                    mine[0] = (slice ? high[0] : low[0]) + other.x, mine[1] = (slice ? high[1] : low[1]) + other.y;
                    mine[2] = (slice ? high[2] : low[2]) + other.z, mine[3] = (slice ? high[3] : low[3]) + other.w;
                }
                // Sums of the next chunk come to the same place. Packing waits for both slices, but the last step packs nothing.
                if (last && chunk + 1 < chunks) barrier(OF_SUMS + tile, TILE_THREADS);
            }

            float out[CELLS];
            if (!last) begin_packing();
#pragma unroll
            for (int n = 0; n < CELLS; ++n) {
                // Two lanes have two sequences: each gives the other what it lacks.
                const float *s = sum + n * 4;
                const float one = __shfl_xor_sync(0xFFFFFFFF, upper ? s[0] : s[1], 16), two = __shfl_xor_sync(0xFFFFFFFF, upper ? s[2] : s[3], 16);
                const float4 gates = upper ? make_float4(one, two, s[1], s[3]) : make_float4(s[0], s[2], one, two);
                float c = state(chunk, n);
                out[n] = cell(gates, call.scale, input[n], bias, c);
                state(chunk, n) = c;
                if (!last) {
                    unsigned short* to = reinterpret_cast<unsigned short*>(stage) + (inside / 8 * WIDTH + sequence(n)) * 8 + inside % 8;
                    const unsigned v = halves(out[n]);
                    to[0] = (unsigned short)v;
                    if (SPLIT) to[SEQUENCES * 8] = (unsigned short)(v >> 16);
                }
            }
            if (!last) end_packing();
#pragma unroll
            for (int n = 0; n < CELLS; ++n)
                if (works(writes, chunk, n)) {
                    const int which = chunk * SEQUENCES + sequence(n), left = writes.length(call, which) - t;
                    if (!LENGTHS || left > 0) stored(call.y + writes.at_step(call, t, which) + unit, out[n]);
                    if (left == 1) {
                        stored(call.h_last + writes.at_state(call, which) + unit, out[n]);
                        stored(call.c_last + writes.at_state(call, which) + unit, state(chunk, n));
                    }
                }
        }
    }
    linger(patience);
}
