#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Law: attnbench serve runs every scenario to its end on the cpu device, and on a GPU where there is
# one; bad input is one line that says what, where and what to do; an interrupt keeps what was
# measured.
. "$srcdir/tests/tap.sh"

traces=$srcdir/tests/traces
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# bad PATTERN ARGS...: exit code 2, one line on stderr
bad() {
  pattern=$1
  shift
  err=$("$ATTNBENCH" serve "$@" 2>&1 >/dev/null)
  is "$?" 2 "exit 2: $*"
  is "$(printf '%s\n' "$err" | wc -l)" 1 "one line: $*"
  case $err in
    *"$pattern"*) ok 0 "says \"$pattern\"" ;;
    *) printf '# %s\n' "$err"; ok 1 "says \"$pattern\"" ;;
  esac
}

has() { case $1 in *"$2"*) ok 0 "$3" ;; *) printf '# %s\n' "$1"; ok 1 "$3" ;; esac; }

bad "no such scenario" pony
bad "one scenario at a time" replay prefill
bad "no such model" --model "$(printf '%0100d' 0)"
bad "model=pony" --model pony
bad "--impl cpu/pony" --impl cpu/pony
bad "cannot read the trace" --trace /nonexistent/trace
bad "binary" --trace "$ATTNBENCH"
bad "row 1: 1104 tokens" --trace "$traces/mooncake.jsonl" --context 1k
bad "--kv-memory" --trace "$traces/mooncake.jsonl" --kv-memory 1M
bad "holds no page" --kv-memory 1k
bad "--budget" --batch 64 --budget 32
bad "only pages can be shared" --contiguous --prefix on
bad "--rate" --rate 0
bad "--prefix" --prefix maybe
bad "rope" --rope pony:4
bad "give at least 256" rope --context 128
bad "give at most" rope --context 2k
bad "has 4" --layers 5
bad "the cache has 6" --model llama3-70b --requests 1
bad "choose another --impl" --impl cpu/rope --requests 1
bad "--shares" prefill --shares 50,25
bad "--shares" prefill --shares 100
# What a scenario would ignore is refused, and what has no place, before anything is computed.
bad "it is of replay, memory" prefill --trace "$traces/azure.csv"
bad "serve rope has no use for --rope" rope --rope yarn:4
bad "serve memory has no use for --rate" memory --rate 2
bad "it is of prefill" fork --shares 50
bad "it is of replay" heads --prefix off
bad "it compares both" memory --contiguous
bad "row 1: 1104 tokens" memory --trace "$traces/mooncake.jsonl" --context 1k
bad "--context 1603, which takes them all" --trace "$traces/mooncake.jsonl" --context 1k
for words in "prefill --lengths 64,3000" "heads --lengths 2040" "fork --lengths 64,2048" \
  "heads --kv-memory 100k" "fork --contiguous" "fork --lengths 64 --kv-memory 64k"; do
  # shellcheck disable=SC2086
  bad "" $words
  # shellcheck disable=SC2086
  is "$("$ATTNBENCH" serve $words 2> /dev/null)" "" "and no heading of a table without rows: $words"
done
has "$("$ATTNBENCH" serve fork --lengths 64,2048 2>&1)" "--lengths 2048: with 1 of output 2049 tokens, the context is 2048" "a length is named"
# On a GPU the same scenarios; without one a reason.
if "$ATTNBENCH" list --device cuda 2> /dev/null | grep -q 'cuda *present'; then
  for words in "replay --requests 5" "prefill --lengths 64,600 --repeat 1" "fork --lengths 100" \
    "heads --model tiny-mha,tiny-mqa --lengths 64 --repeat 1 --batch 4" "rope --context 256"; do
    # shellcheck disable=SC2086
    "$ATTNBENCH" serve --device cuda --model tiny-gqa --kv-memory 64M $words > "$tmp/gpu" 2>&1
    is $? 0 "on a GPU: $words"
    sed 's/^/# /' "$tmp/gpu"
  done
else
  "$ATTNBENCH" serve --device cuda --requests 1 > /dev/null 2>&1
  code=$?
  ok "$(case $code in 2|3) echo 0 ;; *) echo 1 ;; esac)" "--device cuda is refused with a reason, exit $code"
fi
echo '{"timestamp": 3' > "$tmp/torn"
bad "row 1" --trace "$tmp/torn"
sed 's/"timestamp": 450/"timestamp": 250/' "$traces/mooncake.jsonl" > "$tmp/back"
bad "row 5: the clock goes back" --trace "$tmp/back"

