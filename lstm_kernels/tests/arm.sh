#!/bin/sh
# The NEON kernels on an emulated aarch64: needs `pip install ziglang`, which compiles for it, and qemu-user.
#
#     PYTHON=.venv/bin/python lstm_kernels/tests/arm.sh
set -eu
python=$(command -v "${PYTHON:-python3}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for check in layer_check stack_check; do
    "$python" -m ziglang c++ -target aarch64-linux-musl -std=c++20 -O3 -ffp-contract=fast -Wall -Wextra -static -Isrc/lstm_kernels/cpu \
        tests/$check.cpp src/lstm_kernels/cpu/kernels.cpp src/lstm_kernels/cpu/phases.cpp -o "$folder/$check" -pthread -ldl
    for most in neon neon-dot neon-bf16; do
        LSTM_BENCH_ISA=$most qemu-aarch64 -cpu max "$folder/$check"
    done
done
