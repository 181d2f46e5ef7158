#!/bin/sh
# The CPU baseline's NEON kernels on an emulated aarch64: needs g++-aarch64-linux-gnu and qemu-user.
#
#     tests/arm.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
aarch64-linux-gnu-g++ -std=c++20 -O3 -ffp-contract=fast -Wall -Wextra -static -Ideepbench_ext \
    tests/layer_check.cpp deepbench_ext/kernels.cpp deepbench_ext/phases.cpp deepbench_ext/limits.cpp -o "$folder/check" -pthread -ldl
for most in neon neon-dot neon-bf16; do
    LSTM_BENCH_ISA=$most qemu-aarch64 -cpu max "$folder/check"
done
