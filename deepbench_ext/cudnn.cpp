// The GPU baseline: one LSTM layer as cuDNN 9 runs it, one cudnnRNNForward per call and nothing else. With `training`
// a call is a step: a forward pass that keeps what the backward one needs, then the gradients of x, h0, c0 and all weights.
//
// For t = 0 .. T-1, with gates in the order i, f, g, o:
//
//     gates = W_ih x_t + b_ih + W_hh h + b_hh        (skip_input: x_t itself in place of W_ih x_t)
//     c     = sigmoid(f) * c + sigmoid(i) * tanh(g)
//     h     = sigmoid(o) * tanh(c)
//
// cuDNN has four ways to do it ("algorithms"): STANDARD launches a product and a cell kernel per
// timestep; the PERSIST ones keep the recurrent weights on the chip and launch once. With `graph` the
// launches of one call are recorded once and replayed as a CUDA graph, which takes the host out of it.
//
// fp32 keeps everything in float; tf32 lets tensor cores round the factors, as PyTorch's default does.
// fp16 holds data and weights in half, multiplies on tensor cores and adds in float, as PyTorch does.
//
// libcudnn and libcudart are opened at run time; nothing of them is needed to build.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdint>
#include <map>

#include "cudnn_api.hpp"
#include "gpu/host/gpu_layer.hpp"

namespace py = pybind11;

namespace deepbench {

using namespace lstm_kernels;

struct Cudnn {
    // Global: cuDNN's own parts (libcudnn_adv and others) are opened by it later and share symbols.
    explicit Cudnn(const std::string& path) : library(path, RTLD_GLOBAL) {}
    Library library;
    FUNCTION(cudnnGetVersion);
    FUNCTION(cudnnGetErrorString);
    FUNCTION(cudnnGetLastErrorString);
    FUNCTION(cudnnCreate);
    FUNCTION(cudnnSetStream);
    FUNCTION(cudnnCreateDropoutDescriptor);
    FUNCTION(cudnnDestroyDropoutDescriptor);
    FUNCTION(cudnnSetDropoutDescriptor);
    FUNCTION(cudnnCreateTensorDescriptor);
    FUNCTION(cudnnDestroyTensorDescriptor);
    FUNCTION(cudnnSetTensorNdDescriptor);
    FUNCTION(cudnnCreateRNNDescriptor);
    FUNCTION(cudnnDestroyRNNDescriptor);
    FUNCTION(cudnnSetRNNDescriptor_v8);
    FUNCTION(cudnnCreateRNNDataDescriptor);
    FUNCTION(cudnnDestroyRNNDataDescriptor);
    FUNCTION(cudnnSetRNNDataDescriptor);
    FUNCTION(cudnnBuildRNNDynamic);
    FUNCTION(cudnnGetRNNWeightSpaceSize);
    FUNCTION(cudnnGetRNNWeightParams);
    FUNCTION(cudnnGetRNNTempSpaceSizes);
    FUNCTION(cudnnRNNForward);
    FUNCTION(cudnnRNNBackwardData_v8);
    FUNCTION(cudnnRNNBackwardWeights_v8);

    void check(cudnnStatus_t code, const char* call, const std::string& about, const Cuda& cuda) const {
        if (code == CUDNN_STATUS_SUCCESS) return;
        cuda.cudaGetLastError();
        char why[512] = "";
        cudnnGetLastErrorString(why, sizeof why);
        std::string message = std::string(call) + ": " + cudnnGetErrorString(code);
        if (why[0]) message += ", " + std::string(why);
        message += " (" + about + ")";
        if (code / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) throw Unsupported(message);
        if (code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
            code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
            throw OutOfMemory(message);
        throw LibraryError(message);
    }
};

// ---------------------------------------------------------------------------------------------
// The device: both libraries, one stream and one cuDNN handle, which all layers of a process share.
// They stay until the process ends, as in a framework: cuDNN 9.19 does not give back all that a
// handle took, and at exit CUDA may be gone before we are.

struct Device {
    static const Device* of(const std::string& cudnn, const std::string& cudart, const std::string& about) {
        static auto& devices = *new std::map<std::pair<std::string, std::string>, std::unique_ptr<Device>>;
        auto& device = devices[{cudnn, cudart}];
        if (!device) device = std::make_unique<Device>(cudnn, cudart, about);
        return device.get();
    }

