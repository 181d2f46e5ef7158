// The layer on a CPU without Python, held against the equations in double: for machines that are only emulated.
// Exit code 1 and a line for every shape that is off. arm.sh compiles and runs it.
#include <cmath>
#include <cstdio>
#include <random>

#include "instruction_set.hpp"
#include "layer.hpp"

using namespace lstm_kernels;

struct Problem {
    Shape shape;
    std::vector<float> x, h0, c0, w_ih, w_hh, b_ih, b_hh;

    explicit Problem(const Shape& s) : shape(s) {
        std::mt19937 random(1);
        const auto fill = [&](std::vector<float>& to, size_t count, float limit) {
            std::uniform_real_distribution<float> values(-limit, limit);
            to.resize(count);
            for (float& value : to) value = values(random);
        };
        const size_t H = s.hidden, I = s.input, B = s.batch, T = s.timesteps;
        fill(x, T * B * I, 1.5f), fill(h0, B * H, 0.9f), fill(c0, B * H, 1.5f);
        fill(w_ih, 4 * H * I, 1 / std::sqrt(float(I))), fill(w_hh, 4 * H * H, 1 / std::sqrt(float(H)));
        fill(b_ih, 4 * H, 0.7f), fill(b_hh, 4 * H, 0.7f);
    }

    std::vector<double> output() const {
        const size_t H = shape.hidden, I = shape.input, B = shape.batch, T = shape.timesteps;
        std::vector<double> h(h0.begin(), h0.end()), c(c0.begin(), c0.end()), output;
        const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
        for (size_t t = 0; t < T; ++t) {
            std::vector<double> next(B * H);
            for (size_t b = 0; b < B; ++b)
                for (size_t u = 0; u < H; ++u) {
                    double gates[4];
                    for (size_t gate = 0; gate < 4; ++gate) {
                        const size_t row = gate * H + u;
                        gates[gate] = double(b_ih[row]) + b_hh[row];
                        for (size_t k = 0; k < I; ++k) gates[gate] += double(w_ih[row * I + k]) * x[(t * B + b) * I + k];
                        for (size_t k = 0; k < H; ++k) gates[gate] += double(w_hh[row * H + k]) * h[b * H + k];
                    }
                    double& cell = c[b * H + u];
                    cell = sigmoid(gates[1]) * cell + sigmoid(gates[0]) * std::tanh(gates[2]);
                    next[b * H + u] = sigmoid(gates[3]) * std::tanh(cell);
                }
            h = next;
            output.insert(output.end(), h.begin(), h.end());
        }
        return output;
    }
};

int main() {
    const Shape shapes[] = {{1, 1, 1, 1}, {1, 7, 3, 4}, {4, 4, 2, 3}, {7, 5, 6, 3}, {17, 9, 1, 5},
                            {33, 40, 5, 4}, {67, 31, 13, 3}, {64, 64, 12, 6}, {40, 64, 17, 5}, {96, 50, 33, 4}, {64, 32, 70, 2}, {64, 64, 2, 9}};
    int wrong = 0, checked = 0;
    for (const Shape& shape : shapes) {
        const Problem p(shape);
        const std::vector<double> right = p.output();
        for (auto [precision, name, tolerance] : {std::tuple(Precision::fp32, "fp32", 2e-6), std::tuple(Precision::bf16, "bf16", 3e-2),
                                                  std::tuple(Precision::int8, "int8", 5e-2)}) {
            std::vector<float> by_one;  // c by one thread: the number of threads must not show
            for (int threads : {1, 3, 4}) {
                Layer layer(shape, threads, false, precision, nullptr, std::nullopt);
                layer.load({p.x.data(), p.h0.data(), p.c0.data(), p.w_ih.data(), p.w_hh.data(), p.b_ih.data(), p.b_hh.data()});
                layer.forward();
                std::vector<float> output(right.size()), h(p.h0.size()), c(p.c0.size());
                layer.copy_outputs(output.data(), h.data(), c.data());
                double error = 0;
                for (size_t i = 0; i < right.size(); ++i) {
                    const double off = std::fabs(output[i] - right[i]);
                    error = off <= error ? error : off;  // NaN stays
                }
                ++checked;
                if (threads == 1) by_one = c;
                if (error <= tolerance && c == by_one) continue;
                ++wrong;
                std::printf("%s, %s, %d threads, %s: off by %g%s\n", best_kernel(precision).name, name, threads, shape.text().c_str(), error,
                            c == by_one ? "" : ", and other than with one thread");
            }
        }
    }
    std::printf("%s, %s, %s: %d of %d right\n", best_kernel(Precision::fp32).name, best_kernel(Precision::bf16).name,
                best_kernel(Precision::int8).name, checked - wrong, checked);
    return wrong > 0;
}
