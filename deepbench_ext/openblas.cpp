// The CPU baseline for Python: layer.hpp over NumPy arrays.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <optional>

#include "instruction_set.hpp"
#include "layer.hpp"
#include "limits.hpp"

namespace py = pybind11;

namespace deepbench {

using Array = py::array_t<float, py::array::c_style | py::array::forcecast>;

static const float* checked(const Array& array, const char* name, std::vector<py::ssize_t> expected) {
    if (std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()) != expected) {
        std::string message = std::string(name) + ": expected shape (";
        for (auto size : expected) message += std::to_string(size) + ",";
        throw std::invalid_argument(message + ") of float32");
    }
    return array.data();
}

static Precision precision_of(const std::string& name) {
    if (name == "fp32") return Precision::fp32;
    if (name == "bf16") return Precision::bf16;
    if (name == "int8") return Precision::int8;
    throw std::invalid_argument("precision: expected fp32, bf16 or int8, found " + name);
}

class Lstm {
public:
    // The own kernel takes the input product, but where it has no multiply-add: there OpenBLAS is faster.
    Lstm(const std::string& library, int hidden, int input, int batch, int timesteps, int threads, bool skip_input,
         const std::string& precision, const std::string& input_product, std::optional<std::array<int, 3>> plan)
        : blas_(library) {
        const bool plain = precision == "fp32" && !skip_input, weak = std::string(best_kernel(Precision::fp32).name) == "SSE2";
        if (input_product != "auto" && input_product != "own" && input_product != "openblas")
            throw std::invalid_argument("input_product: expected auto, own or openblas, found " + input_product);
        const bool by_blas = input_product == "openblas" || (input_product == "auto" && plain && weak && !plan);
        std::optional<Plan> forced;
        if (plan) forced = Plan{(*plan)[0], (*plan)[1], (*plan)[2]};
        layer_.emplace(Shape{hidden, input, batch, timesteps}, threads, skip_input, precision_of(precision),
                       by_blas ? &blas_ : nullptr, forced);
    }

    void load(const Array& x, const Array& h0, const Array& c0, const Array& w_ih, const Array& w_hh,
              const Array& b_ih, const Array& b_hh) {
        const auto [H, I, B, T] = layer_->shape();
        const Layer::Arrays arrays{checked(x, "x", {T, B, I}), checked(h0, "h0", {B, H}), checked(c0, "c0", {B, H}),
                                   checked(w_ih, "w_ih", {4 * H, I}), checked(w_hh, "w_hh", {4 * H, H}),
                                   checked(b_ih, "b_ih", {4 * H}), checked(b_hh, "b_hh", {4 * H})};
        py::gil_scoped_release no_gil;
        layer_->load(arrays);
    }

    void carry(const Array& h0, const Array& c0) {
        const auto [H, I, B, T] = layer_->shape();
        layer_->carry(checked(h0, "h0", {B, H}), checked(c0, "c0", {B, H}));
    }

    void forward() { layer_->forward(); }
    std::map<std::string, double> phases(int calls) { return layer_->phases(calls); }
    int64_t time_queued(int calls) { return layer_->time_queued(calls); }

    // Latency: what one caller waits for one call.
    std::vector<int64_t> time_each(int calls) {
        std::vector<int64_t> nanoseconds(std::max(calls, 0));
        if (nanoseconds.empty()) layer_->sizes();  // a released layer says so
        for (int64_t& one : nanoseconds) one = time_queued(1);
        return nanoseconds;
    }

    py::tuple outputs() {
        const auto [H, I, B, T] = layer_->shape();
        layer_->sizes();  // a released layer says so before anything is allocated
        Array output({T, B, H}), h({B, H}), c({B, H});
        layer_->copy_outputs(output.mutable_data(), h.mutable_data(), c.mutable_data());
        return py::make_tuple(output, h, c);
    }

    std::map<std::string, size_t> sizes() { return layer_->sizes(); }
    std::array<int, 3> plan() const { return {layer_->plan().batch_parts, layer_->plan().unit_parts, layer_->plan().chunk}; }
    void release() { layer_->release(); }

private:
    Blas blas_;
    std::optional<Layer> layer_;
};

}  // namespace deepbench

PYBIND11_MODULE(_openblas, module) {
    using namespace deepbench;
    using Free = py::call_guard<py::gil_scoped_release>;
    module.doc() = "One LSTM layer on the CPU, by our own kernels and OpenBLAS: the baseline that frameworks are held against.";
    py::register_local_exception<LibraryError>(module, "LibraryError", PyExc_RuntimeError);
    py::register_local_exception<OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
    py::register_local_exception<Unsupported>(module, "Unsupported", PyExc_RuntimeError);
    module.def("versions", [](const std::string& library) {
        std::map<std::string, std::string> versions{{"openblas", Blas(library).config()}};
        for (auto [name, precision] : {std::pair("kernel", Precision::fp32), std::pair("bf16 kernel", Precision::bf16), std::pair("int8 kernel", Precision::int8)})
            versions[name] = best_kernel(precision).name;
        return versions;
    }, py::arg("library"), "The configuration line of the library, and the instruction sets of our own kernels.");
    module.def("instruction_sets", [] {
        const auto* const end = InstructionSets + int(best_instruction_set()) + 1;
        return std::vector<std::string>(InstructionSets, end);
    }, "What LSTM_BENCH_ISA may be on this CPU, from the least to the most.");
    module.def("multiply_rate", &multiply_rate, py::arg("threads"), Free(), "FLOP/s of multiply-adds in registers.");
    module.def("read_rate", &read_rate, py::arg("threads"), py::arg("bytes"), Free(), "Bytes/s of threads that read so many each.");
    module.def("exchange_seconds", &exchange_seconds, py::arg("threads"), Free(), "Until every thread has heard of every other.");
    py::class_<Lstm>(module, "Lstm", py::module_local())  // local: the other module has an Lstm too
        .def(py::init<const std::string&, int, int, int, int, int, bool, const std::string&, const std::string&,
                      std::optional<std::array<int, 3>>>(),
             py::arg("library"), py::arg("hidden"), py::arg("input_size"), py::arg("batch"), py::arg("timesteps"),
             py::arg("threads") = 1, py::arg("skip_input") = false, py::arg("precision") = "fp32",
             py::arg("input_product") = "auto", py::arg("plan") = py::none())
        .def("load", &Lstm::load, py::arg("x"), py::arg("h0"), py::arg("c0"), py::arg("w_ih"), py::arg("w_hh"),
             py::arg("b_ih"), py::arg("b_hh"))
        .def("carry", &Lstm::carry, py::arg("h0"), py::arg("c0"))
        .def("forward", &Lstm::forward, Free())
        .def("wait", [](Lstm&) {})
        .def("time_each", &Lstm::time_each, py::arg("calls"), Free())
        .def("time_queued", &Lstm::time_queued, py::arg("calls"), Free())
        .def("phases", &Lstm::phases, py::arg("calls"), Free())
        .def("outputs", &Lstm::outputs)
        .def("memory", &Lstm::sizes)
        .def("plan", &Lstm::plan, "Parts of the batch, parts of the units, timesteps per input product.")
        .def("release", &Lstm::release);
}
