// The CPU baseline: one LSTM layer over OpenBLAS, in as few instructions as we know how.
//
// For t = 0 .. T-1, with gates in the order i, f, g, o:
//
//     gates = W_ih x_t + b_ih + W_hh h + b_hh        (skip_input: x_t itself in place of W_ih x_t)
//     c     = sigmoid(f) * c + sigmoid(i) * tanh(g)
//     h     = sigmoid(o) * tanh(c)
//
// How it is cut up. Every thread owns a slice of hidden units, all four gates of them, for the whole
// call. W_ih x for many timesteps at once is one large product: OpenBLAS sgemm does it, with one thread
// on the rows of the slice, so that no thread waits for another. W_hh h is T small products in a row,
// and there a library call would spend its time packing weights that never change: they are packed once,
// at load, and cell.inc multiplies and finishes the cell in registers. Threads meet once per timestep.
//
// Napkin, two Neoverse-N1 cores at (512, 16, 25): 8 * 16 * 25 * 512 * 1024 = 1.7 GFLOP, at 2 * 2 * 8
// FLOP per cycle and 3 GHz 17 ms at the very least; batch 1 instead reads 4 MB of W_hh per timestep
// and is bound by the cache that holds it.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "errors.hpp"
#define TIMED false
#include "kernels.hpp"
#include "limits.hpp"
#include "team.hpp"

namespace py = pybind11;

namespace deepbench {

Kernel timed_kernel();  // phases.cpp

// ---------------------------------------------------------------------------------------------
// OpenBLAS. Declared here because its header is one more thing to find and three lines suffice.
// scipy-openblas32 prefixes its symbols, a system OpenBLAS does not.

struct Blas {
    using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                           int lda, const float* b, int ldb, float beta, float* c, int ldc);
    static constexpr int RowMajor = 101, NoTrans = 111, Trans = 112;

    explicit Blas(const std::string& path)
        : library(path),
          sgemm(library.symbol<Sgemm>({"scipy_cblas_sgemm", "cblas_sgemm"})),
          set_threads(library.symbol<void (*)(int)>({"scipy_openblas_set_num_threads", "openblas_set_num_threads"})),
          config(library.symbol<const char* (*)()>({"scipy_openblas_get_config", "openblas_get_config"})) {}

    Library library;
    Sgemm sgemm;
    void (*set_threads)(int);
    const char* (*config)();
};

// ---------------------------------------------------------------------------------------------
// Memory: floats at cache-line borders, not yet touched, so that pages fall to the thread that fills them.

class Floats {
public:
    Floats(size_t count, const Shape& shape) : count_(count) {
        void* p = nullptr;  // not aligned_alloc: it rounds the size up, and a sanitizer would miss a read past the end
        if (posix_memalign(&p, 64, std::max<size_t>(bytes(), 1)) != 0)
            throw OutOfMemory("posix_memalign: " + std::to_string(bytes()) + " bytes refused (" + shape.text() + ")");
        data_.reset(static_cast<float*>(p));
    }
    float* get() { return data_.get(); }
    const float* get() const { return data_.get(); }
    size_t bytes() const { return count_ * sizeof(float); }
    void fill(float value) { std::fill_n(get(), count_, value); }

private:
    struct Free { void operator()(float* p) const { std::free(p); } };
    size_t count_;
    std::unique_ptr<float, Free> data_;
};

using Array = py::array_t<float, py::array::c_style | py::array::forcecast>;

static void copy_in(Floats& to, const Array& from, const char* name, std::vector<py::ssize_t> expected) {
    if (std::vector<py::ssize_t>(from.shape(), from.shape() + from.ndim()) != expected) {
        std::string message = std::string(name) + ": expected shape (";
        for (auto size : expected) message += std::to_string(size) + ",";
        throw std::invalid_argument(message + ") of float32");
    }
    std::memcpy(to.get(), from.data(), to.bytes());
}

// ---------------------------------------------------------------------------------------------
// The layer.

