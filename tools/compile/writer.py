"""Writes a lowered network as a folder of C that `make` builds with nothing but a C compiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...engine import files
from ...kernels.cpu.generate import ISAS
from . import sources
from .lower import ARENA, WEIGHTS, Array, Network
from .sources import ROOT, declares, needed
from .values import Loops, Values, number

RUNTIME = Path(__file__).resolve().parent / "runtime"
C_TYPES = {
    "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t",
    "bool": "uint8_t",
}  # fmt: skip
KINDS = {"input": "NET_INPUT", "output": "NET_OUTPUT", ARENA: "NET_ARENA", WEIGHTS: "NET_WEIGHTS"}
CFFI = re.compile(
    r"/\* cffi reads from here on: \*/(.*?)/\* cffi stops reading here \*/", re.DOTALL
)


def write(network: Network, folder: Path, isa: str, features: int = 0) -> list[Path]:
    """Writes a network's C. Other files in the folder stay.

    isa: of ISAS, or "aarch64". features: PLK_HAS_* of its processor. Returns the files.
    """
    loops = Loops()
    main = _network(network, isa, loops)
    made = loops.files()
    called = {s.function for s in network.steps} | _called(made.values())
    isa_c = _ISA.format(level=_level(isa), features=features)
    found = needed(sorted(called), [*_of_runtime(), *_includes([main, isa_c, *made.values()])])
    flags = ISAS.get(isa, "").split(",")
    texts = {
        "Makefile": _makefile(network, found.sources, list(made)),
        "source/flags.mk": _FLAGS.format(target=isa, isa=" ".join(f"-m{f}" for f in flags if f)),
        "plait.h": (RUNTIME / "plait.h").read_text(),
        f"{network.name}.h": _header(network),
        "source/network.c": main,
        **{f"source/{file}": text for file, text in made.items()},
        "source/isa.c": isa_c,
        "source/weights.S": _WEIGHTS.format(name=network.name),
    }
    for path in (*found.sources, *found.headers):
        texts[f"source/{path.relative_to(ROOT)}"] = path.read_text()
    for path in sorted(RUNTIME.glob("*.[ch]")):
        if path.name != "plait.h":
            texts[f"source/runtime/{path.name}"] = path.read_text()
    for name, text in texts.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text() != text:  # make looks at times
            files.write(target, text.encode())
    files.write(folder / f"{network.name}.bin", network.weights or b"\0")
    return [folder / name for name in (*texts, f"{network.name}.bin")]


def _level(isa: str) -> str:
    return {"avx2": "PLK_AVX2", "avx512": "PLK_AVX512"}.get(isa, "PLK_BASELINE")


def identifier(text: str) -> str:
    """A name as C allows it."""
    made = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"_{made}" if not made or made[0].isdigit() or made in _KEYWORDS else made


_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if int"
    " inline long register return short signed sizeof static struct switch typedef union unsigned"
    " void volatile while".split()
)


def _called(texts) -> set[str]:
    """Kernels' functions that generated loops name."""
    return set(re.findall(r"\bplk_draw_(?:gamma|poisson|normal|exponential)\b", " ".join(texts)))


def _of_runtime() -> list[Path]:
    """The headers of plait that the runtime includes."""
    found = {header for path in RUNTIME.glob("*.c") for header in sources.text(path).includes}
    return sorted(header for header in found if header.parent != RUNTIME)


def _includes(texts: Sequence[str]) -> list[Path]:
    names = {n for text in texts for n in re.findall(r'^#include "(.*)"', text, re.MULTILINE)}
    near = [ROOT / "kernels/cpu" / n for n in names] + [ROOT / n for n in names]
    return sorted(p for p in near if p.is_file())


# ---- the header ----------------------------------------------------------------------------------


def _arguments(network: Network) -> list[tuple[str, Array, bool]]:
    """(name in C, array, is it an output?) of every argument of run."""
    taken = {"net"}
    found = []
    arrays = [(a, False) for a in network.inputs] + [(a, True) for a in network.outputs]
    for array, out in arrays:
        name = identifier(array.name)
        while name in taken:
            name += "_out" if out else "_in"
        taken.add(name)
        found.append((name, array, out))
    return found


def _ctype(array: Array) -> str:
    return C_TYPES.get(array.dtype, f"{array.dtype}_t")


