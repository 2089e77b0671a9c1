#!/bin/sh
# Builds plait with AddressSanitizer and UndefinedBehaviorSanitizer into build/sanitize, and runs the CPU kernels there:
# sh tests/kernels/sanitize.sh [variations of each operator]. The first build takes four minutes of a core.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/sanitize
python=$root/.venv/bin/python
flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1"

# a copy of the sources, so that neither objects nor modules mix with those in use
mkdir -p "$build/plait"
(cd "$root" && git ls-files -z -- '*.py' '*.pyi' '*.c' '*.h' '*.cu' '*.cuh' '*.toml' py.typed README.md LICENSE |
    grep -zv '^docs/' | xargs -0 tar cf -) | tar xf - -C "$build/plait"
# the compiler of the build and of what is compiled while a program runs; -O1: -O3 takes six times as long here
cat >"$build/cc" <<END
#!/bin/sh
exec ${CC:-cc} "\$@" -O1 $flags
END
chmod +x "$build/cc"
CC="$build/cc" CFLAGS=-DPL_PLAIN_MALLOC "$python" -m pip install -q --disable-pip-version-check --no-deps --upgrade \
    --target "$build/site" "$build/plait"

runtime=$(${CC:-cc} -print-file-name=libasan.so):$(${CC:-cc} -print-file-name=libubsan.so)

checked() {
    env LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
        PYTHONMALLOC=malloc OMP_NUM_THREADS=2 PLAIT_CC="$build/cc" XDG_CACHE_HOME="$build/cache" \
        PYTHONPATH="$build/site:$root/tests:$root/tests/kernels" "$@"
}

cd "$build/site"    # not where a copy without binaries lies
checked "$python" -W ignore "$root/tests/kernels/sanitized.py" "${1:-20}"
# the paths in pyproject.toml are of the root; here is none of its sources
checked "$python" -m pytest -q -p no:cacheprovider -c "$root/pyproject.toml" --rootdir "$root" \
    -o addopts=--import-mode=importlib --confcutdir "$root/tests" \
    "$root/tests/graph/test_fuse.py" "$root/tests/kernels/test_matmul.py" "$root/tests/kernels/test_recurrent.py"
cd "$root"
PYTHONPATH=tests/tools/compiled "$python" -W ignore tests/tools/compiled/compiled_check.py "$build/compiled" native \
    CFLAGS="-O1 $flags"
echo "sanitize: kernels and compiled networks clean"