    Device(const std::string& cudnn, const std::string& cudart, const std::string& about) : cuda(cudart), dnn(cudnn) {
        cuda.check(cuda.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", about);
        dnn.check(dnn.cudnnCreate(&handle), "cudnnCreate", about, cuda);
        dnn.check(dnn.cudnnSetStream(handle, stream), "cudnnSetStream", about, cuda);
    }

    const Cuda cuda;
    const Cudnn dnn;
    cudaStream_t stream = nullptr;
    cudnnHandle_t handle = nullptr;
};

// ---------------------------------------------------------------------------------------------
// The layer. Members are destroyed in reverse order: buffers, descriptors.

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

struct Options {
    std::string precision, algorithm;
    bool tf32, graph, skip_input;
    int layers = 1, directions = 1;
    std::vector<int> lengths;  // of the sequences; empty: all are full
    bool training = false;
};

class Layer : public GpuLayer {
public:
    Layer(const std::string& cudnn, const std::string& cudart, const Shape& shape, const Options& options)
        : Layer(*Device::of(cudnn, cudart, shape.text()), shape, options) {}

    Layer(const Device& device, const Shape& shape, const Options& options)
        : GpuLayer(device.cuda, device.stream, shape, shape.text() + ", " + options.algorithm + ", " + options.precision),
          options_(options), device_(device) {
        shape_.check(options_.skip_input);
        if (options_.precision != "fp32" && options_.precision != "fp16")
            throw std::invalid_argument("precision: expected fp32 or fp16, found " + options_.precision);
        const auto [H, I, B, T] = shape_;
        if (int64_t(B) * H > INT_MAX) throw Unsupported("a state of batch x hidden values beyond cuDNN's 32-bit strides (" + about_ + ")");
        const cudnnDataType_t type = half() ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;

        // No dropout: a descriptor must be there all the same, but it needs no memory.
        dropout_ = made<cudnnDropoutDescriptor_t>(dnn_.cudnnCreateDropoutDescriptor, dnn_.cudnnDestroyDropoutDescriptor,
                                                  "cudnnCreateDropoutDescriptor");
        check(dnn_.cudnnSetDropoutDescriptor(dropout_.get(), handle_, 0.0f, nullptr, 0, 0), "cudnnSetDropoutDescriptor");

        rnn_ = made<cudnnRNNDescriptor_t>(dnn_.cudnnCreateRNNDescriptor, dnn_.cudnnDestroyRNNDescriptor, "cudnnCreateRNNDescriptor");
        const cudnnMathType_t math = half() ? CUDNN_TENSOR_OP_MATH : options_.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
        check(dnn_.cudnnSetRNNDescriptor_v8(rnn_.get(), algorithm(), CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                                            options_.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                                            options_.skip_input ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT, type, CUDNN_DATA_FLOAT,
                                            math, I, H, H, options_.layers, dropout_.get(),
                                            padded() ? CUDNN_RNN_PADDED_IO_ENABLED : CUDNN_RNN_PADDED_IO_DISABLED),
              "cudnnSetRNNDescriptor_v8");
        if (algorithm() == CUDNN_RNN_ALGO_PERSIST_DYNAMIC)  // compiles its kernel for this batch
            check(dnn_.cudnnBuildRNNDynamic(handle_, rnn_.get(), B), "cudnnBuildRNNDynamic");

        x_shape_ = sequence(type, I);
        y_shape_ = sequence(type, options_.directions * H);
        state_shape_ = tensor();
        const int sizes[] = {places(), B, H}, strides[] = {B * H, H, 1};
        check(dnn_.cudnnSetTensorNdDescriptor(state_shape_.get(), type, 3, sizes, strides), "cudnnSetTensorNdDescriptor");

        size_t weights = 0, workspace = 0, reserve = 0;
        check(dnn_.cudnnGetRNNWeightSpaceSize(handle_, rnn_.get(), &weights), "cudnnGetRNNWeightSpaceSize");
        check(dnn_.cudnnGetRNNTempSpaceSizes(handle_, rnn_.get(), mode(), x_shape_.get(), &workspace, &reserve),
              "cudnnGetRNNTempSpaceSizes");
        if (std::max({weights, workspace, reserve}) > size_t(PTRDIFF_MAX))
            throw Unsupported("cuDNN gives a size below zero for the weights, the workspace or the reserve (" + about_ + ")");
        const size_t element = half() ? 2 : 4, state = element * places() * B * H;
        weights_ = buffer(weights);
        workspace_ = buffer(workspace);
        x_ = buffer(element * T * B * I);
        h0_ = buffer(state);
        c0_ = buffer(state);
        y_ = buffer(element * T * B * H * options_.directions);
        h_last_ = buffer(state);
        c_last_ = buffer(state);
        if (options_.training) {
            reserve_ = buffer(reserve);
            dweights_ = buffer(weights);
            dx_ = buffer(bytes(x_));
            dy_ = buffer(bytes(y_));
            for (Buffer* each : {&dh_last_, &dc_last_, &dh0_, &dc0_}) *each = buffer(state);
        }
        set(weights_, 0);
        poison();
        wait();
    }

