// W_ih x for all timesteps on tensor cores, as accurate as fp32: one product instead of cuBLAS's, where that would
// use plain FMA (45 to 50 TFLOP/s on an H200) or lose accuracy (TF32).
//
// As in the recurrence, w = w_hi + w_lo and x = x_hi + x_lo in fp16, and three of the four products count. W_ih is
// scaled as a whole, x row by row, by powers of two, so that the largest value is near the top of fp16's range.
// Tensor cores cut off when they add: sums of 32 columns are therefore taken out and added in plain fp32. Without
// that the error grows with the width, to 2e-5 at 1024.
//
// Napkin, a tile of 128 x 128 x 32, 8 warps of 64 x 32:
//   mma      96 a warp, 192 for each quarter of a multiprocessor at 6.5 cycles           1250 cycles
//   bytes    32 KiB from L2, 96 KiB out of shared memory at 128 a cycle                   770 cycles
// so 132 multiprocessors at 1.79 GHz would do 190 TFLOP/s, counted as one product. Measured: 86 to 91, the tensor
// cores 39% busy; two warps for each quarter do not hide the latency of mma and ldmatrix. On Hopper, and with a tile for
// each multiprocessor, warpgroups do it instead (`input_gemm_hopper`).
//
// Few rows are few tiles: 100 rows and 4096 columns are 32. Then a cluster of blocks shares the columns of k of one
// tile, and each adds up a part of its rows, always in the same order.

constexpr int TILE = 128, DEPTH = 32, STAGES = 3, THREADS = 256;
constexpr int PART = TILE * DEPTH * 2;  // bytes of one half of one factor
constexpr int STAGE = 4 * PART;         // x_hi, x_lo, w_hi, w_lo
constexpr int PITCH = TILE + 8;         // of a row of sums in shared memory, so that eight rows lie in different banks
static_assert(TILE * PITCH * 4 <= STAGES * STAGE, "sums take the place of stages");

// Rows of x as halves, padded with zeros to `padded` columns; factors[row] undoes the row's scale. A warp per row, or a
// block (`together`), which is faster for few rows.
extern "C" __global__ void __launch_bounds__(THREADS)
    input_split(const float* x, unsigned short* high, unsigned short* low, float* factors, int rows, int width, int padded, int together) {
    __shared__ float tops[THREADS / 32];
    const int row = together ? blockIdx.x : (blockIdx.x * THREADS + threadIdx.x) / 32;
    const int lane = together ? threadIdx.x : threadIdx.x % 32, lanes = together ? THREADS : 32;
    if (row >= rows) return;
    x += (size_t)row * width;
    float top = 0;
    for (int i = lane; i < width; i += lanes) top = fmaxf(top, fabsf(x[i]));
    for (int i = 16; i; i /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, i));
    if (together) {
        tops[threadIdx.x / 32] = top;
        __syncthreads();
        for (int i = 0; i < THREADS / 32; ++i) top = fmaxf(top, tops[i]);
    }
    // 2^14 over the power of two at or below the largest value, within what floats can say.
    const int exponent = min(max((int)(__float_as_uint(top) >> 23), 15), 253);
    const float scale = __uint_as_float((unsigned)(min(254 + 14 - exponent, 254)) << 23);
    if (lane == 0) factors[row] = 1.0f / scale;
    for (int i = lane; i < padded; i += lanes) {
        const float value = i < width ? x[i] * scale : 0.0f;
        unsigned short hi, lo;
        float back;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(hi) : "f"(value));
        asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(hi));
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(lo) : "f"(value - back));
        // Infinity is multiplied once, and by w_hi: by both halves of w it may be NaN.
        const bool infinite = (hi & 0x7FFF) == 0x7C00;
        high[(size_t)row * padded + i] = infinite ? 0 : hi;
        low[(size_t)row * padded + i] = infinite ? hi : lo;
    }
}

struct Fragment {
    unsigned r[4];
};

// Where 16 bytes of a row of a tile lie: eight rows read together are in different banks.
__device__ __forceinline__ unsigned place(int row, int piece) { return row * (DEPTH * 2) + (piece ^ (row >> 1 & 3)) * 16; }

__device__ __forceinline__ Fragment matrix(unsigned at) {
    Fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(at));
    return f;
}

