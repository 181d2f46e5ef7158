// Words of 32 bits at cache-line borders, not yet touched, so that pages fall to the thread that fills them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "../errors.hpp"
#include "system.hpp"

namespace lstm_kernels {

class Words {
public:
    Words() : count_(0) {}
    Words(size_t count, const Shape& shape) : count_(count) {
        void* p = nullptr;  // not aligned_alloc: it rounds the size up, and a sanitizer would miss a read past the end
        const bool large = bytes() >= Huge;
        if (posix_memalign(&p, large ? Huge : 64, std::max<size_t>(bytes(), 1)) != 0)
            throw OutOfMemory("posix_memalign: " + std::to_string(bytes()) + " bytes refused (" + shape.text() + ")");
        data_.reset(static_cast<float*>(p));
        if (large) prefer_huge_pages(p, bytes());
    }
    float* get() const { return data_.get(); }
    size_t bytes() const { return count_ * sizeof(float); }
    void fill(float value) { std::fill_n(get(), count_, value); }

private:
    static constexpr size_t Huge = 1 << 21;
    struct Free { void operator()(float* p) const { std::free(p); } };
    size_t count_;
    std::unique_ptr<float, Free> data_;
};

}  // namespace lstm_kernels
