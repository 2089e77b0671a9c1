"""What setup.py would compile on a machine of another architecture, as lines of flags, then of the
source: python tests/kernels/aarch64/sources.py MACHINE"""

import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def files(machine: str) -> tuple[list[str], list[str]]:
    """(flags, sources) of the core module."""
    os.environ["_PYTHON_HOST_PLATFORM"] = f"linux-{machine}"  # as for any cross build
    ffi = runpy.run_path(str(ROOT / "engine/ffi_build.py"))["ffi"]
    _, _, _, given = ffi._assigned_source
    defined = [f"-D{name}={value or 1}" for name, value in given["define_macros"]]
    included = [f"-I{folder}" for folder in given["include_dirs"] if not Path(folder).is_absolute()]
    return [*given["extra_compile_args"], *defined, *included, "-fPIC"], given["sources"]


if __name__ == "__main__":
    flags, sources = files(sys.argv[1])
    for source in sources:
        print(*flags, "-c", source)
