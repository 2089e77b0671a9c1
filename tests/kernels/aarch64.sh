#!/bin/sh
# The core and the kernels for AArch64, tried on an emulated processor: sh tests/kernels/aarch64.sh
#
# Compiles them as setup.py does there, repeats the calls of every kernel that record.py wrote on this machine, runs the
# engine's driver, and networks that `plait compile` wrote. On Debian: apt install gcc-aarch64-linux-gnu qemu-user
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/aarch64
python=$root/.venv/bin/python
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null && continue
    echo "make aarch64: no $tool; fix: apt install gcc-aarch64-linux-gnu qemu-user" >&2
    exit 2
done
cc=aarch64-linux-gnu-gcc
command -v ccache >/dev/null && cc="ccache $cc"
run="qemu-aarch64 -L /usr/aarch64-linux-gnu"
cd "$root"
rm -rf "$build"
mkdir -p "$build"

"$python" tests/kernels/aarch64/sources.py aarch64 |
    awk -v cc="$cc" -v to="$build" '{name = $NF; gsub("/", "_", name); print cc, $0, "-o", to "/" name ".o"}' |
    xargs -P "$(nproc)" -d '\n' -n 1 sh -c
OMP_NUM_THREADS=1 PLAIT_TIER=ready PYTHONPATH=tests:tests/kernels "$python" -W ignore \
    tests/kernels/aarch64/record.py "$build"
$cc -std=gnu11 -O3 -w -ffp-contract=off -Ikernels/cpu -c "$build/groups.c" -o "$build/groups.o"
flags="-std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wno-unused-parameter -rdynamic -pthread -I. -Ikernels/cpu"
$cc $flags tests/kernels/aarch64/replay.c "$build"/*.o -ldl -lm -o "$build/replay"
$cc $flags tests/engine/*.c "$build"/engine_core_*.o -ldl -lm -DDRIVER_WRAPS_MALLOC \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign -o "$build/driver"

$run "$build/replay" "$build/calls"
export OMP_NUM_THREADS=3
for part in rules "random 200" "control 40" "claims 100" "flight 40" "messages 4" regions beats; do
    $run "$build/driver" $part
done
PYTHONPATH=tests/tools/compiled "$python" -W ignore tests/tools/compiled/compiled_check.py "$build/compiled" aarch64 \
    --run "$run" CC="$cc"
echo "aarch64: kernels, engine and compiled networks pass"
