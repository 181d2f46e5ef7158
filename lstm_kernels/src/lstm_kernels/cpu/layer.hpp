// One LSTM layer on a CPU in as few instructions as we know how.
//
// For t = 0 .. T-1, with gates in the order i, f, g, o:
//
//     gates = W_ih x_t + b_ih + W_hh h + b_hh        (skip_input: x_t itself in place of W_ih x_t)
//     c     = sigmoid(f) * c + sigmoid(i) * tanh(g)
//     h     = sigmoid(o) * tanh(c)
//
// How it is cut up (plan.hpp). Every thread owns a slice of hidden units, all four gates of them, and a part of the
// batch, for the whole call. The weights are packed once, at load, as the kernel reads them (step.inc): it multiplies
// and finishes the cell in registers. W_ih x of many timesteps is one product before them; in a small layer, where a panel
// of each fits the L1 cache, it goes into the same sums as W_hh h. Threads that share samples meet once per timestep.
//
// Napkin, two cores with AVX-512 at 2.4 GHz: 2 * 2 * 16 FLOP per cycle each make 307 GFLOP/s, and (512, 64, 25), 6.7
// GFLOP, takes 22 ms at the very least. Batch 1 reads W_hh in every timestep: at hidden 256 a core's 512 KB from its
// L2 at 40 bytes per cycle in 5.5 us, at hidden 512 its 2 MB, half of them from L3 at 10, in 50 us. At hidden 64 what
// counts is an exchange between cores (0.1 us) and the chain through a cell (some 150 cycles).
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "plan.hpp"
#include "team.hpp"
#include "weights.hpp"

namespace lstm_kernels {

// A product of matrices as cblas_sgemm computes it.
using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda, const float* b,
                       int ldb, float beta, float* c, int ldc);

class Layer {
public:
    struct Arrays {  // in PyTorch's layout
        const float *x, *h0, *c0, *w_ih, *w_hh, *b_ih, *b_hh;
    };

    // With `sgemm` the input products are computed by it, in each of the threads.
    Layer(const Shape& shape, int threads, bool skip_input, Precision precision, Sgemm sgemm, std::optional<Plan> plan)
        : shape_(shape), skip_(skip_input), precision_(precision), sgemm_(sgemm), kernel_(best_kernel(precision)),
          timed_kernel_(timed_kernel(precision)), depth_(words(shape.hidden)), input_depth_(words(shape.input)) {
        shape.check(skip_input);
        if (threads < 1) throw std::invalid_argument("threads must be at least 1, found " + std::to_string(threads));
        if (precision == Precision::int8 && std::max(shape.hidden, shape.input) > LongestSum)
            throw Unsupported("int8: sums of more than " + std::to_string(LongestSum) + " products do not fit 32 bits (" + shape.text() + ")");
        if ((skip_input || sgemm) && precision != Precision::fp32)
            throw std::invalid_argument("skip_input and sgemm are there in fp32 only");
        plan_ = plan ? *plan : best_plan(shape, kernel_, values_per_word(precision), threads, precision != Precision::int8 && !sgemm).plan;
        check_plan();
        memory_ = std::make_unique<Memory>(make_memory());
        team_ = std::make_unique<Team>(plan_.threads());
        for (int part = 0; part < plan_.batch_parts; ++part)
            memory_->meetings.push_back(std::make_unique<Meeting>(plan_.unit_parts, team_->spins()));
    }

    void load(const Arrays& a) {
        Memory& m = *memory_;
        store(m.x, a.x, shape_.timesteps * shape_.batch, shape_.input, input_depth_);
        start_from(a.h0, a.c0);
        team_->run([&](int thread) {
            if (thread < int(m.slices.size())) pack(m.slices[thread], a);
        });
        loaded_ = true;
        carries_ = false;
    }

    // From here on each call starts from the states that the one before has left; the next one from these.
    void carry(const Array& h0, const Array& c0) {
        const size_t state = sizeof(float) * shape_.batch * shape_.hidden;
        if (h0.bytes != state || c0.bytes != state) throw std::invalid_argument("h0 or c0 does not have the size of " + shape_.text());
        start_from(static_cast<const float*>(h0.data), static_cast<const float*>(c0.data));
        carries_ = true;
    }

    void wait() const {}  // a call is over when it returns

    void forward() {
        prepare("forward()");
        team_->run([&](int thread) { forward<false>(*memory_, thread, nullptr); });
    }

