// Native stacks of the calling thread, taken by a timer: how a call gets from the caller into the library.
// worker/call_depth.py compiles this at first use and names the addresses.
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr int DEPTH = 128, MOST = 4096;
void* frames[MOST][DEPTH];
int depths[MOST];
std::atomic<int> taken, armed;
timer_t timer;
struct sigaction before;

void take(int) {
    const int saved = errno;
    const int place = taken.load();
    if (armed && place < MOST) {
        depths[place] = backtrace(frames[place], DEPTH);
        taken.store(place + 1);
    }
    errno = saved;
}

}  // namespace

extern "C" {

// From here on a stack of this thread every so often, while they are armed; an errno, or 0.
int stacks_start(long nanoseconds) {
    backtrace(frames[0], DEPTH);  // loads what it needs, which a signal handler must not
    taken = armed = 0;
    struct sigaction action {};
    action.sa_handler = take;
    action.sa_flags = SA_RESTART;
    if (sigaction(SIGPROF, &action, &before)) return errno;
    struct sigevent event {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return errno;
    const struct timespec pause {0, nanoseconds};
    const struct itimerspec every {pause, pause};
    return timer_settime(timer, 0, &every, nullptr) ? errno : 0;
}

// Stacks are taken, or not: what is waited for is not called.
void stacks_arm(int on) { armed = on; }

// How many there are; no more will come.
int stacks_stop() {
    timer_delete(timer);
    sigaction(SIGPROF, &before, nullptr);
    return taken;
}

// One of them, innermost frame first: its length.
int stacks_get(int place, void*** addresses) {
    *addresses = frames[place];
    return depths[place];
}
}
