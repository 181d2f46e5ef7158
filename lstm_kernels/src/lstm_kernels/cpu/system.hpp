// All that the layer on a CPU asks of the operating system and no other does. Elsewhere it goes without.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif
#endif

namespace lstm_kernels {

// Weights are read front to back in every timestep: with pages of 4 KB every 64th line waits for a page table.
static inline void prefer_huge_pages([[maybe_unused]] void* from, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
    madvise(from, bytes, MADV_HUGEPAGE);
#endif
}

// Linux keeps the tiles of AMX from a process that has not asked for them.
static inline bool tiles_are_allowed() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr int Ask = 0x1023, TileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, Ask, TileData) == 0;
#else
    return false;
#endif
}

#ifdef __aarch64__
struct ArmFeatures {
    bool dot = false, bf16 = false;
};
static inline ArmFeatures arm_features() {
#ifdef __linux__
    constexpr unsigned long Dot = 1UL << 20, Bf16 = 1UL << 14;  // HWCAP_ASIMDDP, HWCAP2_BF16
    return {(getauxval(AT_HWCAP) & Dot) != 0, (getauxval(AT_HWCAP2) & Bf16) != 0};
#else
    return {};
#endif
}
#endif

// The cores that this process may use, and the means to give threads cores of their own. Linux likes to wake a thread
// on the core of the one that woke it; two threads that wait for each other in turns then share it for milliseconds
// while another core stands idle (measured: 0.23 ms became 1.5 ms with two threads, 0.05 ms became 0.55 ms with 16).
class Cores {
public:
#ifdef __linux__
    Cores() {
        cpu_set_t allowed;
        if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
        for (int core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &allowed)) allowed_.push_back(core);
    }
    int count() const { return allowed_.empty() ? int(std::thread::hardware_concurrency()) : int(allowed_.size()); }
    static int current() { return sched_getcpu(); }

    // Move this thread off a core, to wherever the system likes; it stays free to move on.
    void leave(int core) const {
        cpu_set_t own, others;
        if (sched_getaffinity(0, sizeof own, &own) != 0) return;
        others = own;
        CPU_CLR(core, &others);
        if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
        sched_setaffinity(0, sizeof own, &own);
    }

    // Bind this thread, which is one of `workers`, to its share of the cores that are not the caller's. Neighbours
    // have neighbouring cores, mostly of one socket. If the caller moves, only few have to.
    void bind(int worker, int workers, int caller) const {
        std::vector<int> others = allowed_;
        const auto taken = std::find(others.begin(), others.end(), caller);
        if (taken == others.end() || int(others.size()) <= workers) return;
        *taken = others.back();
        others.pop_back();
        cpu_set_t own;
        CPU_ZERO(&own);
        const size_t count = others.size();
        for (size_t i = count * worker / workers; i < count * (worker + 1) / workers; ++i) CPU_SET(others[i], &own);
        sched_setaffinity(0, sizeof own, &own);  // this thread only
    }

private:
    std::vector<int> allowed_;
#else
    int count() const { return int(std::thread::hardware_concurrency()); }
    static int current() { return -1; }
    void bind(int, int, int) const {}
    void leave(int) const {}
#endif
};

}  // namespace lstm_kernels
