#!/bin/sh
# The AMX kernels where there is no AMX: its instructions are loops here. Needs a CPU with AVX-512 VNNI.
#
#     lstm_kernels/tests/amx.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for check in layer_check stack_check; do
    g++ -std=c++20 -O1 -ffp-contract=fast -Wall -Wextra -Wno-psabi -DONE_BUILD -include tests/amx.hpp -Isrc/lstm_kernels/cpu \
        tests/$check.cpp src/lstm_kernels/cpu/kernels.cpp src/lstm_kernels/cpu/phases.cpp -o "$folder/$check" -pthread -ldl
    for most in amx avx512-bf16; do
        LSTM_BENCH_ISA=$most "$folder/$check"
    done
done
