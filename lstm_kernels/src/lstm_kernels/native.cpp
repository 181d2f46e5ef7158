// What native.py calls: C alone, so that one build serves every Python, and needs no header of it.
//
// A function returns 0, or the number of an error whose text `lstm_error` gives: no exception leaves this file. Structs are
// those of native.py, field by field.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <new>
#include <optional>
#include <tuple>
#include <variant>

#include "cpu/instruction_set.hpp"
#include "cpu/layer.hpp"
#include "cpu/stack.hpp"
#include "gpu/host/kernel_layer.hpp"
#include "lstm_kernels.h"

using namespace lstm_kernels;

namespace {

// A layer in the hands of a caller. One call at a time.
using Held = std::variant<std::unique_ptr<Layer>, std::unique_ptr<KernelLayer>>;

thread_local char text[2048];

int failed(int number, const char* what) {
    std::snprintf(text, sizeof text, "%s", what);
    return number;
}

template <typename Body>
int guarded(const Body& body) noexcept {
    try {
        body();
        return 0;
    } catch (const Unsupported& error) {
        return failed(1, error.what());
    } catch (const OutOfMemory& error) {
        return failed(2, error.what());
    } catch (const std::bad_alloc& error) {
        return failed(2, error.what());
    } catch (const LibraryError& error) {
        return failed(3, error.what());
    } catch (const std::invalid_argument& error) {
        return failed(4, error.what());
    } catch (const std::exception& error) {
        return failed(5, error.what());
    } catch (...) {
        return failed(5, "an exception without a text");
    }
}

template <typename Body>
int on(Held* held, const Body& body) {
    return guarded([&] { std::visit([&](auto& layer) { body(*layer); }, *held); });
}

template <typename Kind>
Kind& as(Held* held) {
    return *std::get<std::unique_ptr<Kind>>(*held);
}

Precision precision_of(const std::string& name) {
    if (name == "fp32") return Precision::fp32;
    if (name == "bf16") return Precision::bf16;
    if (name == "int8") return Precision::int8;
    throw std::invalid_argument("precision: expected fp32, bf16 or int8, found " + name);
}

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char* lstm_error(void) { return text; }

// What the kernels of each precision use here.
EXPORTED int lstm_kernel_names(const char** names) {
    return guarded([&] {
        for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::int8}) *names++ = best_kernel(precision).name;
    });
}

// The name of an instruction set that this CPU has, from the least to the most; null behind the last.
EXPORTED const char* lstm_instruction_set(int index) { return index <= int(best_instruction_set()) ? InstructionSets[index] : nullptr; }

// `sgemm`: for the input products, or null. `plan`: or null.
EXPORTED int lstm_on_cpu(const Shape* shape, int threads, int skip_input, const char* precision, Sgemm sgemm, const Plan* plan, Held** made) {
    return guarded([&] {
        const auto forced = plan ? std::optional(*plan) : std::nullopt;
        *made = new Held(std::make_unique<Layer>(*shape, threads, skip_input, precision_of(precision), sgemm, forced));
    });
}

EXPORTED int lstm_on_gpu(const Shape* shape, const char* const* libraries, const char* code, const char* product, const char* storage,
                         const char* projection, const Launch* launch, Held** made) {
    return guarded([&] {
        const std::vector<std::string> paths(libraries, libraries + 3);
        *made = new Held(std::make_unique<KernelLayer>(paths, code, product, *shape, Options{storage, projection, *launch}));
    });
}

EXPORTED void lstm_release(Held* held) { delete held; }

EXPORTED int lstm_load_on_cpu(Held* held, const Layer::Arrays* arrays) {
    return guarded([&] { as<Layer>(held).load(*arrays); });
}
// x, h0, c0, w_ih, weights and bias.
EXPORTED int lstm_load_on_gpu(Held* held, const void* const* at, const size_t* bytes, float scale, float input_scale) {
    const auto array = [&](int i) { return Array{at[i], bytes[i]}; };
    return guarded([&] { as<KernelLayer>(held).load({array(0), array(1), array(2), array(3), array(4), array(5), scale, input_scale}); });
}
EXPORTED int lstm_carry(Held* held, const void* const* at, const size_t* bytes) {
    return on(held, [&](auto& layer) { layer.carry({at[0], bytes[0]}, {at[1], bytes[1]}); });
}
EXPORTED int lstm_forward(Held* held) {
    return on(held, [](auto& layer) { layer.forward(); });
}
EXPORTED int lstm_wait(Held* held) {
    return on(held, [](auto& layer) { layer.wait(); });
}
EXPORTED int lstm_outputs(Held* held, void* const* to) {
    return on(held, [&](auto& layer) { layer.copy_outputs(to[0], to[1], to[2]); });
}
EXPORTED int lstm_memory(Held* held, Sizes* sizes) {
    return on(held, [&](auto& layer) { *sizes = layer.sizes(); });
}

// Nanoseconds. Latency: what one caller waits for each call.
EXPORTED int lstm_time_each(Held* held, int calls, int64_t* nanoseconds) {
    return on(held, [&](auto& layer) { std::generate_n(nanoseconds, calls, [&] { return layer.time_queued(1); }); });
}
EXPORTED int lstm_time_queued(Held* held, int calls, int64_t* nanoseconds) {
    return on(held, [&](auto& layer) { *nanoseconds = layer.time_queued(calls); });
}
EXPORTED int lstm_time_device(Held* held, int calls, int64_t* nanoseconds) {
    return guarded([&] { as<KernelLayer>(held).time_device(calls, nanoseconds); });
}

