"""The declarations by hand of CUDA and cuDNN say what NVIDIA's headers say."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from conftest import REPOSITORY

EXTENSION = REPOSITORY / "deepbench_ext"
DECLARED = [EXTENSION / "cuda_api.hpp", EXTENSION / "cudnn_api.hpp"]

#: What the headers of CUDA 13.0 and cuDNN 9 say, printed by gpu_api_check.cpp.
FACTS = (REPOSITORY / "tests/gpu_api.txt").read_text().splitlines()


def told(folder: Path, *flags: str) -> list[str]:
    if not shutil.which("g++"):
        pytest.skip("no g++")
    check, source = folder / "check", REPOSITORY / "tests/gpu_api_check.cpp"
    words = ["g++", "-std=c++20", "-O0", "-Wno-invalid-offsetof", *flags, source, "-o", check]
    subprocess.run(words, check=True)
    return subprocess.run([check], check=True, capture_output=True, text=True).stdout.splitlines()


def test_arguments_structs_and_constants_are_those_of_nvidias_headers(tmp_path):
    assert told(tmp_path) == FACTS


def test_the_headers_of_this_machine_say_so_too(tmp_path):
    packages = Path(sysconfig.get_paths()["purelib"], "nvidia")
    folders = [*sorted(packages.glob("*/include")), Path("/usr/local/cuda/include")]
    found = {
        name for folder in folders for name in ("cuda.h", "cudnn.h") if (folder / name).is_file()
    }
    if "cuda.h" not in found:
        pytest.skip("no cuda.h")
    without = [] if "cudnn.h" in found else ["-DWITHOUT_CUDNN"]
    said = told(tmp_path, "-DNVIDIA", *without, *(f"-isystem{folder}" for folder in folders))
    assert said == FACTS[: len(said)]
    assert without or len(said) == len(FACTS)


def test_all_that_is_declared_is_compared():
    text = "\n".join(path.read_text() for path in DECLARED)
    functions = re.findall(r"\b(cu\w+)\([^;]*\);", text)
    constants = re.findall(r"\b(\w+) = \d+", text)
    structs = re.findall(r"^struct (\w+) {", text, re.MULTILINE)
    compared = {re.match(r"\w+", line).group() for line in FACTS}
    assert len(functions) > 50
    assert len(constants) > 40
    assert {*functions, *constants, *structs} == compared
