"""The C driver beside this file: rules, allocation failures, random programs, control flow (see
sanitize.sh)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "engine" / "core"
WRAP = [
    "-DDRIVER_WRAPS_MALLOC",
    "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign",
]
compiler = shutil.which(os.environ.get("CC", "cc"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    program = tmp_path_factory.mktemp("driver") / "driver"
    subprocess.run(
        [
            compiler,
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-pthread",
            "-rdynamic",  # the core finds messages.c's MPI by dlsym
            "-O1",
            "-Wall",
            "-Wextra",
            "-Wshadow",
            "-Wstrict-prototypes",
            "-Werror",
            *WRAP,
            f"-I{CORE.parents[1]}",
            *sorted(HERE.glob("*.c")),
            *sorted(CORE.glob("*.c")),
            "-o",
            program,
        ],
        check=True,
        timeout=300,
    )
    return program


@pytest.mark.skipif(not compiler, reason="needs a C compiler")
@pytest.mark.parametrize(
    "part",
    [
        ["rules"],
        ["memory"],
        ["regions"],
        ["beats"],
        ["random", "500", "20000"],
        ["control", "100", "20000"],
        ["claims", "500", "20000"],
        ["flight", "300", "20000"],
        ["messages", "60", "20000"],
    ],
    ids=lambda part: part[0],
)
def test_driver(driver, part):
    done = subprocess.run([driver, *part], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
