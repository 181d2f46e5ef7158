// What all layers share: the errors that they throw, and libraries opened at run time.
//
// A failed call becomes an exception that names the call, the code and the shape, so that
// one line in a results file says what happened. Nothing here exits or aborts: a cell that
// cannot run is data, and the next one must still be able to.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lstm_kernels {

// The library says that it does not do this (cuDNN's NOT_SUPPORTED): not a fault, a fact.
struct Unsupported : std::runtime_error { using std::runtime_error::runtime_error; };
// The machine has too little memory for this shape.
struct OutOfMemory : std::runtime_error { using std::runtime_error::runtime_error; };
// Everything else that a library can answer, or a library that cannot be opened.
struct LibraryError : std::runtime_error { using std::runtime_error::runtime_error; };

// The sizes of one LSTM layer: they stand in every message.
struct Shape {
    int hidden, input, batch, timesteps;

    std::string text() const {
        return "hidden " + std::to_string(hidden) + ", input " + std::to_string(input) +
               ", batch " + std::to_string(batch) + ", timesteps " + std::to_string(timesteps);
    }

    void check(bool skip_input) const {
        if (hidden < 1 || input < 1 || batch < 1 || timesteps < 1)
            throw std::invalid_argument("every size must be at least 1, found " + text());
        if (skip_input && input != hidden)
            throw std::invalid_argument("skip_input adds the input to the gates as it is, so input and "
                                        "hidden size must be equal, found " + text());
    }
};

// Values in the caller's memory.
struct Array {
    const void* data;
    size_t bytes;
};

// Bytes that a layer holds.
struct Sizes {
    size_t weights, inputs, outputs, workspace;
};

// One shared library, opened by path. Opening at run time instead of linking is what lets one
// build serve machines with and without a GPU, and lets the caller choose the version.
//
// The handle is never closed: CUDA keeps threads and state that do not survive it.
class Library {
public:
    explicit Library(std::string path, int scope = RTLD_LOCAL) : path_(std::move(path)) {
        handle_ = dlopen(path_.c_str(), RTLD_NOW | scope);
        if (!handle_) throw LibraryError(std::string("dlopen: ") + dlerror());
    }

    // The first of several spellings that the library exports; `Function` is the type of a pointer to it.
    template <typename Function>
    Function symbol(const std::vector<const char*>& names) const {
        for (const char* name : names)
            if (void* found = dlsym(handle_, name)) return reinterpret_cast<Function>(found);
        throw LibraryError("dlsym: " + path_ + " has no " + names.front());
    }

private:
    std::string path_;
    void* handle_;
};

}  // namespace lstm_kernels
