#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# compare, aa and history from the command line: exit codes, formats, and a planted slowdown found by
# files, by implementations, by plugins and by binaries.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-gate.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
steady=$(cd "$builddir" && pwd)/tests/steady
problem='dtype=fp32 b=1 hq=1 sq=16 sk=32 d=16'
run() { "$ATTNBENCH" run --device cpu --quiet --samples 3 --processes 5 "$@" > "$dir/log" 2>&1; }
attn() { "$ATTNBENCH" "$@" > "$dir/out" 2> "$dir/err"; }
# says PATTERN NAME: in what the last attn printed
says() { grep -q "$1" "$dir/out"; ok $? "$2"; }
line() { is "$(wc -l < "$dir/err")" 1 "in one line: $(cat "$dir/err")"; }

# ---- files

run --plugin "$steady/before.so" --impl steady/a --out "$dir/base.jsonl" "$problem"
run --plugin "$steady/before.so" --impl steady/a --out "$dir/same.jsonl" "$problem"
run --plugin "$steady/after.so" --impl steady/a --out "$dir/slow.jsonl" "$problem"
is "$(grep -c '"inputs":{"distribution":"normal","seed":1}' "$dir/base.jsonl")" 1 \
  "a record says what its inputs were drawn from"
attn compare "$dir/base.jsonl" "$dir/slow.jsonl"
is $? 1 "six times as slow exits 1"
says '^slower  *time  *steady/a .*dtype=fp32' "and says which"
attn compare "$dir/slow.jsonl" "$dir/base.jsonl"
is $? 0 "six times as fast exits 0"
says '^faster  *time' "and says so"
attn compare --quantities bytes,workspace,error --all "$dir/base.jsonl" "$dir/slow.jsonl"
is $? 0 "without time nothing changed"
says '^same  *error' "--all lists what is the same"
attn compare --format junit "$dir/base.jsonl" "$dir/slow.jsonl"
is $? 1 "--format changes no exit code"
says 'failures="1"' "junit counts one failure"
if command -v xmllint > /dev/null; then
  xmllint --noout "$dir/out"
  ok $? "junit is XML"
fi
attn compare --format tap "$dir/base.jsonl" "$dir/slow.jsonl"
is "$(grep -c '^not ok' "$dir/out")" 1 "tap: one not ok"
is "$(grep -c '^\(not \)*ok' "$dir/out")" "$(sed -n 's/^1\.\.//p' "$dir/out")" "tap: the plan holds"
attn compare --format annotations "$dir/base.jsonl" "$dir/slow.jsonl"
says '^::error title=time slower::steady/a .*%25' "annotations: an error, escaped"
attn compare --format markdown "$dir/base.jsonl" "$dir/slow.jsonl"
says '^| \*\*slower\*\* | time |' "markdown: a row"
# Cells that differ in cache state alone, and a verdict that changed: every test has its own name, and
# says what happened once.
sed 's/"cache":"cold"/"cache":"warm"/' "$dir/base.jsonl" | cat "$dir/base.jsonl" - > "$dir/both.jsonl"
sed 's/"status":"pass"/"status":"crash"/' "$dir/both.jsonl" > "$dir/crash.jsonl"
for format in junit tap annotations; do
  attn compare --format $format "$dir/both.jsonl" "$dir/crash.jsonl"
  is "$? $(grep -c 'pass -.*crash' "$dir/out")" "1 2" "$format: two new failures"
  is "$(grep -c 'changed.*changed' "$dir/out")" 0 "$format: each says once that the verdict changed"
  is "$(grep -c 'warm, rested' "$dir/out") $(grep -c 'cold, rested' "$dir/out")" "1 1" \
    "$format: they are told apart"
done

sed 's/"status":"pass"/"status":"fail"/' "$dir/same.jsonl" > "$dir/fail.jsonl"
attn compare "$dir/base.jsonl" "$dir/fail.jsonl"
is $? 1 "a new failure exits 1"
says 'failing.*verdict changed: pass -> fail' "and says so"
sed 's/"seed":1}/"seed":2}/' "$dir/same.jsonl" > "$dir/seed.jsonl"
attn compare "$dir/base.jsonl" "$dir/seed.jsonl"
is $? 2 "other inputs are refused"
line
attn compare --anyway "$dir/base.jsonl" "$dir/slow.jsonl"
is $? 1 "--anyway compares"
echo '{"schema":1,"prob' >> "$dir/seed.jsonl"
attn compare --anyway "$dir/base.jsonl" "$dir/seed.jsonl"
grep -q 'skipped 1 line ' "$dir/err"
ok $? "lines that are no records are counted"

