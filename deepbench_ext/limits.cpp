// What this CPU can do at best with some threads: docs/explanation/limits.md says what the constants are for.
#include "limits.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#define TIMED false
#include "kernels.hpp"
#include "team.hpp"

namespace deepbench {

namespace baseline {
#include "limits.inc"
}
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "limits.inc"
}
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
namespace avx512 {
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

// The same instruction set as best_kernel's.
Probes best_probes() {
    const int lanes = best_kernel().lanes;
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    if (lanes == avx512::Lanes) return {avx512::multiply, avx512::read, avx512::FlopsPerRound};
    if (lanes == avx2::Lanes) return {avx2::multiply, avx2::read, avx2::FlopsPerRound};
#endif
    (void)lanes;
    return {baseline::multiply, baseline::read, baseline::FlopsPerRound};
}

// Many short trials: where other processes take turns on the cores, some of these have them all to themselves.
constexpr int Trials = 40;
constexpr double TrialSeconds = 0.002;
std::atomic<float> sink;  // takes results that nobody wants, so that they are computed

// The seconds of a round at best, where work(thread, rounds) runs on all threads at once.
template <typename Work>
double per_round(Team& team, const Work& work) {
    using Clock = std::chrono::steady_clock;
    const auto seconds = [&](long rounds) {
        const auto start = Clock::now();
        team.run([&](int thread) { work(thread, rounds); });
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    const auto best = [&](long rounds, int trials) {
        double least = seconds(rounds);
        for (int trial = 1; trial < trials; ++trial) least = std::min(least, seconds(rounds));
        return least;
    };
    long rounds = 1;
    double took = best(rounds, 5);  // one that was disturbed must not pass for a long round
    while (took < TrialSeconds) {
        rounds *= took < TrialSeconds / 16 ? 8 : 2;
        took = best(rounds, 5);
    }
    took = std::min(took, best(rounds, Trials));
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
    struct alignas(128) Word {
        std::atomic<long> round{0};
    };
    Team team(threads);
    std::vector<Word> words(threads);
    long base = 0;  // a round of another trial is none of this one
    const double by_words = per_round(team, [&](int thread, long rounds) {
        const long before = base;
        for (long round = 1; round <= rounds; ++round) {
            words[thread].round.store(before + round, std::memory_order_release);
            for (const Word& word : words)
                for (int spin = 0; word.round.load(std::memory_order_acquire) < before + round; ++spin)
                    if (spin < 2000) relax();
                    else std::this_thread::yield();
        }
        team.barrier();
        if (thread == 0) base += rounds;
    });
    const double by_barrier = per_round(team, [&](int, long rounds) {
        for (long round = 0; round < rounds; ++round) team.barrier();
    });
    return std::min(by_words, by_barrier);
}

}  // namespace deepbench
