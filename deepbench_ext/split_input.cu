// Takes fp32 values apart for a product on tensor cores that is as accurate as fp32: x = high + low, both of TF32's
// significand. A row of x becomes high, low, high; the weights' rows are high, high, low: one TF32 product of
// rows three times as long adds up high high + low high + high low.
//
// Napkin: 4 bytes in and 12 out per value, at 4 TB/s.

extern "C" __global__ void split(const float* x, float* parts, int rows, int width) {
    const size_t count = (size_t)rows * width;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        const float value = x[i];
        unsigned high, low;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(value));
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low) : "f"(value - __uint_as_float(high)));
        float* row = parts + i / width * 3 * width + i % width;
        row[0] = row[2 * (size_t)width] = __uint_as_float(high);
        row[width] = __uint_as_float(low);
    }
}
