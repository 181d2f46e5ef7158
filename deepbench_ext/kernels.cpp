// The kernels that count.
#define TIMED false
#include "kernels.inc"

namespace deepbench {

Kernel best_kernel(Precision precision) { return choose(precision); }

}  // namespace deepbench