    ~Layer() { settle(); }

    // Of a training step, before `load`: the gradients of y and of the last states.
    void load_upstream(const Floats& dy, const Floats& dh, const Floats& dc) {
        expect_training();
        expect("dy", dy, {shape_.timesteps, shape_.batch, options_.directions * shape_.hidden});
        expect("dh", dh, state_sizes(dh.ndim()));
        expect("dc", dc, state_sizes(dc.ndim()));
        for (const auto& [array, buffer] : {std::pair(&dy, &dy_), std::pair(&dh, &dh_last_), std::pair(&dc, &dc_last_)})
            copy_in(buffer->get(), part_of(stored(*array), 0, array->size()));
    }

    // `weights` are w_ih, w_hh, b_ih, b_hh of each layer and direction.
    void load(const Floats& x, const Floats& h0, const Floats& c0, const std::vector<Floats>& weights) {
        const auto [H, I, B, T] = shape_;
        expect("x", x, {T, B, I});
        expect("h0", h0, state_sizes(h0.ndim()));
        expect("c0", c0, state_sizes(c0.ndim()));
        if (weights.size() != size_t(4 * places())) throw std::invalid_argument("expected four arrays of weights a layer and direction");
        for (const auto& [array, buffer] : {std::pair(&x, &x_), std::pair(&h0, &h0_), std::pair(&c0, &c0_)})
            copy_in(buffer->get(), part_of(stored(*array), 0, array->size()));
        for (int place = 0; place < places(); ++place) load_weights(place, &weights[4 * place]);
        wait();
        loaded(options_.graph);
    }

    void load_weights(int place, const Floats* own) {
        const int H = shape_.hidden, I = width_of(place);
        const Floats &w_ih = own[0], &w_hh = own[1], &b_ih = own[2], &b_hh = own[3];
        expect("w_ih", w_ih, {4 * H, I});
        expect("w_hh", w_hh, {4 * H, H});
        expect("b_ih", b_ih, {4 * H});
        expect("b_hh", b_hh, {4 * H});
        // With skip_input cuDNN has no input product, and the input bias belongs to that product. Both
        // biases then go into the recurrent one, which is added either way; the other stays zero.
        Floats input_bias(b_ih.size(), b_ih.data()), recurrent_bias(b_hh.size(), b_hh.data());
        for (int i = 0; options_.skip_input && i < 4 * H; ++i) {
            recurrent_bias.mutable_data()[i] += b_ih.data()[i];
            input_bias.mutable_data()[i] = 0.0f;
        }
        const py::array matrices[] = {stored(w_ih), stored(w_hh)}, biases[] = {stored(input_bias), stored(recurrent_bias)};
        each_part(place, weights_, [&](int recurrent, int gate, void* matrix, void* bias) {
            const size_t size = size_t(H) * (recurrent ? H : I);
            if (matrix && (recurrent || !options_.skip_input)) copy_in(matrix, part_of(matrices[recurrent], gate * size, size));
            if (bias) copy_in(bias, part_of(biases[recurrent], size_t(gate) * H, H));
        });
    }

