// The layer on a CPU for Python: layer.hpp over NumPy arrays.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <optional>

#include "instruction_set.hpp"
#include "layer.hpp"

namespace py = pybind11;

namespace lstm_kernels {

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
    // `sgemm` is the address of a cblas_sgemm for the input products, or 0.
    Lstm(int hidden, int input, int batch, int timesteps, int threads, bool skip_input, const std::string& precision, uintptr_t sgemm,
         std::optional<std::array<int, 3>> plan) {
        std::optional<Plan> forced;
        if (plan) forced = Plan{(*plan)[0], (*plan)[1], (*plan)[2]};
        layer_.emplace(Shape{hidden, input, batch, timesteps}, threads, skip_input, precision_of(precision), reinterpret_cast<Sgemm>(sgemm),
                       forced);
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
    std::optional<Layer> layer_;
};

}  // namespace lstm_kernels

PYBIND11_MODULE(_cpu, module) {
    using namespace lstm_kernels;
    using Free = py::call_guard<py::gil_scoped_release>;
    module.doc() = "One LSTM layer on a CPU by kernels of our own.";
    py::register_local_exception<OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
    py::register_local_exception<Unsupported>(module, "Unsupported", PyExc_RuntimeError);
    module.def("kernels", [] {
        std::map<std::string, std::string> names;
        for (const char* precision : {"fp32", "bf16", "int8"}) names[precision] = best_kernel(precision_of(precision)).name;
        return names;
    }, "The instruction set that the kernels of each precision use here.");
    module.def("instruction_sets", [] {
        const auto* const end = InstructionSets + int(best_instruction_set()) + 1;
        return std::vector<std::string>(InstructionSets, end);
    }, "What LSTM_BENCH_ISA may be on this CPU, from the least to the most.");
    py::class_<Lstm>(module, "Lstm", py::module_local())  // local: _gpu has an Lstm too
        .def(py::init<int, int, int, int, int, bool, const std::string&, uintptr_t, std::optional<std::array<int, 3>>>(), py::arg("hidden"),
             py::arg("input_size"), py::arg("batch"), py::arg("timesteps"), py::arg("threads") = 1, py::arg("skip_input") = false,
             py::arg("precision") = "fp32", py::arg("sgemm") = 0, py::arg("plan") = py::none())
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
