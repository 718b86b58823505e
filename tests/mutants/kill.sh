#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Law: every planted fault that can be told from the correct build is killed, by the check that it
# names among others, and no check accuses a correct build. A mutant whose text is not in the
# sources exactly once fails the build.
. "$srcdir/tests/tap.sh"

here=$srcdir/tests/mutants
root=$(cd "$srcdir" && pwd)
config=$(dirname "$ATTNBENCH")
zoo=$config/tests/mutants/zoo
rm -rf "$zoo"
mkdir -p "$zoo"

CC=${CC:-cc} sh "$here/build.sh" "$root" "$config" "$zoo" > "$zoo/build.log" 2>&1
is $? 0 "the zoo builds: every fault still fits its source"
sed 's/^/# /' "$zoo/build.log"
mutants=0
for m in "$here"/*.mutant; do
  [ -f "$zoo/$(basename "$m" .mutant).so" ] && mutants=$((mutants + 1))
done
ok $((mutants < 80)) "$mutants planted faults"

"$ATTNBENCH" verify --mutants "$zoo" --out "$zoo/matrix.jsonl" > "$zoo/matrix.txt" 2>&1
killed=$?
sed -n '/killed  *fault x regime/,$s/^/# /p' "$zoo/matrix.txt"
is $killed 0 "all are killed by the checks that they name, nothing correct is accused"
is "$(wc -l < "$zoo/matrix.jsonl")" $((mutants + 5)) "the matrix as JSON has a line for each"
cases=$(sed -n 's/ cases of correct implementations$//p' "$zoo/matrix.txt")
ok $((cases < 2000)) "$cases cases of correct implementations"

"$ATTNBENCH" verify --device cpu --plugin "$zoo/window-one-wide.so" --impl mutant/window-one-wide \
  --minimize 'b=2 hq=6 hkv=3 sq=97 sk=151 d=64 mask=window:31:0 softcap=20' > "$zoo/small.txt" 2>&1
is "$(sed -n 's/^smallest  *[^ ]* *//p' "$zoo/small.txt")" \
  "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=1 sk=33 d=8 mask=window:31:0" "--minimize finds the smallest failure"

stale=$zoo/stale.mutant
printf 'file: impl/cpu/plan.c\nimpl: cpu/flash\n@@@\nno such line\n===\nanother\n' > "$stale"
ONLY=$stale sh "$here/build.sh" "$root" "$config" "$zoo" > "$zoo/stale.log" 2>&1
differ $? 0 "a fault whose text has gone from the source fails the build"
is "$(grep -c 'not in the file' "$zoo/stale.log")" 1 "and says so"
printf 'file: impl/cpu/plan.c\nimpl: cpu/flash\n@@@\n{\n===\nanother\n' > "$stale"
ONLY=$stale sh "$here/build.sh" "$root" "$config" "$zoo" > "$zoo/stale.log" 2>&1
differ $? 0 "so does one whose text is there twice"

rm -rf "$zoo"
done_testing
