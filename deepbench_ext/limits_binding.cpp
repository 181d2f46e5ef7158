// The limits of a machine for Python: limits.hpp and gpu_limits.hpp.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "gpu_limits.hpp"
#include "limits.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_limits, module) {
    using namespace deepbench;
    using Free = py::call_guard<py::gil_scoped_release>;
    module.doc() = "What this machine can do at best.";
    py::register_local_exception<Unsupported>(module, "Unsupported", PyExc_NotImplementedError);
    py::register_local_exception<OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
    py::register_local_exception<LibraryError>(module, "LibraryError", PyExc_RuntimeError);
    module.def("multiply_rate", &multiply_rate, py::arg("threads"), Free(), "FLOP/s of multiply-adds in registers.");
    module.def("read_rate", &read_rate, py::arg("threads"), py::arg("bytes"), Free(), "Bytes/s of threads that read so many each.");
    module.def("exchange_seconds", &exchange_seconds, py::arg("threads"), Free(), "Until every thread has heard of every other.");
    const auto seconds = [](const Took& took) {
        py::dict found;
        found["device"] = took.device, found["waited"] = took.waited, found["queued"] = took.queued;
        return found;
    };
    module.def("time_limit", [seconds](const std::vector<std::string>& libraries, const py::bytes& code, const std::string& name,
                                       bool cluster, int blocks, int threads, size_t shared_bytes, int teams, size_t bytes, int rounds,
                                       int calls) {
        const Launch launch{cluster, blocks, threads, 1, shared_bytes, 0};
        return seconds(time_limit(libraries, code, name, launch, teams, bytes, rounds, calls));
    }, py::arg("libraries"), py::arg("code"), py::arg("name"), py::kw_only(), py::arg("cluster"), py::arg("blocks"), py::arg("threads"),
       py::arg("shared_bytes"), py::arg("teams"), py::arg("bytes"), py::arg("rounds"), py::arg("calls"),
       "What a kernel of limits.cu takes.");
    module.def("time_product", [seconds](const std::vector<std::string>& libraries, const std::string& precision, int size, int calls) {
        return seconds(time_product(libraries, precision, size, calls));
    }, py::arg("libraries"), py::arg("precision"), py::arg("size"), py::arg("calls"));
}
