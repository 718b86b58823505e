#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# sanitize.sh SOURCES BUILD - what make check-sanitize runs: the unit tests under the address and
# undefined-behaviour sanitizers, in BUILD/sanitize; and where there is an NVIDIA GPU, the kernels
# under each tool of compute-sanitizer. Exit 1 if anything was found.
#
# HOST_TESTS names tests (default: those of the reference, the cpu implementations and the harness;
# none: none); GPU_TOOLS the tools.
set -u
src=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
found=0
say() { printf 'check-sanitize: %s\n' "$*"; }

# ---- host ----------------------------------------------------------------------------------------

# Not tests/unit/losses, whose implementations crash on purpose.
tests=${HOST_TESTS:-$(cd "$src" && ls tests/unit/*.c | sed 's/\.c$//' | grep -v 'cudnn\|cupti\|losses')}
flags='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'

# Leaks are not looked for: a worker that ends leaves its memory to the system.
ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:${ASAN_OPTIONS:-}
UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
export ASAN_OPTIONS UBSAN_OPTIONS

host_build() {
  mkdir -p "$build/sanitize" && cd "$build/sanitize" || return 1
  [ -f Makefile ] ||
    "$src/configure" -q --without-cuda CC="${CC:-cc}" CFLAGS="$flags" LDFLAGS="$flags" || return 1
  # shellcheck disable=SC2086 # a list of names
  make -s -j"$(nproc)" attnbench $tests
}

if [ "$tests" = none ]; then
  say "skip host: HOST_TESTS=none"
elif host_build > "$build/sanitize.log" 2>&1; then
  for t in $tests; do
    if (cd "$build/sanitize" && srcdir="$src" builddir=. ATTNBENCH="$build/sanitize/attnbench" \
      ATTNBENCH_DATADIR="$src" "./$t") > "$build/sanitize/out" 2>&1 &&
      ! grep -q '^not ok\|ERROR: AddressSanitizer\|runtime error:' "$build/sanitize/out"; then
      say "clean: $t"
    else
      found=1
      say "FOUND: $t"
      grep -A 12 '^not ok\|ERROR: AddressSanitizer\|runtime error:' "$build/sanitize/out" | head -n 40
    fi
  done
else
  found=1
  say "FAILED: the build with $flags (all of its output: $build/sanitize.log)"
  tail -n 20 "$build/sanitize.log"
fi

# ---- GPU -----------------------------------------------------------------------------------------

# Racecheck leaves out the reference (by types of its arguments), which is slow under it. An mbarrier
# orders for it only what the arriving lane itself has done, __syncwarp before that or not; so it is
# given the backward of cuda/flash-sm90 with all lanes arriving (tests/gpu/sweep-lanes). What wgmma and
# bulk copies read, it does not see.
# Its errors count, not its warnings: a warp of cuda/flash-sm80 puts O where it alone has read Q, in
# order and without a barrier.
# Initcheck does not see what TMA and bulk copies write, and would find it read uninitialised: S of
# cuda/naive, which cuBLAS writes, and dQ of cuda/flash-sm90. Both are left out.
options() { # TOOL
  [ "$1" = racecheck ] || return 0
  echo --print-level error
  for kernel in device_problem 5chunk ref_tally; do
    echo "--kernel-name-exclude kns=$kernel"
  done
}

# One program under one tool, its findings in a file.
watch() { # TOOL NAME COMMAND ...
  tool=$1 name=$2 log=$build/sanitize-$1-$2.log
  shift 2
  # shellcheck disable=SC2046 # options and their values
  if (cd "$build" && srcdir="$src" builddir=. ATTNBENCH_DATADIR="$src" "$sanitizer" \
    --tool "$tool" $(options "$tool") --target-processes all --error-exitcode 9 "$@") > "$log" 2>&1 ||
    { [ "$tool" = racecheck ] && grep -q 'RACECHECK SUMMARY.*(0 errors' "$log" &&
      ! grep -q ': failed$\|^not ok\|^fail\|(\([1-9]\|[1-9][0-9]*\) error' "$log"; }; then
    say "clean: $tool: $name"
  else
    say "FOUND: $tool: $name (all of it: $log)"
    grep -m 20 '^=========\|: failed$\|^not ok\|^fail' "$log"
  fi > "$log.verdict"
}

# Ours alone: racecheck finds races in cuDNN's kernels.  Every compiled variant once, an implementation
# a process: they wait for the tool most of the time, and for the GPU hardly ever.
kernels() { # TOOL
  for impl in $(cd "$build" && ./attnbench list --device cuda | sed -n 's|^\(cuda/[^ ]*\) .*|\1|p'); do
    program=tests/gpu/sweep
    case "$1 $impl" in
    'racecheck cuda/flash-sm90') program=tests/gpu/sweep-lanes ;;
    'initcheck cuda/naive' | 'initcheck cuda/flash-sm90') continue ;;
    esac
    watch "$1" "$(basename "$impl")" $program sanitize "$impl" &
  done
}

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
if ! grep -q '^#define HAVE_CUDA' "$build/config.h"; then
  say "skip GPU: configured without CUDA"
elif ! nvidia-smi -L 2> /dev/null | grep -q '^GPU'; then
  say "skip GPU: there is none (nvidia-smi -L)"
elif [ -z "$sanitizer" ]; then
  say "skip GPU: compute-sanitizer is missing; it comes with the CUDA toolkit"
else
  rm -f "$build"/sanitize-*.log.verdict
  for tool in ${GPU_TOOLS:-memcheck racecheck synccheck initcheck}; do
    [ "$tool" != racecheck ] || make -s -C "$build" tests/gpu/sweep-lanes || found=1
    kernels "$tool"
    wait
  done
  cat "$build"/sanitize-*.log.verdict || found=1
  ! grep -q FOUND "$build"/sanitize-*.log.verdict || found=1
fi
exit $found
