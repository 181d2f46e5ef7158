// The kernels once more, with a look at the clock after each phase. In a file of their own: how the compiler
// inlines the ones that count must not depend on these. With ONE_BUILD they are those: the sanitizers compile them once.
#include "kernels.hpp"

#ifndef ONE_BUILD
#define TIMED true
#include "isa/kernels.inc"
#endif

namespace lstm_kernels {

#ifdef ONE_BUILD
Kernel timed_kernel(Precision precision) { return best_kernel(precision); }
#else
Kernel timed_kernel(Precision precision) { return choose(precision); }
#endif

}  // namespace lstm_kernels
