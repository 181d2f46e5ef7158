#!/bin/sh
# The CPU baseline's AMX kernels where there is no AMX: its instructions are loops here. Needs a CPU with AVX-512 VNNI.
#
#     tests/amx.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
g++ -std=c++20 -O1 -ffp-contract=fast -Wall -Wextra -Wno-psabi -DONE_BUILD -include tests/amx.hpp -Ideepbench_ext \
    tests/layer_check.cpp deepbench_ext/kernels.cpp deepbench_ext/phases.cpp deepbench_ext/limits.cpp -o "$folder/check" -pthread -ldl
for most in amx avx512-bf16; do
    LSTM_BENCH_ISA=$most "$folder/check"
done
