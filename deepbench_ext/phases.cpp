// The kernels once more, with a look at the clock after each phase. In a file of their own: how the compiler
// inlines the ones that count must not depend on these.
#define TIMED true
#include "kernels.inc"

namespace deepbench {

Kernel timed_kernel(Precision precision) { return choose(precision); }

}  // namespace deepbench
