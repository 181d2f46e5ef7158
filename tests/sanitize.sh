#!/bin/sh
# Our kernels and the C++ baseline under the address and undefined-behaviour sanitizers: builds a copy and runs the tests there.
#
#     PYTHON=.venv/bin/python tests/sanitize.sh [pytest arguments]
#     PYTHON=.venv/bin/python tests/sanitize.sh build          the copy only
#
# The copy stays in build/sanitized: what has not changed is not compiled again.
set -eu
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
copy=$PWD/build/sanitized
script=tests/sanitize.sh
if [ ! -e "$copy/$script" ] || ! cmp -s "$script" "$copy/$script"; then
    rm -rf "$copy"  # perhaps it was compiled with other flags
fi
mkdir -p "$copy"
rm -rf "$copy/tests" "$copy/deepbench_ext" "$copy/lstm_kernels/tests"
find "$copy" -name '*.py' -delete
tar --create --exclude=__pycache__ --exclude='*.so' --exclude='*.egg-info' --exclude=build setup.py LICENSE deepbench_ext \
    lstm_bench lstm_kernels tests $(ls pyproject.toml README.md 2>/dev/null) | tar --extract --directory "$copy"
cd "$copy"
# FLAGS=-g1 adds line numbers to what they report.
flags="-O0 -DONE_BUILD -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined ${FLAGS:-}"
(cd lstm_kernels && LSTM_KERNELS_FLAGS=$flags "$python" setup.py -q build_ext --inplace)
DEEPBENCH_FLAGS=$flags "$python" setup.py -q build_ext --inplace
if [ "${1:-}" = build ]; then exit; fi
# libstdc++ goes in with them: Python does not load it, and the sanitizer must find __cxa_throw when it starts.
# Leaks are checked by the tests themselves: Python keeps too much at exit to tell its own from ours. The test of the
# process's memory stays out: it would see the sanitizer's, which keeps 2 KB of every thread and gives back 5 MB now and then.
preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so) $(g++ -print-file-name=libstdc++.so)"
export LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH="$copy/lstm_kernels/src:$copy"
left="not compile and not spill and not fragments and not phases_are_all and not memory_flat"
"$python" -m pytest -q --capture=no -p no:cacheprovider lstm_kernels/tests/test_cpu.py lstm_kernels/tests/test_stack.py lstm_kernels/tests/test_gpu.py -k "$left" "$@"
"$python" -m pytest -q --capture=no -p no:cacheprovider tests/frameworks/test_openblas.py tests/frameworks/test_cudnn.py -k "$left" "$@"
