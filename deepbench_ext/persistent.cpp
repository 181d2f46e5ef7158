// One LSTM layer by kernels of our own: all inputs are multiplied at once, one kernel does all timesteps.
//
// That kernel is cluster_lstm.cu, whole_gpu_lstm.cu or vector_lstm.cu; W_ih x is cuBLAS's, or input_product.cu's. They explain
// themselves. Python chooses, has them compiled for the GPU at hand and lays the weights out as they want them
// (persistent.py); here they are launched and timed, or run on the arrays and the stream of a caller.
//
// libcudart, libcuda and libcublas are opened at run time; only the headers of the first two are needed to build.
// Without them this file still builds, to a module that says so.
#include <pybind11/pybind11.h>

#if !__has_include(<cuda.h>)
#define ABSENT "cuda.h was not found when lstm-bench was built"
#elif !__has_include(<cuda_runtime_api.h>)
#define ABSENT "cuda_runtime_api.h was not found when lstm-bench was built"
#elif !__has_include(<crt/host_defines.h>)
#define ABSENT "crt/host_defines.h was not found when lstm-bench was built"
#else
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#if CUDA_VERSION < 12000
#define ABSENT "lstm-bench was built with headers older than CUDA 12"
#endif
#endif

namespace py = pybind11;

#ifdef ABSENT

PYBIND11_MODULE(_persistent, module) {
    module.doc() = "The layer of our own kernels, which could not be built here.";
    module.attr("absent_reason") = ABSENT;
}

#else

#include <array>
#include <map>
#include <tuple>

#include "gpu_layer.hpp"

namespace deepbench {

struct Driver {
    explicit Driver(const std::string& path) : library(path) {}
    Library library;
    FUNCTION(cuGetErrorName);
    FUNCTION(cuGetErrorString);
    FUNCTION(cuModuleLoadData);
    FUNCTION(cuModuleUnload);
    FUNCTION(cuModuleGetFunction);
    FUNCTION(cuFuncSetAttribute);
    FUNCTION(cuOccupancyMaxActiveClusters);
    FUNCTION(cuLaunchKernelEx);

    void check(CUresult code, const char* call, const std::string& about) const {
        if (code == CUDA_SUCCESS) return;
        const char *name = nullptr, *text = nullptr;
        cuGetErrorName(code, &name);
        cuGetErrorString(code, &text);
        const std::string message =
            std::string(call) + ": " + (name ? name : "?") + ", " + (text ? text : "?") + " (" + about + ")";
        if (code == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(message);
        if (code == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE || code == CUDA_ERROR_INVALID_CLUSTER_SIZE) throw Unsupported(message);
        throw LibraryError(message);
    }
};

// Declared by hand: cuBLAS's headers come with 400 MB of library.
struct Cublas {
    using Handle = void*;
    enum { FAILED_ALLOCATION = 3, NOT_SUPPORTED = 15, TRANSPOSED = 1, AS_IT_IS = 0, IN_FP32 = 68, IN_TF32 = 77, ANY_ALGORITHM = -1 };

    explicit Cublas(const std::string& path) : library(path, RTLD_GLOBAL) {}
    Library library;
    template <typename... Arguments>
    using Function = int (*)(Arguments...);
    Function<Handle*> cublasCreate = library.symbol<Function<Handle*>>({"cublasCreate_v2"});
    Function<Handle, cudaStream_t> cublasSetStream = library.symbol<Function<Handle, cudaStream_t>>({"cublasSetStream_v2"});
    Function<Handle, void*, size_t> cublasSetWorkspace = library.symbol<Function<Handle, void*, size_t>>({"cublasSetWorkspace_v2"});
    using Gemm = Function<Handle, int, int, int, int, int, const void*, const void*, cudaDataType, int, const void*, cudaDataType, int,
                          const void*, void*, cudaDataType, int, int, int>;
    Gemm cublasGemmEx = library.symbol<Gemm>({"cublasGemmEx"});

    void check(int code, const char* call, const std::string& about) const {
        if (code == 0) return;
        const std::string message = std::string(call) + ": status " + std::to_string(code) + " of cuBLAS (" + about + ")";
        if (code == FAILED_ALLOCATION) throw OutOfMemory(message);
        if (code == NOT_SUPPORTED) throw Unsupported(message);
        throw LibraryError(message);
    }
};

// The libraries, one stream and two cuBLAS handles, which all layers of a process share until it ends.
struct Device {
    static constexpr size_t WORKSPACE = size_t(32) << 20;  // of cuBLAS: its own would be allocated in the first call

