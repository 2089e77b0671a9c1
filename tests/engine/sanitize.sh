#!/bin/sh
# Builds the engine's driver under each sanitizer and runs it: sh tests/engine/sanitize.sh [random programs]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
programs=${1:-10000}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
flags="-std=gnu11 -D_GNU_SOURCE -pthread -rdynamic -g -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror"
wrap="-DDRIVER_WRAPS_MALLOC -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign"

build_driver() {
    name=$1; shift
    ${CC:-cc} $flags "$@" -I"$root" "$root"/tests/engine/*.c \
        "$root"/engine/core/*.c -o "$build/$name"
}
export OMP_NUM_THREADS=3

build_driver plain -O2 $wrap
"$build/plain" rules
"$build/plain" memory
build_driver address -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer \
    -DPL_PLAIN_MALLOC $wrap
"$build/address" rules
"$build/address" memory
"$build/address" random "$programs"
"$build/address" control "$((programs / 5))"
"$build/address" claims "$programs"
"$build/address" flight "$((programs / 5))"
"$build/address" messages "$((programs / 100))"
"$build/address" regions
"$build/address" beats
build_driver thread -O1 -fsanitize=thread -DPL_PLAIN_MALLOC
TSAN_OPTIONS=halt_on_error=1 "$build/thread" rules
TSAN_OPTIONS=halt_on_error=1 "$build/thread" random "$programs"
TSAN_OPTIONS=halt_on_error=1 "$build/thread" control "$((programs / 5))"
TSAN_OPTIONS=halt_on_error=1 "$build/thread" claims "$programs"
TSAN_OPTIONS=halt_on_error=1 "$build/thread" flight "$((programs / 5))"
TSAN_OPTIONS=halt_on_error=1 "$build/thread" messages "$((programs / 100))"
TSAN_OPTIONS=halt_on_error=1 "$build/thread" regions
TSAN_OPTIONS=halt_on_error=1 "$build/thread" beats
echo "sanitize: clean"
