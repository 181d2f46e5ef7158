// The instructions of AMX, and the one of AVX-512 BF16, by plain loops: amx.sh compiles the kernels with them.
// A tile that was not shaped, or does not fit the others, ends the program.
#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace in_software {

struct Tiles {
    uint8_t bytes[8][16][64];
    int row_bytes[8], rows[8];
    bool shaped = false;
};
inline thread_local Tiles tiles;

inline void must(bool holds, const char* what) {
    if (holds) return;
    std::puts(what);
    std::exit(1);
}

inline void load_config(const void* from) {
    const auto* const bytes = static_cast<const uint8_t*>(from);
    must(bytes[0] == 1, "expected palette 1");
    for (int tile = 0; tile < 8; ++tile) {
        tiles.row_bytes[tile] = bytes[16 + 2 * tile] + 256 * bytes[17 + 2 * tile];
        tiles.rows[tile] = bytes[48 + tile];
        must(tiles.rows[tile] >= 1 && tiles.rows[tile] <= 16 && tiles.row_bytes[tile] <= 64, "a tile has 1 to 16 rows of 64 bytes");
    }
    std::memset(tiles.bytes, 0, sizeof tiles.bytes);
    tiles.shaped = true;
}

inline void load(int tile, const void* from, size_t stride) {
    must(tiles.shaped, "a tile was loaded before it was shaped");
    for (int row = 0; row < tiles.rows[tile]; ++row)
        std::memcpy(tiles.bytes[tile][row], static_cast<const char*>(from) + row * stride, tiles.row_bytes[tile]);
}

inline void store(int tile, void* to, size_t stride) {
    must(tiles.shaped, "a tile was stored before it was shaped");
    for (int row = 0; row < tiles.rows[tile]; ++row)
        std::memcpy(static_cast<char*>(to) + row * stride, tiles.bytes[tile][row], tiles.row_bytes[tile]);
}

inline float value(const uint8_t* bf16) {
    const uint32_t bits = uint32_t(bf16[0]) << 16 | uint32_t(bf16[1]) << 24;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline float pairs(float sum, const uint8_t* a, const uint8_t* b) { return sum + value(a) * value(b) + value(a + 2) * value(b + 2); }

// Tiles add in another order than vectors, as the real ones do.
inline float tile_pairs(float sum, const uint8_t* a, const uint8_t* b) { return sum + (value(a) * value(b) + value(a + 2) * value(b + 2)); }

inline int fours(int sum, const uint8_t* a, const uint8_t* b) {
    for (int i = 0; i < 4; ++i) sum += int(a[i]) * int8_t(b[i]);
    return sum;
}

template <class Sum>
void dot(int to, int a, int b, Sum (*word)(Sum, const uint8_t*, const uint8_t*)) {
    must(tiles.shaped && tiles.rows[to] == tiles.rows[a] && tiles.rows[b] * 4 == tiles.row_bytes[a], "tiles do not fit");
    for (int row = 0; row < tiles.rows[to]; ++row)
        for (int column = 0; column < tiles.row_bytes[to]; column += 4) {
            Sum sum;
            std::memcpy(&sum, &tiles.bytes[to][row][column], sizeof sum);
            for (int k = 0; k < tiles.rows[b]; ++k) sum = word(sum, &tiles.bytes[a][row][4 * k], &tiles.bytes[b][k][column]);
            std::memcpy(&tiles.bytes[to][row][column], &sum, sizeof sum);
        }
}

// By address: a vector of 64 bytes as an argument needs AVX-512.
inline void vector_pairs(float* sums, const void* a, const void* b) {
    for (int lane = 0; lane < 16; ++lane)
        sums[lane] = pairs(sums[lane], static_cast<const uint8_t*>(a) + 4 * lane, static_cast<const uint8_t*>(b) + 4 * lane);
}

inline long granted(long, ...) { return 0; }

}  // namespace in_software

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#define _tile_loadconfig in_software::load_config
#define _tile_release() (in_software::tiles.shaped = false)
#define _tile_loadd in_software::load
#define _tile_stored in_software::store
#define _tile_dpbf16ps(to, a, b) in_software::dot<float>(to, a, b, in_software::tile_pairs)
#define _tile_dpbusd(to, a, b) in_software::dot<int>(to, a, b, in_software::fours)
#define _mm512_dpbf16_ps(sum, a, b)                                   \
    ({                                                                \
        auto sums = sum;                                              \
        const auto first = a, second = b;                             \
        in_software::vector_pairs((float*)&sums, &first, &second);    \
        sums;                                                         \
    })
#define HAS(leaf, part, which, bit) true
#define syscall in_software::granted
