// One LSTM layer by kernels of our own: all inputs are multiplied at once, one kernel does all timesteps.
//
// That kernel is one of ../*.cu; W_ih x is input_product.hpp's matter. They explain themselves. Python chooses, has
// them compiled for the GPU at hand and lays the weights out as they want them (layer.py); here they are launched
// and timed, or run on the arrays and the stream of a caller.
//
// libcudart, libcuda and libcublas are opened at run time; nothing of CUDA is needed to build.
#include <pybind11/pybind11.h>

#include <tuple>

#include "gpu_device.hpp"
#include "gpu_layer.hpp"
#include "input_product.hpp"

namespace py = pybind11;

namespace lstm_kernels {

// How many clusters run at the same time.
int resident(const std::vector<std::string>& libraries, const std::string& code, const Launch& launch) {
    const std::string about = "a team of " + std::to_string(launch.blocks) + " blocks";
    const Device& device = *Device::of(libraries, about);
    const Kernel kernel(device.driver, code, "lstm_recurrence", about);
    launch.prepare(device.driver, kernel.function, about);
    auto attributes = launch.attributes();
    const CUlaunchConfig config = launch.config(1, attributes, device.stream);
    int clusters = 0;
    device.driver.check(device.driver.cuOccupancyMaxActiveClusters(&clusters, kernel.function, &config), "cuOccupancyMaxActiveClusters",
                        about);
    return clusters;
}

// ---------------------------------------------------------------------------------------------
// What a kernel is called with, as in call.cuh.
struct Call {
    const void *weights, *projected, *bias, *h0, *c0;
    void *y, *h_last, *c_last, *exchange, *late;
    float scale;
    int hidden, batch, timesteps, share;
};

// ---------------------------------------------------------------------------------------------
// The layer. x, h0, c0, w_ih and the outputs are as Python stores them: fp32, or 16 bits of fp16 or bf16.

struct Options {
    std::string storage, projection;
    Launch launch;
};

// Where the arrays of a call are, and where it runs. `scratch` is read and written by this call only.
struct Arrays {
    const void *x, *h0, *c0;
    void *y, *h_last, *c_last, *scratch, *late;
    int timesteps;
    cudaStream_t stream;
    Cublas::Handle blas;
};

class Layer : public GpuLayer {
public:
    Layer(const std::vector<std::string>& libraries, const std::string& code, const std::string& input, const Shape& shape,
          const Options& options)
        : Layer(*Device::of(libraries, shape.text()), code, input, shape, options) {}

    Layer(const Device& device, const std::string& code, const std::string& input, const Shape& shape, const Options& options)
        : GpuLayer(device.cuda, device.stream, shape, shape.text() + ", " + options.storage), device_(device), options_(options),
          kernel_(device.driver, code, "lstm_recurrence", about_),
          product_(device, input, shape, options.storage, options.projection, about_) {
        shape_.check(false);
        const auto [H, I, B, T] = shape_;
        check_vectors(T);
        options_.launch.prepare(device_.driver, kernel_.function, about_);
        attributes_ = options_.launch.attributes();
        const size_t element = options_.storage == "fp32" ? 4 : 2, state = element * B * H;
        x_ = buffer(element * T * B * I);
        h0_ = buffer(state);
        c0_ = buffer(state);
        y_ = buffer(element * T * B * H);
        h_last_ = buffer(state);
        c_last_ = buffer(state);
        scratch_ = buffer(parts(T).end);
        void* late = nullptr;
        check(cuda_.cudaHostAlloc(&late, 4, cudaHostAllocMapped), "cudaHostAlloc");
        late_ = {static_cast<int*>(late), cuda_.cudaFreeHost};
        *late_ = 0;
        poison();
        wait();
    }

    ~Layer() { settle(); }

    // `weights` is W_hh as the kernel wants it, times 1 / scale; `bias` and the rows of `w_ih` have a unit's gates together.
    // For a product in tiles, `w_ih` is high and low halves, times 1 / input_scale.
    void load(const py::array& x, const py::array& h0, const py::array& c0, const py::array& w_ih, const py::array& weights,
              const py::array& bias, float scale, float input_scale) {
        for (const auto& [array, name, buffer] : std::vector<std::tuple<const py::array*, const char*, const Buffer*>>{
                 {&x, "x", &x_}, {&h0, "h0", &h0_}, {&c0, "c0", &c0_}})
            if (size_t(array->nbytes()) != bytes(*buffer))
                throw std::invalid_argument(std::string(name) + " does not have the size of " + shape_.text());
        w_ih_ = buffer(w_ih.nbytes());
        weights_ = buffer(weights.nbytes());
        bias_ = buffer(bias.nbytes());
        for (const auto& [array, buffer] : std::vector<std::pair<const py::array*, const Buffer*>>{
                 {&x, &x_}, {&h0, &h0_}, {&c0, &c0_}, {&w_ih, &w_ih_}, {&weights, &weights_}, {&bias, &bias_}})
            copy_in(buffer->get(), *array, 0, array->size());
        scale_ = scale;
        input_scale_ = input_scale;
        set(scratch_, 0);
        wait();
        loaded(false);
    }

