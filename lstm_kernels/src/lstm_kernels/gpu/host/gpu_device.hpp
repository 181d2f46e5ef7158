// The GPU as our own kernels see it: the driver, cuBLAS, a compiled kernel, and how it is launched.
#pragma once
#include <map>
#include <mutex>
#include <vector>

#include "cuda_libraries.hpp"

namespace lstm_kernels {

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
        static std::mutex opening;
        const std::lock_guard alone(opening);
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
        const int major = attribute(cudaDevAttrComputeCapabilityMajor);
        clusters = major >= 9;
        hopper = major == 9;
    }

    // The handle of callers, for a product under `lending`. A new stream makes cuBLAS forget the workspace.
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
    bool clusters = false, hopper = false;
    mutable std::mutex lending;

private:
    mutable Cublas::Handle lent_ = nullptr;
};

// A kernel of a compiled module.
struct GpuKernel {
    GpuKernel(const Driver& driver, const void* code, const char* name, const std::string& about) {
        CUmodule loaded = nullptr;
        driver.check(driver.cuModuleLoadData(&loaded, code), "cuModuleLoadData", about);
        module = {loaded, driver.cuModuleUnload};
        driver.check(driver.cuModuleGetFunction(&function, loaded, name), "cuModuleGetFunction", about);
    }
    Owned<CUmodule> module;
    CUfunction function = nullptr;
};

// How the kernel runs: see the plans in plans/.
struct Launch {
    int cluster, blocks, threads, share;
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

}  // namespace lstm_kernels
