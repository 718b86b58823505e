#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build.sh SOURCES CONFIG OUT [PATTERN] - applies every mutant to a copy of the sources that it
# changes and compiles OUT/NAME.so; and OUT/clean-IMPL.so, the same sources unchanged.
#
# A mutant is a text file: lines "file:", "impl:", "kind:", "kills:" (and "equivalent:", a reason),
# then @@@, a text that must be in the file exactly once, ===, and what takes its place. A text that
# is not there, or there twice, fails the build: the zoo follows the code.
#
# CONFIG holds config.h.
set -eu
src=$1 config=$2 out=$3 pattern=${4:-*}
here=$src/tests/mutants
cc=${CC:-cc}
flags="-std=gnu11 -O1 -fPIC -fvisibility=hidden -w"
units="impl/cpu/block impl/cpu/flash impl/cpu/flash-backward impl/cpu/gradient impl/cpu/materialise
  impl/cpu/materialise-backward impl/cpu/naive impl/cpu/plan impl/cpu/rope impl/cpu/packed impl/cpu/cascade
  impl/cpu/split-decode impl/problem impl/problem-count impl/problem-parse impl/problem-rope tests/mutants/null"

. "$here/apply.sh"

compile() { # UNIT ROOT OBJECT
  file=$1.c
  [ -f "$2/$file" ] || set -- "$1" "$src" "$3" "$2"
  $cc $flags ${4:+-I$4} -I"$2" -I"$src" -I"$config" -c -o "$3" "$2/$file"
}

# Links the objects of DIR over the clean ones.
link() { # DIR IMPL NAME SO
  objects=
  for unit in $units; do
    o=$(object "$unit").o
    if [ -f "$1/$o" ]; then objects="$objects $1/$o"; else objects="$objects $out/clean/$o"; fi
  done
  $cc $flags -shared -Wl,-z,defs -I"$src" -DIMPL="$(symbol "$2")" -DNAME="\"$3\"" -o "$4" \
    "$here/plugin.c" $objects -lm
}

clean() {
  mkdir -p "$out/clean"
  for unit in $units; do
    compile "$unit" "$src" "$out/clean/$(object "$unit").o" &
    wait
  done
  for impl in cpu/flash cpu/naive cpu/rope cpu/split-decode cpu/cascade; do
    base=${impl#cpu/}
    link "$out/clean" $impl "clean/$base" "$out/clean-$base.so"
    printf 'impl: %s\nkind: none\nkills: none\n' $impl > "$out/clean-$base.mutant"
  done
}

# A unit is compiled again if it is the file that changed, or may include it.
one() { # MUTANT
  name=$(basename "$1" .mutant)
  file=$(field "$1" file) impl=$(field "$1" impl) dir=$out/$name.d
  rm -rf "$dir"
  mkdir -p "$dir/$(dirname "$file")"
  mutate "$1" "$src/$file" > "$dir/$file"
  for unit in $units; do
    case $file in
    "$unit.c") ;;
    *.h) [ "$unit" != tests/mutants/null ] || continue
      uses "$unit" "$file" || continue ;;
    *) continue ;;
    esac
    compile "$unit" "$dir" "$dir/$(object "$unit").o"
  done
  link "$dir" "$impl" "mutant/$name" "$out/$name.so"
  cp "$1" "$out/$name.mutant"
  rm -rf "$dir"
}

uses() { # UNIT HEADER
  case $2 in
  impl/cpu/block-kernels.h) [ "$1" = impl/cpu/block ] ;;
  impl/rope.h) [ "$1" = impl/cpu/rope ] ;;
  impl/dropout.h) [ "$1" = impl/cpu/block ] || [ "$1" = impl/cpu/plan ] ;;
  *) true ;;
  esac
}

mkdir -p "$out"
if [ "${ONLY:-}" ]; then
  one "$ONLY"
  exit
fi
clean
for m in "$here"/$pattern.mutant; do echo "$m"; done |
  xargs -P "${JOBS:-2}" -I{} env ONLY={} sh "$0" "$src" "$config" "$out"
