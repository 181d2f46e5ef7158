// The layers and directions of an nn.LSTM on a CPU, for calls of any batch size, any lengths and any number of threads.
//
// layer.hpp is one layer of fixed sizes, for whom it measures and to whom the machine belongs. This is a guest: it keeps
// packed weights only, a call brings its arrays, borrows the rest, and binds no thread to a core.
//
// Weights are packed once. A thread's share of a layer is a range of panels, so one packing serves every plan. Sequences
// are sorted, longest first, so those that have not ended are the first rows of each timestep: the layout of PyTorch's
// PackedSequence, of which sequences of one length are a case. The backward direction goes through the timesteps from
// the last to the first; a sequence joins it at its own end.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <system_error>

#include <pthread.h>

#include "plan.hpp"
#include "team.hpp"
#include "weights.hpp"

namespace lstm_kernels {

// How a layer of a call is cut up.
struct Cut {
    Plan plan;   // of one direction
    int beside;  // directions at the same time
};

// What one call borrows: memory, and threads if there are several.
struct Workspace {
    struct Scratch {  // of one thread
        Words gates;       // W_ih x + b of a chunk
        Words x, x_steps;  // of int8: a chunk of x in integers, and the sizes of their steps
        Words h, h_steps;
    };
    struct Direction {
        Words h[2], c;  // before a timestep and after it; c in place
    };
    Direction directions[2];
    Words sequences[2];  // what layers hand to each other; x, where it must be stored in another way
    std::vector<Scratch> scratch;
    std::vector<size_t> rows;  // before each timestep
    std::vector<std::unique_ptr<Meeting>> meetings;
    int members = 0;  // of a meeting
    std::unique_ptr<Team> team;
    std::array<int64_t, 4> last{};  // the call before: which stack, timesteps, batch, threads; and how its layers were cut up
    std::vector<Cut> cuts;

    size_t bytes() const { return sequences[0].bytes() + sequences[1].bytes(); }
};

// The workspaces of a process that no call uses. A child of fork has none of its parent's threads, so it begins anew.
class Workspaces {
public:
    static std::unique_ptr<Workspace> take() {
        Workspaces& all = here();
        const std::lock_guard<std::mutex> lock(all.mutex_);
        if (all.free_.empty()) return std::make_unique<Workspace>();
        std::unique_ptr<Workspace> taken = std::move(all.free_.back());
        all.free_.pop_back();
        return taken;
    }
    static void put_back(std::unique_ptr<Workspace> used) {
        constexpr size_t Kept = 64 << 20;
        if (used->bytes() > Kept)
            for (Words& sequence : used->sequences) sequence = Words();
        Workspaces& all = here();
        const std::lock_guard<std::mutex> lock(all.mutex_);
        all.free_.push_back(std::move(used));
    }

private:
    static Workspaces& here() {
        static const bool watched = pthread_atfork([] { place()->mutex_.lock(); }, [] { place()->mutex_.unlock(); },
                                                   [] { place() = new Workspaces; }) == 0;
        (void)watched;
        return *place();
    }
    static Workspaces*& place() {
        static Workspaces* all = new Workspaces;  // never freed: threads may outlive what the process frees as it ends
        return all;
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<Workspace>> free_;
};

struct StackSizes {
    int input, hidden, layers, directions, bias;
};

class Stack {
public:
    struct Call {
        const void *x, *h0, *c0;  // (rows, input), (layers x directions, batch, hidden); states may be null: zeros
        void *y, *h, *c;
        const int64_t* batches;  // sequences that have not ended, of each timestep; null: all
        int64_t timesteps, batch, threads;
        int64_t halves;  // arrays are bfloat16; else float
    };

    // `weights`: w_ih, w_hh and, with bias, b_ih, b_hh of each layer and direction, as PyTorch has them.
    Stack(const StackSizes& sizes, Precision precision, const float* const* weights)
        : sizes_(sizes), precision_(precision), kernel_(best_kernel(precision)) {
        if (sizes.input < 1 || sizes.hidden < 1 || sizes.layers < 1 || (sizes.directions != 1 && sizes.directions != 2))
            throw std::invalid_argument("no such layer: input " + std::to_string(sizes.input) + ", hidden " + std::to_string(sizes.hidden) +
                                        ", " + std::to_string(sizes.layers) + " layers, " + std::to_string(sizes.directions) + " directions");
        const int widest = std::max({sizes.input, sizes.hidden, sizes.layers > 1 ? sizes.directions * sizes.hidden : 0});
        if (precision == Precision::int8 && widest > LongestSum)
            throw Unsupported("int8: sums of more than " + std::to_string(LongestSum) + " products do not fit 32 bits");
        panels_ = Napkin::words(sizes.hidden, kernel_.lanes);
        const int each = sizes.bias ? 4 : 2;
        for (int i = 0; i < sizes.layers * sizes.directions; ++i) pack(weights + i * each, input_of(i / sizes.directions));
    }