__device__ __forceinline__ void mma(float (&sum)[4], const Fragment& a, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

// Of a cluster.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Four numbers at an address of this block's shared memory, in another block of the cluster.
__device__ __forceinline__ float4 taken(unsigned from, unsigned block) {
    float4 v = {};
#if __CUDA_ARCH__ >= 900
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(block));
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there) : "memory");
#endif
    return v;
}

// out[row][column] = x[row] . w[column]; w has a multiple of TILE rows, both `padded` columns, a multiple of DEPTH.
// A cluster along z shares a tile.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    input_gemm(const unsigned short* x_high, const unsigned short* x_low, const unsigned short* w_high, const unsigned short* w_low,
            const float* factors, float w_factor, float* out, int rows, int columns, int padded) {
    extern __shared__ __align__(128) unsigned char shared[];
    const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;

    const auto load = [&](int step, int stage) {
#pragma unroll
        for (int i = 0; i < STAGE / 16 / THREADS; ++i) {
            const int piece = i * THREADS + tid, part = piece / (PART / 16), row = piece % (PART / 16) / 4, column = piece % 4;
            const unsigned short* from = part == 0 ? x_high : part == 1 ? x_low : part == 2 ? w_high : w_low;
            const int source = part < 2 ? first_row + row : first_column + row;
            const int bytes = part < 2 && source >= rows ? 0 : 16;  // zeros beyond the end
            const unsigned short* address = from + (size_t)(bytes ? source : 0) * padded + step * DEPTH + column * 8;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base + stage * STAGE + part * PART + place(row, column)),
                         "l"(address), "r"(bytes)
                         : "memory");
        }
    };

    const int parts = gridDim.z, part_of = blockIdx.z, all = padded / DEPTH;
    const int begin = all * part_of / parts, steps = all * (part_of + 1) / parts - begin;
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < steps) load(begin + i, i);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    float sum[4][4][4] = {};
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        const int ahead = step + STAGES - 1;
        if (ahead < steps) load(begin + ahead, ahead % STAGES);
        asm volatile("cp.async.commit_group;" ::: "memory");

        const unsigned stage = base + step % STAGES * STAGE;
        Fragment b[2][2][2];  // [half][16 columns of k][pair of tiles]
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int k = 0; k < 2; ++k)
#pragma unroll
                for (int pair = 0; pair < 2; ++pair)
                    b[half][k][pair] = matrix(stage + (2 + half) * PART + place(warp_column + pair * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            Fragment a[2][2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int k = 0; k < 2; ++k) a[half][k] = matrix(stage + half * PART + place(warp_row + m * 16 + lane % 16, k * 2 + lane / 16));
            float part[4][4] = {};
#pragma unroll
            for (int k = 0; k < 2; ++k)
#pragma unroll
                for (int which = 0; which < 3; ++which)  // high high, high low, low high
#pragma unroll
                    for (int n = 0; n < 4; ++n) {
                        const Fragment& w = b[which == 1][k][n / 2];
                        mma(part[n], a[which == 2][k], w.r[n % 2 * 2], w.r[n % 2 * 2 + 1]);
                    }
#pragma unroll
            for (int n = 0; n < 4; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[m][n][i] += part[n][i];
        }
    }

    if (parts > 1) {
        __syncthreads();  // all have read the last stage: the tile takes its place
        float* tile = reinterpret_cast<float*>(shared);
#pragma unroll
        for (int m = 0; m < 4; ++m)
#pragma unroll
            for (int below = 0; below < 2; ++below)
#pragma unroll
                for (int n = 0; n < 4; ++n)
                    *reinterpret_cast<float2*>(tile + (warp_row + m * 16 + lane / 4 + below * 8) * PITCH + warp_column + n * 8 + lane % 4 * 2) =
                        make_float2(sum[m][n][below * 2], sum[m][n][below * 2 + 1]);
        cluster_barrier();
        const int column = first_column + tid % 32 * 4;
        for (int i = part_of * 8 + tid / 32; i < TILE; i += parts * 8) {
            const int row = first_row + i;
            float4 whole = {};
            for (int part = 0; part < parts; ++part) {
                const float4 one = taken(base + (i * PITCH + tid % 32 * 4) * 4, part);
                whole.x += one.x, whole.y += one.y, whole.z += one.z, whole.w += one.w;
            }
            if (row < rows && column < columns) {
                const float factor = factors[row] * w_factor;
                *reinterpret_cast<float4*>(out + (size_t)row * columns + column) =
                    make_float4(whole.x * factor, whole.y * factor, whole.z * factor, whole.w * factor);
            }
        }
        __syncwarp();
        cluster_barrier();  // nobody leaves while another reads its tile
        return;
    }
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            const int row = first_row + warp_row + m * 16 + lane / 4 + below * 8;
            if (row >= rows) continue;
            const float factor = factors[row] * w_factor;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const int column = first_column + warp_column + n * 8 + lane % 4 * 2;  // columns are a multiple of 4
                if (column < columns)
                    *reinterpret_cast<float2*>(out + (size_t)row * columns + column) =
                        make_float2(sum[m][n][below * 2] * factor, sum[m][n][below * 2 + 1] * factor);
            }
        }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STORAGE 1  // fp16
