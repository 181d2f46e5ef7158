// What a layer on a GPU is, whoever computes it: device memory, a stream, one call that can be replayed as
// a CUDA graph, and the clocks around it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cuda_libraries.hpp"

namespace lstm_kernels {

class GpuLayer {
public:
    // `about` is what every error is about.
    GpuLayer(const Cuda& cuda, cudaStream_t stream, const Shape& shape, std::string about)
        : cuda_(cuda), stream_(stream), shape_(shape), about_(std::move(about)) {}
    GpuLayer(const GpuLayer&) = delete;

    virtual ~GpuLayer() = default;

    // From here on, replay a call as a CUDA graph, or launch it kernel by kernel again.
    void replay(bool on) {
        if (!loaded_) throw std::logic_error("load() comes before replay()");
        if (on && !graph_) record();
        replays_ = on;
    }

    // From here on each call starts from the states that the one before has left; the next one from these.
    void carry(const Array& h0, const Array& c0) {
        if (!loaded_) throw std::logic_error("load() comes before carry()");
        if (h0.bytes != bytes(h0_) || c0.bytes != bytes(c0_))
            throw std::invalid_argument("h0 or c0 does not have the size of " + shape_.text());
        if (replays_) {
            turn();
            if (!graph_) record();
            turn();
        }
        copy_in(h0_.get(), h0);
        copy_in(c0_.get(), c0);
        carries_ = true;
        left_ = false;
    }

    // From here on x lies in host memory, and so does y when a call is over: each call copies both. h and c stay here.
    void keep_on_host(bool pinned) {
        if (!loaded_) throw std::logic_error("load() comes before keep_on_host()");
        pinned_ = pinned;
        host_x_ = host_buffer(bytes(x_));
        host_y_ = host_buffer(bytes(y_));
        copy(host_x_.get(), x_.get(), bytes(x_), cudaMemcpyDeviceToHost);
        poison();
        wait();
        renew(replays_);
    }

    // One call. Returns when the work is queued.
    void forward() {
        if (!loaded_) throw std::logic_error("load() comes before forward()");
        if (carries_ && left_) turn();
        left_ = true;
        if (!replays_) return queue();
        const bool around = host_x_ && !pinned_;  // a graph has copies from pinned memory only
        if (around) copy_x();
        check(cuda_.cudaGraphLaunch(graph_.get(), stream_), "cudaGraphLaunch");
        if (around) copy_y();
    }

    void wait() const {
        check(cuda_.cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        verify();
    }

    // Throughput: calls queued back to back, and the wait for the last.
    int64_t time_queued(int calls) {
        wait();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) forward();
        wait();
        const auto end = std::chrono::steady_clock::now();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
    }

    // What the device says of each call: nanoseconds from an event before it to one behind it on the stream,
    // without what the caller waits on top. The device's clock ticks in half microseconds.
    void time_device(int calls, int64_t* nanoseconds) {
        const auto before = event(), after = event();
        for (int i = 0; i < calls; ++i) {
            wait();
            check(cuda_.cudaEventRecord(before.get(), stream_), "cudaEventRecord");
            forward();
            check(cuda_.cudaEventRecord(after.get(), stream_), "cudaEventRecord");
            wait();
            float milliseconds = 0;
            check(cuda_.cudaEventElapsedTime(&milliseconds, before.get(), after.get()), "cudaEventElapsedTime");
            nanoseconds[i] = std::llround(milliseconds * 1e6);
        }
    }

protected:
    virtual void launch() = 0;  // queues the kernels of one call
    virtual void verify() const {}  // throws if the calls so far failed in a way that CUDA does not know

    // The arrays are there.
    void loaded(bool graph) {
        loaded_ = true;
        host_x_.reset();
        host_y_.reset();
        renew(graph || replays_);
    }

    // A graph of what a call was before is of no use.
    void renew(bool graph) {
        carries_ = left_ = false;
        graph_.reset();
        turned_graph_.reset();
        replay(graph);
    }

    // For destructors: nothing may be in flight when its memory goes.
    void settle() const {
        cuda_.cudaStreamSynchronize(stream_);
        cuda_.cudaGetLastError();  // an error of this layer is not the next one's
    }

    void check(cudaError_t code, const char* call) const { cuda_.check(code, call, about_); }