def _header(network: Network) -> str:
    name, upper = network.name, network.name.upper()
    lines = []
    for argument, a, out in _arguments(network):
        place = f"{upper}_{argument.upper()}"
        sizes = ", ".join(map(str, a.shape))
        lines.append(
            f"/* {'output' if out else 'input'} {a.name}: {a.dtype} ({sizes}) */\n"
            f'#define {place}_NAME "{a.name}"\n'
            f'#define {place}_DTYPE "{a.dtype}"\n'
            f"#define {place}_DIMS {len(a.shape)}\n"
            f"#define {place}_SHAPE {{{sizes or '1'}}}\n"
            f"#define {place}_BYTES {a.nbytes}\n"
        )
    lengths = f"#define {upper}_INPUTS {len(network.inputs)}\n"
    lengths += f"#define {upper}_OUTPUTS {len(network.outputs)}\n"
    given = ", ".join(
        f"{'' if out else 'const '}{_ctype(a)} *{n}" for n, a, out in _arguments(network)
    )
    return f"""/* The network {name}. Written by plait compile. */
#ifndef {upper}_H
#define {upper}_H
#include "plait.h"

{lengths}
{chr(10).join(lines)}
#ifdef __cplusplus
extern "C" {{
#endif

/* An instance; used by one thread at a time. n_threads: that {name}_run may use, the caller's
 * too; 0: one for each core. Takes all memory. Returns NULL on failure: plait_error(NULL) tells
 * why. */
plait_net *{name}_init(int n_threads);
/* Computes the outputs; allocates nothing. Arrays are row-major and aligned for their dtype;
 * outputs overlap nothing else. Returns 0, or not 0: plait_error(net) tells why. */
int {name}_run(plait_net *net, {given});
void {name}_free(plait_net *net);             /* net: given; may be NULL */

#ifdef __cplusplus
}}
#endif
#endif
"""


# ---- the network ---------------------------------------------------------------------------------


def _network(network: Network, isa: str, loops: Loops) -> str:
    values = Values(loops)
    structs = dict.fromkeys(s.struct for s in network.steps if s.struct)
    texts: dict[tuple[str, str], int] = {}  # (struct, initializer) -> its number
    of_step = []
    for step in network.steps:
        made = (step.struct, values.parameters(step)) if step.struct else None
        of_step.append(None if made is None else texts.setdefault(made, len(texts)))
    functions = dict.fromkeys(s.function for s in network.steps)
    slots: list[str] = []
    scalars: list[str] = []
    rows: list[str] = []
    for step, which in zip(network.steps, of_step):
        given = f"scalars + {len(scalars)}" if step.scalars else "NULL"
        params = "NULL" if which is None else f"&params_{which}"
        rows.append(
            f"    {{{step.function}, {params}, slots + {len(slots)}, {given}, {len(step.slots)},"
            f" {_quoted(step.name)}}},"
        )
        scalars += [number(x, "double") for x in step.scalars]
        slots += [f"    {{{KINDS[s.kind]}, {s.array}, {s.offset}}}," for s in step.slots]
    headers = dict.fromkeys(declares(s) for s in structs)
    included = "".join(f'#include "{h.name}"\n' for h in headers if h.suffix == ".h")
    own = "".join(
        CFFI.findall(h.read_text())[0].strip() + "\n" for h in headers if h.suffix == ".c"
    )
    kernel = "(const void *params, void *const *bufs, const double *scalars);\n"
    name = network.name
    arguments = _arguments(network)
    ins = ", ".join(n for n, _, out in arguments if not out)
    outs = ", ".join(n for n, _, out in arguments if out)
    given = ", ".join(f"{'' if out else 'const '}{_ctype(a)} *{n}" for n, a, out in arguments)
    return f"""/* The steps of {name}, and what they are called with. Written by plait compile. */
#include <math.h>
#include "{name}.h"
#include "runtime/network.h"
#include "kernel.h"
{included}{own}
{"".join(f"int {f}{kernel}" for f in functions)}
{loops.declarations()}{"".join(values.before)}
{"".join(f"static const {s} params_{k} = {t};{chr(10)}" for (s, t), k in texts.items())}
static const net_slot slots[] = {{
{chr(10).join(slots)}
}};
static const double scalars[] = {{{", ".join(scalars) or "0"}}};
static const net_step steps[] = {{
{chr(10).join(rows)}
}};
{_arrays("inputs", network.inputs)}{_arrays("outputs", network.outputs)}
extern const char net_weights[] __attribute__((visibility("hidden")));

static bool serves(void)
{{
{_serves(isa)}}}

static const net_network network = {{
    .name = {_quoted(name)},
    .inputs = inputs,
    .outputs = outputs,
    .steps = steps,
    .weights = net_weights,
    .n_inputs = {len(network.inputs)},
    .n_outputs = {len(network.outputs)},
    .n_steps = {len(network.steps)},
    .max_slots = {max(len(s.slots) for s in network.steps)},
    .arena_bytes = {network.arena_bytes},
    .serves = serves,
    .instructions = "{isa}",
}};

static plait_net *init(int n_threads, char *error, size_t error_bytes)
{{
    return net_network_new(&plait_network, n_threads, error, error_bytes);
}}

#define API __attribute__((visibility("default")))
API const net_library plait_network = {{
    NET_VERSION, &network, init, net_network_run, net_network_free,
}};

API plait_net *{name}_init(int n_threads) {{ return plait_load(NULL, n_threads); }}
API void {name}_free(plait_net *net) {{ plait_free(net); }}

API int {name}_run(plait_net *net, {given})
{{
    return plait_run(net, (const void *const[]){{{ins}}}, (void *const[]){{{outs}}});
}}
"""


