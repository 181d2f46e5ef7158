/* LSTM layers on a CPU that keep their states from call to call, for programs in C and other languages.
 *
 *     lstm_stream* stream;
 *     if (lstm_stream_create(&sizes, "fp32", weights, &stream)) fail(lstm_error());
 *     while (more) lstm_stream_step(stream, x, y);       // one timestep of one sequence
 *     lstm_stream_destroy(stream);
 *
 * A function returns 0, or the number of an error, whose text lstm_error() has for the thread that called. Numbers are
 * floats, row by row. Streams share nothing: each thread may have its own; one stream takes one call at a time.
 *
 *     cc stream.c $(python -m lstm_kernels --cflags --libs)
 */
#ifndef LSTM_KERNELS_H
#define LSTM_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lstm_stream lstm_stream;

typedef struct {
    int input, hidden;
    int layers;
    int directions; /* 1, or 2 as nn.LSTM's bidirectional */
    int bias;       /* 1, or 0 where there are none */
} lstm_sizes;

enum { LSTM_OK, LSTM_UNSUPPORTED, LSTM_OUT_OF_MEMORY, LSTM_LIBRARY, LSTM_INVALID, LSTM_OTHER };

/* What went wrong in this thread's last call that did not return LSTM_OK. */
const char* lstm_error(void);

/* `precision`: "fp32", "bf16" or "int8", of the weights and products. `weights` points to arrays as nn.LSTM.parameters()
 * has them: for each layer and direction w_ih (4 hidden, input), w_hh (4 hidden, hidden) and, with bias, b_ih and b_hh
 * (4 hidden); gates in the order i, f, g, o. They are copied. The stream begins with one sequence, from zeros. */
int lstm_stream_create(const lstm_sizes* sizes, const char* precision, const float* const* weights, lstm_stream** made);

/* Begin anew with some sequences, from states (layers x directions, batch, hidden), or from zeros where they are NULL. */
int lstm_stream_reset(lstm_stream* stream, int batch, const float* h0, const float* c0);

/* One timestep on the calling thread: x is (batch, input), y (batch, directions x hidden). */
int lstm_stream_step(lstm_stream* stream, const float* x, float* y);

/* Some timesteps, on up to so many threads: x is (timesteps, batch, input), y (timesteps, batch, directions x hidden). */
int lstm_stream_run(lstm_stream* stream, const float* x, int timesteps, int threads, float* y);

/* The states that the next call begins with. */
int lstm_stream_state(const lstm_stream* stream, float* h, float* c);

void lstm_stream_destroy(lstm_stream* stream);

#ifdef __cplusplus
}
#endif

#endif
