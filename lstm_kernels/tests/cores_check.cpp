// Which cores a thread is bound to, on a machine that is made up: a bit for each core, 0 where it stays unbound.
#include <sched.h>

#include <cstdint>

static int cores;
static uint64_t bound;

static int made_up_get(int, size_t, cpu_set_t* to) {
    CPU_ZERO(to);
    for (int core = 0; core < cores; ++core) CPU_SET(core, to);
    return 0;
}
static int made_up_set(int, size_t, const cpu_set_t* from) {
    for (int core = 0; core < 64; ++core)
        if (CPU_ISSET(core, from)) bound |= uint64_t(1) << core;
    return 0;
}

#define sched_getaffinity made_up_get
#define sched_setaffinity made_up_set
#include "team.hpp"

extern "C" uint64_t cores_of(int of_machine, int worker, int workers, int caller) {
    cores = of_machine, bound = 0;
    lstm_kernels::Cores().bind(worker, workers, caller);
    return bound;
}
