// A few threads that run one function together and meet inside it.
//
// OpenMP would do, but its wait policy is one setting for the whole process and wrong for us either
// way: passive costs a system call per timestep, active burns a core between calls. These spin while
// a call runs and for some microseconds after it, then sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "system.hpp"

namespace lstm_kernels {

static inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // `yield` is a no-op on most ARM cores
#endif
}

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

// How a team behaves between calls. An owner of the machine binds its threads to cores and spins for long; a guest leaves
// both to others.
enum class Manners { owner, guest };

class Team {
public:
    explicit Team(int threads, Manners manners = Manners::owner)
        : size_(threads), manners_(manners), fits_(threads <= cores_.count()), spins_(!fits_ ? 1 : manners == Manners::owner ? 2000 : 100), end_(threads, spins_) {
        try {
            for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
        } catch (...) {  // the system refused a thread: those that run must end before we leave
            dismiss();
            throw;
        }
    }
    ~Team() { dismiss(); }

    int size() const { return size_; }
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
            linger(seen);
            call_.wait(seen, std::memory_order_acquire);
            if (done_) return;
            if (fits_ && manners_ == Manners::owner && bound != caller_core_) cores_.bind(thread - 1, size_ - 1, bound = caller_core_);
            if (fits_ && manners_ == Manners::guest && Cores::current() == caller_core_) cores_.leave(caller_core_);
            work_(thread);
            end_.come(thread);
        }
    }

    // The next call may come soon: a thread that sleeps takes long to wake.
    void linger(unsigned seen) const {
        using Clock = std::chrono::steady_clock;
        const bool guest = manners_ == Manners::guest;
        const auto until = Clock::now() + std::chrono::microseconds(50);
        for (int spin = 0; guest || spin < spins_; ++spin) {
            if (call_.load(std::memory_order_acquire) != seen) return;
            relax();
            if (guest && spin % 16 == 15 && Clock::now() > until) return;
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
    const Manners manners_;
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
