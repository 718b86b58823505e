#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Laws of the kill matrix, whatever the zoo: who hangs beside one that hangs, and not alone, is not
# accused, and who hangs alone is; a row is written when it is finished; an interrupt leaves those
# rows and says how many they are.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-zoo.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
NEIGHBOURS=$dir/lock
export NEIGHBOURS
echo 'op=fwd hq=2 hkv=1 sq=4 sk=5,6,7,8 d=8' > "$dir/own.suite"
mkdir "$dir/zoo"
member() { # FILE KIND CHECK SUITE
  cp "$builddir/tests/broken/zoo/$1.so" "$dir/zoo/"
  printf 'impl: cpu/flash\nkind: %s\nkills: %s\nsuite: %s\n' "$2" "$3" "$4" > "$dir/zoo/$1.mutant"
}
member clean-shy none none ''
member hog 'hangs, with a lock' ends "$dir/own.suite"

: > "$NEIGHBOURS"
"$ATTNBENCH" verify --device cpu --cores 2 --timeout 3 --mutants "$dir/zoo" --out "$dir/two.jsonl" \
  > "$dir/two" 2>&1
is $? 0 "two side by side: the one that hangs is killed, the other is not accused"
sed 's/^/# /' "$dir/two"
is "$(cat "$NEIGHBOURS")" x "which had hung beside it"
is "$(sed -n 's/.*"mutant":"hog".*"killed":{\([^}]*\)}.*/\1/p' "$dir/two.jsonl")" '"ends":["normal"]' \
  "the matrix says that the fault hangs"
is "$(sed -n 's/.*"mutant":"clean-shy".*"killed":{\([^}]*\)}.*/[\1]/p' "$dir/two.jsonl")" '[]' \
  "and nothing of the clean build"

# What finishes before the hog hangs alone is there when that is interrupted.
member wrong 'an element' bound "$dir/own.suite"
"$ATTNBENCH" verify --device cpu --cores 2 --timeout 4 --mutants "$dir/zoo" --out "$dir/int.jsonl" \
  > "$dir/int" 2> "$dir/int.err" &
pid=$!
tries=0
while [ "$(wc -l < "$dir/int.jsonl" 2> /dev/null || echo 0)" -lt 1 ] && [ $tries -lt 300 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -INT $pid
wait $pid
is $? 130 "an interrupt exits 130"
is "$(sed 's/.*"mutant":"\([^"]*\)".*"killed":{"bound":\["normal"\].*}$/\1/' "$dir/int.jsonl")" wrong \
  "with a line for each row that is finished"
is "$(cat "$dir/int.err")" "attnbench: 1 of 2 planted faults are finished; interrupted" "and says how far it got"
is "$(grep -c '^wrong' "$dir/int") $(grep -c '^hog' "$dir/int")" "1 0" "what is printed has the finished alone"
done_testing
