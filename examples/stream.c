/* An LSTM layer in C: steps of a stream, as an audio program would make them, and their latency.
 *
 *     cc -O2 examples/stream.c $(python -m lstm_kernels --cflags --libs) -o stream && ./stream
 */
#include <lstm_kernels.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { INPUT = 128, HIDDEN = 128, STEPS = 2000 };

static float* random_values(int count, float limit) {
    float* values = malloc(count * sizeof *values);
    for (int i = 0; i < count; ++i) values[i] = limit * (2.0f * rand() / RAND_MAX - 1);
    return values;
}

static double microseconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

int main(void) {
    const lstm_sizes sizes = {INPUT, HIDDEN, 1, 1, 1};
    const float* const weights[] = {random_values(4 * HIDDEN * INPUT, 0.09f), random_values(4 * HIDDEN * HIDDEN, 0.09f),
                                    random_values(4 * HIDDEN, 0.09f), random_values(4 * HIDDEN, 0.09f)};
    const float* const x = random_values(INPUT, 1);
    float y[HIDDEN];
    static double took[STEPS];
    lstm_stream* stream;
    if (lstm_stream_create(&sizes, "fp32", weights, &stream)) {
        fprintf(stderr, "%s\n", lstm_error());
        return 1;
    }
    for (int i = 0; i < STEPS; ++i) {
        const double began = microseconds();
        if (lstm_stream_step(stream, x, y)) {
            fprintf(stderr, "%s\n", lstm_error());
            return 1;
        }
        took[i] = microseconds() - began;
    }
    lstm_stream_destroy(stream);
    qsort(took, STEPS, sizeof *took, ascending);
    printf("%d steps of %d units: median %.1f us; y[0] = %f\n", STEPS, HIDDEN, took[STEPS / 2], y[0]);
    return 0;
}