    void carry(const Floats& h0, const Floats& c0) {
        const py::array h = stored(h0), c = stored(c0);
        GpuLayer::carry(part_of(h, 0, h.size()), part_of(c, 0, c.size()));
    }

    py::tuple outputs() {
        const auto [H, I, B, T] = shape_;
        py::list answer;
        answer.append(copy_out(y_, {T, B, options_.directions * H}));
        for (const Buffer* state : {&h_last_, &c_last_}) answer.append(copy_out(*state, state_sizes()));
        if (options_.training) {
            answer.append(copy_out(dx_, {T, B, I}));
            for (const Buffer* state : {&dh0_, &dc0_}) answer.append(copy_out(*state, state_sizes()));
            for (int place = 0; place < places(); ++place) add_gradients(place, answer);
        }
        return py::tuple(answer);
    }

    // A training step in two halves.
    void forward_pass() {
        expect_training();
        launch_forward();
    }
    void backward_pass() {
        expect_training();
        launch_backward();
    }

    py::dict sizes() const {
        py::dict sizes;
        sizes["weights"] = weight_bytes();
        sizes["inputs"] = bytes(x_) + bytes(h0_) + bytes(c0_);
        sizes["outputs"] = bytes(y_) + bytes(h_last_) + bytes(c_last_);
        sizes["workspace"] = bytes(workspace_);
        if (!options_.training) return sizes;
        sizes["reserve"] = bytes(reserve_);
        sizes["gradients"] = bytes(dweights_) + bytes(dx_) + bytes(dy_) + 4 * bytes(dh0_);
        return sizes;
    }

private:
    int places() const { return options_.layers * options_.directions; }
    int width_of(int place) const { return place < options_.directions ? shape_.input : options_.directions * shape_.hidden; }
    cudnnForwardMode_t mode() const { return options_.training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE; }
    void expect_training() const {
        if (!options_.training) throw std::logic_error("expected a layer made with training=True (" + about_ + ")");
    }
    bool padded() const { return !options_.lengths.empty(); }

    // Of h and c: a single layer in one direction needs no first dimension.
    std::vector<py::ssize_t> state_sizes(int dimensions = 2) const {
        if (places() == 1 && dimensions == 2) return {shape_.batch, shape_.hidden};
        return {places(), shape_.batch, shape_.hidden};
    }

    void expect(const char* name, const Floats& array, const std::vector<py::ssize_t>& sizes) const {
        if (std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()) != sizes)
            throw std::invalid_argument(std::string(name) + " does not have the shape of " + shape_.text());
    }

    bool half() const { return options_.precision == "fp16"; }

    cudnnRNNAlgo_t algorithm() const {
        if (options_.algorithm == "standard") return CUDNN_RNN_ALGO_STANDARD;
        if (options_.algorithm == "persist-static") return CUDNN_RNN_ALGO_PERSIST_STATIC;
        if (options_.algorithm == "persist-dynamic") return CUDNN_RNN_ALGO_PERSIST_DYNAMIC;
        if (options_.algorithm == "persist-static-small-h") return CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H;
        throw std::invalid_argument("algorithm: expected standard, persist-static, persist-dynamic or "
                                    "persist-static-small-h, found " + options_.algorithm);
    }

    // The call that everything here is about.
    void launch() override {
        launch_forward();
        if (options_.training) launch_backward();
    }

