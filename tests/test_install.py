"""The benchmark's wheel: works without a compiler; built without one it says what is missing."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import lstm_bench
import lstm_kernels

ROOT = Path(__file__).resolve().parent.parent
#: Compiles nothing: what is built already is known to build.
COMPILER = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
case "$2" in *.so) cp "{built}/$(basename "$2")" "$2" ;; *) : > "$2" ;; esac
"""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
PIPES = {"capture_output": True, "text": True}


def built(folder: Path, compiler: str) -> tuple[Path, str]:
    """A wheel of what is on disk, and what its build printed."""
    pytest.importorskip("pybind11")
    source = folder / "source"
    for name in ("lstm_bench", "deepbench_ext", "grids", "lstm_kernels/src"):
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    words = ["wheel", "-v", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, source]
    environment = {**os.environ, "CC": compiler, "CXX": compiler}
    done = subprocess.run([*PIP, *words], cwd=folder, env=environment, **PIPES)
    assert not done.returncode, done.stdout[-4000:] + done.stderr[-4000:]
    (wheel,) = folder.glob("*.whl")
    return wheel, done.stdout + done.stderr


def installed(folder: Path, wheel: Path) -> Path:
    """An environment with the wheel and what it declares to need, and nothing else."""
    clean = folder / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clean], check=True)
    words = ["--python", clean / "bin/python", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*PIP, *words, wheel], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(clean)}))
    places = {file.parts[0] for name in needed("lstm-bench", set()) for file in files(name)}
    for place in places - {"..", "__pycache__", "lstm_kernels"}:
        (packages / place).symlink_to(Path(sysconfig.get_path("purelib")) / place)
    library = ROOT / "lstm_kernels/src/lstm_kernels"  # its own wheel has its own test
    (packages / "lstm_kernels").symlink_to(library)
    return clean


def needed(name: str, seen: set[str]) -> set[str]:
    """The packages that one declares to need, and theirs; extras apart."""
    for requirement in metadata.requires(name) or ():
        other = re.match(r"[\w.-]+", requirement)[0].lower()
        if "extra ==" in requirement or other in seen:
            continue
        try:
            metadata.version(other)
        except metadata.PackageNotFoundError:  # for another Python or system
            continue
        seen.add(other)
        needed(other, seen)
    return seen


def files(name: str) -> list[metadata.PackagePath]:
    return metadata.files(name) or []


def test_in_a_clean_environment_without_a_compiler_the_wheel_measures(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(built=ROOT / "lstm_bench"))
    compiler.chmod(0o755)
    wheel, _ = built(tmp_path, str(compiler))
    names = zipfile.ZipFile(wheel).namelist()
    assert {"lstm_bench/py.typed", "lstm_bench/grids/smoke.yaml"} <= {*names}
    assert sum(name.endswith(".so") for name in names) == 2
    clean = installed(tmp_path, wheel)
    environment = {"PATH": "", "HOME": str(tmp_path)}
    words = [clean / "bin/lstm-bench", "grid", "smoke"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, **PIPES)
    assert not done.returncode, done.stdout + done.stderr
    assert re.search(r"^2 implementations x 4 shapes: .*; all outputs checked$", done.stdout, re.M)
    assert re.search(r"^deepbench +fp32 +4/4 ", done.stdout, re.M)
    assert "no torch in" in done.stdout
    assert "not compiled" not in done.stderr


def test_without_a_compiler_it_installs_and_says_in_one_line_what_is_missing(tmp_path):
    wheel, printed = built(tmp_path, "/no/such/compiler")
    (line,) = (line for line in printed.splitlines() if "not compiled" in line)
    assert "lstm-bench: lstm_bench._cudnn and lstm_bench._limits not compiled: install" in line
    assert line.endswith("all else works")
    clean = installed(tmp_path, wheel)
    code = "from lstm_bench.driver import doctor; print(*doctor.advice({}), sep='\\n')"
    words = [clean / "bin/python", "-c", code]
    printed = subprocess.run(words, cwd=tmp_path, check=True, **PIPES).stdout
    (line,) = (line for line in printed.splitlines() if "not compiled" in line)
    assert "lstm_bench._cudnn and lstm_bench._limits not compiled; missing: " in line
    assert "all else works. Install the wheel, or pip install ./lstm_kernels ." in line


def test_both_packages_and_the_citation_have_one_version():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1]
    assert lstm_bench.__version__ == lstm_kernels.__version__ == cited