    // Bytes that `run` wants as scratch.
    size_t scratch(int timesteps) const {
        check_vectors(timesteps);
        return parts(timesteps).end + (product_.by_cublas() ? Device::WORKSPACE : 0);
    }

    // One call of any number of timesteps on a caller's arrays and stream, with the weights of this layer. It allocates
    // nothing and waits for nothing, so that the stream may be captured, and leaves nothing for the next call.
    void run(Arrays given) {
        check(cuda_.cudaSetDevice(0), "cudaSetDevice");  // the driver needs a context, which a new thread has not
        const Parts at = parts(given.timesteps);
        char* scratch = static_cast<char*>(given.scratch);
        if (const size_t bytes = options_.launch.exchange_bytes)
            check(cuda_.cudaMemsetAsync(scratch + at.exchange, 0, bytes, given.stream), "cudaMemsetAsync");
        if (product_.by_cublas()) given.blas = device_.lent(given.stream, scratch + at.end, about_);
        queue(given);
    }

    py::tuple outputs() {
        const auto [H, I, B, T] = shape_;
        const char* type = options_.storage == "fp32" ? "float32" : "uint16";
        return py::make_tuple(copy_out(y_, type, {T, B, H}), copy_out(h_last_, type, {B, H}), copy_out(c_last_, type, {B, H}));
    }

    py::dict sizes() const {
        py::dict sizes;
        sizes["weights"] = bytes(w_ih_) + bytes(weights_) + bytes(bias_);
        sizes["inputs"] = bytes(x_) + bytes(h0_) + bytes(c0_);
        sizes["outputs"] = bytes(y_) + bytes(h_last_) + bytes(c_last_);
        sizes["workspace"] = bytes(scratch_);
        return sizes;
    }

private:
    void check_vectors(int timesteps) const {
        if (timesteps < 1) throw std::invalid_argument("timesteps must be at least 1");
        if (int64_t(timesteps) * shape_.batch > INT32_MAX / 4) throw Unsupported("more than 2^29 vectors (" + about_ + ")");
    }

    // Where in the scratch of a call its parts begin.
    struct Parts {
        size_t product, projected, exchange, end;
    };
    Parts parts(int timesteps) const {
        const size_t rows = size_t(timesteps) * shape_.batch;
        size_t end = 0;
        const auto part = [&](size_t bytes) { return std::exchange(end, end + (bytes + 255) / 256 * 256); };
        return {part(product_.scratch(rows)), part(4 * rows * 4 * shape_.hidden), part(options_.launch.exchange_bytes), end};
    }

    void launch() override {
        queue({x_.get(), h0_.get(), c0_.get(), y_.get(), h_last_.get(), c_last_.get(), scratch_.get(), late_.get(), shape_.timesteps,
               stream_, device_.handle});
    }

    void queue(const Arrays& arrays) {
        char* scratch = static_cast<char*>(arrays.scratch);
        const Parts at = parts(arrays.timesteps);
        product_.queue(arrays.x, w_ih_, input_scale_, scratch + at.projected, arrays.timesteps * shape_.batch, scratch + at.product,
                       arrays.stream, arrays.blas);
        recur(arrays);
    }

    // All timesteps.
    void recur(const Arrays& arrays) {
        const int B = shape_.batch, share = options_.launch.share;
        const Parts at = parts(arrays.timesteps);
        char* scratch = static_cast<char*>(arrays.scratch);
        Call call{weights_.get(), scratch + at.projected, bias_.get(), arrays.h0, arrays.c0, arrays.y, arrays.h_last, arrays.c_last,
                  scratch + at.exchange, arrays.late, scale_, shape_.hidden, B, arrays.timesteps, share};
        void* arguments[] = {&call};
        const CUlaunchConfig config = options_.launch.config((B + share - 1) / share, attributes_, arrays.stream);
        device_.driver.check(device_.driver.cuLaunchKernelEx(&config, kernel_.function, arguments, nullptr), "cuLaunchKernelEx", about_);
    }

    void verify() const override {
        if (late_ && *static_cast<volatile int*>(late_.get()))
            throw LibraryError("the kernel waited 2 seconds for one step of another block and gave up: is the GPU shared with other work? (" +
                               about_ + ")");
    }

    const Device& device_;
    const Options options_;
    Kernel kernel_;
    const InputProduct product_;
    std::vector<CUlaunchAttribute> attributes_;
    float scale_ = 1, input_scale_ = 1;
    Buffer w_ih_, weights_, bias_, scratch_;
    std::unique_ptr<int, decltype(&::cudaFreeHost)> late_{nullptr, nullptr};  // written by the kernel
};

using Lstm = Released<Layer>;

}  // namespace lstm_kernels

