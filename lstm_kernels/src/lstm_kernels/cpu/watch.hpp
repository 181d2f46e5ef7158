// Where the time of a call goes: every lap ends a phase, so the phases of a thread are all of its time.
#pragma once

#include <chrono>

namespace lstm_kernels {

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

}  // namespace lstm_kernels
