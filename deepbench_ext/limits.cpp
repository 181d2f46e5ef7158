// What this CPU can do at best with some threads: docs/explanation/limits.md says what the constants are for.
#include "limits.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "cpu/instruction_set.hpp"
#include "cpu/team.hpp"

namespace deepbench {

using namespace lstm_kernels;

using namespace std::chrono_literals;

#ifdef __clang__  // which does not know the pragmas below
#undef LSTM_KERNELS_X86
#endif

#if LSTM_KERNELS_X86
#define VECTOR_REGISTER "x"
#elif defined(__aarch64__)
#define VECTOR_REGISTER "w"
#else
#define VECTOR_REGISTER "m"
#endif

namespace portable {
constexpr int Lanes = 4;
#if LSTM_KERNELS_X86
constexpr int Sums = 12;
#else
constexpr int Sums = 16;
#endif
#include "limits.inc"
}
#if LSTM_KERNELS_X86
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
constexpr int Lanes = 8, Sums = 12;
#include "limits.inc"
}
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
namespace avx512 {
constexpr int Lanes = 16, Sums = 16;
#include "limits.inc"
}
#pragma GCC pop_options
#endif

namespace {

struct Probes {
    float (*multiply)(long, float, float);
    float (*read)(const float*, size_t, long);
    int flops;
};

// As wide as the kernels of fp32 are.
Probes best_probes() {
#if LSTM_KERNELS_X86
    const InstructionSet most = instruction_set();
    if (most >= InstructionSet::avx512) return {avx512::multiply, avx512::read, avx512::FlopsPerRound};
    if (most >= InstructionSet::avx2) return {avx2::multiply, avx2::read, avx2::FlopsPerRound};
#endif
    return {portable::multiply, portable::read, portable::FlopsPerRound};
}

// Many short trials: where other processes take turns on the cores, some of these have them all to themselves. And
// pauses between them: in a virtual machine two cores may be one core of the host, until they sleep and are placed
// anew. (Measured with 16 threads of one: 1.46 TFLOP/s without pauses, 1.9 to 2.3 with them; of another 1.4 to 1.6 with them,
// and 2.5 after it had been busy for three minutes.)
constexpr int Trials = 40;
constexpr std::array Pauses{0us, 200us, 2000us, 10000us};
constexpr double TrialSeconds = 0.002;
constexpr std::chrono::milliseconds Patience{500};  // for all of them: on a busy machine one that waits for other threads takes long
std::atomic<float> sink;  // takes results that nobody wants, so that they are computed

// The seconds of a round at best, where work(thread, rounds) runs on all threads at once.
template <typename Work>
double per_round(Team& team, const Work& work) {
    using Clock = std::chrono::steady_clock;
    const auto begun = Clock::now();
    const auto seconds = [&](long rounds) {
        const auto start = Clock::now();
        team.run([&](int thread) { work(thread, rounds); });
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    long rounds = 1;
    const auto best = [&] {
        double least = seconds(rounds);
        for (int trial = 1; trial < 5; ++trial) least = std::min(least, seconds(rounds));  // one that was disturbed must not pass for a long round
        return least;
    };
    double took = best();
    while (took < TrialSeconds) {
        rounds *= took < TrialSeconds / 16 ? 8 : 2;
        took = best();
    }
    for (int trial = 0; trial < Trials && Clock::now() - begun < Patience; ++trial) {
        std::this_thread::sleep_for(Pauses[trial % Pauses.size()]);
        took = std::min(took, seconds(rounds));
    }
    return took / rounds;
}

}  // namespace

double multiply_rate(int threads) {
    const Probes probes = best_probes();
    Team team(threads);
    return threads * probes.flops / per_round(team, [&](int thread, long rounds) { sink = probes.multiply(rounds, 0.5f, 1.0f + thread); });
}

double read_rate(int threads, size_t bytes) {
    const Probes probes = best_probes();
    struct alignas(64) Line {
        float values[16];
    };
    const size_t lines = std::max(bytes / sizeof(Line) / 16, size_t(1)) * 16;  // a multiple of what a round of any kernel takes
    Team team(threads);
    std::vector<std::unique_ptr<Line[]>> memory(threads);
    team.run([&](int thread) { memory[thread] = std::make_unique<Line[]>(lines); });  // zeroed, so pages fall to who reads them
    return threads * lines * sizeof(Line) /
           per_round(team, [&](int thread, long rounds) { sink = probes.read(memory[thread][0].values, lines * 16, rounds); });
}

double exchange_seconds(int threads) {
    Team team(threads);
    Meeting meeting(threads, team.spins());
    return per_round(team, [&](int thread, long rounds) {
        for (long round = 0; round < rounds; ++round) meeting.barrier(thread);
    });
}

}  // namespace deepbench