    void run(const Call& call) const {
        check(call);
        std::unique_ptr<Workspace> borrowed = Workspaces::take();
        try {
            compute(call, *borrowed);
        } catch (...) {
            Workspaces::put_back(std::move(borrowed));
            throw;
        }
        Workspaces::put_back(std::move(borrowed));
    }

    size_t bytes() const {
        size_t sum = 0;
        for (const Cell& cell : cells_) sum += cell.w_ih.bytes() + cell.w_hh.bytes() + cell.bias.bytes();
        return sum;
    }
    const StackSizes& sizes() const { return sizes_; }
    size_t states() const { return size_t(sizes_.layers) * sizes_.directions * sizes_.hidden; }  // of a sequence

    // How the first layer of a call would be computed.
    static std::string path(const StackSizes& sizes, Precision precision, int timesteps, int batch, int threads) {
        const Kernel kernel = best_kernel(precision);
        const Cut cut = cut_up({sizes.hidden, sizes.input, batch, timesteps}, sizes.directions, kernel, precision, std::min(threads, cores()));
        const int many = cut.plan.threads() * cut.beside;
        return std::string(kernel.name) + ", " + std::to_string(many) + (many > 1 ? " threads" : " thread");
    }

private:
    static constexpr int LongestSum = 1 << 16;
    static constexpr double Waking = 5e4;  // cycles: some 20 us until other threads work

    struct Cell {  // the weights of a layer in one direction
        Panels w_ih, w_hh;
        Words bias;  // by row: both
    };
    struct Rowed {  // rows of a caller's or of ours
        char* first;
        size_t row;  // bytes
        bool halves;
    };
    struct Work {  // one layer of a call
        const Call& call;
        Workspace& own;
        const Cell* cells;  // of its directions
        Cut cut;
        int input_depth;
        Rows x;
        size_t x_values;
        Rowed y;
    };

    int words(int values) const { return Napkin::words(values, values_per_word(precision_)); }
    int stored(int values) const { return precision_ == Precision::bf16 ? words(values) : values; }
    int input_of(int layer) const { return layer ? sizes_.directions * sizes_.hidden : sizes_.input; }
    int panel_rows(int panels) const { return panels * 4 * kernel_.lanes; }
    static int64_t first_of(int64_t all, int part, int parts) { return all * part / parts; }
    static int64_t active(const Call& call, int64_t t) { return call.batches ? call.batches[t] : call.batch; }

    void check(const Call& call) const {
        if (call.timesteps < 1 || call.batch < 1 || call.timesteps > INT32_MAX || call.batch > INT32_MAX)
            throw std::invalid_argument("every size must be at least 1, found batch " + std::to_string(call.batch) + ", timesteps " +
                                        std::to_string(call.timesteps));
        if (!call.halves && call.c0 && !moderate(static_cast<const float*>(call.c0), states() * call.batch))
            throw Unsupported("an initial c above 1e26");  // the fractions of the cell would overflow
        for (int64_t t = 0, before = call.batch; call.batches && t < call.timesteps; before = call.batches[t++])
            if (call.batches[t] < 1 || call.batches[t] > before || (t == 0 && call.batches[t] != before))
                throw std::invalid_argument("sequences must be sorted by their lengths, the longest first");
    }

    static bool moderate(const float* values, size_t count) {
        constexpr float Most = 1e26f;
        bool all = true;
        for (size_t i = 0; i < count; ++i) all &= !(std::fabs(values[i]) > Most);
        return all;
    }

