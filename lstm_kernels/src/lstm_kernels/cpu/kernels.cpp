// The kernels that count.
#define TIMED false
#include "isa/kernels.inc"

namespace lstm_kernels {

Kernel best_kernel(Precision precision) { return choose(precision); }

}  // namespace lstm_kernels
