#!/bin/sh
# The NEON kernels on an emulated aarch64: needs g++-aarch64-linux-gnu and qemu-user.
#
#     lstm_kernels/tests/arm.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
aarch64-linux-gnu-g++ -std=c++20 -O3 -ffp-contract=fast -Wall -Wextra -static -Isrc/lstm_kernels/cpu \
    tests/layer_check.cpp src/lstm_kernels/cpu/kernels.cpp src/lstm_kernels/cpu/phases.cpp -o "$folder/check" -pthread -ldl
for most in neon neon-dot neon-bf16; do
    LSTM_BENCH_ISA=$most qemu-aarch64 -cpu max "$folder/check"
done
