// Weights as the kernels read them: panels of words, see step.inc, in each precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels.hpp"
#include "memory.hpp"

namespace lstm_kernels {

inline int values_per_word(Precision precision) {
    return precision == Precision::fp32 ? 1 : precision == Precision::bf16 ? 2 : 4;
}

inline uint16_t to_bf16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value != value) return 0x7fc0;
    return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // to the nearest, of two to the even one
}

inline float from_bf16(uint16_t half) {
    const uint32_t bits = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// What stands where in one thread's panels: row r of them is this gate of this unit.
struct PanelRow {
    int panel, gate, lane, unit;
    PanelRow(int row, int lanes, int first_unit)
        : panel(row / (4 * lanes)), gate(row / lanes % 4), lane(row % lanes), unit(first_unit + panel * lanes + lane) {}
};

// One matrix of a slice. Lanes without a unit hold zeros, as do values that fill up a word.
struct Panels {
    Words words;    // (panel, k, gate, lane), or (panel, pair of gates, k, gate, lane)
    Words scales;   // by row: the size of a step, for integers
    Words starts;   // by row: what a sum of integers begins with

    Panels() = default;
    Panels(int rows, int depth, Precision precision, const Shape& shape)
        : words(size_t(rows) * depth, shape),
          scales(precision == Precision::int8 ? rows : 0, shape),
          starts(precision == Precision::int8 ? rows : 0, shape) {}

    size_t bytes() const { return words.bytes() + scales.bytes() + starts.bytes(); }

    Scaling scaling(const float* samples) const {
        return {reinterpret_cast<const int*>(starts.get()), scales.get(), samples};
    }

    // `from` is (4 H, values) with rows in the order (gate, unit).
    void pack(const float* from, int hidden, int values, int first_unit, int rows, const Kernel& kernel, Precision precision) {
        const int L = kernel.lanes, side = kernel.side;
        const int per_word = values_per_word(precision), depth = (values + per_word - 1) / per_word;
        for (int row = 0; row < rows; ++row) {
            const PanelRow at(row, L, first_unit);
            const float* source = at.unit < hidden ? from + (size_t(at.gate) * hidden + at.unit) * values : nullptr;
            float* const first = words.get() + ((size_t(at.panel) * 4 + at.gate / side * side) * depth + at.gate % side) * L + at.lane;
            const float step = precision == Precision::int8 ? step_of(source, values) : 0;
            int sum = 0;
            for (int value = 0; value < depth * per_word; ++value) {
                const float weight = source && value < values ? source[value] : 0;
                char* const word = reinterpret_cast<char*>(first + size_t(value / per_word) * side * L);
                if (precision == Precision::fp32) {
                    std::memcpy(word, &weight, sizeof weight);
                } else if (precision == Precision::bf16) {
                    const uint16_t half = to_bf16(weight);
                    std::memcpy(word + 2 * (value % 2), &half, sizeof half);
                } else {
                    const int integer = step > 0 ? int(std::lrint(weight / step)) : 0;
                    word[value % 4] = char(int8_t(integer));
                    sum += integer;
                }
            }
            if (precision != Precision::int8) continue;
            const int start = -kernel.offset * sum;
            scales.get()[row] = step;
            std::memcpy(starts.get() + row, &start, sizeof start);
        }
    }

private:
    static float step_of(const float* row, int values) {
        float largest = 0;
        for (int k = 0; row && k < values; ++k) {
            if (!(std::fabs(row[k]) <= std::numeric_limits<float>::max()))
                throw std::invalid_argument("weights of int8 must be finite numbers");
            largest = std::max(largest, std::fabs(row[k]));
        }
        return largest / 127;
    }
};

}  // namespace lstm_kernels