out=$("$ATTNBENCH" serve --trace "$traces/mooncake.jsonl" --layers 1 --out "$tmp/records")
is $? 0 "a Mooncake trace to its end"
has "$out" "agrees" "its hits are those of the recount"
is "$(wc -l < "$tmp/records")" 2 "a record without the prefix cache and one with it"
ok "$(grep -c '"pages_leaked":0' "$tmp/records" | awk '{ print $1 != 2 }')" "no page leaks"
ok "$(grep -c '"status":"pass"' "$tmp/records" | awk '{ print $1 != 2 }')" "both are verified"
"$ATTNBENCH" serve --trace "$traces/azure.csv" --layers 1 --quiet
is $? 0 "an Azure trace to its end"
"$ATTNBENCH" serve --trace "$traces/azure.csv" --layers 1 --contiguous --impl cpu/naive,cpu/split-decode --quiet
is $? 0 "contiguous, with naive attention and split decode"

# Every scenario's records become a page, tables and figures.
for words in "prefill --lengths 64,128 --repeat 2 --shares 30,90" "heads --lengths 64 --repeat 1 --batch 4" \
  "memory --trace $traces/azure.csv" "fork --lengths 100" "rope --context 256"; do
  # shellcheck disable=SC2086
  out=$("$ATTNBENCH" serve $words --layers 1 --out "$tmp/records")
  is $? 0 "serve $words"
  case $words in
    rope*) has "$out" "as it should" "the heads find what each scaling keeps" ;;
    fork*) has "$out" " 0 " "forking adds no KV bytes" ;;
  esac
