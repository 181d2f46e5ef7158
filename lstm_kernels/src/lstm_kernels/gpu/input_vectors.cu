// W_ih x for few rows (vectors of the input), by plain multiply-adds: one kernel, where tensor cores need two,
// and none of a tile is wasted on rows that do not exist.
//
// A warp takes COLUMNS columns of the result and ROWS rows of x. Its lanes share the width of both, so that all loads
// are of neighbouring words, whatever the width and the alignment; then five rounds of shuffles leave each lane with
// ROWS * COLUMNS / 32 sums.
//
// Napkin, ten rows, I = H = 1024, 16 rows x 4 columns a warp, 1.8 GHz:
//   weights    4 * 1024 * 1024 * 4 B = 16 MiB from L2 at 5 TB/s                                 3.3 us
//   FLOPs      1024 warps of 32 * 64 multiply-adds, two for each quarter of a multiprocessor    2.3 us
//   words      20 loads for 64 multiply-adds: a cycle each against 16                           2.9 us
// At I = H = 128 a warp has 4 * 64 multiply-adds: what is left is a load, the sums and the launch.

#include "numbers.cuh"

constexpr int ROWS = 16, COLUMNS = 4, THREADS = 128, SUMS = ROWS * COLUMNS;

// Lanes whose numbers differ in bit N share their sums: each keeps half of them.
template <int N>
__device__ __forceinline__ void fold(float (&sum)[SUMS], int lane) {
    const bool upper = lane & N;
    constexpr int kept = SUMS / 32 * N;
#pragma unroll
    for (int i = 0; i < kept; ++i) {
        const float mine = upper ? sum[i + kept] : sum[i], given = upper ? sum[i] : sum[i + kept];
        sum[i] = mine + __shfl_xor_sync(0xFFFFFFFF, given, N);
    }
}

// out[row][column] = x[row] . w[column]; both are `width` wide, and `columns` is a multiple of COLUMNS.
extern "C" __global__ void __launch_bounds__(THREADS)
    input_vectors(const Stored* __restrict__ x, const Stored* __restrict__ w, float* __restrict__ out, int rows, int columns, int width) {
    const int lane = threadIdx.x % 32, column = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * COLUMNS, row = blockIdx.y * ROWS;
    if (column >= columns) return;
    w += (size_t)column * width;
    x += (size_t)row * width;
    float sum[SUMS] = {};
#pragma unroll 4
    for (int k = lane; k < width; k += 32) {
        float weights[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) weights[c] = loaded(w + (size_t)c * width + k);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float value = row + r < rows ? loaded(x + (size_t)r * width + k) : 0.0f;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) sum[r * COLUMNS + c] = fmaf(weights[c], value, sum[r * COLUMNS + c]);
        }
    }
    fold<16>(sum, lane);
    fold<8>(sum, lane);
    fold<4>(sum, lane);
    fold<2>(sum, lane);
    fold<1>(sum, lane);
#pragma unroll
    for (int i = 0; i < SUMS / 32; ++i) {
        const int index = lane * (SUMS / 32) + i, r = index / COLUMNS;
        if (row + r < rows) out[(size_t)(row + r) * columns + column + index % COLUMNS] = sum[i];
    }
}
