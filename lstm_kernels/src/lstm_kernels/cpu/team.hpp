// A few threads that run one function together and meet inside it.
//
// OpenMP would do, but its wait policy is one setting for the whole process and wrong for us either
// way: passive costs a system call per timestep, active burns a core between calls. These spin while
// a call runs and for some microseconds after it, then sleep.
#pragma once

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace lstm_kernels {

static inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // `yield` is a no-op on most ARM cores
#endif
}

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
#endif
};

// Some threads that wait for each other. Each has a word that only it writes: nobody waits for a line that several
// want to write.
class Meeting {
public:
    explicit Meeting(int members, int spins) : words_(members), spins_(spins) {}

    // Nobody passes before everybody has come.
    void barrier(int member) {
        const unsigned turn = come(member);
        for (Word& word : words_) wait(word, turn);
    }

    // To say that one has come, and not to wait.
    unsigned come(int member) {
        const unsigned turn = words_[member].turn.load(std::memory_order_relaxed) + 1;
        words_[member].turn.store(turn, std::memory_order_release);
        return turn;
    }

private:
    struct alignas(128) Word {  // two lines: processors fetch them in pairs
        std::atomic<unsigned> turn{0};
    };

    void wait(const Word& word, unsigned turn) const {
        for (int spin = 0; int(word.turn.load(std::memory_order_acquire) - turn) < 0; ++spin)
            if (spin < spins_) relax();
            else std::this_thread::yield();  // another process has the core of the one we wait for
    }

    std::vector<Word> words_;
    const int spins_;
};

class Team {
public:
    explicit Team(int threads)
        : size_(threads), fits_(threads <= cores_.count()), spins_(fits_ ? 2000 : 1), end_(threads, spins_) {
        try {
            for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
        } catch (...) {  // the system refused a thread: those that run must end before we leave
            dismiss();
            throw;
        }
    }
    ~Team() { dismiss(); }

    int spins() const { return spins_; }

    // `work(thread)` on every thread, this one being thread 0; returns when all are done.
    template <typename Work>
    void run(const Work& work) {
        if (size_ == 1) return work(0);
        work_ = std::cref(work);
        caller_core_ = Cores::current();
        call_.fetch_add(1);
        call_.notify_all();
        work(0);
        end_.barrier(0);
    }

private:
    void serve(int thread) {
        int bound = -1;
        for (unsigned seen = 0;; ++seen) {
            for (int spin = 0; spin < spins_ && call_.load(std::memory_order_acquire) == seen; ++spin) relax();
            call_.wait(seen, std::memory_order_acquire);
            if (done_) return;
            if (fits_ && bound != caller_core_) cores_.bind(thread - 1, size_ - 1, bound = caller_core_);
            work_(thread);
            end_.come(thread);
        }
    }

    void dismiss() {
        done_ = true;
        call_.fetch_add(1);
        call_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }

    const Cores cores_;
    const int size_;
    const bool fits_;  // a core for every thread: then spinning pays
    const int spins_;
    int caller_core_ = -1;
    std::function<void(int)> work_;
    bool done_ = false;
    alignas(64) std::atomic<unsigned> call_{0};
    Meeting end_;
    std::vector<std::thread> workers_;  // last: a worker must find the rest built
};

}  // namespace lstm_kernels
