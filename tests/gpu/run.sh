#!/bin/bash
# On a machine with a GPU and neither this project's environment nor a network: builds, tests, measures.
#   bash tests/gpu/run.sh [build|test|bench|all] [arguments for pytest, or for the benchmark]
# PYTHON: the interpreter (python3), which has NumPy, CuPy, pytest, hypothesis and, for comparison, torch with CUDA.
# WHEELS: a folder with the wheels that it lacks (.whl): cffi and pycparser.
# Logs go to $OUT, or to /tmp/plait-gpu. See docs/design/gpu.md, "On a machine that is lent".
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3} wheels=${WHEELS:-$root/.whl} out=${OUT:-/tmp/plait-gpu} what=${1:-all}
[ $# -gt 0 ] && shift
site=/tmp/plait-site
cores=$(nproc)
mkdir -p "$out" "$site"
cd "$root" || exit 1
export PYTHONUNBUFFERED=1 PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}

# the root is the package: seen by its name from a folder beside it
ln -sfn "$root" "$site/plait"
if ls "$wheels"/*.whl > /dev/null 2>&1; then
    $python -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$wheels"/*.whl || exit 1
fi

build() {
    $python -c 'import cffi, setuptools' || { echo "run.sh: cffi is missing: carry its wheel, and pycparser's"; return 1; }
    start=$SECONDS
    $python setup.py -q build_ext --inplace > "$out/build.log" 2>&1 || { tail -30 "$out/build.log"; return 1; }
    echo "built in $((SECONDS - start)) s on $cores cores"
}

describe() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    $python -W ignore - <<'PY'
import plait as mx
from plait.engine import cuda
print("plait", mx.__version__, *cuda.properties(0), sep=", ")
print({name: cuda.find(name) for name in cuda.NAMES})
x = mx.nd.ones((1000, 1000), ctx=mx.gpu(0))
print("dot on the GPU:", float(mx.nd.dot(x, x)[0, 0].asscalar()))
PY
}

tests() {                     # not stopped by the first failure: a lent machine should tell all of them
    GPU_TESTS=all OMP_NUM_THREADS=1 timeout 420 $python -m pytest -q -n "$((cores < 12 ? cores : 12))" --dist loadscope \
        -p no:cacheprovider --tb=short --maxfail=60 tests/gpu "$@" > "$out/test.log" 2>&1
    code=$?
    grep -E "^(FAILED|ERROR)" "$out/test.log" | cut -c1-200 | head -60
    tail -3 "$out/test.log"
    return $code
}

bench() {
    timeout 400 $python -W ignore -m plait bench --gpu "$@" > "$out/bench.log" 2>&1
    code=$?
    tail -40 "$out/bench.log"
    return $code
}

case $what in
build) build ;;
test) build && describe && tests "$@" ;;
bench) build && describe && bench "$@" ;;
all) build && describe && { tests; bench; } ;;
*) sed -n '2,6p' "$0"; exit 2 ;;
esac