# What one side alone has is no silence.
run --impl cpu/naive --out "$dir/counted.jsonl" "$problem"
sed 's/"dram_read_bytes":[0-9.e+]*/"dram_read_bytes":null/; s/"samples_s":\[[^]]*\]/"samples_s":[]/' "$dir/counted.jsonl" > "$dir/blind.jsonl"
attn compare "$dir/counted.jsonl" "$dir/blind.jsonl"
says '^bytes: 1 not compared' "bytes that were not counted are told"
says '^time: 1 not compared' "and times that are missing"
sed 's/"status":"pass"/"status":"fail"/' "$dir/base.jsonl" > "$dir/none-passes.jsonl"
for args in "$dir/none-passes.jsonl $dir/none-passes.jsonl" "--out $dir/no-floor.json $dir/blind.jsonl $dir/blind.jsonl"; do
  # shellcheck disable=SC2086
  attn aa $args
  is "$? $(wc -l < "$dir/err")" "2 1" "aa without anything to compare exits 2, in one line"
done
[ ! -e "$dir/no-floor.json" ]
ok $? "and writes no floor"

"$ATTNBENCH" serve --requests 1 --layers 1 --quiet --out "$dir/served.jsonl" > /dev/null
cat "$dir/base.jsonl" "$dir/served.jsonl" > "$dir/mixed.jsonl"
attn compare --quantities bytes "$dir/base.jsonl" "$dir/mixed.jsonl"
is "$? $(grep -c 'skipped 2 records of serve' "$dir/err")" "0 1" "records of serve are skipped, and told"

sed 's/sq=16/sq=17/' "$dir/base.jsonl" > "$dir/other.jsonl" # no case in common
for args in "compare" "compare $dir/base.jsonl" "compare $dir/base.jsonl $dir/none.jsonl" \
  "compare --ab steady/a" "compare --ab no/such cpu/flash" "compare --ab cpu/flash cpu/flash" \
  "compare --format pony a b" "compare $dir/served.jsonl $dir/served.jsonl" \
  "aa $dir/served.jsonl $dir/base.jsonl" "compare --quantities pony a b" \
  "compare --floor $dir/base.jsonl $dir/base.jsonl $dir/same.jsonl" "aa $dir/base.jsonl" \
  "history $dir/base.jsonl" "history $dir/base.jsonl $dir/none.jsonl" \
  "history $dir/base.jsonl $dir/other.jsonl" "history $dir/base.jsonl $dir/seed.jsonl" \
  "aa $dir/none.jsonl" "aa $dir/none.jsonl $dir/base.jsonl" "aa $dir/base.jsonl sq=64" \
  "compare --floor $dir/none.json $dir/base.jsonl $dir/same.jsonl"; do
  # shellcheck disable=SC2086
  attn $args
  is $? 2 "exit 2: $(echo "$args" | sed "s|$dir/||g")"
  line
done

# ---- now

attn compare --ab --device cpu --samples 3 --processes 6 --plugin "$steady/before.so" \
  steady/a steady/b "$problem"
is $? 1 "--ab of implementations: the slower one exits 1"
says '^slower  *time  *steady/b' "and is named"
attn compare --ab --device cpu --samples 3 --processes 6 --plugin "$steady/before.so" \
  steady/b steady/a "$problem"
is $? 0 "the faster one exits 0"
attn compare --ab --device cpu --samples 3 --processes 4 --impl steady/a --keep "$dir/kept" \
  "$steady/before.so" "$steady/after.so" "$problem"
is $? 1 "--ab of plugins"
says '^slower  *time  *steady/a' "says which implementation"
is "$(wc -l < "$dir/kept/ab-a.jsonl") $(wc -l < "$dir/kept/ab-b.jsonl")" "4 4" \
  "--keep keeps a record a round and side"
[ -s "$dir/kept/confirm-b.jsonl" ]
ok $? "what looked slower was measured again"
attn compare --ab --device cpu --samples 3 --processes 2 --plugin "$steady/before.so" \
  --impl steady/a --quantities bytes,workspace,error "$ATTNBENCH" "$ATTNBENCH" "$problem"