    void launch_forward() const {
        check(dnn_.cudnnRNNForward(handle_, rnn_.get(), mode(),
                                   nullptr,  // lengths on the device: cuDNN 9 takes them from the descriptors
                                   x_shape_.get(), x_.get(), y_shape_.get(), y_.get(), state_shape_.get(), h0_.get(),
                                   h_last_.get(), state_shape_.get(), c0_.get(), c_last_.get(), weight_bytes(), weights_.get(),
                                   bytes(workspace_), workspace_.get(), bytes(reserve_), reserve_.get()),
              "cudnnRNNForward");
    }

    void launch_backward() const {
        check(dnn_.cudnnRNNBackwardData_v8(handle_, rnn_.get(), nullptr, y_shape_.get(), y_.get(), dy_.get(), x_shape_.get(), dx_.get(),
                                           state_shape_.get(), h0_.get(), dh_last_.get(), dh0_.get(), state_shape_.get(), c0_.get(),
                                           dc_last_.get(), dc0_.get(), weight_bytes(), weights_.get(), bytes(workspace_),
                                           workspace_.get(), bytes(reserve_), reserve_.get()),
              "cudnnRNNBackwardData_v8");
        set(dweights_, 0);  // cuDNN only adds to it
        check(dnn_.cudnnRNNBackwardWeights_v8(handle_, rnn_.get(), CUDNN_WGRAD_MODE_ADD, nullptr, x_shape_.get(), x_.get(),
                                              state_shape_.get(), h0_.get(), y_shape_.get(), y_.get(), weight_bytes(),
                                              dweights_.get(), bytes(workspace_), workspace_.get(), bytes(reserve_), reserve_.get()),
              "cudnnRNNBackwardWeights_v8");
    }

    void poison() const override {
        GpuLayer::poison();
        for (const Buffer* out : {&dx_, &dh0_, &dc0_, &dweights_})
            if (*out) set(*out, 0xFF);
    }

    // Where each of the eight parts of a layer and direction begins in a space that is laid out as the weights are.
    template <typename Visit>
    void each_part(int place, const Buffer& space, Visit visit) const {
        const auto unused = tensor(), unused_too = tensor();  // cuDNN describes the matrix there; we know its shape
        for (int part = 0; part < 8; ++part) {  // 0-3: input i, f, g, o; 4-7: recurrent
            void *matrix = nullptr, *bias = nullptr;
            check(dnn_.cudnnGetRNNWeightParams(handle_, rnn_.get(), place, bytes(space), space.get(), part, unused.get(),
                                               &matrix, unused_too.get(), &bias),
                  "cudnnGetRNNWeightParams");
            visit(part / 4, part % 4, matrix, bias);
        }
    }

    // Adds the gradients of w_ih, w_hh, b_ih and b_hh.
    void add_gradients(int place, py::list& answer) const {
        const int H = shape_.hidden;
        py::array arrays[] = {zeros({4 * H, width_of(place)}), zeros({4 * H, H}), zeros({4 * H}), zeros({4 * H})};
        const auto fill = [&](py::array& array, int gate, const void* from) {
            const size_t size = array.nbytes() / 4;
            copy(static_cast<char*>(array.mutable_data()) + gate * size, from, size, cudaMemcpyDeviceToHost);
        };
        each_part(place, dweights_, [&](int recurrent, int gate, void* matrix, void* bias) {
            fill(arrays[recurrent], gate, matrix);
            fill(arrays[2 + recurrent], gate, bias);
        });
        wait();
        for (const py::array& array : arrays) answer.append(in_float(array));
    }

    using GpuLayer::check;
    void check(cudnnStatus_t code, const char* call) const { dnn_.check(code, call, about_, cuda_); }

    // --- things that the libraries make

    template <typename Handle, typename Create, typename Destroy>
    Owned<Handle> made(Create create, Destroy destroy, const char* call) const {
        Handle handle = nullptr;
        check(create(&handle), call);
        return {handle, destroy};
    }

