// What the layer on a CPU asks of a kernel.
#pragma once

#include <cstddef>

#include "watch.hpp"

namespace lstm_kernels {

enum class Precision { fp32, bf16, int8 };

// Samples as words of 32 bits, one under the other.
struct Rows {
    const float* words;
    size_t stride;
};

// Four vectors for each panel and sample.
struct Gates {
    float* first;
    size_t row, panel;
    float* at(int which, int sample) const { return first + which * panel + sample * row; }
};

// What makes gates of sums of integers: by row of the weights what sums begin with and the size of a step, and the
// size of a step by sample.
struct Scaling {
    const int* starts;
    const float *weights, *samples;
};

// W_ih x + b for many samples.
struct Projection {
    int samples, panels, depth;    // depth: words of x
    const float *weights, *bias;
    Rows x;
    Gates gates;
    Scaling scaling;
};

struct Step {
    int hidden, samples;
    int first_unit, panels;        // this thread's slice
    bool backwards;                // the last panel first
    const float *weights, *bias;   // its panels
    Rows h;
    int depth;                     // words of h
    Scaling scaling;
    Gates gates;                   // W_ih x + b, if it was computed before
    const float* input_weights;    // else these times x
    Rows x;
    int input_depth;
    bool skip;                     // or x itself
    const float* c_before;         // (samples, hidden), as c_after
    float* c_after;
    float *h_after, *h_last;       // rows of h_stride words; h_last: null except at the last timestep
    size_t h_stride;
    Watch* watch;                  // of this thread, where calls are taken apart
};

struct Kernel {
    const char* name;
    int lanes, samples;            // samples: computed together
    int side;                      // gates that lie side by side in a panel: 4 or 2
    int offset;                    // of the integers of a sample
    void (*project)(const Projection&);
    void (*step)(const Step&);
    float (*quantise)(const float* from, int count, float* words);  // of int8
    int tiled = 0;                 // samples from which on a matrix unit multiplies; 0: never
};

// The best that this CPU runs, or the environment allows. The second looks at the clock after each phase: calls that
// count never do.
Kernel best_kernel(Precision precision);
Kernel timed_kernel(Precision precision);

}  // namespace lstm_kernels
