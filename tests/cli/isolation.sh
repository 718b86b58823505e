#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What can go wrong does, in the implementation, to the file and to the run itself: every case gets its
# record, the run goes on, and nothing that was recorded is lost or altered.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-isolation.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
zoo=$(cd "$builddir" && pwd)/tests/broken/broken.so
problem='dtype=fp32 b=1 hq=2 hkv=1 sq=96 sk=128 d=32'
run() { "$ATTNBENCH" run --device cpu --quick --quiet --plugin "$zoo" "$@" 2> "$dir/err" > "$dir/log"; }
status() { sed -n "s|.*\"impl\":\"$1\".*\"status\":\"\([a-z]*\)\".*|\1|p" "$2"; }
reason() { sed -n "s|.*\"impl\":\"$1\".*\"reason\":\"\([^\"]*\)\".*|\1|p" "$2"; }
# whole FILE: every line is a record
whole() { [ "$(grep -c '^{"schema":1,.*}$' "$1")" = "$(wc -l < "$1")" ]; }
# lines FILE N: waits until there are that many, half a minute at most
lines() {
  tries=0
  while [ "$(wc -l < "$1" 2> /dev/null || echo 0)" -lt "$2" ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
}

# ---- the implementation

out=$dir/all.jsonl
run --timeout 2 --impl 'broken/*' --out "$out" "$problem"
is $? 1 "a run of broken implementations exits 1"
is "$(wc -l < "$out")" 14 "each has its record"
while read -r name want why; do
  is "$(status "broken/$name" "$out")" "$want" "$name: $want"
  case $(reason "broken/$name" "$out") in
    *"$why"*) ok 0 "$name says \"$why\"" ;;
    *) ok 1 "$name says \"$why\": $(reason "broken/$name" "$out")" ;;
  esac
done << 'EOF'
segv crash verify: signal 11
segv_later crash time: signal 11
hangs timeout verify: no progress for 2 s
hangs_later timeout time: no progress for 2 s
exits crash verify: the worker gave up
aborts crash verify: signal 6
errs fail status 4
prepare_hangs timeout prepare: no progress
prepare_aborts crash prepare: signal 6
prepare_oom oom prepare failed
asks_too_much oom 1048576.000 GiB
EOF
for c in leaks fair slow; do is "$(status broken/$c "$out")" pass "$c passes beside them"; done
is "$(grep -c '"status":"\(crash\|timeout\|fail\|oom\)".*"median_s"' "$out")" 0 \
  "and what did not pass has no time"

run --impl cpu/naive,broken/asks_too_much --out "$dir/room.jsonl" "$problem"
case $(reason broken/asks_too_much "$dir/room.jsonl") in
  *"1048576.000 GiB"*" available") ok 0 "a pebibyte has no room alone either, and nobody says so" ;;
  *) ok 1 "no room alone either: $(reason broken/asks_too_much "$dir/room.jsonl")" ;;
esac

# Half a GiB each, where the process may have little more than one of them beside its libraries.
out=$dir/limited.jsonl limit=750000
while [ $limit -lt 16000000 ]; do
  rm -f "$out"
  # shellcheck disable=SC3045 # not in POSIX, but in every shell that tests run in
  (ulimit -v $limit && run --cores 1 --impl 'room/*' --out "$out" "$problem") 2> /dev/null
  [ "$(status room/first "$out" 2> /dev/null)" != pass ] || break
  limit=$((limit + 250000))
done
is "$(status room/first "$out") $(status room/second "$out")" "pass oom" "of two there is room for one"
case $(reason room/second "$out") in
  *"0.500 GiB of host memory asked for, 0."*"raise ulimit -v; workspaces of others hold 0.500 GiB: run it alone")
    ok 0 "which is said, and by what limit" ;;
  *) ok 1 "which is said, and by what limit: $(reason room/second "$out")" ;;
esac
run --cores 1 --impl 'room/*' --out "$dir/both.jsonl" "$problem"
is "$(status room/first "$dir/both.jsonl") $(status room/second "$dir/both.jsonl")" "pass pass" "without it for both"

# One run longer than the timeout, on one core, is no hang: every tile of the machine is progress.
"$ATTNBENCH" verify --device cpu --cores 1 --rows 1 --timeout 1 --impl cpu/flash --quiet \
  --out "$dir/long.jsonl" 'sq=12k d=128' > "$dir/log" 2>&1
is "$? $(status cpu/flash "$dir/long.jsonl")" "0 pass" "a run that goes on outlasts --timeout"

# ---- the run

# slowly FILE [OPTIONS]: eight cases of half a second or more, in the background; its number is in $pid
slowly() {
  file=$1
  shift
  "$ATTNBENCH" run --device cpu --samples 2 --quiet --plugin "$zoo" --impl broken/slow "$@" \
    --out "$file" 'dtype=fp32 b=1 hq=1 sq=32,33,34,35,36,37,38,39 sk=64 d=32' \
    > "$dir/slow.log" 2> "$dir/slow.err" &
  pid=$!
}

