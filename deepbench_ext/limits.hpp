// What this CPU can do at best with some threads, which run at the same time.
#pragma once

#include <cstddef>

namespace deepbench {

double multiply_rate(int threads);               // FLOP/s of fp32 multiply-adds
double read_rate(int threads, size_t bytes);     // bytes/s, where each thread reads so many of its own again and again
double exchange_seconds(int threads);            // until every thread has heard of every other

}  // namespace deepbench