#include "wgmma.cuh"

// The same by wgmma: two warpgroups of 64 x 128 each.
//   wgmma    six of 64 cycles for each of them and 32 columns of k               770 cycles
//   bytes    32 KiB from L2 at 31 a cycle                                       1060 cycles
// so L2 binds, at 220 TFLOP/s.
constexpr int BUFFERS = 6, OCTETS = DEPTH / 8;
constexpr int OCTET = (TILE + 1) * 16;  // bytes of eight columns; one row more, so that neighbours lie in different banks
constexpr int HALF = OCTETS * OCTET, BUFFER = 4 * HALF;
static_assert(THREADS == TILE / 2 * OCTETS, "a thread loads two rows");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    input_gemm_hopper(const unsigned short* x_high, const unsigned short* x_low, const unsigned short* w_high, const unsigned short* w_low,
            const float* factors, float w_factor, float* out, int rows, int columns, int padded) {
    extern __shared__ __align__(128) unsigned char shared[];
    const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    const int tid = threadIdx.x, group = tid / 128, warp = tid / 32 % 4, lane = tid % 32;
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE, steps = padded / DEPTH;

    const int row = tid / OCTETS, octet = tid % OCTETS;  // of each half a thread loads one of eight columns, of two rows
    const auto load = [&](int step) {
#pragma unroll
        for (int i = 0; i < 8 && step < steps; ++i) {
            const int source = (i < 4 ? first_row : first_column) + row + i % 2 * (TILE / 2);
            const int bytes = i < 4 && source >= rows ? 0 : 16;  // zeros beyond the end
            const unsigned short* from = i / 2 == 0 ? x_high : i / 2 == 1 ? x_low : i / 2 == 2 ? w_high : w_low;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                             base + step % BUFFERS * BUFFER + i / 2 * HALF + octet * OCTET + (row + i % 2 * (TILE / 2)) * 16),
                         "l"(from + (size_t)(bytes ? source : 0) * padded + step * DEPTH + octet * 8), "r"(bytes)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int step = 0; step < BUFFERS - 1; ++step) load(step);
    float sum[64] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;\nfence.proxy.async.shared::cta;" ::"n"(BUFFERS - 2) : "memory");
        __syncthreads();
        const unsigned buffer = uniform(base + step % BUFFERS * BUFFER) >> 4, rows_at = uniform(buffer + group * 64);
        float part[64];  // tensor cores cut off when they add: of 32 columns that is little
#pragma unroll
        for (int i = 0; i < 64; ++i) part[i] = 0;
        begin();
#pragma unroll
        for (int k = 0; k < 2; ++k)
#pragma unroll
            for (int which = 0; which < 3; ++which)  // high high, high low, low high
                multiply(part, factor(rows_at, (which == 2) * HALF + k * 2 * OCTET, OCTET),
                         factor(buffer, (2 + (which == 1)) * HALF + k * 2 * OCTET, OCTET), k || which);
        commit();
        load(step + BUFFERS - 1);  // in the place of the last step, which both warpgroups have done with
        finish<0>(part);
#pragma unroll
        for (int i = 0; i < 64; ++i) sum[i] += part[i];
    }

#pragma unroll
    for (int below = 0; below < 2; ++below) {
        const int out_row = first_row + group * 64 + warp * 16 + lane / 4 + below * 8;
        if (out_row >= rows) continue;
        const float scale = factors[out_row] * w_factor;
#pragma unroll
        for (int n = 0; n < 16; ++n) {
            const int column = first_column + n * 8 + lane % 4 * 2;  // columns are a multiple of 4
            if (column < columns)
                *reinterpret_cast<float2*>(out + (size_t)out_row * columns + column) =
                    make_float2(sum[n * 4 + below * 2] * scale, sum[n * 4 + below * 2 + 1] * scale);
        }
    }
}
#endif