    void pack(const float* const* weights, int inputs) {
        const int H = sizes_.hidden, rows = panel_rows(panels_);
        const Shape shape{H, inputs, 1, 1};
        Cell cell{Panels(rows, words(inputs), precision_, shape), Panels(rows, words(H), precision_, shape), Words(rows, shape)};
        for (int row = 0; row < rows; ++row) {
            const PanelRow at(row, kernel_.lanes, 0);
            const size_t from = size_t(at.gate) * H + at.unit;
            cell.bias.get()[row] = sizes_.bias && at.unit < H ? weights[2][from] + weights[3][from] : 0.0f;
        }
        cell.w_ih.pack(weights[0], H, inputs, 0, rows, kernel_, precision_);
        cell.w_hh.pack(weights[1], H, H, 0, rows, kernel_, precision_);
        cells_.push_back(std::move(cell));
    }

    static Cut cut_up(const Shape& shape, int directions, const Kernel& kernel, Precision precision, int threads) {
        const auto best = [&](int of) {
            return best_plan(shape, kernel, values_per_word(precision), of, precision != Precision::int8, Waking);
        };
        const Choice alone = best(threads);
        if (directions == 1 || threads < 2) return {alone.plan, 1};
        const Choice beside = best(threads / 2);
        return beside.cycles + Waking < 2 * alone.cycles ? Cut{beside.plan, 2} : Cut{alone.plan, 1};
    }
    Cut cut_up(const Shape& shape, int threads) const { return cut_up(shape, sizes_.directions, kernel_, precision_, threads); }

    void compute(const Call& call, Workspace& own) const {
        const int64_t T = call.timesteps;
        own.rows.resize(T + 1);
        own.rows[0] = 0;
        for (int64_t t = 0; t < T; ++t) own.rows[t + 1] = own.rows[t] + active(call, t);
        const int threads = int(std::clamp<int64_t>(call.threads, 1, cores()));
        const size_t unit = call.halves ? 2 : 4, out = size_t(sizes_.directions) * sizes_.hidden;
        Rows x = input(call, own);
        const std::array<int64_t, 4> asked{number_, T, call.batch, threads};
        if (own.last != asked) {
            own.cuts.clear();
            for (int layer = 0; layer < sizes_.layers; ++layer)
                own.cuts.push_back(cut_up({sizes_.hidden, input_of(layer), int(call.batch), int(T)}, threads));
            own.last = asked;
        }
        for (int layer = 0; layer < sizes_.layers; ++layer) {
            const int inputs = input_of(layer), D = sizes_.directions;
            const Shape shape{sizes_.hidden, inputs, int(call.batch), int(T)};
            Rowed y{static_cast<char*>(call.y), out * unit, call.halves != 0};
            const bool last = layer + 1 == sizes_.layers;
            if (!last) {  // for the next layer, as it reads its input
                const size_t row = stored(int(out));
                Words& to = own.sequences[layer % 2];
                room(to, own.rows[T] * row, shape);
                if (precision_ == Precision::bf16 && out % 2) std::memset(to.get(), 0, to.bytes());
                y = {reinterpret_cast<char*>(to.get()), row * sizeof(float), precision_ == Precision::bf16};
            }
            Work work{call, own, &cells_[layer * D], own.cuts[layer], words(inputs), x, size_t(inputs), y};
            prepare(work, shape, threads);
            start(work, layer);
            for (int first = 0; first < D; first += work.cut.beside) {
                const int each = work.cut.plan.threads(), many = each * work.cut.beside;
                const auto share = [&](int thread) {
                    if (thread < many) go(work, first + thread / each, thread);
                };
                if (many == 1) share(0);
                else own.team->run(share);
            }
            finish(work, layer);
            if (!last) x = {reinterpret_cast<const float*>(y.first), y.row / sizeof(float)};
        }
    }

    static int cores() {
        static const int count = Cores().count();
        return count;
    }

    static void room(Words& memory, size_t count, const Shape& shape) {
        if (memory.bytes() < count * sizeof(float)) memory = Words(count, shape);
    }