out=$dir/killed.jsonl
slowly "$out"
lines "$out" 2
kill -9 $pid
wait $pid 2> /dev/null
n=$(wc -l < "$out")
ok $((n < 2 || n >= 8)) "killed with $n of 8 records written"
whole "$out"
ok $? "which are whole"
sleep 0.3
is "$(cat /proc/[0-9]*/cmdline 2> /dev/null | tr "\0" " " | grep -c "[o]ut $out ")" 0 \
  "and no worker survives"
cp "$out" "$dir/before"
slowly "$out" --resume
wait $pid
is $? 0 "--resume goes on"
is "$(wc -l < "$out")" 8 "to 8 records"
is "$(head -n "$n" "$out" | cmp - "$dir/before" 2>&1)" "" "and alters none of the first"
is "$(sed 's/.*"problem":"\([^"]*\)".*/\1/' "$out" | sort -u | wc -l)" 8 "none twice"

for signal in INT TERM; do
  out=$dir/$signal.jsonl
  slowly "$out"
  lines "$out" 1
  kill -$signal $pid
  wait $pid
  is $? 130 "SIG$signal exits 130"
  is "$(grep -c interrupted "$dir/slow.err") $(wc -l < "$dir/slow.err")" "1 1" "and says so in a line"
  whole "$out"
  ok $? "what was finished is recorded, whole"
done

# Of several processes those that were finished count: a run of 200 that is stopped early has samples.
out=$dir/processes.jsonl
"$ATTNBENCH" run --device cpu --samples 2 --quiet --plugin "$zoo" --impl broken/fair --processes 200 \
  --out "$out" 'dtype=fp32 b=1 hq=1 sq=8,9 sk=8 d=8' > "$dir/log" 2> "$dir/err" &
pid=$!
sleep 4
kill -INT $pid
wait $pid
is "$? $(wc -l < "$out")" "130 2" "a run of 200 processes that is interrupted exits 130 with its records"
sed 's/.*"processes":\([0-9]*\),.*/\1/' "$out" | awk '{ bad += !($1 >= 1 && $1 < 200) } END { exit bad || NR != 2 }'
ok $? "which say of how many processes they are: $(sed 's/.*"processes":\([0-9]*\),.*/\1/' "$out" | tr '\n' ' ')"
is "$(sed 's/.*"n":\([0-9]*\),"processes":\([0-9]*\),.*/\1 \2/' "$out" | awk '{ bad += $1 != 2 * $2 } END { print bad + 0 }')" 0 \
  "and hold the samples of each"
is "$(grep -c '^wall .*overhead' "$dir/log")" 1 "and where the time went is told"

slowly "$dir/same.jsonl"
one=$pid
slowly "$dir/same.jsonl"
wait $one
a=$?
wait $pid
is "$a $?" "0 0" "two runs at once into one file exit 0"
is "$(wc -l < "$dir/same.jsonl")" 16 "and leave 16 records"
whole "$dir/same.jsonl"
ok $? "which are whole"

if "$ATTNBENCH" list --device cuda 2> /dev/null | grep -q 'cuda *present' && command -v flock > /dev/null; then
  CUDA_VISIBLE_DEVICES=0 flock /tmp/attnbench-gpu0.lock "$ATTNBENCH" run --device cuda --quiet "$problem" > /dev/null 2> "$dir/err"
  is $? 3 "a GPU that is being measured exits 3"
  is "$(grep -c 'attnbench-gpu0.lock' "$dir/err")" 1 "and names the lock"
fi

# ---- the file

out=$dir/full.jsonl
run --impl broken/fair --out "$out" "$problem"
cp "$out" "$dir/before"
(ulimit -f 2 && run --impl broken/fair --samples 500 --warm --out "$out" "$problem" 'b=1 hq=1 sq=8 sk=8 d=8')
is $? 3 "a file that may not grow exits 3"
is "$(grep -c 'earlier records are intact' "$dir/err")" 1 "and says what to do"
is "$(cmp "$out" "$dir/before" 2>&1)" "" "and is what it was"
if [ -w /dev/full ]; then
  run --impl broken/fair --out /dev/full "$problem"
  is $? 3 "a full disk exits 3"
  is "$(grep -c 'No space left' "$dir/err")" 1 "and says so"
fi

echo "my notes" > "$dir/notes"
run --impl broken/fair --out "$dir/notes" "$problem"
is "$? $(cat "$dir/notes")" "2 my notes" "a file that holds something else is refused and left alone"
is "$(wc -l < "$dir/err")" 1 "in one line"

mkdir "$dir/closed"
chmod 555 "$dir/closed"
target=$dir/closed/x.jsonl
[ -w "$dir/closed" ] && target=/proc/attnbench.jsonl # root may write anywhere but here
run --impl broken/fair --out "$target" "$problem"
is $? 2 "a folder that cannot be written exits 2"
is "$(grep -c 'choose another --out' "$dir/err") $(wc -l < "$dir/err")" "1 1" "in one line"

printf '{"schema":1,"prob' > "$dir/torn.jsonl"
run --impl broken/fair --out "$dir/torn.jsonl" "$problem"
is "$? $(grep -c '"status":"pass"' "$dir/torn.jsonl")" "0 1" "a torn line stays one line"

done_testing
