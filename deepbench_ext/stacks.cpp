// Native stacks of the calling thread, taken by a timer: how a call gets from the caller into the library.
// worker/call_depth.py compiles this at first use and names the addresses.
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>

namespace {

constexpr int DEPTH = 128, MOST = 4096;
constexpr int FAULTS[] = {SIGSEGV, SIGBUS};
void* frames[MOST][DEPTH];
int depths[MOST];
std::atomic<int> taken, armed, unwinding;
timer_t timer;
long shortest_pause;
pthread_t owner;
sigjmp_buf escape;
struct sigaction before, faults_before[2];

// Assembly whose unwind tables are wrong, as QNNPACK's are on ARM, leads the unwinder astray: that stack is left
// out. Any other fault is that of whoever handled faults before.
void astray(int signal) {
    if (unwinding && pthread_equal(owner, pthread_self())) siglongjmp(escape, 1);
    sigaction(signal, &faults_before[signal == SIGBUS], nullptr);  // the instruction runs again
}

long nanoseconds() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

bool set_timer(long pause) {
    const struct itimerspec once {{}, {pause / 1000000000L, pause % 1000000000L}};
    return !timer_settime(timer, 0, &once, nullptr);
}

void take(int) {
    const int saved = errno;
    const long began = nanoseconds();
    const int place = taken;
    if (armed && place < MOST) {
        unwinding = 1;
        if (!sigsetjmp(escape, 1)) {
            depths[place] = backtrace(frames[place], DEPTH);
            taken = place + 1;
        }
        unwinding = 0;
    }
    // The program has at least as long as its stack took, or it would not go on.
    if (taken < MOST) set_timer(std::max(shortest_pause, nanoseconds() - began));
    errno = saved;
}

}  // namespace

extern "C" {

// How many there are; no more will come.
int stacks_stop() {
    timer_delete(timer);
    sigaction(SIGPROF, &before, nullptr);
    for (int i : {0, 1}) sigaction(FAULTS[i], &faults_before[i], nullptr);
    return taken;
}

// From here on stacks of this thread while they are armed, with that pause of some nanoseconds, or more, in between; an
// errno, or 0.
int stacks_start(long pause) {
    backtrace(frames[0], DEPTH);  // loads what it needs, which a signal handler must not
    taken = armed = unwinding = 0;
    owner = pthread_self();
    struct sigevent event {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return errno;
    struct sigaction action {};
    action.sa_flags = SA_RESTART;
    action.sa_handler = take;
    sigaction(SIGPROF, &action, &before);
    action.sa_handler = astray;
    for (int i : {0, 1}) sigaction(FAULTS[i], &action, &faults_before[i]);
    shortest_pause = pause;
    if (set_timer(pause)) return 0;
    const int problem = errno;
    stacks_stop();
    return problem;
}

// Stacks are taken, or not: what is waited for is not called.
void stacks_arm(int on) { armed = on; }

// One of them, innermost frame first: its length.
int stacks_get(int place, void*** addresses) {
    *addresses = frames[place];
    return depths[place];
}
}