// ---------------------------------------------------------------------------------------------
// Python.

PYBIND11_MODULE(_gpu, module) {
    using namespace lstm_kernels;
    module.doc() = "One LSTM layer on a GPU by kernels of our own.";
    py::register_local_exception<Unsupported>(module, "Unsupported", PyExc_NotImplementedError);
    py::register_local_exception<OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
    py::register_local_exception<LibraryError>(module, "LibraryError", PyExc_RuntimeError);
    py::class_<Launch>(module, "Launch", py::module_local())
        .def(py::init([](bool cluster, int blocks, int threads, int share, size_t shared_bytes, size_t exchange_bytes) {
                 return Launch{cluster, blocks, threads, share, shared_bytes, exchange_bytes};
             }),
             py::kw_only(), py::arg("cluster"), py::arg("blocks"), py::arg("threads"), py::arg("share"), py::arg("shared_bytes"),
             py::arg("exchange_bytes"));
    module.def("device", [](const std::vector<std::string>& libraries) {
        const Cuda cuda(libraries.at(0));
        py::dict found;
        for (const auto& [name, attribute] : std::vector<std::pair<const char*, cudaDeviceAttr>>{
                 {"major", cudaDevAttrComputeCapabilityMajor},
                 {"minor", cudaDevAttrComputeCapabilityMinor},
                 {"multiprocessors", cudaDevAttrMultiProcessorCount},
                 {"shared_bytes", cudaDevAttrMaxSharedMemoryPerBlockOptin},
                 {"registers", cudaDevAttrMaxRegistersPerMultiprocessor},
                 {"l2_bytes", cudaDevAttrL2CacheSize}}) {
            int value = 0;
            cuda.check(cuda.cudaDeviceGetAttribute(&value, attribute, 0), "cudaDeviceGetAttribute", "GPU 0");
            found[name] = value;
        }
        return found;
    }, py::arg("libraries"));
    module.def("resident", [](const std::vector<std::string>& libraries, const py::bytes& code, const Launch& launch) {
        return resident(libraries, code, launch);
    }, py::arg("libraries"), py::arg("code"), py::arg("launch"));
    gpu_lstm<Lstm>(module)
        .def(py::init([](const std::vector<std::string>& libraries, const py::bytes& code, const py::bytes& input, int hidden,
                         int input_size, int batch, int timesteps, const std::string& storage, const std::string& projection,
                         const Launch& launch) {
                 return std::make_unique<Lstm>(libraries, std::string(code), std::string(input),
                                               Shape{hidden, input_size, batch, timesteps}, Options{storage, projection, launch});
             }),
             py::arg("libraries"), py::arg("code"), py::arg("input"), py::arg("hidden"), py::arg("input_size"), py::arg("batch"),
             py::arg("timesteps"), py::arg("storage"), py::arg("projection"), py::arg("launch"))
        .def("load", [](Lstm& self, const py::array& x, const py::array& h0, const py::array& c0, const py::array& w_ih,
                        const py::array& weights, const py::array& bias, float scale, float input_scale) {
                 (*self).load(x, h0, c0, w_ih, weights, bias, scale, input_scale);
             },
             py::arg("x"), py::arg("h0"), py::arg("c0"), py::arg("w_ih"), py::arg("weights"), py::arg("bias"), py::arg("scale"),
             py::arg("input_scale"))
        .def("carry", [](Lstm& self, const py::array& h0, const py::array& c0) { (*self).carry(h0, c0); }, py::arg("h0"), py::arg("c0"))
        .def("scratch", [](Lstm& self, int timesteps) { return (*self).scratch(timesteps); }, py::arg("timesteps"))
        // Addresses. Python's lock is kept: callers share a handle of cuBLAS.
        .def("run", [](Lstm& self, int timesteps, uintptr_t x, uintptr_t h0, uintptr_t c0, uintptr_t y, uintptr_t h, uintptr_t c,
                       uintptr_t scratch, uintptr_t late, uintptr_t stream) {
                 const auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
                 (*self).run({at(x), at(h0), at(c0), at(y), at(h), at(c), at(scratch), at(late), timesteps,
                              reinterpret_cast<cudaStream_t>(stream), nullptr});
             },
             py::arg("timesteps"), py::arg("x"), py::arg("h0"), py::arg("c0"), py::arg("y"), py::arg("h"), py::arg("c"),
             py::arg("scratch"), py::arg("late"), py::arg("stream"))
        .def("outputs", [](Lstm& self) { return (*self).outputs(); })
        .def("memory", [](Lstm& self) { return (*self).sizes(); });
}