def _quoted(text: str) -> str:
    plain = re.sub(r"[^ -~]", "?", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


def _arrays(which: str, arrays: Sequence[Array]) -> str:
    shapes = "".join(
        f"static const int64_t {which}_{i}[] = {{{', '.join(map(str, a.shape)) or '1'}}};\n"
        for i, a in enumerate(arrays)
    )
    listed = "".join(
        f'    {{{_quoted(a.name)}, "{a.dtype}", {len(a.shape)}, {which}_{i}, {a.nbytes}}},\n'
        for i, a in enumerate(arrays)
    )
    return f"{shapes}static const plait_array {which}[] = {{\n{listed}}};\n"


def _serves(isa: str) -> str:
    needs = {"avx2": ("avx2", "fma"), "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl")}
    if isa not in needs:
        return "    return true;\n"
    said = " && ".join(f'__builtin_cpu_supports("{x}")' for x in needs[isa])
    return f"    __builtin_cpu_init();\n    return {said};\n"


# ---- the other files -----------------------------------------------------------------------------

_ISA = """/* The processor that this network is compiled for, as kernels ask for it. */
#include "isa.h"

int plk_isa_get(void) {{ return {level}; }}
int plk_isa_best(void) {{ return {level}; }}
int plk_isa_has(int feature) {{ return ({features} & feature) != 0; }}
"""

_WEIGHTS = """/* The weights, as kernels read them. */
    .section .rodata, "a"
    .balign 64
    .global net_weights
    .hidden net_weights
net_weights:
    .incbin "{name}.bin"
    .section .note.GNU-stack, "", %progbits
"""


# A file of its own, which changes with the target alone: then everything is compiled again.
_FLAGS = """# How C files for {target} are compiled: as plait's own kernels, for the same results.
ISA = {isa}
FLAGS = $(CFLAGS) -std=gnu11 -D_GNU_SOURCE -fPIC -pthread -fvisibility=hidden -MMD -MP \\
        -ffunction-sections -fdata-sections -I. -Isource -Isource/kernels/cpu
MATH = -DPLK_ONE_BLOCK -fno-math-errno -fno-trapping-math -fno-thread-jumps -fwrapv \\
       -include source/runtime/allocate.h $(ISA)
"""


def _makefile(network: Network, sources: Sequence[Path], made: Sequence[str]) -> str:
    name = network.name
    kernels = [str(p.relative_to(ROOT)) for p in sources]
    runtime = [f"runtime/{p.name}" for p in sorted(RUNTIME.glob("*.c"))]
    objects = lambda names: " ".join(f"source/{n.removesuffix('.c')}.o" for n in names)
    return f"""# Builds the network {name}: lib{name}.so, and {name}.o to link with a program.
#
#     make
#     cc program.c {name}.o -Wl,--gc-sections -lm -ldl -pthread
CC ?= cc
CFLAGS = -O3
include source/flags.mk

KERNELS = {objects(kernels)}
LOOPS = {objects(made)}
RUNTIME = {objects(["network.c", "isa.c", *runtime])}
OBJECTS = $(KERNELS) $(LOOPS) $(RUNTIME) source/weights.o

all: lib{name}.so {name}.o

lib{name}.so: $(OBJECTS)
	$(CC) -shared $(CFLAGS) -Wl,-Bsymbolic,--gc-sections,-z,defs -o $@ $(OBJECTS) -lm -ldl -pthread

{name}.o: $(OBJECTS)
	$(CC) -r -nostdlib -o $@ $(OBJECTS)

$(KERNELS): %.o: %.c
	$(CC) $(FLAGS) $(MATH) -c $< -o $@

$(LOOPS): %.o: %.c
	$(CC) $(FLAGS) $(MATH) -ffp-contract=off -fno-strict-aliasing -c $< -o $@

$(RUNTIME): %.o: %.c
	$(CC) $(FLAGS) -c $< -o $@

source/weights.o: source/weights.S {name}.bin
	$(CC) -c $< -o $@

$(OBJECTS): source/flags.mk
-include $(OBJECTS:.o=.d)

clean:
	rm -f lib{name}.so {name}.o $(OBJECTS) $(OBJECTS:.o=.d)

.PHONY: all clean
"""