    // Seconds that a call spends in each `Phase`, as the calling thread sees it: together they are the call.
    // Waiting is what it does when other threads are later than itself, and what waking them takes.
    void phases(int calls, double* seconds) {
        prepare("phases()");
        if (calls < 1) throw std::invalid_argument("calls must be at least 1, found " + std::to_string(calls));
        std::vector<Watch> watches(plan_.threads());
        for (int i = 0; i < calls; ++i) {
            if (i) prepare("phases()");
            watches[0].start();
            team_->run([&](int thread) {
                if (thread == 0) watches[0].lap(Wait);
                else watches[thread].start();
                forward<true>(*memory_, thread, &watches[thread]);
            });
            watches[0].lap(Wait);
        }
        for (int phase = 0; phase < Phases; ++phase)
            seconds[phase] = std::chrono::duration<double>(watches[0].spent[phase]).count() / calls;
    }

    // Throughput: calls back to back. A call on a CPU is over when it returns, so there is no queue to drain.
    int64_t time_queued(int calls) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) forward();
        const auto end = std::chrono::steady_clock::now();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
    }

    // What the last call has left, as floats.
    void copy_outputs(void* output, void* h_last, void* c_last) const {
        const Memory& m = *memory_;
        fetch(static_cast<float*>(output), m.output, shape_.timesteps * shape_.batch);
        fetch(static_cast<float*>(h_last), m.h_last, shape_.batch);
        std::memcpy(c_last, m.c_last.get(), m.c_last.bytes());
    }

    Sizes sizes() const {
        const Memory& m = *memory_;
        size_t weights = 0, workspace = 0;
        for (const Slice& s : m.slices) weights += s.w_ih.bytes() + s.w_hh.bytes() + s.bias.bytes();
        for (const Scratch& s : m.scratch)
            workspace += s.gates.bytes() + s.x.bytes() + s.x_steps.bytes() + s.h.bytes() + s.h_steps.bytes();
        return {weights, m.x.bytes() + m.h0.bytes() + m.c0.bytes(), m.output.bytes() + m.h_last.bytes() + m.c_last.bytes(), workspace};
    }

    const Plan& plan() const { return plan_; }