    // x as the kernels read it: in place, or stored anew.
    Rows input(const Call& call, Workspace& own) const {
        const size_t I = sizes_.input, depth = stored(sizes_.input), rows = own.rows.back();
        const bool aligned = reinterpret_cast<uintptr_t>(call.x) % sizeof(float) == 0;
        if (precision_ != Precision::bf16 || (call.halves && I % 2 == 0 && aligned)) return {static_cast<const float*>(call.x), depth};
        Words& to = own.sequences[1];  // the first layer writes the other
        room(to, rows * depth, {sizes_.hidden, sizes_.input, int(call.batch), int(call.timesteps)});
        auto* const words = reinterpret_cast<uint16_t*>(to.get());
        for (size_t row = 0; row < rows; ++row) {
            words[row * 2 * depth + 2 * depth - 1] = 0;
            copy(static_cast<const char*>(call.x) + row * I * (call.halves ? 2 : 4), call.halves, reinterpret_cast<char*>(words + row * 2 * depth), true, I);
        }
        return {to.get(), depth};
    }

    // Values of one type to those of another.
    static void copy(const char* from, bool from_halves, char* to, bool to_halves, size_t count) {
        if (from_halves == to_halves) std::memcpy(to, from, count * (to_halves ? 2 : 4));
        else if (to_halves)
            for (size_t i = 0; i < count; ++i) {
                float value;
                std::memcpy(&value, from + 4 * i, sizeof value);
                const uint16_t half = to_bf16(value);
                std::memcpy(to + 2 * i, &half, sizeof half);
            }
        else
            for (size_t i = 0; i < count; ++i) {
                uint16_t half;
                std::memcpy(&half, from + 2 * i, sizeof half);
                const float value = from_bf16(half);
                std::memcpy(to + 4 * i, &value, sizeof value);
            }
    }

    // Memory and threads for a layer.
    void prepare(Work& work, const Shape& shape, int threads) const {
        Workspace& own = work.own;
        if (work.cut.plan.threads() * work.cut.beside > 1 && (!own.team || own.team->size() != threads)) {
            try {
                own.team.reset();
                own.team = std::make_unique<Team>(threads, Manners::guest);
            } catch (const std::system_error&) {  // the system refuses threads
                work.cut = cut_up(shape, 1);
            }
        }
        const Plan& plan = work.cut.plan;
        const size_t many = plan.threads() * work.cut.beside, meetings = size_t(plan.batch_parts) * work.cut.beside;
        if (own.members != plan.unit_parts || own.meetings.size() < meetings) {
            own.members = plan.unit_parts;
            own.meetings.clear();
            const int spins = own.team ? own.team->spins() : 1;
            for (size_t i = 0; i < meetings; ++i) own.meetings.push_back(std::make_unique<Meeting>(plan.unit_parts, spins));
        }
        if (own.scratch.size() < many) own.scratch.resize(many);
        const bool integers = precision_ == Precision::int8;
        for (size_t thread = 0; thread < many; ++thread) {
            const int part = int(thread) % plan.threads() / plan.unit_parts, member = int(thread) % plan.unit_parts;
            const size_t samples = first_of(shape.batch, part + 1, plan.batch_parts) - first_of(shape.batch, part, plan.batch_parts);
            const size_t panels = first_of(panels_, member + 1, plan.unit_parts) - first_of(panels_, member, plan.unit_parts);
            const size_t at_once = samples * plan.chunk;
            Workspace::Scratch& scratch = own.scratch[thread];
            room(scratch.gates, at_once * panel_rows(int(panels)), shape);
            if (!integers) continue;
            room(scratch.x, at_once * work.input_depth, shape), room(scratch.x_steps, at_once, shape);
            room(scratch.h, samples * words(shape.hidden), shape), room(scratch.h_steps, samples, shape);
        }
        for (int d = 0; d < sizes_.directions; ++d) {
            for (Words& h : own.directions[d].h) room(h, size_t(shape.batch) * stored(shape.hidden), shape);
            room(own.directions[d].c, size_t(shape.batch) * shape.hidden, shape);
        }
    }

    // The initial states, in both places of h: a sequence may begin at any timestep.
    void start(const Work& work, int layer) const {
        const size_t H = sizes_.hidden, B = work.call.batch, unit = work.call.halves ? 2 : 4, h_row = stored(sizes_.hidden);
        const bool halves = precision_ == Precision::bf16;
        for (int d = 0; d < sizes_.directions; ++d) {
            Workspace::Direction& own = work.own.directions[d];
            const size_t from = (size_t(layer) * sizes_.directions + d) * B * H * unit;
            for (Words& h : own.h) {
                if (!work.call.h0 || (halves && H % 2)) std::memset(h.get(), 0, B * h_row * sizeof(float));
                if (!work.call.h0) continue;
                for (size_t b = 0; b < B; ++b)
                    copy(static_cast<const char*>(work.call.h0) + from + b * H * unit, work.call.halves, reinterpret_cast<char*>(h.get() + b * h_row), halves, H);
            }
            if (work.call.c0) copy(static_cast<const char*>(work.call.c0) + from, work.call.halves, reinterpret_cast<char*>(own.c.get()), false, B * H);
            else std::memset(own.c.get(), 0, B * H * sizeof(float));
        }
    }