EXPORTED int lstm_phases(Held* held, int calls, double* seconds) {
    return guarded([&] { as<Layer>(held).phases(calls, seconds); });
}
EXPORTED int lstm_plan(Held* held, Plan* plan) {
    return guarded([&] { *plan = as<Layer>(held).plan(); });
}

EXPORTED int lstm_replay(Held* held, int graph) {
    return guarded([&] { as<KernelLayer>(held).replay(graph); });
}
EXPORTED int lstm_keep_on_host(Held* held, int pinned) {
    return guarded([&] { as<KernelLayer>(held).keep_on_host(pinned); });
}

// An nn.LSTM on a GPU by a plan, for calls of any size, with weights in the caller's memory.
struct GpuStackRun {
    const GpuStack* stack;
    GpuCall call;
};
EXPORTED int lstm_gpu_stack(const GpuStackSizes* sizes, const char* const* libraries, const char* code, const char* product,
                            const char* few, const char* storage, const char* projection, int few_rows, const Launch* launch,
                            const LayerWeights* weights, GpuStack** made) {
    return guarded([&] {
        const std::string about = "a layer of " + std::to_string(sizes->hidden) + " units, " + storage;
        const Device& device = *Device::of({libraries, libraries + 3}, about);
        auto stack = std::make_unique<GpuStack>(device, *sizes, code, product, few, storage, projection, few_rows, *launch, about);
        stack->load(weights);
        *made = stack.release();
    });
}
EXPORTED int lstm_gpu_stack_scratch(const GpuStack* stack, int64_t rows, size_t exchange_bytes, size_t* bytes) {
    return guarded([&] {
        stack->check_rows(rows);
        *bytes = stack->scratch(rows, exchange_bytes, true);
    });
}
EXPORTED int lstm_gpu_stack_run(const GpuStackRun* a) {
    return guarded([&] { a->stack->run(a->call); });
}
EXPORTED void lstm_gpu_stack_free(GpuStack* stack) { delete stack; }

// An nn.LSTM on a CPU, for calls of any size.
struct StackRun {
    const Stack* stack;
    Stack::Call call;
};
EXPORTED int lstm_stack(const StackSizes* sizes, const char* precision, const float* const* weights, Stack** made) {
    return guarded([&] { *made = new Stack(*sizes, precision_of(precision), weights); });
}
EXPORTED int lstm_stack_run(const StackRun* a) {
    return guarded([&] { a->stack->run(a->call); });
}
// How a call would run; `call`: timesteps, batch, threads.
EXPORTED int lstm_stack_path(const StackSizes* sizes, const char* precision, const int* call, char* to, size_t bytes) {
    return guarded([&] { std::snprintf(to, bytes, "%s", Stack::path(*sizes, precision_of(precision), call[0], call[1], call[2]).c_str()); });
}
EXPORTED size_t lstm_stack_bytes(const Stack* stack) { return stack->bytes(); }
EXPORTED void lstm_stack_free(Stack* stack) { delete stack; }

// lstm_kernels.h
EXPORTED int lstm_stream_create(const lstm_sizes* sizes, const char* precision, const float* const* weights, lstm_stream** made) {
    return guarded([&] {
        const StackSizes own{sizes->input, sizes->hidden, sizes->layers, sizes->directions, sizes->bias};
        *made = reinterpret_cast<lstm_stream*>(new Stream(own, precision_of(precision), weights));
    });
}
EXPORTED int lstm_stream_reset(lstm_stream* stream, int batch, const float* h0, const float* c0) {
    return guarded([&] { reinterpret_cast<Stream*>(stream)->reset(batch, h0, c0); });
}
EXPORTED int lstm_stream_run(lstm_stream* stream, const float* x, int timesteps, int threads, float* y) {
    return guarded([&] { reinterpret_cast<Stream*>(stream)->run(x, timesteps, threads, y); });
}
EXPORTED int lstm_stream_step(lstm_stream* stream, const float* x, float* y) { return lstm_stream_run(stream, x, 1, 1, y); }
EXPORTED int lstm_stream_state(const lstm_stream* stream, float* h, float* c) {
    return guarded([&] { reinterpret_cast<const Stream*>(stream)->state(h, c); });
}
EXPORTED void lstm_stream_destroy(lstm_stream* stream) { delete reinterpret_cast<Stream*>(stream); }

// Of GPU 0: major, minor, multiprocessors, shared bytes, registers, bytes of L2.
EXPORTED int lstm_device(const char* cudart, int* facts) {
    return guarded([&] {
        const Cuda cuda(cudart);
        for (const cudaDeviceAttr attribute : {cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
                                               cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                               cudaDevAttrMaxRegistersPerMultiprocessor, cudaDevAttrL2CacheSize})
            cuda.check(cuda.cudaDeviceGetAttribute(facts++, attribute, 0), "cudaDeviceGetAttribute", "GPU 0");
    });
}
// Teams of a plan that run at the same time.
EXPORTED int lstm_resident(const char* const* libraries, const char* code, const Launch* launch, int* teams) {
    return guarded([&] { *teams = resident({libraries, libraries + 3}, code, *launch); });
}

}  // extern "C"
