#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build-cuda.sh SOURCES CONFIG OUT [PATTERN] - as build.sh, for cuda/*.mutant: applies every mutant to
# a copy of the sources of impl/cuda and compiles OUT/NAME.so, and OUT/clean-IMPL.so.
#
# Of the tables of kernels only the rows of head_dim 64 in bf16 are compiled. Machine code is for
# the GPU that is there, or else for Hopper; faults in Hopper's kernels are left out for any other.
# A mutant may name a suite ("suite:") that it is run on besides those of all.
set -eu
src=$1 config=$2 out=$3 pattern=${4:-*}
here=$src/tests/mutants
nvcc=${NVCC:-nvcc}
. "$here/apply.sh"

cuda=impl/cuda
sm80="$cuda/sm80-forward/flash-sm80-d64.cu $cuda/sm80-forward/flash-sm80.c
  $cuda/sm80-forward/flash-sm80-variants.c $cuda/sm80-backward/flash-bwd-sm80-d64.cu
  $cuda/sm80-backward/flash-bwd-sm80.c $cuda/sm80-backward/flash-bwd-sm80-variants.c"
sm90="$cuda/sm90-forward/flash-sm90-d64.cu $cuda/sm90-forward/flash-sm90-d64-options.cu
  $cuda/sm90-forward/flash-sm90-d64-paged.cu $cuda/sm90-forward/flash-sm90-schedule.cu
  $cuda/sm90-forward/flash-sm90.c $cuda/sm90-forward/flash-sm90-launch.c
  $cuda/sm90-forward/flash-sm90-plan.c $cuda/sm90-forward/flash-sm90-variants.c
  $cuda/sm90-backward/flash-bwd-sm90-d64.cu $cuda/sm90-backward/flash-bwd-sm90-d64-options.cu
  $cuda/sm90-backward/flash-bwd-sm90.c $cuda/sm90-backward/flash-bwd-sm90-schedule.c
  $cuda/sm90-backward/flash-bwd-sm90-variants.c
  $cuda/tensor-map.c"
decode="$cuda/decode/decode-d64.cu $cuda/decode/decode-e4m3.cu $cuda/decode/decode.c
  $cuda/decode/decode-variants.c"
naive="$cuda/naive/naive-rows.cu $cuda/naive/naive.c $cuda/naive/naive-compute.c"
rope="$cuda/rope/rope-kernels.cu $cuda/rope/rope.c"
common="impl/problem.c impl/problem-count.c impl/problem-parse.c impl/problem-rope.c
  tests/mutants/cuda/no-tables.c"

units_of() { # IMPL
  case $1 in
  cuda/flash-sm80) echo $sm80 ;;
  cuda/flash-sm90) echo $sm90 ;;
  cuda/decode) echo $decode ;;
  cuda/cascade) echo $cascade ;;
  cuda/naive) echo $naive ;;
  cuda/rope) echo $rope ;;
  *) echo "$1: not known to build-cuda.sh" >&2; return 1 ;;
  esac
}

# Compute capability of the first GPU, as in sm_90.
capability() {
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | sed 's/\.//;q') ||
    found=
  case $found in [1-9][0-9]*) echo "$found" ;; *) echo 90 ;; esac
}
: "${SM:=$(capability)}"
export SM
[ "$SM" != 90 ] || decode="$decode $cuda/decode/decode-sm90.cu"
cascade="$decode $cuda/decode/cascade.c"

compile() { # UNIT ROOT OBJECT
  from=$2/$1
  [ -f "$from" ] || from=$src/$1
  case $1 in *sm90*) arch=${SM}a ;; *) arch=$SM ;; esac
  flags="-w -I$2 -I$src -I$config -Xcompiler -fPIC,-fvisibility=hidden"
  case $1 in
  *.cu)
    rows "$from" > "$3.cu"
    $nvcc $flags -std=c++17 -gencode "arch=compute_$arch,code=sm_$arch" -c -o "$3" "$3.cu" ;;
  *) $nvcc $flags -O2 -Xcompiler -std=gnu11 -c -o "$3" "$from" ;;
  esac
}

# Links the objects of DIR over the clean ones.
link() { # DIR IMPL NAME SO
  objects=
  for unit in $(units_of "$2") $common; do
    o=$(object "$unit").o
    if [ -f "$1/$o" ]; then objects="$objects $1/$o"; else objects="$objects $out/clean/$o"; fi
  done
  case $2 in cuda/naive) blas=-lcublas ;; *) blas= ;; esac
  $nvcc -w -shared -Xcompiler -fPIC,-fvisibility=hidden,-std=gnu11 -Xlinker --exclude-libs,ALL \
    -Xlinker -z,defs -I"$src" \
    -DIMPL="$(symbol "$2")" -DNAME="\"$3\"" -o "$4" "$here/plugin.c" $objects $blas
}

clean_unit() { compile "$1" "$src" "$out/clean/$(object "$1").o"; }

clean_impl() {
  base=${1#cuda/}
  link "$out/clean" "$1" "clean/$base" "$out/clean-$base.so"
  printf 'impl: %s\nkind: none\nkills: none\n' "$1" > "$out/clean-$base.mutant"
}

# Does the unit include the header, perhaps by way of others?
uses() { # UNIT HEADER
  case $2,$1 in
  *.cu,* | *.c,*) [ "$1" = "$2" ] ;;
  *decode-wide*,*sm90*) true ;;
  *decode-wide*,*) false ;;
  *bwd*,*bwd*.cu) true ;;
  *bwd*,* | *,*.c) false ;;
  */flash-sm90*.cuh,*bwd*) false ;;
  *) true ;;
  esac
}

one() { # MUTANT
  name=$(basename "$1" .mutant)
  file=$(field "$1" file) impl=$(field "$1" impl) dir=$out/$name.d
  rm -rf "$dir"
  mkdir -p "$dir/$(dirname "$file")"
  mutate "$1" "$src/$file" > "$dir/$file"
  for unit in $(units_of "$impl"); do
    if uses "$unit" "$file"; then compile "$unit" "$dir" "$dir/$(object "$unit").o"; fi
  done
  link "$dir" "$impl" "mutant/$name" "$out/$name.so"
  cp "$1" "$out/$name.mutant"
  rm -rf "$dir"
}

# Runs this script for every line of the input, several at a time.
each() { # WHAT
  xargs -P "${JOBS:-$(nproc)}" -I{} env "$1={}" sh "$0" "$src" "$config" "$out"
}

mkdir -p "$out/clean"
if [ "${UNIT:-}" ]; then
  clean_unit "$UNIT"
elif [ "${CLEAN:-}" ]; then
  clean_impl "$CLEAN"
elif [ "${ONLY:-}" ]; then
  one "$ONLY"
else
  impls="cuda/flash-sm80 cuda/decode cuda/cascade cuda/naive cuda/rope"
  [ "$SM" != 90 ] || impls="$impls cuda/flash-sm90"
  { for i in $impls; do units_of "$i"; done; echo $common; } | tr ' ' '\n' | sort -u | each UNIT
  for i in $impls; do echo "$i"; done | each CLEAN
  for m in "$here"/cuda/$pattern.mutant; do
    case "$SM $(field "$m" file)" in 90*) ;; *decode-wide*) continue ;; esac
    case " $impls " in *" $(field "$m" impl) "*) echo "$m" ;; esac
  done | each ONLY
fi