class Lstm {
public:
    Lstm(const std::string& library, int hidden, int input, int batch, int timesteps, int threads, bool skip_input)
        : shape_{hidden, input, batch, timesteps}, skip_(skip_input), blas_(library), kernel_(best_kernel()) {
        shape_.check(skip_input);
        if (threads < 1) throw std::invalid_argument("threads must be at least 1, found " + std::to_string(threads));
        const size_t H = hidden, I = input, B = batch, T = timesteps;
        const int panels = (hidden + kernel_.lanes - 1) / kernel_.lanes;
        threads = std::min(threads, panels);
        // Enough timesteps at once to keep sgemm busy, few enough that their gates stay in the cache.
        chunk_ = std::max(1, std::min(timesteps, 256 / batch));
        memory_ = std::make_unique<Memory>(Memory{
            {T * B * I, shape_}, {B * H, shape_}, {B * H, shape_}, {T * B * H, shape_}, {B * H, shape_}, {B * H, shape_}, {}});
        for (int i = 0, first = 0; i < threads; ++i) {
            const int mine = (panels - first) / (threads - i);
            const size_t rows = size_t(mine) * 4 * kernel_.lanes;
            memory_->slices.push_back({first * kernel_.lanes, mine, {skip_ ? 0 : rows * I, shape_}, {rows * H, shape_},
                                       {rows, shape_}, {skip_ ? 0 : rows * B * chunk_, shape_}});
            first += mine;
        }
        for (Floats* out : {&memory_->output, &memory_->h_last, &memory_->c_last})
            out->fill(std::numeric_limits<float>::quiet_NaN());  // what is never written must not pass a check
        blas_.set_threads(1);  // the slices are the parallelism
        team_ = std::make_unique<Team>(threads);
    }

    void load(const Array& x, const Array& h0, const Array& c0, const Array& w_ih, const Array& w_hh,
              const Array& b_ih, const Array& b_hh) {
        Memory& m = memory();
        const auto [H, I, B, T] = shape_;
        copy_in(m.x, x, "x", {T, B, I});
        copy_in(m.h0, h0, "h0", {B, H});
        copy_in(m.c0, c0, "c0", {B, H});
        Floats wi(size_t(4) * H * I, shape_), wh(size_t(4) * H * H, shape_), bi(4 * H, shape_), bh(4 * H, shape_);
        copy_in(wi, w_ih, "w_ih", {4 * H, I});
        copy_in(wh, w_hh, "w_hh", {4 * H, H});
        copy_in(bi, b_ih, "b_ih", {4 * H});
        copy_in(bh, b_hh, "b_hh", {4 * H});
        py::gil_scoped_release no_gil;
        team_->run([&](int thread) { pack(m.slices[thread], wi.get(), wh.get(), bi.get(), bh.get()); });
        loaded_ = true;
        carries_ = left_ = false;
    }

    // From here on each call starts from the states that the one before has left; the next one from these.
    void carry(const Array& h0, const Array& c0) {
        Memory& m = memory();
        copy_in(m.h0, h0, "h0", {shape_.batch, shape_.hidden});
        copy_in(m.c0, c0, "c0", {shape_.batch, shape_.hidden});
        carries_ = true;
        left_ = false;
    }

    void forward() {
        Memory& m = memory();
        if (!loaded_) throw std::logic_error("load() comes before forward()");
        if (carries_ && left_) {
            std::swap(m.h0, m.h_last);
            std::swap(m.c0, m.c_last);
        }
        left_ = true;
        team_->run([&](int thread) { forward<false>(m, m.slices[thread], nullptr); });
    }

