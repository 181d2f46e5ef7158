// How a layer is cut up among threads, and what is computed when.
#pragma once

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "../errors.hpp"
#include "kernels.hpp"

namespace lstm_kernels {

// Threads that share a batch part wait for each other once per timestep; batch parts never meet.
struct Plan {
    int batch_parts, unit_parts;
    int chunk;  // timesteps whose input products are computed at once; 0: each in its own timestep, with the recurrent one
    int threads() const { return batch_parts * unit_parts; }
};

// Bytes of the caches that a core has for itself, as Linux tells them.
struct Caches {
    double l1 = 32 << 10, l2 = 512 << 10;

    static const Caches& of_this_machine() {
        static const Caches caches = as_linux_says();
        return caches;
    }

private:
    static Caches as_linux_says() {
        Caches found;
        for (int index = 0; index < 8; ++index) {
            const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
            char type[16] = "";
            int level = 0, kilobytes = 0;
            read(folder + "type", "%15s", type);
            read(folder + "level", "%d", &level);
            read(folder + "size", "%d", &kilobytes);  // such as 1024K
            if (std::string(type) == "Instruction" || kilobytes <= 0) continue;
            if (level == 1) found.l1 = kilobytes * 1024.0;
            if (level == 2) found.l2 = kilobytes * 1024.0;
        }
        return found;
    }

    // Not by a stream: where libstdc++ is linked statically and another is loaded, its locale crashes.
    static void read(const std::string& path, const char* format, void* to) {
        if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
            if (std::fscanf(file, format, to) != 1) {}  // it stays as it was
            std::fclose(file);
        }
    }
};

// Cycles of a timestep on one thread, on a napkin: enough to tell plans apart. What a core does per cycle: two
// multiply-adds of vectors, or 16 by a matrix unit; 100, 40 or 10 bytes from its L1, its L2 or what is behind them.
class Napkin {
public:
    Napkin(const Shape& shape, const Kernel& kernel, int values_per_word, const Caches& caches)
        : shape_(shape), kernel_(kernel), caches_(caches),
          depth_(words(shape.hidden, values_per_word)), input_depth_(words(shape.input, values_per_word)) {}

    static int words(int values, int per_word) { return (values + per_word - 1) / per_word; }

    int panels() const { return words(shape_.hidden, kernel_.lanes); }

    double cycles(const Plan& plan) const {
        const double panels_each = words(panels(), plan.unit_parts), samples = words(shape_.batch, plan.batch_parts);
        const double vectors = 4 * panels_each, word_bytes = vectors * kernel_.lanes * 4;
        const double per_cycle = kernel_.tiled && samples >= kernel_.tiled ? 16 : 2;
        const double recurrent = samples * vectors * depth_ / per_cycle, input = samples * vectors * input_depth_ / per_cycle;
        const double cell = samples * (panels_each * Cell + quantising()), wait = plan.unit_parts > 1 ? Exchange : 0;
        const double weights = word_bytes * depth_, input_weights = word_bytes * input_depth_;
        if (!plan.chunk) return both(recurrent + input, read(weights + input_weights)) + cell + wait;
        const double gates = samples * vectors * kernel_.lanes * 4 * 2 / PerCycleL2;  // written and read
        return both(recurrent, read(weights)) + both(input, read(input_weights) / plan.chunk) + gates + cell + wait;
    }

    // A panel of each product, with room for the samples.
    bool fits_l1() const { return 4 * (depth_ + input_depth_) * 4 * kernel_.lanes <= 0.5 * caches_.l1; }

private:
    // An exchange counts with the wait for the thread that comes last.
    static constexpr double Cell = 60, Exchange = 1000, Quantising = 6, PerCycleL1 = 100, PerCycleL2 = 40, PerCycleFar = 10;

    // A sample to integers: every thread does it for all of its samples, however few its units.
    double quantising() const {
        return kernel_.quantise ? Quantising * words(shape_.hidden + shape_.input, kernel_.lanes) : 0;
    }

    // Computing and reading at the same time: the longer of them, and some of the other.
    static double both(double computed, double read) { return std::max(computed, read) + std::min(computed, read) / 4; }

    double read(double bytes) const {
        if (bytes <= 0.75 * caches_.l1) return bytes / PerCycleL1;
        const double near = bytes <= 0.75 * caches_.l2 ? bytes : caches_.l2 / 2;  // every other step runs backwards
        return near / PerCycleL2 + (bytes - near) / PerCycleFar;
    }

    const Shape shape_;
    const Kernel kernel_;
    const Caches caches_;
    const int depth_, input_depth_;
};

// A plan, and what a call takes by it.
struct Choice {
    Plan plan;
    double cycles;
};

// The quickest by the napkin. `together`: whether input products may be computed within their timestep. `waking`: cycles
// until other threads work.
static inline Choice best_plan(const Shape& shape, const Kernel& kernel, int values_per_word, int threads, bool together, double waking = 0) {
    constexpr int Rows = 192;  // samples that keep a product busy, and whose gates stay in the cache
    constexpr int Few = 4;
    const Napkin napkin(shape, kernel, values_per_word, Caches::of_this_machine());
    const int chunk = std::max(1, std::min(shape.timesteps, Rows / shape.batch));
    Choice best{{1, 1, chunk}, std::numeric_limits<double>::infinity()};
    const auto consider = [&](const Plan& plan) {
        const double cycles = shape.timesteps * napkin.cycles(plan) + (plan.threads() > 1 ? waking : 0);
        if (cycles < best.cycles) best = {plan, cycles};
    };
    consider({1, 1, chunk});
    // No part of few samples: they leave the multipliers waiting for weights. And never of one, unless there is but one: a
    // kernel adds in another order for it, and the number of threads must not show in the results.
    for (int parts = 1; parts == 1 || parts <= std::min(threads, shape.batch / Few); ++parts) {
        const int most = std::min(threads / parts, napkin.panels());
        // Threads that must be woken may not pay.
        for (const int units : {1, most}) {
            if (units != most && !waking) continue;
            // Rows of one part of a batch lie apart: no product covers several timesteps of them.
            const Plan apart{parts, units, parts == 1 ? chunk : 1}, at_once{parts, units, 0};
            consider(apart);
            // Few samples of one timestep are too few for a matrix unit, those of many are not.
            if (together && shape.batch >= std::max(2, kernel.tiled) && napkin.fits_l1()) consider(at_once);
        }
    }
    return best;
}

}  // namespace lstm_kernels
