"""make gpu-check: the CUDA compiler takes kernels/cuda/ and what the generator writes.

    python tests/gpu/check.py [--all] [--nvrtc] [--step N] [--without]

The kernels are those that the table chooses for the samples of the operator records: of each
template a few instances, of the generated sources a few; --all: all of them. nvcc compiles them for
sm_80 and sm_90 and, as PTX, for what comes later. --nvrtc: NVRTC does, as in programs. No GPU is
needed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGETS = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
]
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8")
MIXED = "mixed"
INSTANCES = 3  # of a template
GENERATED_STEP = 24  # one generated source of so many
IN_A_FILE = 24  # instances that nvcc compiles in one go


def load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls() -> Iterator[tuple]:
    """(operator, how its arrays are typed, native.Native or None) of the samples of the records."""
    import numpy as np
    import samples
    from plait import MXNetError
    from plait.kernels.cuda.backend import CUDA
    from plait.kernels.plan import infer
    from plait.kernels.record import REGISTRY, Type

    for op in {op.name: op for op in REGISTRY.values()}.values():
        for case in op.samples:
            for dtype in (*DTYPES, MIXED):
                rng = np.random.default_rng(0)
                ins = [(np.shape(x), own) for x, own in (samples.draw(rng, g) for g in case.inputs)]
                try:
                    attrs = op.parse(case.attrs) | ({"train": True} if op.train_aware else {})
                    types = typed(op.names_in(attrs, len(ins)), ins, dtype)
                    native = CUDA.choose(
                        op,
                        [Type(*t) for t in types],
                        infer(op, attrs, [Type(*t) for t in types]),
                        attrs,
                    )
                except MXNetError:  # not of these dtypes
                    continue
                yield op, dtype, native


def typed(names, ins, dtype: str) -> list[tuple]:
    """Shapes and dtypes of inputs. MIXED: as an optimizer has them, 16 bits and states of 32."""
    if dtype != MIXED:
        return [(shape, own or dtype) for shape, own in ins]
    n = len(names)
    many = names[:1] in (("arg0",), ["arg0"])
    each = next((k for k in (3, 4, 5) if n % k == 0), n)
    low = lambda i, name: i % each < 2 if many else name in ("weight", "grad")
    return [
        (shape, own or ("float16" if low(i, name) else "float32"))
        for i, (name, (shape, own)) in enumerate(zip(names, ins))
    ]


def kernels() -> set[tuple]:
    """(source, name, defines) of every launch that the table makes for samples of the records."""
    from plait.kernels.cuda.launch import Launch

    found = set()
    for _, _, native in calls():
        for step in getattr(native and native.params, "steps", ()):
            if isinstance(step, Launch):
                found.add((step.source, step.function, tuple(step.defines)))
    return found


def without_kernels() -> dict[str, tuple[int, int]]:
    """Of each operator with a sample that has no kernel: samples that have one, samples."""
    from plait.kernels.record import FLOATS

    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for op, dtype, native in calls():
        if dtype in FLOATS:
            found[op.name][0] += native is not None
            found[op.name][1] += 1
        elif dtype == MIXED and native is not None and found[op.name][0] == 0:
            found[op.name] = [1, 1]
    return {name: (have, n) for name, (have, n) in found.items() if have < n}


def is_file(source: str) -> bool:
    return "\n" not in source


def representative(found: Iterable[tuple]) -> set[tuple]:
    """A few instances of each template, spread over what there is, and a few generated sources."""
    templates, generated = defaultdict(list), []
    for k in sorted(found):
        if is_file(k[0]):
            templates[k[0], k[1].partition("<")[0], k[2]].append(k)
        else:
            generated.append(k)
    first = {k[0]: k for k in reversed(generated)}  # of each source
    kept = set([k for k in generated if first[k[0]] is k][::GENERATED_STEP])
    for instances in templates.values():
        step = max(1, -(-len(instances) // INSTANCES))
        kept |= set(instances[::step])
    return kept


def units(found: Iterable[tuple]) -> dict[str, str]:
    """Files for nvcc, by name: a source with pointers to its instances; generated ones as
    namespaces of one file."""
    by_source, generated = defaultdict(list), []
    for source, name, defines in sorted(found):
        if is_file(source):
            by_source[source, defines].append(name)
        elif source not in generated:
            generated.append(source)
    files = {}
    for (source, defines), names in by_source.items():
        head = "".join(f"#define {k} {v}\n" for k, v in defines) + f'#include "{source}"\n'
        for i in range(0, len(names), IN_A_FILE):
            pointers = ",\n    ".join(f"(void *){n}" for n in names[i : i + IN_A_FILE])
            text = f"{head}void *instances[] = {{\n    {pointers}}};\n"
            files[f"{Path(source).stem}_{len(files)}.cu"] = text
    include = re.compile(r"^\s*#\s*include.*$", re.MULTILINE)
    for i in range(0, len(generated), IN_A_FILE):
        part = generated[i : i + IN_A_FILE]
        heads = dict.fromkeys(line.strip() for text in part for line in include.findall(text))
        bodies = [include.sub("", text).replace('extern "C" ', "") for text in part]
        spaces = [f"namespace group_{k} {{\n{body}\n}}\n" for k, body in enumerate(bodies)]
        files[f"generated_{i}.cu"] = "\n".join([*heads, *spaces])
    return files


def nvcc(files: dict[str, str]) -> list[str]:
    """Compiles files, as many at a time as there are processors. What is wrong."""
    from plait.kernels.cuda import compile

    with tempfile.TemporaryDirectory() as folder:
        for header, text in compile.MADE.items():
            Path(folder, header).write_text(text())

        def one(item) -> str:
            name, text = item
            path = Path(folder, name)
            path.write_text(text)
            command = ["nvcc", "-std=c++17", "-w", "-I", str(ROOT / "kernels/cuda"), "-I", folder]
            result = subprocess.run(
                [*command, "-fatbin", *TARGETS, "-o", str(path.with_suffix(".fatbin")), str(path)],
                capture_output=True,
                text=True,
            )
            return f"{name}:\n{result.stdout}{result.stderr}"[:6000] if result.returncode else ""

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return [problem for problem in pool.map(one, files.items()) if problem]


def nvrtc(found: Iterable[tuple], architectures=("sm_80", "sm_90", "compute_90")) -> list[str]:
    """Compiles kernels with NVRTC, which must be there. What is wrong."""
    from plait import MXNetError
    from plait.kernels.cuda import compile

    def one(job) -> str:
        (source, name, defines), architecture = job
        try:
            compile.compile_image(source, name, architecture, defines)
        except MXNetError as error:
            return str(error)[:6000]
        return ""

    jobs = [(k, a) for k in sorted(found) for a in architectures]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [problem for problem in pool.map(one, jobs) if problem]


def report(title: str, n: int, problems: list[str]) -> bool:
    print(f"{title}: {f'{n} kernels ok' if not problems else 'FAILED'}", flush=True)
    print("".join(f"  {p}\n" for p in problems), end="")
    return not problems


def listed() -> set[tuple]:
    """`kernels()` of a process that has a GPU, an emulated one where there is no other: the table
    asks what the GPU is. This process opens no driver: NVIDIA's compiler would find and use it."""
    build = load("emulator_build", HERE / "emulator" / "build.py")
    env = dict(os.environ)
    if build.missing() is None:
        env.setdefault("PLAIT_CUDA_LIBRARIES", str(build.folder()))
    command = [sys.executable, str(Path(__file__).resolve()), "--list"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return {(s, n, tuple(map(tuple, d))) for s, n, d in json.loads(done.stdout)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every kernel, not a few of each kind")
    parser.add_argument("--nvrtc", action="store_true", help="compile with NVRTC, not with nvcc")
    parser.add_argument("--step", type=int, default=1, help="one of so many")
    parser.add_argument("--list", action="store_true", help="print the kernels as JSON")
    parser.add_argument(
        "--without", action="store_true", help="print operators that run their reference"
    )
    args = parser.parse_args(argv)
    sys.path.insert(0, str(HERE.parent))
    if args.without:
        for name, (have, n) in sorted(without_kernels().items()):
            print(name, "" if have == 0 else f"({have} of {n} samples have a kernel)")
        return 0
    if args.list:
        print(json.dumps(sorted(kernels())))
        return 0
    if args.nvrtc:
        from plait.engine import cuda

        there, name = cuda.find("nvrtc"), "NVRTC"
    else:
        there, name = shutil.which("nvcc"), "nvcc"
    if not there:
        print(f"CUDA: skipped, there is no {name}")
        return 0
    found = listed() if args.all else representative(listed())
    found = set(sorted(found)[:: args.step])
    problems = nvrtc(found) if args.nvrtc else nvcc(units(found))
    return 0 if report(f"CUDA with {name}", len(found), problems) else 1


if __name__ == "__main__":
    sys.exit(main())