    static const Device* of(const std::vector<std::string>& libraries, const std::string& about) {
        static auto& devices = *new std::map<std::vector<std::string>, std::unique_ptr<Device>>;
        auto& device = devices[libraries];
        if (!device) device = std::make_unique<Device>(libraries, about);
        return device.get();
    }

    Device(const std::vector<std::string>& libraries, const std::string& about)
        : cuda(libraries.at(0)), driver(libraries.at(1)), blas(libraries.at(2)) {
        cuda.check(cuda.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", about);
        cuda.check(cuda.cudaMalloc(&workspace, WORKSPACE), "cudaMalloc", about);
        blas.check(blas.cublasCreate(&handle), "cublasCreate", about);
        blas.check(blas.cublasSetStream(handle, stream), "cublasSetStream", about);
        blas.check(blas.cublasSetWorkspace(handle, workspace, WORKSPACE), "cublasSetWorkspace", about);
        const auto attribute = [&](cudaDeviceAttr what) {
            int value = 0;
            cuda.check(cuda.cudaDeviceGetAttribute(&value, what, 0), "cudaDeviceGetAttribute", about);
            return value;
        };
        multiprocessors = unsigned(attribute(cudaDevAttrMultiProcessorCount));
        clusters = attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
    }

    // The handle of callers, for the next product. A new stream makes cuBLAS forget the workspace.
    Cublas::Handle lent(cudaStream_t to, void* space, const std::string& about) const {
        if (!lent_) blas.check(blas.cublasCreate(&lent_), "cublasCreate", about);
        blas.check(blas.cublasSetStream(lent_, to), "cublasSetStream", about);
        blas.check(blas.cublasSetWorkspace(lent_, space, WORKSPACE), "cublasSetWorkspace", about);
        return lent_;
    }

    const Cuda cuda;
    const Driver driver;
    const Cublas blas;
    cudaStream_t stream = nullptr;
    void* workspace = nullptr;
    Cublas::Handle handle = nullptr;
    unsigned multiprocessors = 0;
    bool clusters = false;

private:
    mutable Cublas::Handle lent_ = nullptr;
};

// A kernel of a compiled module.
struct Kernel {
    Kernel(const Driver& driver, const std::string& code, const char* name, const std::string& about) {
        CUmodule loaded = nullptr;
        driver.check(driver.cuModuleLoadData(&loaded, code.data()), "cuModuleLoadData", about);
        module = {loaded, driver.cuModuleUnload};
        driver.check(driver.cuModuleGetFunction(&function, loaded, name), "cuModuleGetFunction", about);
    }
    Owned<CUmodule> module;
    CUfunction function = nullptr;
};

// How the kernel runs: see Plan in persistent.py.
struct Launch {
    bool cluster;
    int blocks, threads, share;
    size_t shared_bytes, exchange_bytes;

    // The launch attributes of `teams` teams.
    std::vector<CUlaunchAttribute> attributes() const {
        std::vector<CUlaunchAttribute> found;
        CUlaunchAttribute one{};
        if (cluster && blocks > 1) {
            one.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            one.value.clusterDim = {unsigned(blocks), 1, 1};
            found.push_back(one);
        } else if (!cluster) {
            one.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            one.value.cooperative = 1;
            found.push_back(one);
        }
        return found;
    }

    CUlaunchConfig config(int teams, std::vector<CUlaunchAttribute>& attributes, cudaStream_t stream) const {
        CUlaunchConfig config{};
        config.gridDimX = unsigned(teams * blocks), config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = unsigned(threads), config.blockDimY = config.blockDimZ = 1;
        config.sharedMemBytes = unsigned(shared_bytes);
        config.hStream = stream;
        config.attrs = attributes.data();
        config.numAttrs = unsigned(attributes.size());
        return config;
    }

