// What all kernel families share: what a kernel is called with, gates, and waits that end.
//
// LENGTHS comes with -D: whether sequences have lengths of their own, which costs a few per cent.

#include "numbers.cuh"

// A row is what one sequence has at one timestep.
struct Call {
    const uint4* weights;     // of W_hh: [direction][block][fragment][thread]
    const float4* projected;  // W_ih x: [row][direction][unit] of i, f, g, o
    const float4* bias;       // [direction][unit]
    const Stored *h0, *c0;    // [direction][sequence][unit]; null: zeros
    Stored *y, *h_last, *c_last;  // y: [row][direction][unit]
    unsigned* exchange;  // h on its way through L2, where a family has it go there
    unsigned* late;      // set when a wait took too long: outputs that depend on it are NaN
    const int* lengths;  // with LENGTHS: timesteps of each sequence
    const int* rows;     // the row of the first sequence at each timestep; null: rows are [timestep][sequence]
    float scale;         // takes the weights' scale out of a sum
    int hidden, batch, timesteps;
    int share;       // sequences per team
    int directions;  // of a row
    int direction;   // of the first team
};

extern __shared__ __align__(128) unsigned char shared[];

// A team of BLOCKS blocks: its sequences, which it reads in one direction.
struct Team {
    int number, direction;
    int first, share;  // sequences
    int timesteps;     // until the last of them has ended

    static constexpr int BYTES = 16;

    // The first sequence and, above it, the direction: registers are scarce.
    struct Begin {
        int both;
        __device__ __forceinline__ explicit Begin(const Team& team) : both(team.first | team.direction << 30) {}
        __device__ __forceinline__ Team team(int share, int timesteps) const {
            Team team;
            team.direction = both >> 30, team.first = both & 0x3FFFFFFF, team.share = share, team.timesteps = timesteps;
            return team;
        }
    };

    // Out of shared memory, where `keep` has put it: a product leaves no registers for what it does not need.
    __device__ __forceinline__ static Team kept(int at) {
        Team team;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(team.direction), "=r"(team.first), "=r"(team.share), "=r"(team.timesteps)
                     : "r"((unsigned)__cvta_generic_to_shared(shared) + at));
        return team;
    }
    __device__ __forceinline__ void keep(int at) const {
        if (threadIdx.x == 0) *reinterpret_cast<int4*>(shared + at) = make_int4(direction, first, share, timesteps);
    }

    Team() = default;
    __device__ __forceinline__ explicit Team(const Call& call) : number(blockIdx.x / BLOCKS) {
        const int each = (call.batch + call.share - 1) / call.share;  // teams of a direction
        direction = call.direction + number / each;
        first = number % each * call.share;
        share = min(call.share, call.batch - first);
        timesteps = call.timesteps;
        if (LENGTHS) {
            timesteps = 0;
            for (int i = threadIdx.x % 32; i < share; i += 32) timesteps = max(timesteps, call.lengths[first + i]);
            for (int lanes = 16; lanes; lanes /= 2) timesteps = max(timesteps, __shfl_xor_sync(0xFFFFFFFF, timesteps, lanes));
        }
    }

    __device__ __forceinline__ int length(const Call& call, int sequence) const {
        return LENGTHS ? __ldg(call.lengths + first + sequence) : call.timesteps;
    }

    // The row of a sequence at a step. One that has ended stays at its last.
    __device__ __forceinline__ int row(const Call& call, int t, int sequence) const {
        if (!LENGTHS) return row(call, t) + sequence;
        const int last = length(call, sequence) - 1, at = direction ? max(last - t, 0) : min(t, last);
        return (call.rows ? __ldg(call.rows + at) : at * call.batch) + first + sequence;
    }
    // That of the first sequence, where all have all timesteps: the second direction begins at the last.
    __device__ __forceinline__ int row(const Call& call, int t) const {
        return ((t ^ -direction) + direction * call.timesteps) * call.batch + first;
    }

    // Where in `projected` and y the units of a row begin.
    __device__ __forceinline__ size_t at_row(const Call& call, int row) const {
        return (size_t)(unsigned)(row * call.directions + direction) * (unsigned)call.hidden;
    }
    __device__ __forceinline__ size_t at_step(const Call& call, int t, int sequence) const { return at_row(call, row(call, t, sequence)); }

    // Where in states the units of a sequence begin.
    __device__ __forceinline__ size_t at_state(const Call& call, int sequence) const {
        return (size_t)(unsigned)(direction * call.batch + first + sequence) * (unsigned)call.hidden;
    }
};

// --- gates

#if STORAGE == FP32
__device__ __forceinline__ float sigmoid(float x) {
    float power, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-1.44269504f * x));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
    return inverse;
}
__device__ __forceinline__ float hyperbolic(float x) { return fmaf(2.0f, sigmoid(2.0f * x), -1.0f); }
// Either of the two, without a branch.
__device__ __forceinline__ float activated(float x, bool tanh) {
    return fmaf(tanh ? 2.0f : 1.0f, sigmoid(tanh ? 2.0f * x : x), tanh ? -1.0f : 0.0f);
}
#else
// One instruction, right to 2^-11: what 16 bits can tell.
__device__ __forceinline__ float hyperbolic(float x) {
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ float sigmoid(float x) { return fmaf(0.5f, hyperbolic(0.5f * x), 0.5f); }
__device__ __forceinline__ float activated(float x, bool tanh) {
    return fmaf(tanh ? 1.0f : 0.5f, hyperbolic(tanh ? x : 0.5f * x), tanh ? 0.0f : 0.5f);
}
#endif

// --- waiting

__device__ __forceinline__ unsigned milliseconds() {  // of 2^20 ns
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return unsigned(t >> 20);
}

// Ends a wait that can only be a fault: no step takes seconds. Once late, a thread waits no more, and others soon know.
// What it would have waited for it takes for NaN.
struct Patience {
    static constexpr unsigned LIMIT = 2000, LOST = 0xFFFFFFFF;
    unsigned* late;
    unsigned polls = 0;
    unsigned since = 0;

    __device__ __forceinline__ bool over() {
        if (lost()) return true;
        if (++polls % 1024) return false;
        const unsigned now = milliseconds();
        if (polls == 1024) since = now & ~1u;  // not LOST
        if (now - since < LIMIT && !*static_cast<volatile unsigned*>(late)) return false;
        since = LOST;
        *late = 1;
        return true;
    }
    __device__ __forceinline__ bool lost() const { return since == LOST; }
    __device__ __forceinline__ float poison() const { return lost() ? __uint_as_float(LOST) : 0.0f; }  // to be added to sums
    __device__ __forceinline__ void done() { polls = 0; }
};

// The lanes of a warp must come together: those that waited for different words need not leave their loop at once.
__device__ __forceinline__ void barrier(int name, int threads) {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

