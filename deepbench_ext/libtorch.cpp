// The layer through PyTorch's C++ API, `torch::nn::LSTM`, with clocks of its own: what is left of PyTorch's
// latency without Python. lstm_bench/frameworks/libtorch/session.py compiles this at first use against the torch
// that is installed, and calls it through ctypes, which lets the GIL go; so it needs no header of Python's,
// and none of CUDA's. Each header that is left out here saves seconds of that compilation.
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

namespace {

using torch::Tensor;
using State = std::tuple<Tensor, Tensor>;

struct Shape {
    int64_t hidden, batch, timesteps, input_size, layers, directions, training;
};

// On the host, in the layout of `problem.py`; they outlive the layer.
struct Arrays {
    float *x, *h0, *c0, *dy, *dh, *dc;  // dy, dh, dc: of a training step
    float* weights[];                   // w_ih, w_hh, b_ih, b_hh of each layer and direction
};

// Where x lies before a call, and y behind it; numbered as INPUTS in types.py.
enum Inputs : int { DEVICE, PINNED, PAGEABLE };

class Layer {
public:
    // `lengths` of the sequences; null: all are full.
    Layer(const Shape& s, const Arrays& from, const int64_t* lengths, bool cuda, bool carries, Inputs inputs)
        : device_(cuda ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU)),
          carries_(carries),
          inputs_(inputs),
          timesteps_(s.timesteps),
          layer_(torch::nn::LSTMOptions(s.input_size, s.hidden).num_layers(s.layers).bidirectional(s.directions == 2)),
          x_(inputs == DEVICE ? placed(from.x, {s.timesteps, s.batch, s.input_size})
                              : torch::from_blob(from.x, {s.timesteps, s.batch, s.input_size})),
          start_(placed(from.h0, {s.layers * s.directions, s.batch, s.hidden}),
                 placed(from.c0, {s.layers * s.directions, s.batch, s.hidden})),
          state_(start_) {
        const torch::NoGradGuard no_grad;
        layer_->to(device_);  // flattens the weights for cuDNN too: they are filled in place
        layer_->train(s.training);  // cuDNN goes back in that mode alone
        const auto parameters = layer_->parameters();
        for (size_t i = 0; i < parameters.size(); ++i)
            parameters[i].copy_(placed(from.weights[i], parameters[i].sizes()));
        if (lengths) lengths_ = torch::tensor(at::ArrayRef<int64_t>(lengths, s.batch));
        if (inputs_ == PINNED) x_ = x_.pin_memory();
        if (!s.training) return;
        const auto states = std::get<0>(start_).sizes();
        upstream_ = {placed(from.dy, {s.timesteps, s.batch, s.directions * s.hidden}), placed(from.dh, states), placed(from.dc, states)};
        for (Tensor leaf : {x_, std::get<0>(state_), std::get<1>(state_)}) leaves_.push_back(leaf.requires_grad_());
        leaves_.insert(leaves_.end(), parameters.begin(), parameters.end());
    }

    void call() {
        if (!upstream_.empty()) return forward(), backward();
        const c10::InferenceMode inference;
        const Tensor x = inputs_ == DEVICE ? x_ : x_.to(device_, /*non_blocking=*/true);
        result_ = lengths_.defined() ? packed(x) : layer_->forward(x, state_);
        if (inputs_ != DEVICE) copy_y(std::get<0>(result_));
        if (carries_) state_ = std::get<1>(result_);
    }

    // A training step in two halves.
    void forward() { result_ = lengths_.defined() ? packed(x_) : layer_->forward(x_, state_); }

    void backward() {
        const auto& [y, state] = result_;
        gradients_ = torch::autograd::grad({y, std::get<0>(state), std::get<1>(state)}, leaves_, upstream_);
    }

    // As `torch.cuda.synchronize` does.
    void wait() const {
        if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
    }

    void restart() { state_ = start_; }