    // The final states: of a sequence that ended early they stayed where its last timestep has left them.
    void finish(const Work& work, int layer) const {
        const Call& call = work.call;
        const size_t H = sizes_.hidden, B = call.batch, unit = call.halves ? 2 : 4, h_row = stored(sizes_.hidden);
        for (int d = 0; d < sizes_.directions; ++d) {
            const Workspace::Direction& own = work.own.directions[d];
            const size_t to = (size_t(layer) * sizes_.directions + d) * B * H * unit;
            int64_t length = call.timesteps;
            for (size_t b = 0; b < B; ++b) {
                while (active(call, length - 1) <= int64_t(b)) --length;
                const Words& h = own.h[(d ? call.timesteps : length) % 2];
                copy(reinterpret_cast<const char*>(h.get() + b * h_row), precision_ == Precision::bf16, static_cast<char*>(call.h) + to + b * H * unit,
                     call.halves, H);
            }
            copy(reinterpret_cast<const char*>(own.c.get()), false, static_cast<char*>(call.c) + to, call.halves, B * H);
        }
    }

    // One direction of a layer, as one of its threads sees it.
    void go(const Work& work, int direction, int thread) const {
        const Call& call = work.call;
        const Plan& plan = work.cut.plan;
        const Cell& cell = work.cells[direction];
        const Workspace::Direction& states = work.own.directions[direction];
        const Workspace::Scratch& own = work.own.scratch[thread];
        const std::vector<size_t>& rows = work.own.rows;
        const int part = thread % plan.threads() / plan.unit_parts, member = thread % plan.unit_parts;
        Meeting& meeting = *work.own.meetings[thread / plan.unit_parts];
        const int64_t first = first_of(call.batch, part, plan.batch_parts), samples = first_of(call.batch, part + 1, plan.batch_parts) - first;
        const int first_panel = int(first_of(panels_, member, plan.unit_parts)), end_panel = int(first_of(panels_, member + 1, plan.unit_parts));
        const int first_unit = first_panel * kernel_.lanes, units = std::min(sizes_.hidden, end_panel * kernel_.lanes) - first_unit;
        const size_t H = sizes_.hidden, h_row = stored(sizes_.hidden), first_row = panel_rows(first_panel);
        const bool halves = precision_ == Precision::bf16, back = direction == 1;
        const float* const input_weights = cell.w_ih.words.get() + first_row * work.input_depth;
        const float* const bias = cell.bias.get() + first_row;
        Step step{};
        step.hidden = sizes_.hidden, step.first_unit = first_unit, step.panels = end_panel - first_panel;
        step.depth = words(sizes_.hidden), step.input_depth = work.input_depth;
        step.weights = cell.w_hh.words.get() + first_row * step.depth, step.bias = bias;
        step.scaling = scaling(cell.w_hh, own.h_steps, first_row), step.h_stride = h_row;
        step.c_before = step.c_after = states.c.get() + first * H;
        Gates gates{};
        int64_t chunk_first = 0;  // its first timestep
        for (int64_t done = 0; done < call.timesteps; ++done) {
            const int64_t t = back ? call.timesteps - 1 - done : done;
            const int64_t here = std::clamp<int64_t>(active(call, t) - first, 0, samples);
            const Rows x{work.x.words + (rows[t] + first) * work.x.stride, work.x.stride};
            if (plan.chunk && done % plan.chunk == 0) {
                const int64_t last = std::min(done + plan.chunk, call.timesteps) - 1;
                chunk_first = back ? call.timesteps - 1 - last : done;
                const int64_t end = chunk_first + last - done + 1;
                const size_t count = plan.batch_parts > 1 ? size_t(here) : rows[end] - rows[chunk_first];
                const Rows from = plan.batch_parts > 1 ? x : Rows{work.x.words + rows[chunk_first] * work.x.stride, work.x.stride};
                gates = {own.gates.get(), size_t(4) * kernel_.lanes, count * 4 * kernel_.lanes};
                if (count) project(work, cell, own, from, int(count), first_row, {end_panel - first_panel, input_weights, bias, gates});
            }
            if (here == 0) continue;  // for each thread of this part
            if (plan.chunk) {
                const size_t before = plan.batch_parts > 1 ? 0 : rows[t] - rows[chunk_first];
                step.gates = {gates.at(0, int(before)), gates.row, gates.panel};
            } else {
                step.input_weights = input_weights, step.x = x;
            }
            step.samples = int(here), step.backwards = done % 2;
            step.h = {states.h[done % 2].get() + first * h_row, h_row};
            step.h_after = states.h[(done + 1) % 2].get() + first * h_row;
            if (kernel_.quantise) {
                const Rows floats = step.h;
                for (int64_t n = 0; n < here; ++n)
                    own.h_steps.get()[n] = kernel_.quantise(floats.words + n * h_row, sizes_.hidden, own.h.get() + n * step.depth);
                step.h = {own.h.get(), size_t(step.depth)};
            }
            kernel_.step(step);
            const size_t column = direction * H + first_unit;
            for (int64_t n = 0; n < here; ++n) {
                const char* const from = reinterpret_cast<const char*>(step.h_after + n * h_row) + first_unit * (halves ? 2 : 4);
                copy(from, halves, work.y.first + (rows[t] + first + n) * work.y.row + column * (work.y.halves ? 2 : 4), work.y.halves, units);
            }
            if (plan.unit_parts > 1 && done + 1 < call.timesteps) meeting.barrier(member);
        }
    }