    void prepare(const Driver& driver, CUfunction function, const std::string& about) const {
        driver.check(driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(shared_bytes)),
                     "cuFuncSetAttribute", about);
        if (cluster && blocks > 8)
            driver.check(driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
                         "cuFuncSetAttribute", about);
    }
};

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
// The limits of the GPU: limits.cu, and products of cuBLAS.

// What some calls on a stream took, each the best of many, in seconds.
struct Took {
    double device = INFINITY;  // between events before and behind it
    double waited = INFINITY;  // from the call until the stream is empty
    double queued = INFINITY;  // of many in a row, each
};

Took took(const Device& device, int calls, const std::function<void()>& before, const std::function<void()>& call) {
    using Clock = std::chrono::steady_clock;
    const Cuda& cuda = device.cuda;
    const auto seconds = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
    const auto wait = [&] { cuda.check(cuda.cudaStreamSynchronize(device.stream), "cudaStreamSynchronize", "limits"); };
    const auto event = [&] {
        cudaEvent_t made = nullptr;
        cuda.check(cuda.cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags", "limits");
        return Owned<cudaEvent_t>(made, cuda.cudaEventDestroy);
    };
    const auto start = event(), end = event();
    Took best;
    for (int i = 0; i < calls; ++i) {
        before();
        cuda.check(cuda.cudaEventRecord(start.get(), device.stream), "cudaEventRecord", "limits");
        call();
        cuda.check(cuda.cudaEventRecord(end.get(), device.stream), "cudaEventRecord", "limits");
        wait();
        float milliseconds = 0;
        cuda.check(cuda.cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "cudaEventElapsedTime", "limits");
        best.device = std::min(best.device, milliseconds * 1e-3);
        before();
        wait();
        const auto from = Clock::now();
        call();
        wait();
        best.waited = std::min(best.waited, seconds(from));
    }
    before();
    wait();
    const auto from = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    wait();
    best.queued = seconds(from) / calls;
    return best;
}

// A kernel of limits.cu.
Took time_limit(const std::vector<std::string>& libraries, const std::string& code, const std::string& name, const Launch& launch,
                int teams, size_t bytes, int rounds, int calls) {
    const Device& device = *Device::of(libraries, name);
    const Kernel kernel(device.driver, code, name.c_str(), name);
    launch.prepare(device.driver, kernel.function, name);
    auto attributes = launch.attributes();
    const CUlaunchConfig config = launch.config(teams, attributes, device.stream);
    bytes = std::max<size_t>(bytes, 4096);
    void* memory = nullptr;
    device.cuda.check(device.cuda.cudaMalloc(&memory, bytes), "cudaMalloc", name);
    const Buffer held(memory, Free{device.cuda.cudaFree, bytes});
    unsigned long long size = bytes;
    void* arguments[] = {&memory, &size, &rounds};
    device.cuda.check(device.cuda.cudaMemsetAsync(memory, 0, bytes, device.stream), "cudaMemsetAsync", name);
    const Took best = took(
        device, calls, [&] { device.cuda.check(device.cuda.cudaMemsetAsync(memory, 0, std::min(bytes, size_t(1) << 20), device.stream), "cudaMemsetAsync", name); },
        [&] { device.driver.check(device.driver.cuLaunchKernelEx(&config, kernel.function, arguments, nullptr), "cuLaunchKernelEx", name); });
    unsigned late = 0;
    device.cuda.check(device.cuda.cudaMemcpyAsync(&late, memory, sizeof late, cudaMemcpyDeviceToHost, device.stream), "cudaMemcpyAsync", name);
    device.cuda.check(device.cuda.cudaStreamSynchronize(device.stream), "cudaStreamSynchronize", name);
    if (late) throw LibraryError(name + ": a block waited too long for another: is the GPU shared with other work?");
    return best;
}

// A product of square matrices of zeros by cuBLAS, in "fp32", "tf32", "fp16" or "bf16".
Took time_product(const std::vector<std::string>& libraries, const std::string& precision, int size, int calls) {
    const Device& device = *Device::of(libraries, precision);
    const bool half = precision == "fp16" || precision == "bf16";
    const size_t count = size_t(size) * size, bytes = count * (2 * (half ? 2 : 4) + 4);
    void* memory = nullptr;
    device.cuda.check(device.cuda.cudaMalloc(&memory, bytes), "cudaMalloc", precision);
    const Buffer held(memory, Free{device.cuda.cudaFree, bytes});
    device.cuda.check(device.cuda.cudaMemsetAsync(memory, 0, bytes, device.stream), "cudaMemsetAsync", precision);
    float* c = static_cast<float*>(memory);
    char *a = reinterpret_cast<char*>(c + count), *b = a + count * (half ? 2 : 4);
    const float one = 1, zero = 0;
    const auto type = precision == "fp16" ? CUDA_R_16F : precision == "bf16" ? CUDA_R_16BF : CUDA_R_32F;
    const int in = precision == "tf32" ? Cublas::IN_TF32 : Cublas::IN_FP32;
    return took(device, calls, [] {}, [&] {
        device.blas.check(device.blas.cublasGemmEx(device.handle, Cublas::TRANSPOSED, Cublas::AS_IT_IS, size, size, size, &one, a, type, size,
                                                   b, type, size, &zero, c, CUDA_R_32F, size, in, Cublas::ANY_ALGORITHM),
                          "cublasGemmEx", precision);
    });
}

// ---------------------------------------------------------------------------------------------
// What a kernel is called with, as in lstm_step.cuh.
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
          kernel_(device.driver, code, "lstm_recurrence", about_) {
        shape_.check(false);
        const auto [H, I, B, T] = shape_;
        check_vectors(T);
        options_.launch.prepare(device_.driver, kernel_.function, about_);
        attributes_ = options_.launch.attributes();
        if (own_product()) {
            split_ = std::make_unique<Kernel>(device.driver, input, "input_split", about_);
            product_ = std::make_unique<Kernel>(device.driver, input, "input_gemm", about_);
            device.driver.check(device.driver.cuFuncSetAttribute(product_->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                                 PRODUCT_BYTES),
                                "cuFuncSetAttribute", about_);
        }
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
    // For a product of our own, `w_ih` is high and low halves, times 1 / input_scale.
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
        return parts(timesteps).end + (own_product() ? 0 : Device::WORKSPACE);
    }

    // One call of any number of timesteps on a caller's arrays and stream, with the weights of this layer. It allocates
    // nothing and waits for nothing, so that the stream may be captured, and leaves nothing for the next call.
    void run(Arrays given) {
        check(cuda_.cudaSetDevice(0), "cudaSetDevice");  // the driver needs a context, which a new thread has not
        const Parts at = parts(given.timesteps);
        char* scratch = static_cast<char*>(given.scratch);
        if (const size_t bytes = options_.launch.exchange_bytes)
            check(cuda_.cudaMemsetAsync(scratch + at.exchange, 0, bytes, given.stream), "cudaMemsetAsync");
        if (!own_product()) given.blas = device_.lent(given.stream, scratch + at.end, about_);
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
    // As in input_product.cu.
    enum { TILE = 128, DEPTH = 32, PRODUCT_BYTES = 3 * 4 * TILE * DEPTH * 2, FEW_ROWS = 2048 };
    bool own_product() const { return options_.projection == "own"; }
    int padded() const { return (shape_.input + DEPTH - 1) / DEPTH * DEPTH; }

    void check_vectors(int timesteps) const {
        if (timesteps < 1) throw std::invalid_argument("timesteps must be at least 1");
        if (int64_t(timesteps) * shape_.batch > INT32_MAX / 4) throw Unsupported("more than 2^29 vectors (" + about_ + ")");
    }

    // Where in the scratch of a call its parts begin.
    struct Parts {
        size_t high, low, factors, projected, exchange, end;
    };
    Parts parts(int timesteps) const {
        const size_t rows = size_t(timesteps) * shape_.batch, half = own_product() ? 2 * rows * padded() : 0;
        size_t end = 0;
        const auto part = [&](size_t bytes) { return std::exchange(end, end + (bytes + 255) / 256 * 256); };
        return {part(half), part(half), part(own_product() ? 4 * rows : 0), part(4 * rows * 4 * shape_.hidden),
                part(options_.launch.exchange_bytes), end};
    }

    void launch() override {
        queue({x_.get(), h0_.get(), c0_.get(), y_.get(), h_last_.get(), c_last_.get(), scratch_.get(), late_.get(), shape_.timesteps,
               stream_, device_.handle});
    }

    void queue(const Arrays& arrays) {
        project(arrays);
        recur(arrays);
    }

    // All products with W_ih.
    void project(const Arrays& arrays) {
        const int H = shape_.hidden, I = shape_.input, vectors = arrays.timesteps * shape_.batch;
        const Parts at = parts(arrays.timesteps);
        char* scratch = static_cast<char*>(arrays.scratch);
        void* out = scratch + at.projected;
        if (own_product()) {
            const void* x = arrays.x;
            void *high = scratch + at.high, *low = scratch + at.low, *factors = scratch + at.factors;
            int rows = vectors, width = I, depth = padded(), columns = 4 * H;
            const unsigned tiles = unsigned((columns + TILE - 1) / TILE);
            char *w_high = static_cast<char*>(w_ih_.get()), *w_low = w_high + bytes(w_ih_) / 2;
            int together = rows < FEW_ROWS;  // a block splits a row, instead of a warp
            void* to_split[] = {&x, &high, &low, &factors, &rows, &width, &depth, &together};
            start(*split_, {unsigned(together ? rows : (rows + 7) / 8), 1, 1}, 0, to_split, arrays.stream);
            void* to_product[] = {&high, &low, &w_high, &w_low, &factors, &input_scale_, &out, &rows, &columns, &depth};
            const unsigned high_tiles = unsigned((rows + TILE - 1) / TILE);
            start(*product_, {tiles, high_tiles, sharers(tiles * high_tiles)}, PRODUCT_BYTES, to_product, arrays.stream);
            return;
        }
        const float one = 1, zero = 0;
        const auto type = options_.storage == "fp32" ? CUDA_R_32F : options_.storage == "fp16" ? CUDA_R_16F : CUDA_R_16BF;
        const int in = options_.projection == "tf32" ? Cublas::IN_TF32 : Cublas::IN_FP32;
        device_.blas.check(device_.blas.cublasGemmEx(arrays.blas, Cublas::TRANSPOSED, Cublas::AS_IT_IS, 4 * H, vectors, I, &one,
                                                     w_ih_.get(), type, I, arrays.x, type, I, &zero, out, CUDA_R_32F, 4 * H, in,
                                                     Cublas::ANY_ALGORITHM),
                           "cublasGemmEx", about_);
    }

    // Blocks that share a tile of the product: a cluster of as many as keep all multiprocessors busy, with two steps each.
    unsigned sharers(unsigned tiles) const {
        unsigned blocks = 1;
        while (device_.clusters && blocks < 8 && tiles * blocks * 2 <= device_.multiprocessors && unsigned(padded()) >= DEPTH * blocks * 4)
            blocks *= 2;
        return blocks;
    }

    // Blocks of 256 threads; those along z are a cluster.
    void start(const Kernel& kernel, const std::array<unsigned, 3>& grid, unsigned shared_bytes, void** arguments, cudaStream_t stream) {
        CUlaunchConfig config{};
        config.gridDimX = grid[0], config.gridDimY = grid[1], config.gridDimZ = grid[2];
        config.blockDimX = 256, config.blockDimY = config.blockDimZ = 1;
        config.sharedMemBytes = shared_bytes;
        config.hStream = stream;
        CUlaunchAttribute cluster{};
        cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        cluster.value.clusterDim = {1, 1, grid[2]};
        config.attrs = &cluster;
        config.numAttrs = grid[2] > 1;
        device_.driver.check(device_.driver.cuLaunchKernelEx(&config, kernel.function, arguments, nullptr), "cuLaunchKernelEx", about_);
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

    void poison() override {
        for (const Buffer* out : {&y_, &h_last_, &c_last_}) set(*out, 0xFF);
    }

    void verify() const override {
        if (late_ && *static_cast<volatile int*>(late_.get()))
            throw LibraryError("the kernel waited 2 seconds for one step of another block and gave up: is the GPU shared with other work? (" +
                               about_ + ")");
    }

    const Device& device_;
    const Options options_;
    Kernel kernel_;
    std::unique_ptr<Kernel> split_, product_;
    std::vector<CUlaunchAttribute> attributes_;
    float scale_ = 1, input_scale_ = 1;
    Buffer x_, w_ih_, weights_, bias_, y_, scratch_;
    std::unique_ptr<int, decltype(&::cudaFreeHost)> late_{nullptr, nullptr};  // written by the kernel
};

using Lstm = Released<Layer>;

}  // namespace deepbench

// ---------------------------------------------------------------------------------------------
// Python.

PYBIND11_MODULE(_persistent, module) {
    using namespace deepbench;
    module.doc() = "One LSTM layer on a GPU by kernels of our own.";
    module.attr("absent_reason") = "";
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
    const auto told = [](const Took& took) {
        py::dict seconds;
        seconds["device"] = took.device, seconds["waited"] = took.waited, seconds["queued"] = took.queued;
        return seconds;
    };
    module.def("time_limit", [told](const std::vector<std::string>& libraries, const py::bytes& code, const std::string& name,
                                    const Launch& launch, int teams, size_t bytes, int rounds, int calls) {
        return told(time_limit(libraries, code, name, launch, teams, bytes, rounds, calls));
    }, py::arg("libraries"), py::arg("code"), py::arg("name"), py::arg("launch"), py::arg("teams"), py::arg("bytes"), py::arg("rounds"),
       py::arg("calls"));
    module.def("time_product", [told](const std::vector<std::string>& libraries, const std::string& precision, int size, int calls) {
        return told(time_product(libraries, precision, size, calls));
    }, py::arg("libraries"), py::arg("precision"), py::arg("size"), py::arg("calls"));
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

#endif