    Buffer buffer(size_t bytes) const {
        void* p = nullptr;
        if (bytes) check(cuda_.cudaMalloc(&p, bytes), ("cudaMalloc of " + std::to_string(bytes) + " bytes").c_str());
        return {p, Free{cuda_.cudaFree, bytes}};
    }

    static size_t bytes(const Buffer& buffer) { return buffer.get_deleter().bytes; }

    void set(const Buffer& to, int byte) const {
        check(cuda_.cudaMemsetAsync(to.get(), byte, bytes(to), stream_), "cudaMemsetAsync");
    }

    // What is never written or copied must not pass a check: all bits set is NaN in float and in half.
    virtual void poison() const {
        for (const Buffer* out : {&y_, &h_last_, &c_last_}) set(*out, 0xFF);
        if (!host_x_) return;
        set(x_, 0);  // no NaN: kernels of ours tell those from numbers while they wait
        std::memset(host_y_.get(), 0xFF, bytes(host_y_));
    }

    void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) const {
        check(cuda_.cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
    }

    void copy_in(void* to, const Array& from) const {
        copy(to, from.data, from.bytes, cudaMemcpyHostToDevice);
        wait();
    }

    void copy_out(void* to, const Buffer& from) const {
        const bool left = host_y_ && from.get() == y_.get();  // each call leaves it on the host
        if (!left) copy(to, from.get(), bytes(from), cudaMemcpyDeviceToHost);
        wait();
        if (left) std::memcpy(to, host_y_.get(), bytes(host_y_));
    }

    const Cuda& cuda_;
    const cudaStream_t stream_;
    const Shape shape_;
    const std::string about_;
    Buffer x_, y_, h0_, c0_, h_last_, c_last_;

private:
    Buffer host_buffer(size_t bytes) const {
        void* p = nullptr;
        const std::string call = " of " + std::to_string(bytes) + " bytes";
        if (pinned_) {
            check(cuda_.cudaHostAlloc(&p, bytes, cudaHostAllocDefault), ("cudaHostAlloc" + call).c_str());
            return {p, Free{cuda_.cudaFreeHost, bytes}};
        }
        if (!(p = std::malloc(bytes))) throw OutOfMemory("malloc" + call + " (" + about_ + ")");
        return {p, Free{[](void* p) { std::free(p); return cudaSuccess; }, bytes}};
    }

    void copy_x() const { copy(x_.get(), host_x_.get(), bytes(x_), cudaMemcpyHostToDevice); }
    void copy_y() const { copy(host_y_.get(), y_.get(), bytes(y_), cudaMemcpyDeviceToHost); }

    // A whole call. `copies`: with those of x and y, if they lie on the host.
    void queue(bool copies = true) {
        if (host_x_ && copies) copy_x();
        launch();
        if (host_x_ && copies) copy_y();
    }

    // The states that a call has left become those that the next one starts from. A graph knows its buffers: there are two.
    void turn() {
        std::swap(h0_, h_last_);
        std::swap(c0_, c_last_);
        std::swap(graph_, turned_graph_);
    }

    // One call as a CUDA graph. It runs once before, as libraries load kernels and allocate on first use.
    void record() {
        queue();
        wait();
        check(cuda_.cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
        cudaGraph_t captured = nullptr;
        try {
            queue(pinned_);
        } catch (...) {  // leave the capture, or the stream stays unusable
            cuda_.cudaStreamEndCapture(stream_, &captured);
            if (captured) cuda_.cudaGraphDestroy(captured);
            cuda_.cudaGetLastError();
            throw;
        }
        check(cuda_.cudaStreamEndCapture(stream_, &captured), "cudaStreamEndCapture");
        const Owned<cudaGraph_t> graph(captured, cuda_.cudaGraphDestroy);
        cudaGraphExec_t ready;
        check(cuda_.cudaGraphInstantiateWithFlags(&ready, captured, 0), "cudaGraphInstantiateWithFlags");
        graph_ = {ready, cuda_.cudaGraphExecDestroy};
        poison();  // the outputs must come from the graph
        wait();
    }

    Owned<cudaEvent_t> event() const {
        cudaEvent_t made = nullptr;
        check(cuda_.cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
        return {made, cuda_.cudaEventDestroy};
    }

    bool loaded_ = false, replays_ = false, carries_ = false, left_ = false, pinned_ = false;
    Buffer host_x_, host_y_;  // there while x and y lie in host memory
    Owned<cudaGraphExec_t> graph_, turned_graph_;
};

}  // namespace lstm_kernels
