#!/usr/bin/env bash
# Builds the wheels of both packages for x86_64 or aarch64, for any Linux with glibc 2.28 or newer, with PyPI's ziglang as
# the compiler: `tools/wheel.sh PYTHON MACHINE`. The benchmark's is for this Python. They go to dist/.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 machine=$2
case $python in /*) ;; *) python=$PWD/$python ;; esac
tag=manylinux_2_28_$machine
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT

pip_wheel() { "$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$1" "$2"; }

LSTM_KERNELS_TARGET=$machine pip_wheel dist ./lstm_kernels

# An extension is named and tagged after the machine that it runs on, and linked without debug symbols.
zig="$python -m ziglang" target="-target $machine-linux-gnu.2.28"
suffix=$("$python" -c "import sys; print('.cpython-%d%d-' % sys.version_info[:2] + '$machine-linux-gnu.so')")
printf '[build]\nbuild_base = %s/build\n' "$built" > "$built/setup.cfg"  # apart from what is built for here
CC="$zig cc $target" CXX="$zig c++ $target" LDFLAGS=-s _PYTHON_HOST_PLATFORM=linux-$machine SETUPTOOLS_EXT_SUFFIX=$suffix \
    DIST_EXTRA_CONFIG=$built/setup.cfg pip_wheel "$built" .
"$python" -m wheel tags --remove --platform-tag "$tag" "$built"/*.whl
mv "$built"/*.whl dist/

# What the symbols need must be in glibc 2.28.
for wheel in dist/*-"$tag".whl; do
    "$python" -m auditwheel show "$wheel" | tee "$built/shown" | sed -n 1,3p
    newest=$(grep -o 'GLIBC_2\.[0-9]*' "$built/shown" | sort -t. -k2 -n | tail -1)
    if [ "${newest#GLIBC_2.}" -gt 28 ]; then
        echo "$wheel: found $newest, expected GLIBC_2.28 or older: compile for $target" >&2
        exit 1
    fi
done
