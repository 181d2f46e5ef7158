// OpenBLAS. Declared here because its header is one more thing to find and three lines suffice.
// scipy-openblas32 prefixes its symbols, a system OpenBLAS does not.
#pragma once

#include <string>

#include "errors.hpp"

namespace deepbench {

struct Blas {
    using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                           int lda, const float* b, int ldb, float beta, float* c, int ldc);
    static constexpr int RowMajor = 101, NoTrans = 111, Trans = 112;

    explicit Blas(const std::string& path)
        : library(path),
          sgemm(library.symbol<Sgemm>({"scipy_cblas_sgemm", "cblas_sgemm"})),
          set_threads(library.symbol<void (*)(int)>({"scipy_openblas_set_num_threads", "openblas_set_num_threads"})),
          config(library.symbol<const char* (*)()>({"scipy_openblas_get_config", "openblas_get_config"})) {}

    Library library;
    Sgemm sgemm;
    void (*set_threads)(int);
    const char* (*config)();
};

}  // namespace deepbench
