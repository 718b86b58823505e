#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The gate as it was measured on a GPU (profiles/gate): what doc/gate.md shows is what build-aux/prove
# --tables makes of the records, and the records hold what is promised: a slowdown of 2 % found in 95 %
# of 40 trials at least and one of 1 % in 80 %; one false alarm in 300 comparisons at most, and 95 % of
# medians within 1 % from run to run; events, graph and activity within 2 % of the one in the middle above
# 50 us; bytes read by CUPTI and by ncu within 1 %; run --quick in a minute, the default suite
# in 15 minutes with at most 15 % of overhead.
. "$srcdir/tests/tap.sh"

gate=$srcdir/profiles/gate doc=$srcdir/doc/gate.md
dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-record.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
sh "$srcdir/build-aux/prove" --tables "$gate" > "$dir/tables"
is $? 0 "the records make tables"

sed -n '/<!-- \(power\|aa\|methods\|bytes\|walls\) -->/,/<!-- end of/p' "$doc" | grep -v '^<!--\|^$\|^```' | sort > "$dir/shown"
sort "$dir/tables" > "$dir/made"
comm -3 "$dir/shown" "$dir/made" | sed 's/^/# only in one of them: /'
cmp -s "$dir/shown" "$dir/made"
ok $? "doc/gate.md shows them as they are"

# of TABLE COLUMN ROW: a number of a Markdown row
cell() { awk -F'|' -v c="$2" '{ gsub(/[^0-9.]/, "", $(c + 1)); print $(c + 1) }' "$1"; }
# all FILE COLUMN CONDITION: holds of every row
all() { cell "$1" "$2" | awk -v n=0 "{ n++; if (!($3)) bad = 1 } END { exit bad || !n }"; }

if [ -f "$gate/power.jsonl" ]; then
  for more in 1:0.8 2:0.95; do
    grep "^| ${more%:*} % |" "$dir/tables" > "$dir/row"
    awk -F'|' -v least="${more#*:}" '{ exit !($5 >= 40 && $4 >= least * $5) }' "$dir/row"
    ok $? "a slowdown of ${more%:*} % is found often enough: $(cat "$dir/row")"
    all "$dir/row" 2 "\$1 < ${more%:*} * 1.15"
    ok $? "and is no larger than said"
  done
fi
if [ -f "$gate/aa.txt" ]; then
  said=$(grep '^time .*false alarms' "$gate/aa.txt")
  echo "$said" | awk '{ exit !($2 <= 1 && $6 >= 300) }'
  ok $? "$said"
  said=$(grep '^time .*of medians within' "$gate/aa.txt")
  echo "$said" | awk '{ exit !($2 >= 95) }'
  ok $? "$said"
fi
if [ -f "$gate/methods.jsonl" ]; then
  grep '^| `op=' "$dir/tables" > "$dir/rows"
  all "$dir/rows" 5 "\$1 <= 2"
  ok $? "three clocks agree: $(wc -l < "$dir/rows") kernels"
fi
if [ -f "$gate/bytes.txt" ]; then
  grep '^| cuda/' "$dir/tables" > "$dir/rows"
  all "$dir/rows" 4 "\$1 <= 1"
  ok $? "two counters agree: $(wc -l < "$dir/rows") kernels"
fi
if [ -f "$gate/quick.txt" ]; then
  grep '^| `attnbench run --quick` ' "$dir/tables" > "$dir/row"
  all "$dir/row" 2 '$1 < 60'
  ok $? "run --quick takes less than a minute: $(cat "$dir/row")"
fi
if [ -f "$gate/default.txt" ]; then
  grep '^| `attnbench run` ' "$dir/tables" > "$dir/row"
  all "$dir/row" 2 '$1 < 900' && all "$dir/row" 6 '$1 < 15'
  ok $? "the default suite less than 15 minutes, of them less than 15 % overhead: $(cat "$dir/row")"
fi
done_testing