is $? 0 "--ab of binaries"
attn compare --ab --device cpu --samples 3 --processes 1 /bin/true "$ATTNBENCH" "$problem"
is "$? $(grep -c 'true: the run wrote no records' "$dir/err")" "3 1" "--ab of another program says so"
line
is "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'attnbench.??????' -newer "$dir/base.jsonl" | wc -l)" 0 \
  "nothing is left in the temporary folder"

# ---- noise

attn aa --device cpu --samples 3 --processes 2 --comparisons 2 --impl cpu/naive \
  --out "$dir/floor.json" --keep "$dir/runs" "$problem"
is $? 0 "aa exits 0"
for q in bytes workspace error; do
  says "^$q  *0 false alarms in 2 comparisons" "no false alarm of $q"
done
is "$(grep -c '"impl": "cpu/naive"' "$dir/floor.json")" 1 "the floor has its cell"
attn aa "$dir/runs/run1.jsonl" "$dir/runs/run2.jsonl" "$dir/runs/run3.jsonl"
is $? 0 "aa of files exits 0"
says '^2 comparisons a cell: a floor is 10 times' "and says how wide two comparisons make a floor"
cp "$dir/floor.json" "$dir/kept.json"
attn aa --out "$dir/nowhere/floor.json" --device cpu --samples 400 "$problem"
is "$? $(wc -c < "$dir/out")" "3 0" "an --out that cannot be written is told before anything is measured"
line
(ulimit -f 0 && attn aa --out "$dir/floor.json" "$dir/runs/run1.jsonl" "$dir/runs/run2.jsonl") 2> /dev/null
is "$? $(cmp "$dir/floor.json" "$dir/kept.json" 2>&1)" "3 " "a full disk leaves the floor that was there"
is "$(find "$dir" -name '*.part' | wc -l)" 0 "and no part of another"
# floor X: as if steady/a had been measured
floor() { sed "s|cpu/naive|steady/a|; s|\"floor\": .*|\"floor\": $1,|" "$dir/floor.json"; }
floor 0.5 > "$dir/low.json"
attn compare --floor "$dir/low.json" "$dir/base.jsonl" "$dir/slow.jsonl"
is $? 1 "with a floor of 50 % six times as slow is slower"
floor 50 > "$dir/high.json"
attn compare --floor "$dir/high.json" "$dir/base.jsonl" "$dir/slow.jsonl"
is $? 0 "with one of 5000 % it is not"
sed 's|"processes": 2|"processes": 9|' "$dir/low.json" > "$dir/more.json"
attn compare --floor "$dir/more.json" "$dir/base.jsonl" "$dir/slow.jsonl"
grep -q 'floor: not used: it holds for 9 processes a side, and here are 5' "$dir/err"
ok $? "a floor of more processes is not used, and that is said"

# ---- history

files=
for i in 01 02 03 04 05 06 07 08 09 10 11 12 13 14; do
  f=$dir/h$i.jsonl
  if [ $i -le 08 ]; then from=base; else from=slow; fi
  # a little noise, so that levels are not constants
  awk -v i=$i '{ gsub(/"run_id":"[^"]*"/, "\"run_id\":\"" i "\"") } 1' "$dir/$from.jsonl" > "$f"
  files="$files $f"
done
# shellcheck disable=SC2086
attn history --out "$dir/plot" $files
is $? 0 "history exits 0"
is "$(grep -c '^slower  *time' "$dir/out")" 1 "and finds one change of time"
says 'since .*h09.jsonl, the 9. of 14' "where it happened"
echo 'torn {' >> "$dir/h03.jsonl"
# shellcheck disable=SC2086
attn history $files
is "$? $(grep -c 'skipped 1 line' "$dir/err")" "0 1" "lines that are no records are told"
attn history --anyway "$dir/base.jsonl" "$dir/seed.jsonl"
is $? 0 "--anyway takes other inputs"
says 'fewer than 12 hardly any' "two files are said to be too few"
attn history --out "$dir/few" "$dir/base.jsonl" "$dir/same.jsonl"
says 'no figure: nothing changed' "and why nothing is drawn"
[ -s "$dir/plot/history.gp" ] && [ -s "$dir/plot/history.dat" ]
ok $? "the plot's script and data"
if command -v gnuplot > /dev/null; then
  grep -q '</svg>' "$dir/plot/history.svg"
  ok $? "and the plot"
fi

done_testing