done
is "$(grep -o '"trace":"[^"]*"' "$tmp/records" | sort | uniq -c | tr -s ' \n' ' ')" \
  ' 1 "trace":"azure.csv" 2 "trace":"mooncake.jsonl" ' "records name a trace without its folders"
is "$(grep -c -- "--trace $traces" "$tmp/records")" 0 "nor do the commands that repeat them"

# The command in a record is one that a shell takes, whatever a file is called.
program=$(cd "$(dirname "$ATTNBENCH")" && pwd)/$(basename "$ATTNBENCH")
attnbench() { "$program" "$@"; }
repro() { sed -n 's/.*"repro":"\(.*\)"}$/\1/p' "$1" | sed 's/\\\(["\\]\)/\1/g'; }
odd=$tmp/odd
mkdir -p "$odd/my plug"
cp "$builddir/tests/serve/short.so" "$odd/my plug/p.so"
# shellcheck disable=SC2016 # to be expanded by nobody
for name in 'my trace.jsonl' 'a"b$(touch x);touch x.jsonl' "it's.jsonl" 'back\slash*.jsonl' '%1,a=b@c+d:e.jsonl'; do
  cp "$traces/mooncake.jsonl" "$odd/$name"
  rm -f "$odd/one" "$odd/two"
  "$ATTNBENCH" serve memory --quiet --plugin "$odd/my plug/p.so" --trace "$odd/$name" --out "$odd/one" > /dev/null
  (cd "$odd" && eval "$(repro one)" --out two) > /dev/null
  is "$? $(repro "$odd/two")" "0 $(repro "$odd/one")" "is repeated by its command: $name"
done
is "$(test -e "$odd/x"; echo $?)" 1 "which runs nothing else"
has "$(repro "$odd/two")" " --trace %1,a=b@c+d:e.jsonl " "what needs no quotes has none"
wild=$(printf 'a\nb.jsonl')
cp "$traces/mooncake.jsonl" "$odd/$wild"
bad 'a\x0ab.jsonl: a record cannot hold' memory --trace "$odd/$wild"
wild=$(printf 'a\377b.jsonl')
cp "$traces/mooncake.jsonl" "$odd/$wild"
bad 'a\xffb.jsonl: a record cannot hold' memory --trace "$odd/$wild"
bad "too long for the command in a record" memory --trace "$(printf '%05000d' 0)"

"$ATTNBENCH" report "$tmp/records" --out "$tmp/report" > /dev/null
is $? 0 "a report of nothing but serving records"
has "$(cat "$tmp/report/tables/serving.md")" "mooncake" "its table has the trace"
has "$(cat "$tmp/report/tables/serving-rope.md")" "yarn:32" "and the scalings"
if [ -n "$(command -v gnuplot)" ]; then
  for name in prefill replay memory heads fork; do
    ok "$(test -s "$tmp/report/figures/serve-$name.svg"; echo $?)" "figure serve-$name"
  done
  is "$(grep -c yerrorlines "$tmp/report/figures/serve-prefill.gp")" 0 "two repeats make no interval, and none is drawn"
fi

is "$(grep "'KV bytes a token' at" "$tmp/report/figures/serve-heads.gp" | grep -vc rotate)" 1 \
  "what a panel shows stands above it, not where tick labels are"

# Names of traces of any length: UTF-8 all the same, and inside the figure at 7 pixels a character.
outside() {
  sed 's/é/e/g' "$1" | awk '/^set lmargin/ { left = 1000 * $NF } /^set rmargin/ { right = 1000 * $NF }
    /^set label/ { split($0, part, "\047"); room = 1000; seen++
      if (/ at graph -0.03,/) room = left - 0.03 * (right - left)
      if (/ at first 101,/) room = 1000 - right - 0.01 * (right - left)
      if (7 * length(part[2]) > room) { n++; print "# " part[2] > "/dev/stderr" } }
    END { print seen ? n + 0 : "no label" }'
}
long=$(printf '%0120d' 0 | sed 's/0/é/g')
sed "s/\"trace\":\"[a-z]*\./\"trace\":\"$long./; s/\"rate\":[0-9][0-9.]*/\"rate\":12.5/
  s/\"memory_bytes\":[0-9]*,\"max_length\"/\"memory_bytes\":1098437885952,\"max_length\"/" "$tmp/records" > "$tmp/named"
"$ATTNBENCH" report "$tmp/named" --out "$tmp/long" > /dev/null
is $? 0 "a report of a trace with a long name"
cat "$tmp"/long/index.html "$tmp"/long/tables/* "$tmp"/long/figures/*.gp | iconv -f UTF-8 -t UTF-8 > /dev/null 2>&1
is $? 0 "is UTF-8"
has "$(cat "$tmp/long/tables/serving.md")" "é... x12.5 |" "the name is cut, the rate is not"
is "$(grep -c 'in 1023 GiB' "$tmp/long/figures/serve-memory.gp")" 2 "the memory is there"
for name in memory replay; do
  is "$(outside "$tmp/long/figures/serve-$name.gp")" 0 "serve-$name: all labels are inside"
done

# Traces that share a name and a number of rows are two measurements.
grep '"scenario":"memory"' "$tmp/records" > "$tmp/one"
sed 's/"used_bytes":/"used_bytes":1/' "$tmp/one" > "$tmp/another"
"$ATTNBENCH" report "$tmp/one" "$tmp/another" --out "$tmp/both" > /dev/null
is "$(grep -c '^[0-9]' "$tmp/both/figures/serve-memory.dat"): $(grep -c 'replaced by a later' "$tmp/both/index.html")" "4: 0" \
  "other tokens under the same name are another trace"
"$ATTNBENCH" report "$tmp/one" "$tmp/one" --out "$tmp/both" > /dev/null
is "$(grep -c '^[0-9]' "$tmp/both/figures/serve-memory.dat"): $(grep -c '1 replaced by a later' "$tmp/both/index.html")" "2: 1" \
  "the same again replaces the first, and the page says so"

# Curves go by length, whatever was measured first, and each finds its rows beside another's shares.
"$ATTNBENCH" serve prefill --lengths 128,32,64 --repeat 1 --shares 30 --layers 1 --quiet --out "$tmp/curves" > /dev/null
"$ATTNBENCH" serve prefill --lengths 64 --repeat 1 --shares 60 --layers 1 --impl cpu/naive --quiet --out "$tmp/curves" > /dev/null
"$ATTNBENCH" report "$tmp/curves" --out "$tmp/by-length" > /dev/null
for stem in serve-prefill serve-prefill-2; do
  is "$(awk '/^#/ { last = 0; next } NF { bad += $1 <= last; last = $1 } END { print bad + 0 }' \
    "$tmp/by-length/figures/$stem.dat")" 0 "$stem: lengths ascend"
  is "$(grep -c '^# tokens' "$tmp/by-length/figures/$stem.dat") $(grep -o 'index [0-9]*' "$tmp/by-length/figures/$stem.gp" | sort -u | wc -l)" \
    "2 2" "$stem: two shares, two blocks"
  is "$(awk '/^#/ { wait = 1; next } NF { n += wait; wait = 0 } END { print n }' "$tmp/by-length/figures/$stem.dat")" 2 \
    "$stem: both have rows"
done

# What was interrupted is told, never hides a whole measurement, and gives way to one.
rows() { grep -c "^| mooncake .*| off | $1 |" "$tmp/partly/tables/serving.md"; }
grep '"prefix_cache":false' "$tmp/records" | head -n 1 > "$tmp/whole"
sed 's/"interrupted":false/"interrupted":true/; s/"completed":8/"completed":3/' "$tmp/whole" > "$tmp/part"
"$ATTNBENCH" report "$tmp/whole" "$tmp/part" --out "$tmp/partly" > /dev/null
is "$(rows 8) $(rows '3 of 8')" "1 1" "an interrupted replay stands beside the whole one"
is "$(grep -c 'cache off, interrupted' "$tmp/partly/figures/serve-replay.gp")" 1 "and is marked in the figure"
"$ATTNBENCH" report "$tmp/part" "$tmp/whole" --out "$tmp/partly" > /dev/null
is "$(rows 8) $(rows '3 of 8')" "1 0" "a whole one after it takes its place"

# Records of two devices: each row names its own, and no title names one of them.
device=$(sed 's/.*"device":{"kind":"[^"]*","name":"\([^"]*\)".*/\1/' "$tmp/whole")
sed "s/\"name\":\"$device\"/\"name\":\"Other Device\"/" "$tmp/records" > "$tmp/other"
"$ATTNBENCH" report "$tmp/records" "$tmp/other" --out "$tmp/two" > /dev/null
for stem in prefill replay memory heads fork; do
  is "$(grep -c "on $device" "$tmp/two/figures/serve-$stem.gp" | awk '{ print ($1 > 0) }')" 1 "serve-$stem: rows name their device"
  is "$(grep -c "· $device" "$tmp/two/figures/serve-$stem.gp")" 0 "and the title names none"
done
is "$(grep -c 'on Other Device' "$tmp/two/tables/serving.md")" 2 "so do rows of the table"

# No speed without a verdict.
rm -f "$tmp/records"
out=$("$ATTNBENCH" serve --plugin "$builddir/tests/serve/short.so" --impl test/short --requests 2 \
  --layers 1 --prefix off --out "$tmp/records" 2> /dev/null)
is $? 1 "attention with one key too few exits 1"
has "$out" "FAIL: logits differ" "and is told"
has "$(cat "$tmp/records")" '"status":"fail"' "its record is a failure"
ok "$(grep -c '"ttft_s"' "$tmp/records")" "and has no times"

# What crashes is told in a line; what hangs ends with the second interrupt. No process is left.
alive() { cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' ' ' | grep -c "[o]ut $tmp/records "; }
cp "$tmp/records" "$tmp/before"
ill() {
  TEST_SHORT=$1
  export TEST_SHORT
  "$ATTNBENCH" serve --plugin "$builddir/tests/serve/short.so" --impl test/short --requests 2 \
    --layers 1 --quiet --out "$tmp/records" 2> "$tmp/err" &
  pid=$!
  unset TEST_SHORT
}
ill crash
wait $pid
is $? 1 "an implementation that crashes exits 1"
is "$(grep -c 'died of signal 6' "$tmp/err") $(wc -l < "$tmp/err")" "1 1" "in one line"
"$ATTNBENCH" serve --requests 2 --layers 1 2> "$tmp/err" | true
is "$(cat "$tmp/err")" "" "a reader that goes away is no crash"
for signal in INT TERM; do
  ill hang
  sleep 1
  kill -$signal $pid
  sleep 1.5
  kill -$signal $pid
  wait $pid
  is $? 130 "one that hangs ends with the second SIG$signal"
  is "$(grep -c 'interrupted twice' "$tmp/err") $(wc -l < "$tmp/err")" "1 1" "in one line"
done
ill hang
sleep 0.5
kill -9 $pid
wait $pid 2> /dev/null
sleep 0.3
is "$(alive)" 0 "and nothing survives SIGKILL"
is "$(cmp "$tmp/records" "$tmp/before" 2>&1)" "" "records are what they were"

# An interrupt: the records hold what was measured.
rm -f "$tmp/records"
"$ATTNBENCH" serve --rate 0.001 --requests 3 --layers 1 --quiet --out "$tmp/records" 2> "$tmp/err" &
pid=$!
sleep 1
kill -INT $pid
wait $pid
is $? 130 "an interrupt exits 130"
has "$(cat "$tmp/err")" "what was measured is recorded" "and says so"
has "$(cat "$tmp/records")" '"interrupted":true' "and has a record"
if [ -w /dev/full ]; then
  err=$("$ATTNBENCH" serve --requests 1 --layers 1 --quiet --out /dev/full 2>&1)
  is "$? $(printf '%s\n' "$err" | wc -l)" "3 1" "a full disk exits 3, in one line"
  has "$err" "run again" "that says what to do"
  ok "$(printf '%s\n' "$err" | grep -c resume)" "and names no option that serve has not"
fi
done_testing