private:
    static constexpr int LongestSum = 1 << 16;
    static constexpr int RowMajor = 101, NoTrans = 111, Trans = 112;  // as cblas_sgemm counts them

    struct Slice {  // the weights of some units
        int first_unit, panels;
        Panels w_ih, w_hh;
        Words bias;  // by row: both
    };
    struct Scratch {  // what one thread keeps for itself
        Words gates;       // (panel, row, gate, lane): W_ih x + b of a chunk; by sgemm (row, panel, gate, lane)
        Words x, x_steps;  // a chunk of x in integers, and the sizes of their steps
        Words h, h_steps;
    };
    struct Memory {
        Words x, h0, c0, output, h_last, c_last;
        std::vector<Slice> slices;
        std::vector<Scratch> scratch;
        std::vector<std::unique_ptr<Meeting>> meetings;
    };

    int words(int values) const { return Napkin::words(values, values_per_word(precision_)); }
    // Rows of x and h lie in words of the precision, but for integers: those are made in each call.
    int stored_depth(int values) const { return precision_ == Precision::int8 ? values : words(values); }
    int rows(const Slice& s) const { return s.panels * 4 * kernel_.lanes; }
    int first_sample(int part) const { return int(int64_t(shape_.batch) * part / plan_.batch_parts); }

    void check_plan() const {
        const int panels = Napkin::words(shape_.hidden, kernel_.lanes);
        const bool together = plan_.chunk == 0, cut = plan_.batch_parts > 1;
        if (plan_.batch_parts < 1 || plan_.batch_parts > shape_.batch || plan_.unit_parts < 1 || plan_.unit_parts > panels ||
            plan_.chunk < 0 || plan_.chunk > shape_.timesteps || (cut && plan_.chunk > 1) ||
            (together && (sgemm_ || precision_ == Precision::int8)))
            throw std::invalid_argument("no such plan for " + shape_.text());
    }

    Memory make_memory() const {
        const size_t H = shape_.hidden, I = shape_.input, B = shape_.batch, T = shape_.timesteps;
        const size_t h_stored = stored_depth(H), x_stored = stored_depth(I);
        Memory m{{T * B * x_stored, shape_}, {B * h_stored, shape_}, {B * H, shape_}, {T * B * h_stored, shape_},
                 {B * h_stored, shape_}, {B * H, shape_}, {}, {}, {}};
        const int panels = Napkin::words(shape_.hidden, kernel_.lanes);
        for (int i = 0, first = 0; i < plan_.unit_parts; ++i) {
            const int mine = (panels - first) / (plan_.unit_parts - i), rows = mine * 4 * kernel_.lanes;
            m.slices.push_back({first * kernel_.lanes, mine, Panels(skip_ ? 0 : rows, input_depth_, precision_, shape_),
                                Panels(rows, depth_, precision_, shape_), Words(rows, shape_)});
            first += mine;
        }
        const bool integers = precision_ == Precision::int8;
        for (int thread = 0; thread < plan_.threads(); ++thread) {
            const int part = thread / plan_.unit_parts;
            const size_t samples = first_sample(part + 1) - first_sample(part), at_once = samples * plan_.chunk;
            const size_t gates = skip_ ? 0 : at_once * rows(m.slices[thread % plan_.unit_parts]);
            m.scratch.push_back({Words(gates, shape_), Words(integers ? at_once * input_depth_ : 0, shape_),
                                 Words(integers ? at_once : 0, shape_), Words(integers ? samples * depth_ : 0, shape_),
                                 Words(integers ? samples : 0, shape_)});
        }
        // What is never written must not pass a check: all bits set are NaN in floats and in halves.
        for (Words* out : {&m.output, &m.h_last, &m.c_last}) std::memset(out->get(), 0xff, out->bytes());
        if (precision_ == Precision::bf16 && H % 2)  // but what fills up a word is zero, for it is multiplied, too
            for (auto [out, rows] : {std::pair(&m.output, T * B), std::pair(&m.h_last, B)})
                for (size_t row = 0; row < rows; ++row) reinterpret_cast<uint16_t*>(out->get())[row * 2 * h_stored + H] = 0;
        return m;
    }

    // Floats to rows of words; what fills up a word is zero.
    void store(Words& to, const float* from, size_t rows, size_t values, size_t depth) const {
        if (precision_ != Precision::bf16) {
            std::memcpy(to.get(), from, to.bytes());
            return;
        }
        std::memset(to.get(), 0, to.bytes());
        auto* const halves = reinterpret_cast<uint16_t*>(to.get());
        for (size_t row = 0; row < rows; ++row)
            for (size_t k = 0; k < values; ++k) halves[row * 2 * depth + k] = to_bf16(from[row * values + k]);
    }

    void fetch(float* to, const Words& from, size_t rows) const {
        if (precision_ != Precision::bf16) {
            std::memcpy(to, from.get(), from.bytes());
            return;
        }
        const auto* const halves = reinterpret_cast<const uint16_t*>(from.get());
        const size_t H = shape_.hidden;
        for (size_t row = 0; row < rows; ++row)
            for (size_t k = 0; k < H; ++k) to[row * H + k] = from_bf16(halves[row * 2 * depth_ + k]);
    }

    void start_from(const float* h0, const float* c0) {
        Memory& m = *memory_;
        store(m.h0, h0, shape_.batch, shape_.hidden, depth_);
        std::memcpy(m.c0.get(), c0, m.c0.bytes());
        left_ = false;
    }

    void pack(Slice& s, const Arrays& a) const {
        const int H = shape_.hidden;
        for (int row = 0; row < rows(s); ++row) {
            const PanelRow at(row, kernel_.lanes, s.first_unit);
            const size_t from = size_t(at.gate) * H + at.unit;
            s.bias.get()[row] = at.unit < H ? a.b_ih[from] + a.b_hh[from] : 0.0f;
        }
        s.w_hh.pack(a.w_hh, H, H, s.first_unit, rows(s), kernel_, precision_);
        if (skip_) return;
        if (!sgemm_) return s.w_ih.pack(a.w_ih, H, shape_.input, s.first_unit, rows(s), kernel_, precision_);
        const size_t I = shape_.input;
        for (int row = 0; row < rows(s); ++row) {  // sgemm's own layout, rows in panel order
            const PanelRow at(row, kernel_.lanes, s.first_unit);
            float* const to = s.w_ih.words.get() + row * I;
            if (at.unit < H) std::memcpy(to, a.w_ih + (size_t(at.gate) * H + at.unit) * I, I * sizeof(float));
            else std::fill_n(to, I, 0.0f);
        }
    }

    void prepare(const char* call) {
        Memory& m = *memory_;
        if (!loaded_) throw std::logic_error(std::string("load() comes before ") + call);
        if (carries_ && left_) {
            std::swap(m.h0, m.h_last);
            std::swap(m.c0, m.c_last);
        }
        left_ = true;
    }

    // W_ih x + b of `count` timesteps from `t` on, for this thread's samples and units.
    Gates project(const Memory& m, const Scratch& own, const Slice& s, const Kernel& kernel, int t, int first, int samples, int count) const {
        const size_t width = stored_depth(shape_.input), row_words = rows(s), n = size_t(samples) * count;
        const float* const x = m.x.get() + (size_t(t) * shape_.batch + first) * width;
        if (sgemm_) {
            for (size_t row = 0; row < n; ++row) std::memcpy(own.gates.get() + row * row_words, s.bias.get(), s.bias.bytes());
            sgemm_(RowMajor, NoTrans, Trans, int(n), int(row_words), shape_.input, 1.0f, x,
                         shape_.input, s.w_ih.words.get(), shape_.input, 1.0f, own.gates.get(), int(row_words));
            return {own.gates.get(), row_words, size_t(4) * kernel.lanes};
        }
        Rows rows{x, width};
        if (kernel.quantise) {
            for (size_t row = 0; row < n; ++row)
                own.x_steps.get()[row] = kernel.quantise(x + row * width, shape_.input, own.x.get() + row * input_depth_);
            rows = {own.x.get(), size_t(input_depth_)};
        }
        const Gates gates{own.gates.get(), size_t(4) * kernel.lanes, n * 4 * kernel.lanes};
        kernel.project({int(n), s.panels, input_depth_, s.w_ih.words.get(), s.bias.get(), rows, gates, s.w_ih.scaling(own.x_steps.get())});
        return gates;
    }

    template <bool Watched>
    void forward(const Memory& m, int thread, Watch* watch) const {
        const Kernel& kernel = Watched ? timed_kernel_ : kernel_;
        const int part = thread / plan_.unit_parts, member = thread % plan_.unit_parts;
        const int first = first_sample(part), samples = first_sample(part + 1) - first;
        const size_t H = shape_.hidden, B = shape_.batch, h_row = stored_depth(shape_.hidden), x_row = stored_depth(shape_.input);
        const Slice& s = m.slices[member];
        const Scratch& own = m.scratch[thread];
        Step step{};
        step.hidden = shape_.hidden, step.samples = samples, step.first_unit = s.first_unit, step.panels = s.panels;
        step.weights = s.w_hh.words.get(), step.bias = s.bias.get(), step.depth = depth_, step.input_depth = input_depth_;
        step.scaling = s.w_hh.scaling(own.h_steps.get()), step.skip = skip_, step.h_stride = h_row, step.watch = watch;
        step.h = {m.h0.get() + first * h_row, h_row};
        step.c_before = m.c0.get() + first * H, step.c_after = m.c_last.get() + first * H;
        Gates gates{};
        for (int t = 0; t < shape_.timesteps; ++t) {
            step.x = {m.x.get() + (t * B + first) * x_row, x_row};
            if (!skip_ && plan_.chunk) {
                const int in_chunk = t % plan_.chunk;
                if (in_chunk == 0) {
                    gates = project(m, own, s, kernel, t, first, samples, std::min(plan_.chunk, shape_.timesteps - t));
                    if constexpr (Watched) watch->lap(InputProduct);
                }
                step.gates = {gates.at(0, in_chunk * samples), gates.row, gates.panel};
            } else if (!skip_) {
                step.input_weights = s.w_ih.words.get();
            }
            Rows h = step.h;
            if (kernel.quantise) {
                for (int n = 0; n < samples; ++n)
                    own.h_steps.get()[n] = kernel.quantise(h.words + n * h_row, shape_.hidden, own.h.get() + size_t(n) * depth_);
                step.h = {own.h.get(), size_t(depth_)};
            }
            step.h_after = m.output.get() + (t * B + first) * h_row;
            step.h_last = t == shape_.timesteps - 1 ? m.h_last.get() + first * h_row : nullptr;
            step.backwards = t % 2;
            kernel.step(step);
            step.h = {step.h_after, h_row};  // the output is the history of h: the next step reads it where it lies
            step.c_before = step.c_after;
            if (plan_.unit_parts > 1 && t < shape_.timesteps - 1) m.meetings[part]->barrier(member);
            if constexpr (Watched) watch->lap(Wait);
        }
    }

    const Shape shape_;
    const bool skip_;
    const Precision precision_;
    const Sgemm sgemm_;
    const Kernel kernel_, timed_kernel_;
    const int depth_, input_depth_;
    Plan plan_;
    bool loaded_ = false, carries_ = false, left_ = false;
    std::unique_ptr<Memory> memory_;
    std::unique_ptr<Team> team_;
};

}  // namespace lstm_kernels
