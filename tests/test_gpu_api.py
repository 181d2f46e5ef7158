"""The declarations by hand of CUDA and cuDNN say what NVIDIA's headers say."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from conftest import REPOSITORY

KERNELS = REPOSITORY / "lstm_kernels/src/lstm_kernels"
DECLARED = [KERNELS / "gpu/host/cuda_api.hpp", REPOSITORY / "deepbench_ext/cudnn_api.hpp"]

#: The values in the headers of CUDA 13.0 and cuDNN 9, printed by gpu_api_check.cpp.
FACTS = (REPOSITORY / "tests/gpu_api.txt").read_text().splitlines()


#: Headers that are whole, and not older than what we ask of the libraries.
CUDA = "#include <cuda.h>\n#include <cuda_runtime_api.h>\nstatic_assert(CUDA_VERSION >= 12000);\n"
CUDNN = f"{CUDA}#include <cudnn.h>\nstatic_assert(CUDNN_MAJOR >= 9);\n"

COMPILER = os.environ.get("CXX", "g++")
pytestmark = pytest.mark.skipif(not shutil.which(COMPILER), reason=f"no {COMPILER}")


def facts_in(folder: Path, *flags: str) -> list[str]:
    check, source = folder / "check", REPOSITORY / "tests/gpu_api_check.cpp"
    options = ["-std=c++20", "-O0", "-Wno-invalid-offsetof", f"-I{KERNELS}", *flags]
    words = [COMPILER, *options, source, "-o", check]
    subprocess.run(words, check=True)
    return subprocess.run([check], check=True, capture_output=True, text=True).stdout.splitlines()


def compiles(text: str, *flags: str) -> bool:
    words = [COMPILER, "-std=c++20", "-fsyntax-only", *flags, "-x", "c++", "-"]
    return not subprocess.run(words, input=text, text=True, capture_output=True).returncode


def test_arguments_structs_and_constants_are_those_of_nvidias_headers(tmp_path):
    assert facts_in(tmp_path) == FACTS


def test_the_headers_of_this_machine_say_so_too(tmp_path):
    packages = Path(sysconfig.get_paths()["purelib"], "nvidia")
    folders = [*sorted(packages.glob("*/include")), Path("/usr/local/cuda/include")]
    places = [f"-isystem{folder}" for folder in folders]
    if not compiles(CUDA, *places):
        pytest.skip("no headers of CUDA 12 or newer")
    without = [] if compiles(CUDNN, *places) else ["-DWITHOUT_CUDNN"]
    facts = facts_in(tmp_path, "-DNVIDIA", *without, *places)
    assert facts == FACTS[: len(facts)]
    assert without or len(facts) == len(FACTS)


def test_all_that_is_declared_is_compared():
    text = "\n".join(path.read_text() for path in DECLARED)
    functions = re.findall(r"\b(cu\w+)\([^;]*\);", text)
    constants = re.findall(r"\b(\w+) = \d+", text)
    structs = re.findall(r"^struct (\w+) {", text, re.MULTILINE)
    compared = {re.match(r"\w+", line).group() for line in FACTS}
    assert len(functions) > 50
    assert len(constants) > 40
    assert {*functions, *constants, *structs} == compared
