#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# attnbench run and verify on device cpu: records appear, survive, resume; plugins are treated like
# built-ins; a wrong one is caught.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-run.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
problem='op=fwd dtype=bf16 b=1 hq=2 hkv=1 sq=65 sk=65 d=64 mask=causal'
out=$dir/records.jsonl

"$ATTNBENCH" run --device cpu --quick --quiet --out "$out" "$problem" > "$dir/log" 2>&1
is $? 0 "run exits 0"
n=$(wc -l < "$out")
ok $((n < 2)) "run wrote $n records"
passed=$((n - $(grep -c '"status":"unsupported","reason":"\(only op=rope\|no pages that\)' "$out")))
is "$(grep -c '"status":"pass"' "$out")" "$passed" "all that compute attention pass"
wall=$(grep '^wall' "$dir/log")
sum=$(echo "$wall" | grep -o '[a-z ]* [0-9.]* %' | grep -v overhead | awk '{ s += $(NF - 1) } END { print (s > 99 && s < 101) }')
is "$sum" 1 "the parts of the wall time make 100 %: $wall"
is "$(grep -c '"source":"io-model"' "$out")" "$passed" "all counted by the machine"
is "$(grep -c "\"problem\":\"$problem\"" "$out")" "$n" "all name the problem canonically"
is "$(grep -c '"impl_hash":"[0-9a-f]\{64\}"' "$out")" "$n" "all carry the hash of their sources"

"$ATTNBENCH" run --device cpu --quick --quiet --resume --out "$out" "$problem" > "$dir/log" 2>&1
is "$(wc -l < "$out")" "$n" "--resume repeats nothing"
printf '{"schema":1,"prob' >> "$out"
"$ATTNBENCH" verify --device cpu --quiet --impl cpu/flash --out "$out" "$problem" > "$dir/log" 2>&1
is $? 0 "verify appends behind a torn line"
is "$(grep -c '"status":"pass"' "$out")" $((passed + 1)) "and loses no record"

if [ -w /dev/full ]; then
  "$ATTNBENCH" verify --device cpu --quiet --out /dev/full "$problem" > /dev/null 2> "$dir/err"
  is $? 3 "a full disk exits 3"
  is "$(grep -c 'No space left' "$dir/err")" 1 "and says so"
fi

repro=$(sed -n '1s/.*"repro":"\([^"]*\)".*/\1/p' "$out")
PATH=$(dirname "$ATTNBENCH"):$PATH sh -c "$repro" > "$dir/log" 2>&1
is $? 0 "a record's repro line runs: $repro"

plugin=$builddir/tests/plugin
case $plugin in /*) ;; *) plugin=$PWD/$plugin ;; esac
"$ATTNBENCH" run --device cpu --quick --quiet --plugin "$plugin/plain.so" --impl plugin/plain \
  --out "$dir/plugin.jsonl" "$problem" 'hq=3 sq=33 sk=57 d=32' > "$dir/log" 2>&1
is $? 0 "the example plugin is verified and timed"
is "$(grep -c '"median_s":[0-9]' "$dir/plugin.jsonl")" 2 "its records carry a time"
"$ATTNBENCH" run --device cpu --quick --quiet --plugin "$plugin/wrong.so" --impl plugin/plain \
  --out "$dir/wrong.jsonl" "$problem" > "$dir/log" 2>&1
is $? 1 "a wrong plugin exits 1"
is "$(grep -c '"status":"fail"' "$dir/wrong.jsonl")" 1 "its record says fail"
is "$(grep -c '"median_s":[0-9]' "$dir/wrong.jsonl")" 0 "and carries no speed"

mkdir "$dir/folder"
echo 'dtype=fp32 hq=1 sq=8 d=8' > "$dir/folder/own.suite"
"$ATTNBENCH" verify --device cpu --impl cpu/naive --suite "$dir/folder/own.suite" --out "$dir/suite.jsonl" > "$dir/log" 2>&1
is "$(grep -c '"suite":"own"' "$dir/suite.jsonl")" 1 "a record names a file of problems, and not where it lay"

# On a terminal the progress line gives way to rows: each begins a line. Elsewhere there is none.
if [ "$(script -qc true /dev/null < /dev/null > "$dir/log" 2>&1 && echo there)" = there ]; then
  script -qc "'$ATTNBENCH' verify --device cpu --rows 2 --impl cpu/naive 'dtype=fp32 hq=1 sq=8,9,10 d=8'" /dev/null \
    < /dev/null > "$dir/terminal"
  erase=$(printf 's/.*\r\033\\[K//')
  is "$(sed "$erase" "$dir/terminal" | grep -c '^pass ')" 3 "on a terminal a row begins a line"
  is "$(grep -c 'left.*pass' "$dir/terminal" | awk '{ print ($1 > 0) }')" 1 "behind the progress line that it clears"
fi
"$ATTNBENCH" verify --device cpu --rows 2 --impl cpu/naive 'dtype=fp32 hq=1 sq=8,9,10 d=8' > "$dir/log" 2> "$dir/err"
is "$(wc -c < "$dir/err")" 0 "quiet where there is no terminal"

long='op=fwd dtype=bf16 b=1 hq=1 sq=131072 d=128 mask=causal'
"$ATTNBENCH" verify --device cpu --impl cpu/naive --out "$dir/long.jsonl" "$long" > "$dir/log" 2>&1
is "$(grep -c 'GiB' "$dir/long.jsonl")" 1 "naive at 131072 tokens is refused in GiB"

done_testing
