#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Law: every fault planted in a CUDA kernel fits its source, whatever the machine; and where there is
# a GPU and nvcc, every one that is no race is killed, by a check that it names, and no check accuses
# a correct build. ZOO=DIR takes plugins that build-cuda.sh has built elsewhere.
. "$srcdir/tests/tap.sh"

here=$srcdir/tests/mutants
root=$(cd "$srcdir" && pwd)
config=$(dirname "$ATTNBENCH")
. "$here/apply.sh"

mutants=0 hopper=0
for m in "$here"/cuda/*.mutant; do
  bad=$(mutate "$m" "$root/$(field "$m" file)" 2>&1 > /dev/null)
  [ -n "$(field "$m" impl)" ] && [ -n "$(field "$m" kind)" ] && [ -n "$(field "$m" kills)" ] ||
    bad="$bad a line is missing"
  is "$bad" "" "$(basename "$m" .mutant) fits its source"
  mutants=$((mutants + 1))
  case $(field "$m" impl)$(field "$m" file) in cuda/flash-sm90* | *decode-wide*) hopper=$((hopper + 1)) ;; esac
done
ok $((mutants < 18)) "$mutants planted faults"

# What the zoo compiles of a table: no row of another type, and one at least.
for table in flash-sm80-d64 flash-bwd-sm80-d64 flash-sm90-d64 flash-sm90-d64-options \
  flash-sm90-d64-paged flash-bwd-sm90-d64 decode-d64 decode-e4m3 decode-sm90; do
  left=$(rows "$root"/impl/cuda/*/$table.cu | sed -n '/\[\] = {$/,$p')
  case $left in
  *fp16* | *half* | *256,*256*) ok 1 "$table: rows of bf16 alone" ;;
  *bf16* | *bfloat16*) ok 0 "$table: rows of bf16 alone" ;;
  *) ok 1 "$table: rows of bf16 alone" ;;
  esac
done

# The rest needs a GPU; without one that is said, and no more.
without() {
  tap_count=$((tap_count + 1))
  echo "ok $tap_count - the faults are killed # SKIP $1"
  done_testing
  exit 0
}
"$ATTNBENCH" list --device cuda 2> /dev/null | grep -q 'cuda *present' ||
  without "no GPU, or a build without CUDA: attnbench list --device cuda says which"
made=
zoo=${ZOO:-}
if [ -z "$zoo" ]; then
  : "${NVCC:=nvcc}"
  export NVCC
  command -v "$NVCC" > /dev/null || without "no nvcc: ZOO=DIR names what was built elsewhere"
  made=1 zoo=$config/tests/mutants/zoo-cuda
  rm -rf "$zoo"
  mkdir -p "$zoo"
  start=$(date +%s)
  sh "$here/build-cuda.sh" "$root" "$config" "$zoo" > "$zoo/build.log" 2>&1
  is $? 0 "the zoo builds"
  sed 's/^/# /' "$zoo/build.log"
  echo "# built in $(($(date +%s) - start)) s"
fi
built=0
for so in "$zoo"/*.so; do built=$((built + 1)); done
[ -f "$zoo/clean-flash-sm90.so" ] || hopper=$((hopper + 1)) mutants=$((mutants - hopper))
is "$built" $((mutants + 6)) "a plugin for each, and for the six unchanged kernels"

start=$(date +%s)
"$ATTNBENCH" verify --device cuda --mutants "$zoo" --out "$zoo/matrix.jsonl" > "$zoo/matrix.txt" 2>&1
killed=$?
sed 's/^/# /' "$zoo/matrix.txt"
echo "# run in $(($(date +%s) - start)) s"
is $killed 0 "all are killed by the checks that they name, nothing correct is accused"
is "$(wc -l < "$zoo/matrix.jsonl")" "$built" "the matrix as JSON has a line for each"
[ -z "$made" ] || [ $killed -ne 0 ] || rm -rf "$zoo"
done_testing