    int64_t time_queued(int64_t calls) {
        wait();
        const auto start = std::chrono::steady_clock::now();
        for (int64_t i = 0; i < calls; ++i) call();
        wait();
        const auto end = std::chrono::steady_clock::now();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
    }

    // To output, final h, final c and, of a training step, all gradients.
    void outputs(float** to) const {
        const c10::InferenceMode inference;
        const auto& [final_h, final_c] = std::get<1>(result_);
        wait();
        for (const Tensor& from : {std::get<0>(result_), final_h, final_c}) copy_out(from, *to++);
        for (const Tensor& from : gradients_) copy_out(from, *to++);
    }

private:
    // Packed and padded again in the call, as users do.
    std::tuple<Tensor, State> packed(const Tensor& x) {
        namespace rnn = torch::nn::utils::rnn;
        const auto given = rnn::pack_padded_sequence(x, lengths_, /*batch_first=*/false, /*enforce_sorted=*/false);
        const auto [output, state] = layer_->forward_with_packed_input(given, state_);
        return {std::get<0>(rnn::pad_packed_sequence(output, false, 0.0, timesteps_)), state};
    }

    Tensor placed(float* values, at::IntArrayRef sizes) const { return torch::from_blob(values, sizes).to(device_); }

    // To host memory, of NaN until then: what is not copied must not pass a check.
    void copy_y(Tensor& y) {
        if (!y_.defined())
            y_ = torch::empty(y.sizes(), torch::TensorOptions().dtype(y.dtype()).pinned_memory(inputs_ == PINNED)).fill_(NAN);
        y = y_.copy_(y, /*non_blocking=*/true);
    }

    static void copy_out(const Tensor& from, float* to) { torch::from_blob(to, from.sizes()).copy_(from); }

    const torch::Device device_;
    const bool carries_;
    const Inputs inputs_;
    const int64_t timesteps_;
    torch::nn::LSTM layer_;
    Tensor lengths_;  // on the CPU, as packing wants them; undefined where all are full
    Tensor x_, y_;  // y only where it lies in host memory
    const State start_;
    State state_;
    std::tuple<Tensor, State> result_;
    std::vector<Tensor> upstream_, leaves_, gradients_;  // of a training step
};

// What went wrong, or null. The text is good until the next call.
template <typename Work>
const char* tried(Work work) {
    static std::string problem;
    try {
        work();
        return nullptr;
    } catch (const c10::Error& error) {
        problem = error.what_without_backtrace();
    } catch (const std::exception& error) {
        problem = error.what();
    }
    return problem.c_str();
}

}  // namespace

extern "C" {

const char* layer_new(Layer** made, const Shape* shape, const Arrays* from, const int64_t* lengths, int cuda, int carries,
                      int inputs) {
    return tried([&] { *made = new Layer(*shape, *from, lengths, cuda, carries, Inputs(inputs)); });
}

const char* layer_call(Layer* layer) {
    return tried([&] { layer->call(); });
}

const char* layer_forward(Layer* layer) {
    return tried([&] { layer->forward(); });
}

const char* layer_backward(Layer* layer) {
    return tried([&] { layer->backward(); });
}

const char* layer_wait(Layer* layer) {
    return tried([&] { layer->wait(); });
}

const char* layer_restart(Layer* layer) {
    return tried([&] { layer->restart(); });
}

// Nanoseconds that a caller waits for each of `calls` calls.
const char* layer_time_each(Layer* layer, int64_t calls, int64_t* nanoseconds) {
    return tried([&] {
        for (int64_t i = 0; i < calls; ++i) nanoseconds[i] = layer->time_queued(1);
    });
}

// Nanoseconds for `calls` calls that are queued back to back and waited for once.
const char* layer_time_queued(Layer* layer, int64_t calls, int64_t* nanoseconds) {
    return tried([&] { *nanoseconds = layer->time_queued(calls); });
}

const char* layer_outputs(Layer* layer, float** to) {
    return tried([&] { layer->outputs(to); });
}

const char* layer_delete(Layer* layer) {
    return tried([&] { delete layer; });
}
}