    Owned<cudnnTensorDescriptor_t> tensor() const {
        return made<cudnnTensorDescriptor_t>(dnn_.cudnnCreateTensorDescriptor, dnn_.cudnnDestroyTensorDescriptor,
                                             "cudnnCreateTensorDescriptor");
    }

    // T vectors for each of B samples, time first.
    Owned<cudnnRNNDataDescriptor_t> sequence(cudnnDataType_t type, int width) const {
        auto made_one = made<cudnnRNNDataDescriptor_t>(dnn_.cudnnCreateRNNDataDescriptor, dnn_.cudnnDestroyRNNDataDescriptor,
                                                       "cudnnCreateRNNDataDescriptor");
        const std::vector<int> lengths = padded() ? options_.lengths : std::vector<int>(shape_.batch, shape_.timesteps);
        const auto layout = padded() ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
        unsigned zero = 0;  // as wide as any element
        check(dnn_.cudnnSetRNNDataDescriptor(made_one.get(), type, layout, shape_.timesteps, shape_.batch, width, lengths.data(), &zero),
              "cudnnSetRNNDataDescriptor");
        return made_one;
    }

    // --- device memory

    size_t weight_bytes() const { return bytes(weights_); }

    // An array in the layer's precision; NumPy does the rounding.
    py::array stored(const Floats& array) const { return half() ? py::array(array.attr("astype")("float16")) : py::array(array); }

    // `count` values from `first` on.
    static lstm_kernels::Array part_of(const py::array& from, size_t first, size_t count) {
        return {static_cast<const char*>(from.data()) + first * from.itemsize(), count * from.itemsize()};
    }

    py::object copy_out(const Buffer& from, const std::vector<py::ssize_t>& sizes) {
        py::array values = zeros(sizes);
        GpuLayer::copy_out(values.mutable_data(), from);
        return in_float(values);
    }

    py::array zeros(const std::vector<py::ssize_t>& sizes) const {
        py::array values(py::dtype(half() ? "float16" : "float32"), sizes);
        std::memset(values.mutable_data(), 0, values.nbytes());
        return values;
    }

    py::object in_float(const py::array& values) const { return half() ? py::object(values.attr("astype")("float32")) : py::object(values); }

