#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# attnbench report: exit codes, one-line errors, and what it says about lines that it left out.
. "$srcdir/tests/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
"$builddir/tests/records/synthetic" > "$tmp/results.jsonl"
is $? 0 "the synthetic records are written"

said=$("$ATTNBENCH" report "$tmp/results.jsonl" --out "$tmp/report" 2>&1)
is $? 0 "report exits 0"
case $said in *"$tmp/report/index.html"*) ok 0 "it says where the page is" ;; *) ok 1 "it says where the page is" ;; esac
test -s "$tmp/report/index.html"
ok $? "the page is there"
test -s "$tmp/report/tables/results.csv"
ok $? "so are the tables"

ls "$tmp/report/figures" 2> /dev/null | grep -q rotation
differ $? 0 "no figure of rotation without records of op=rope"
"$ATTNBENCH" verify --device cpu --impl 'cpu/rope*' --quiet --out "$tmp/rope.jsonl" \
  'op=rope dtype=fp32 sq=4 sk=1k..4k d=16 rope=none,linear:4,ntk:16' > /dev/null 2>&1
is "$(grep -c '"rope":{"position":[0-9]*,"angle_max_rad":[0-9.e-]*,"angle_rms_rad":[0-9.e-]*,"logit_rel":[0-9.e-]*}' "$tmp/rope.jsonl")" 18 \
  "records of op=rope say how far angles and logits are off"
"$ATTNBENCH" report "$tmp/rope.jsonl" --out "$tmp/rope" > /dev/null 2>&1
is $? 0 "they make a report"
if command -v gnuplot > /dev/null; then
  is "$(ls "$tmp/rope/figures" | grep -c 'rotation-.*svg')" 2 "with a figure for each implementation"
fi

"$ATTNBENCH" run --quick --no-counters --impl cpu/flash --out "$tmp/single.jsonl" \
  'op=append dtype=fp32 b=1 sq=8 sk=64 d=16' 'op=append dtype=fp32 b=1 sq=8 sk=64 d=16 page=16' \
  'op=fwd dtype=fp32 b=1 hq=1 sq=16,32 d=16' > /dev/null 2>&1
"$ATTNBENCH" report "$tmp/single.jsonl" --out "$tmp/single" > /dev/null 2>&1
is "$?: $(grep -c '^set ytics' "$tmp/single/figures/single.gp")" "0: 1" "problems without a curve are dots"
is "$(sed -n '/^set ytics/p' "$tmp/single/figures/single.gp" | grep -c "(''\|, ''")" 0 \
  "each with a label, that which has all its words in common with the others, too"

"$ATTNBENCH" report "$srcdir/profiles/baselines/h200-deterministic.jsonl" --out "$tmp/points" > /dev/null 2>&1
is $? 0 "rows without an interval make a report"
if command -v gnuplot > /dev/null; then
  svg=$tmp/points/figures/single.svg
  is "$(grep -c 'rgb( *0, *114, *178)' "$svg" | awk '{ print ($1 > 0) }') $(grep -c "rgb( *0, *114, *178).*d='M520\." "$svg")" \
    "1 0" "they are dots, and no error bar stands at the axis"
  grep -q "rgb( *0, *114, *178).*d='M" "$tmp/single/figures/single.svg"
  ok $? "rows with one have it"
  # An error bar is three strokes.
  strokes() { awk '/rgb\( *0, *114, *178\)/ { on = 1 } on { n += gsub(/M[0-9]/, "") } /\/>/ { on = 0 } END { print n }' "$@"; }
  sed '/op=fwd.*sk=32/s/"ci_lo_s":[^,]*,"ci_hi_s":[^,]*/"ci_lo_s":null,"ci_hi_s":null/' "$tmp/single.jsonl" > "$tmp/some.jsonl"
  "$ATTNBENCH" report "$tmp/some.jsonl" --out "$tmp/some" > /dev/null 2>&1
  is $(($(strokes "$tmp/single/figures/throughput-fwd.svg") - $(strokes "$tmp/some/figures/throughput-fwd.svg"))) 3 \
    "a point of a curve without one has none"
fi

printf '{"schema":1,"prob' >> "$tmp/results.jsonl"
said=$("$ATTNBENCH" report "$tmp/results.jsonl" --out "$tmp/report" 2>&1)
is $? 0 "a torn last line is no failure"
case $said in *"skipped 1 torn"*) ok 0 "but it is said" ;; *) ok 1 "but it is said" ;; esac

# A kill matrix, alone and beside records.
matrix=$srcdir/profiles/baselines/zoo-cpu.jsonl
rows=$(wc -l < "$matrix")
said=$("$ATTNBENCH" report "$matrix" --out "$tmp/matrix" 2>&1)
is $? 0 "a kill matrix alone makes a report"
case $said in *"0 records, $rows rows of a kill matrix"*) ok 0 "it says what it read" ;; *) ok 1 "it says what it read: $said" ;; esac
is "$(grep -c '^| cpu | attnbench, all of it ' "$tmp/matrix/tables/scores.md")" 1 "its scores are a table"
is "$(($(wc -l < "$tmp/matrix/tables/matrix.csv") - 1))" "$rows" "so is every planted fault"
case $(cat "$tmp/matrix/index.html") in *'id="table-scores"'*) ok 0 "the page has them" ;; *) ok 1 "the page has them" ;; esac
"$ATTNBENCH" report "$tmp/results.jsonl" "$matrix" --out "$tmp/both" > /dev/null 2>&1
is $? 0 "records and a kill matrix make one report"
cmp -s "$tmp/both/tables/results.csv" "$tmp/report/tables/results.csv"
ok $? "with the same results"
cmp -s "$tmp/both/tables/scores.csv" "$tmp/matrix/tables/scores.csv"
ok $? "and the same scores"
"$ATTNBENCH" report "$tmp/results.jsonl" --out "$tmp/both" > /dev/null 2>&1
is "$(ls "$tmp/both/tables" | grep -c 'matrix\|scores\|serving')" 0 \
  "a report in the same folder leaves no table of what it has no row of"
said=$("$ATTNBENCH" report "$srcdir/README.md" --out "$tmp/none" 2>&1)
is $? 2 "what is neither is refused"

# bad PATTERN ARGS...
bad() {
  pattern=$1
  shift
  said=$("$ATTNBENCH" report "$@" 2>&1)
  is $? 2 "exit 2: $pattern"
  is "$(printf '%s\n' "$said" | wc -l)" 1 "one line: $pattern"
  case $said in *"$pattern"*) ok 0 "says: $pattern" ;; *) printf '# %s\n' "$said"; ok 1 "says: $pattern" ;; esac
}
: > "$tmp/empty.jsonl"
bad "no record to report" "$tmp/empty.jsonl" --out "$tmp/report"
bad "cannot read" "$tmp/nowhere.jsonl" --out "$tmp/report"
bad "is not a folder" "$tmp/results.jsonl" --out "$tmp/empty.jsonl"

done_testing