    struct Share {  // of a layer, as one thread has it
        int panels;
        const float *weights, *bias;
        Gates gates;
    };

    static Scaling scaling(const Panels& panels, const Words& steps, size_t first_row) {
        Scaling all = panels.scaling(steps.get());
        if (all.weights) all.starts += first_row, all.weights += first_row;
        return all;
    }

    // W_ih x + b of some rows.
    void project(const Work& work, const Cell& cell, const Workspace::Scratch& own, Rows x, int count, size_t first_row, const Share& share) const {
        if (kernel_.quantise) {
            for (int row = 0; row < count; ++row)
                own.x_steps.get()[row] =
                    kernel_.quantise(x.words + row * x.stride, int(work.x_values), own.x.get() + size_t(row) * work.input_depth);
            x = {own.x.get(), size_t(work.input_depth)};
        }
        kernel_.project({count, share.panels, work.input_depth, share.weights, share.bias, x, share.gates, scaling(cell.w_ih, own.x_steps, first_row)});
    }

    static int64_t next_number() {
        static std::atomic<int64_t> made{0};
        return ++made;
    }

    const int64_t number_ = next_number();
    const StackSizes sizes_;
    const Precision precision_;
    const Kernel kernel_;
    int panels_;
    std::vector<Cell> cells_;
};

// A stack that keeps its states from call to call, for streams: float arrays, one call at a time.
class Stream {
public:
    Stream(const StackSizes& sizes, Precision precision, const float* const* weights) : stack_(sizes, precision, weights) { reset(1, nullptr, nullptr); }

    // For `batch` sequences, from these states or from zeros.
    void reset(int batch, const float* h0, const float* c0) {
        if (batch < 1) throw std::invalid_argument("batch must be at least 1, found " + std::to_string(batch));
        batch_ = batch;
        const size_t count = stack_.states() * batch;
        for (auto [to, from] : {std::pair(&h_, h0), std::pair(&c_, c0)})
            if (from) to->assign(from, from + count);
            else to->assign(count, 0.0f);
    }

    // x is (timesteps, batch, input), y (timesteps, batch, directions x hidden).
    void run(const float* x, int timesteps, int threads, float* y) {
        stack_.run({x, h_.data(), c_.data(), y, h_.data(), c_.data(), nullptr, timesteps, batch_, threads, 0});
    }

    void state(float* h, float* c) const {
        std::copy(h_.begin(), h_.end(), h);
        std::copy(c_.begin(), c_.end(), c);
    }
    int batch() const { return batch_; }
    const Stack& stack() const { return stack_; }

private:
    const Stack stack_;
    int batch_ = 0;
    std::vector<float> h_, c_;
};

}  // namespace lstm_kernels
