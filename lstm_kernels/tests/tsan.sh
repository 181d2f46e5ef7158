#!/bin/sh
# The layer on a CPU under the thread sanitizer: calls from several threads, each with a team of its own.
#
#     lstm_kernels/tests/tsan.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
g++ -std=c++20 -O1 -g1 -DONE_BUILD -fsanitize=thread -Wall -Wextra -Wno-psabi -Wno-tsan -Isrc/lstm_kernels/cpu tests/stack_check.cpp \
    src/lstm_kernels/cpu/kernels.cpp src/lstm_kernels/cpu/phases.cpp -o "$folder/check" -pthread -ldl
TSAN_OPTIONS=halt_on_error=1 setarch "$(uname -m)" -R "$folder/check"