    // Seconds that a call spends in each phase, as the calling thread sees it: together they are the call.
    // Waiting is what it does when other threads are later than itself, and what waking them takes.
    std::map<std::string, double> phases(int calls) {
        Memory& m = memory();
        if (!loaded_) throw std::logic_error("load() comes before phases()");
        if (calls < 1) throw std::invalid_argument("calls must be at least 1, found " + std::to_string(calls));
        std::vector<Watch> watches(m.slices.size());
        for (int i = 0; i < calls; ++i) {
            watches[0].start();
            team_->run([&](int thread) {
                if (thread == 0) watches[0].lap(Wait);
                else watches[thread].start();
                forward<true>(m, m.slices[thread], &watches[thread]);
            });
            watches[0].lap(Wait);
        }
        const char* const names[Phases] = {"input product", "recurrent product", "cell", "wait"};
        std::map<std::string, double> seconds;
        for (int phase = 0; phase < Phases; ++phase)
            seconds[names[phase]] = std::chrono::duration<double>(watches[0].spent[phase]).count() / calls;
        return seconds;
    }

    // Latency: what one caller waits for one call.
    std::vector<int64_t> time_each(int calls) {
        std::vector<int64_t> nanoseconds(std::max(calls, 0));
        for (int64_t& one : nanoseconds) one = time_queued(1);
        return nanoseconds;
    }

    // Throughput: calls back to back. A call on a CPU is over when it returns, so there is no queue to drain.
    int64_t time_queued(int calls) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) forward();
        const auto end = std::chrono::steady_clock::now();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
    }

    py::tuple outputs() {
        Memory& m = memory();
        const auto [H, I, B, T] = shape_;
        return py::make_tuple(Array({T, B, H}, m.output.get()), Array({B, H}, m.h_last.get()),
                              Array({B, H}, m.c_last.get()));
    }

    py::dict sizes() {
        Memory& m = memory();
        size_t weights = 0, workspace = 0;
        for (const Slice& s : m.slices) {
            weights += s.w_ih.bytes() + s.w_hh.bytes() + s.bias.bytes();
            workspace += s.gates.bytes();
        }
        py::dict sizes;
        sizes["weights"] = weights;
        sizes["inputs"] = m.x.bytes() + m.h0.bytes() + m.c0.bytes();
        sizes["outputs"] = m.output.bytes() + m.h_last.bytes() + m.c_last.bytes();
        sizes["workspace"] = workspace;
        return sizes;
    }

    void release() {
        team_.reset();
        memory_.reset();
    }

private:
    struct Slice {  // what one thread owns
        int first_unit, panels;
        Floats w_ih;   // (rows, I), rows in panel order: sgemm's own layout
        Floats w_hh;   // panels, see cell.inc
        Floats bias;   // (rows): both biases
        Floats gates;  // (chunk, B, rows): W_ih x
    };
    struct Memory {
        Floats x, h0, c0, output, h_last, c_last;
        std::vector<Slice> slices;
    };

    Memory& memory() {
        if (!memory_) throw std::runtime_error("this Lstm was released");
        return *memory_;
    }

    // PyTorch's rows (gate, unit) into panels of (unit / lanes, gate, lane); lanes without a unit hold zeros.
    void pack(Slice& s, const float* w_ih, const float* w_hh, const float* b_ih, const float* b_hh) const {
        const int L = kernel_.lanes, H = shape_.hidden, I = shape_.input;
        for (int row = 0; row < s.panels * 4 * L; ++row) {
            const int panel = row / (4 * L), lane = row % L, gate = row / L % 4;
            const int unit = s.first_unit + panel * L + lane;
            const bool real = unit < H;
            const size_t from = size_t(gate) * H + unit;
            s.bias.get()[row] = real ? b_ih[from] + b_hh[from] : 0.0f;
            for (int k = 0; !skip_ && k < I; ++k) s.w_ih.get()[size_t(row) * I + k] = real ? w_ih[from * I + k] : 0.0f;
            float* panel_start = s.w_hh.get() + size_t(panel) * 4 * L * H;
            for (int k = 0; k < H; ++k)
                panel_start[(size_t(k) * 4 + gate) * L + lane] = real ? w_hh[from * H + k] : 0.0f;
        }
    }

    template <bool Watched>
    void forward(Memory& m, Slice& s, Watch* watch) {
        const size_t H = shape_.hidden, I = shape_.input, B = shape_.batch;
        const int T = shape_.timesteps, rows = s.panels * 4 * kernel_.lanes;
        Step step{shape_.hidden, shape_.batch, s.first_unit, s.panels, s.w_hh.get(), s.bias.get(), nullptr, rows,
                  nullptr, m.h0.get(), m.c0.get(), nullptr, m.c_last.get(), nullptr, watch};
        for (int t = 0; t < T; ++t) {
            step.x = m.x.get() + t * B * I;
            if (!skip_) {
                if (t % chunk_ == 0)
                    blas_.sgemm(Blas::RowMajor, Blas::NoTrans, Blas::Trans, std::min(chunk_, T - t) * shape_.batch,
                                rows, shape_.input, 1.0f, step.x, shape_.input, s.w_ih.get(), shape_.input, 0.0f,
                                s.gates.get(), rows);
                if constexpr (Watched) watch->lap(InputProduct);
                step.gates = s.gates.get() + (t % chunk_) * B * rows;
            }
            step.h_after = m.output.get() + t * B * H;
            step.h_last = t == T - 1 ? m.h_last.get() : nullptr;
            (Watched ? timed_kernel_ : kernel_).step(step);
            step.h_before = step.h_after;  // the output is the history of h: the next step reads it where it lies
            step.c_before = step.c_after;
            if (t < T - 1) team_->barrier();
            if constexpr (Watched) watch->lap(Wait);
        }
    }

    const Shape shape_;
    const bool skip_;
    const Blas blas_;
    const Kernel kernel_, timed_kernel_ = timed_kernel();
    int chunk_;
    bool loaded_ = false, carries_ = false, left_ = false;
    std::unique_ptr<Memory> memory_;
    std::unique_ptr<Team> team_;
};

}  // namespace deepbench

