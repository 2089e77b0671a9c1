"""Builds the emulated CUDA libraries, once for each state of their sources and whoever asks first.

PLAIT_CUDA_LIBRARIES=$(python tests/gpu/emulator/build.py) python script.py
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINK = ["-ldl", "-lpthread"]
# library -> its sources, and the names under which programs look for it
LIBRARIES = {
    "libcuda.so.1": (("driver.cpp", "graph.cpp", "blocks.cpp", "stream.cpp"), ("libcuda.so",)),
    "libnvrtc.so.13": (("nvrtc.cpp",), ("libnvrtc.so",)),
    "libcublasLt.so.13": (("cublaslt.cpp",), ("libcublasLt.so",)),
    "libcudnn.so.9": (("cudnn.cpp", "cudnn_rnn.cpp"), ("libcudnn.so",)),
    "libnccl.so.2": (("nccl.cpp",), ("libnccl.so",)),
}
KERNEL_FILES = ("prelude.h", "device.h", "intrinsics.cuh")  # what compiled kernels include
FLAGS = ["-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-shared"]
# of kernels: a tenth of a second each counts, so their prelude is compiled once, with these
KERNEL_FLAGS = (
    "-std=gnu++17 -O1 -fPIC -w -fvisibility=hidden -fno-gnu-unique -fwrapv -fno-strict-aliasing"
    " -fno-math-errno -ffp-contract=off -fno-exceptions -fno-rtti -fno-threadsafe-statics"
    " -fno-asynchronous-unwind-tables -fsanitize=alignment,bounds -fno-sanitize-recover=all"
).split()


def missing() -> str | None:
    """Why there can be no emulator here, or None."""
    if shutil.which("g++") is None:
        return "the emulated GPU needs g++"
    if os.uname().machine not in ("x86_64", "aarch64") or os.uname().sysname != "Linux":
        return "the emulated GPU runs on Linux, x86-64 or aarch64"
    return None


def folder() -> Path:
    """The folder of the libraries, built if need be. Safe among processes."""
    sources = sorted(p for p in HERE.iterdir() if p.suffix in (".cpp", ".h", ".cuh", ".py"))
    version = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    parts = [version, *(p.name.encode() + b"\0" + p.read_bytes() for p in sources)]
    key = hashlib.sha256(b"\0".join(hashlib.sha256(p).digest() for p in parts)).hexdigest()[:16]
    home = Path(tempfile.gettempdir()) / f"plait-emulator-{os.geteuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.geteuid():
        home = Path(tempfile.mkdtemp(prefix="plait-emulator-"))
    made = home / key
    if not made.exists():
        with open(home / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                _build(home, made)
    return made


def _build(home: Path, made: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="new-", dir=home))
    try:
        for name, (sources, others) in LIBRARIES.items():
            files = [str(HERE / s) for s in sources]
            _run(["g++", *FLAGS, f"-Wl,-soname,{name}", "-o", str(work / name), *files, *LINK])
            for other in others:
                (work / other).symlink_to(name)
        for name in KERNEL_FILES:
            shutil.copy(HERE / name, work / name)
        (work / "flags").write_text("\n".join(KERNEL_FLAGS))
        header = str(work / "prelude.h")
        _run(["g++", "-x", "c++-header", *KERNEL_FLAGS, header, "-o", header + ".gch"])
        os.rename(work, made)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"the emulator does not compile:\n{result.stderr}")


if __name__ == "__main__":
    print(folder())
