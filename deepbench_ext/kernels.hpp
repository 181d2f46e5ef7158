// One timestep of the CPU baseline: the arguments of cell.inc, and its builds.
//
// Whoever includes this says by TIMED whether the kernels look at the clock after each phase. Calls that
// count never do; phases.cpp has the ones that do.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>

namespace deepbench {

constexpr bool Timed = TIMED;

// Where the time of a call goes: every lap ends a phase, so the phases of a thread are all of its time.
enum Phase { InputProduct, RecurrentProduct, Cell, Wait, Phases };

struct alignas(64) Watch {
    using Clock = std::chrono::steady_clock;
    Clock::time_point last;
    Clock::duration spent[Phases] = {};

    void start() { last = Clock::now(); }
    void lap(Phase phase) {
        const auto now = Clock::now();
        spent[phase] += now - last;
        last = now;
    }
};

struct Step {
    int hidden, batch;
    int first_unit, panels;                    // this thread's slice
    const float *weights, *bias;               // its panels
    const float* gates;                        // (batch, gate_rows): W_ih x, in panel order; null: use x
    int gate_rows;
    const float* x;                            // (batch, hidden), for skip_input
    const float *h_before, *c_before;          // (batch, hidden)
    float *h_after, *c_after, *h_last;         // h_last: null except at the last timestep
    Watch* watch;                              // of this thread, where calls are taken apart
};

struct Kernel {
    const char* name;
    int lanes;
    void (*step)(const Step&);
};

namespace baseline {  // NEON on ARM, SSE2 on x86
constexpr int Lanes = 4;
#if defined(__aarch64__)
constexpr int Columns = 6;  // 24 sums + 4 weights + 2 of 32 registers
#else
constexpr int Columns = 2;
#endif
#include "cell.inc"
}  // namespace baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
constexpr int Lanes = 8, Columns = 3;  // 12 sums + 4 of 16 registers
#include "cell.inc"
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
namespace avx512 {
constexpr int Lanes = 16, Columns = 6;  // 24 sums + 4 + 1 of 32 registers
#include "cell.inc"
}  // namespace avx512
#pragma GCC pop_options
#endif

// The best that this CPU runs.
static Kernel best_kernel() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    if (__builtin_cpu_supports("avx512f")) return {"AVX-512", avx512::Lanes, avx512::step};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"AVX2", avx2::Lanes, avx2::step};
#endif
#if defined(__x86_64__)
    return {"SSE2", baseline::Lanes, baseline::step};
#elif defined(__aarch64__)
    return {"NEON", baseline::Lanes, baseline::step};
#else
    return {"portable", baseline::Lanes, baseline::step};
#endif
}

}  // namespace deepbench