    const Options options_;
    const Device& device_;
    const Cudnn& dnn_ = device_.dnn;
    const cudnnHandle_t handle_ = device_.handle;
    Owned<cudnnDropoutDescriptor_t> dropout_;
    Owned<cudnnRNNDescriptor_t> rnn_;
    Owned<cudnnRNNDataDescriptor_t> x_shape_, y_shape_;
    Owned<cudnnTensorDescriptor_t> state_shape_;
    Buffer weights_, workspace_;
    Buffer reserve_, dweights_, dx_, dy_, dh_last_, dc_last_, dh0_, dc0_;  // of a training step
};

// What Python holds: a layer until it is released.
class Lstm {
public:
    template <typename... Arguments>
    explicit Lstm(Arguments&&... arguments) : layer_(std::make_unique<Layer>(std::forward<Arguments>(arguments)...)) {}
    Layer& operator*() {
        if (!layer_) throw std::runtime_error("this Lstm was released");
        return *layer_;
    }
    void release() { layer_.reset(); }

private:
    std::unique_ptr<Layer> layer_;
};

}  // namespace deepbench

// ---------------------------------------------------------------------------------------------
// Python.

PYBIND11_MODULE(_cudnn, module) {
    using namespace deepbench;
    module.doc() = "One LSTM layer on a GPU through cuDNN: the baseline that frameworks are held against.";
    py::register_local_exception<Unsupported>(module, "Unsupported", PyExc_NotImplementedError);
    py::register_local_exception<OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
    py::register_local_exception<LibraryError>(module, "LibraryError", PyExc_RuntimeError);
    module.def("versions", [](const std::string& cudnn, const std::string& cudart) {
        const Cuda cuda(cudart);
        const size_t version = Cudnn(cudnn).cudnnGetVersion();  // 91900: 9.19.0
        int runtime = 0, driver = 0;                            // 13000: 13.0
        cuda.cudaRuntimeGetVersion(&runtime);
        cuda.cudaDriverGetVersion(&driver);  // 0: no driver
        const auto text = [](size_t major, size_t minor) { return std::to_string(major) + "." + std::to_string(minor); };
        py::dict versions;
        versions["cudnn"] = text(version / 10000, version / 100 % 100) + "." + std::to_string(version % 100);
        versions["cudart"] = text(runtime / 1000, runtime % 1000 / 10);
        versions["cuda_driver"] = text(driver / 1000, driver % 1000 / 10);
        return versions;
    }, py::arg("cudnn"), py::arg("cudart"));
    using NoGil = py::call_guard<py::gil_scoped_release>;
    py::class_<Lstm>(module, "Lstm")
        .def(py::init([](const std::string& cudnn, const std::string& cudart, int hidden, int input_size, int batch, int timesteps,
                         const std::string& precision, bool tf32, const std::string& algorithm, bool graph, bool skip_input,
                         int layers, int directions, const std::vector<int>& lengths, bool training) {
                 return std::make_unique<Lstm>(cudnn, cudart, Shape{hidden, input_size, batch, timesteps},
                                               Options{precision, algorithm, tf32, graph, skip_input, layers, directions, lengths, training});
             }),
             py::arg("cudnn"), py::arg("cudart"), py::arg("hidden"), py::arg("input_size"), py::arg("batch"), py::arg("timesteps"),
             py::arg("precision") = "fp32", py::arg("tf32") = false, py::arg("algorithm") = "standard", py::arg("graph") = false,
             py::arg("skip_input") = false, py::arg("layers") = 1, py::arg("directions") = 1, py::arg("lengths") = std::vector<int>{},
             py::arg("training") = false)
        .def("load", [](Lstm& self, const Floats& x, const Floats& h0, const Floats& c0, const py::args& weights) {
                 (*self).load(x, h0, c0, weights.cast<std::vector<Floats>>());
             }, py::arg("x"), py::arg("h0"), py::arg("c0"))
        .def("load_upstream", [](Lstm& self, const Floats& dy, const Floats& dh, const Floats& dc) { (*self).load_upstream(dy, dh, dc); },
             py::arg("dy"), py::arg("dh"), py::arg("dc"))
        .def("forward_pass", [](Lstm& self) { (*self).forward_pass(); }, NoGil())
        .def("backward_pass", [](Lstm& self) { (*self).backward_pass(); }, NoGil())
        .def("carry", [](Lstm& self, const Floats& h0, const Floats& c0) { (*self).carry(h0, c0); }, py::arg("h0"), py::arg("c0"))
        .def("outputs", [](Lstm& self) { return (*self).outputs(); })
        .def("memory", [](Lstm& self) { return (*self).sizes(); })
        .def("replay", [](Lstm& self, bool on) { (*self).replay(on); }, py::arg("on"), NoGil())
        .def("forward", [](Lstm& self) { (*self).forward(); }, NoGil())
        .def("wait", [](Lstm& self) { (*self).wait(); }, NoGil())
        .def("keep_on_host", [](Lstm& self, bool pinned) { (*self).keep_on_host(pinned); }, py::arg("pinned"), NoGil())
        .def("time_each", [](Lstm& self, int calls) {
                 std::vector<int64_t> nanoseconds(std::max(calls, 0));
                 for (int64_t& each : nanoseconds) each = (*self).time_queued(1);
                 return nanoseconds;
             }, py::arg("calls"), NoGil())
        .def("time_queued", [](Lstm& self, int calls) { return (*self).time_queued(calls); }, py::arg("calls"), NoGil())
        .def("time_device", [](Lstm& self, int calls) {
                 std::vector<int64_t> nanoseconds(std::max(calls, 0));
                 (*self).time_device(calls, nanoseconds.data());
                 return nanoseconds;
             }, py::arg("calls"), NoGil())
        .def("release", &Lstm::release, NoGil());
}
