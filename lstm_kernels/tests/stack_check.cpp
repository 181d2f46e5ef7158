// Layers, directions and lengths on a CPU without Python, held against the equations in double: for machines that are only
// emulated, and for the thread sanitizer, since four threads make the same calls. Exit code 1 and a line for every one that
// is off. arm.sh, amx.sh and tsan.sh compile and run it.
#include <cstdio>
#include <random>
#include <thread>

#include "instruction_set.hpp"
#include "stack.hpp"

using namespace lstm_kernels;

struct Problem {
    StackSizes sizes;
    int batch, timesteps;
    std::vector<int64_t> batches;
    std::vector<std::vector<float>> weights;
    std::vector<float> x, h0, c0;

    Problem(const StackSizes& s, int batch, int timesteps, bool full) : sizes(s), batch(batch), timesteps(timesteps) {
        std::mt19937 random(1);
        const auto values = [&](size_t count, float limit) {
            std::uniform_real_distribution<float> one(-limit, limit);
            std::vector<float> made(count);
            for (float& value : made) value = one(random);
            return made;
        };
        for (int t = 0; t < timesteps; ++t) batches.push_back(full ? batch : std::max(1, batch - t * batch / timesteps));
        const int H = s.hidden;
        for (int layer = 0; layer < s.layers; ++layer)
            for (int d = 0; d < s.directions; ++d) {
                const int I = layer ? s.directions * H : s.input;
                weights.push_back(values(size_t(4) * H * I, 1 / std::sqrt(float(I))));
                weights.push_back(values(size_t(4) * H * H, 1 / std::sqrt(float(H))));
                for (int i = 0; s.bias && i < 2; ++i) weights.push_back(values(4 * H, 0.7f));
            }
        size_t rows = 0;
        for (int64_t b : batches) rows += b;
        x = values(rows * s.input, 1.5f);
        h0 = values(size_t(s.layers) * s.directions * batch * H, 0.9f), c0 = values(h0.size(), 1.5f);
    }

    // y, h and c, one behind the other.
    std::vector<double> right() const {
        const size_t H = sizes.hidden, D = sizes.directions, B = batch;
        std::vector<double> in(x.begin(), x.end()), h(h0.begin(), h0.end()), c(c0.begin(), c0.end());
        std::vector<size_t> row(1, 0);
        for (int64_t b : batches) row.push_back(row.back() + b);
        size_t I = sizes.input;
        for (int layer = 0; layer < sizes.layers; ++layer, I = D * H) {
            std::vector<double> out(row.back() * D * H);
            for (size_t d = 0; d < D; ++d) {
                const auto* w = &weights[(layer * D + d) * (sizes.bias ? 4 : 2)];
                double* const hs = &h[(layer * D + d) * B * H];
                double* const cs = &c[(layer * D + d) * B * H];
                for (int done = 0; done < timesteps; ++done) {
                    const int t = d ? timesteps - 1 - done : done;
                    for (size_t b = 0; b < size_t(batches[t]); ++b) step(w, &in[(row[t] + b) * I], I, hs + b * H, cs + b * H, &out[(row[t] + b) * D * H + d * H]);
                }
            }
            in = out;
        }
        in.insert(in.end(), h.begin(), h.end());
        in.insert(in.end(), c.begin(), c.end());
        return in;
    }

    void step(const std::vector<float>* w, const double* x, size_t I, double* h, double* c, double* y) const {
        const size_t H = sizes.hidden;
        const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
        for (size_t u = 0; u < H; ++u) {
            double gates[4];
            for (size_t gate = 0; gate < 4; ++gate) {
                const size_t row = gate * H + u;
                gates[gate] = sizes.bias ? double(w[2][row]) + w[3][row] : 0;
                for (size_t k = 0; k < I; ++k) gates[gate] += double(w[0][row * I + k]) * x[k];
                for (size_t k = 0; k < H; ++k) gates[gate] += double(w[1][row * H + k]) * h[k];
            }
            c[u] = sigmoid(gates[1]) * c[u] + sigmoid(gates[0]) * std::tanh(gates[2]);
            y[u] = sigmoid(gates[3]) * std::tanh(c[u]);
        }
        std::copy(y, y + H, h);
    }
};

static double off_by(const Problem& p, const Stack& stack, int threads, const std::vector<double>& right) {
    const size_t states = p.h0.size();
    std::vector<float> found(right.size(), NAN);
    float* const y = found.data();
    float* const h = y + found.size() - 2 * states;
    stack.run({p.x.data(), p.h0.data(), p.c0.data(), y, h, h + states, p.batches.data(), p.timesteps, p.batch, threads, 0});
    double error = 0;
    for (size_t i = 0; i < right.size(); ++i) {
        const double off = std::fabs(found[i] - right[i]) / std::max(1.0, std::fabs(right[i]));
        error = off <= error ? error : off;  // NaN stays
    }
    return error;
}

int main() {
    std::atomic<int> wrong{0}, checked{0};
    const std::tuple<StackSizes, int, int> layers[] = {{{1, 1, 1, 1, 1}, 1, 1},  {{5, 7, 2, 2, 1}, 3, 4},   {{9, 17, 1, 2, 0}, 6, 5},
                                                      {{33, 20, 3, 1, 1}, 1, 9}, {{31, 67, 1, 1, 1}, 13, 3}, {{64, 40, 2, 2, 1}, 40, 6}};
    for (const auto& [sizes, batch, timesteps] : layers)
        for (bool full : {true, false}) {
            const Problem p(sizes, batch, timesteps, full);
            const std::vector<double> right = p.right();
            std::vector<const float*> weights;
            for (const auto& w : p.weights) weights.push_back(w.data());
            for (auto [precision, tolerance] : {std::pair(Precision::fp32, 3e-6), std::pair(Precision::bf16, 6e-2), std::pair(Precision::int8, 1e-1)}) {
                const Stack stack(sizes, precision, weights.data());
                const auto work = [&](int many) {
                    for (int threads : {1, many}) {
                        const double error = off_by(p, stack, threads, right);
                        ++checked;
                        if (error <= tolerance) continue;
                        ++wrong;
                        std::printf("%s, %d threads, hidden %d, batch %d, timesteps %d%s: off by %g\n", best_kernel(precision).name, threads, sizes.hidden,
                                    batch, timesteps, full ? "" : ", lengths", error);
                    }
                };
                std::vector<std::thread> callers;
                for (int caller = 0; caller < 4; ++caller) callers.emplace_back(work, caller + 1);
                for (std::thread& caller : callers) caller.join();
            }
        }
    std::printf("%s, %s, %s: %d of %d right\n", best_kernel(Precision::fp32).name, best_kernel(Precision::bf16).name,
                best_kernel(Precision::int8).name, checked - wrong, int(checked));
    return wrong > 0;
}