// ---------------------------------------------------------------------------------------------
// Python.

PYBIND11_MODULE(_openblas, module) {
    using namespace deepbench;
    using Free = py::call_guard<py::gil_scoped_release>;
    module.doc() = "One LSTM layer on the CPU over OpenBLAS: the baseline that frameworks are held against.";
    py::register_local_exception<LibraryError>(module, "LibraryError", PyExc_RuntimeError);
    py::register_local_exception<OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
    module.def("versions", [](const std::string& library) {
        py::dict versions;
        versions["openblas"] = Blas(library).config();
        versions["kernel"] = best_kernel().name;
        return versions;
    }, py::arg("library"), "The configuration line of the library, and the instruction set of our own kernel.");
    module.def("multiply_rate", &multiply_rate, py::arg("threads"), Free(), "FLOP/s of multiply-adds in registers.");
    module.def("read_rate", &read_rate, py::arg("threads"), py::arg("bytes"), Free(), "Bytes/s of threads that read so many each.");
    module.def("exchange_seconds", &exchange_seconds, py::arg("threads"), Free(), "Until every thread has heard of every other.");
    py::class_<Lstm>(module, "Lstm", py::module_local())  // local: the other module has an Lstm too
        .def(py::init<const std::string&, int, int, int, int, int, bool>(), py::arg("library"), py::arg("hidden"),
             py::arg("input_size"), py::arg("batch"), py::arg("timesteps"), py::arg("threads") = 1,
             py::arg("skip_input") = false)
        .def("load", &Lstm::load, py::arg("x"), py::arg("h0"), py::arg("c0"), py::arg("w_ih"), py::arg("w_hh"),
             py::arg("b_ih"), py::arg("b_hh"))
        .def("carry", &Lstm::carry, py::arg("h0"), py::arg("c0"))
        .def("forward", py::overload_cast<>(&Lstm::forward), Free())
        .def("wait", [](Lstm&) {})
        .def("time_each", &Lstm::time_each, py::arg("calls"), Free())
        .def("time_queued", &Lstm::time_queued, py::arg("calls"), Free())
        .def("phases", &Lstm::phases, py::arg("calls"), Free())
        .def("outputs", &Lstm::outputs)
        .def("memory", &Lstm::sizes)
        .def("release", &Lstm::release);
}
