#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Law: every sentence of reference/SEMANTICS is named by a test that runs and passes. A test names
# its sentences by beginning with their numbers: "2.4", "1.2-1.5, 3.1", "[8.4]-[8.13]".
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-semantics.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT

sed -n 's/^\([0-9][0-9]*\.[0-9][0-9]*\) .*/\1/p' "$srcdir/reference/SEMANTICS" > "$dir/sentences"
n=$(wc -l < "$dir/sentences")
ok $((n < 60)) "SEMANTICS has $n numbered sentences"
is "$(sort "$dir/sentences" | uniq -d)" "" "no number is there twice"

for source in "$srcdir"/tests/unit/*.c; do
  grep -q '"\[\{0,1\}[1-9]\.[0-9][0-9]*[] ,-]' "$source" || continue
  program=$builddir/tests/unit/$(basename "$source" .c)
  [ -x "$program" ] && "$program"
done > "$dir/said" 2> /dev/null

# "ok 7 - 1.2-1.5, 3.1 words" -> 1.2 1.3 1.4 1.5 3.1
tr -d '[]' < "$dir/said" | awk '/^ok [0-9]+ - [1-9]\.[0-9]/ {
  for (i = 4; i <= NF; i++) {
    word = $i
    sub(/[,:]$/, "", word)
    if (word !~ /^[1-9]\.[0-9]+(-[1-9]\.[0-9]+)?$/) break
    split(word, ends, "-")
    split(ends[1], from, ".")
    split(ends[2] == "" ? ends[1] : ends[2], to, ".")
    for (k = from[2]; k <= to[2] + 0; k++) print from[1] "." k
  }
}' | sort -u > "$dir/tested"
while read -r sentence; do
  grep -qxF "$sentence" "$dir/tested"
  ok $? "$sentence is tested"
done < "$dir/sentences"
sort "$dir/sentences" | comm -13 - "$dir/tested" > "$dir/strays"
is "$(xargs < "$dir/strays")" "" "no test names a sentence that is not there"
done_testing
