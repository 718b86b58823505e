#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# verify on the cpu device side by side: what it prints and records is what one core alone gives, in the
# same order, with crashes, hangs and failures among it; an interrupt ends all of it.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-lanes.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
zoo=$(cd "$builddir" && pwd)/tests/broken/broken.so
verify() { # NAME CORES OPTIONS ...
  name=$1 cores=$2
  shift 2
  "$ATTNBENCH" verify --device cpu --cores "$cores" --out "$dir/$name.jsonl" "$@" > "$dir/$name" 2>&1
  code=$?
  sed '/^wall\|^records/d; s/--cores [0-9]*//' "$dir/$name" > "$dir/$name.txt"
  sed 's/"time_utc":"[^"]*"//; s/"run_id":"[^"]*"//; s/"multiprocessors":[0-9]*//; s/--cores [0-9]*//' \
    "$dir/$name.jsonl" > "$dir/$name.same"
}
same() { # A B WHAT
  cmp -s "$dir/$1.txt" "$dir/$2.txt"
  ok $? "$3: the same output"
  cmp -s "$dir/$1.same" "$dir/$2.same"
  ok $? "$3: the same records in the same order"
}

problems='op=fwd,bwd hq=2 hkv=1 s=1,7,33,65,97,101 d=64 mask=none,causal'
verify one 1 "$problems"
is $code 0 "one core"
verify four 4 "$problems"
is $code 0 "four cores"
same one four "24 problems"
is "$(grep -c '^wall [0-9.]* s: .*checks [0-9.]* %' "$dir/four")" 1 "the wall time is told once"

broken='dtype=fp32 b=1 hq=2 hkv=1 sq=95,96,97 sk=128 d=32'
for cores in 1 3; do
  verify broken$cores $cores --timeout 2 --plugin "$zoo" \
    --impl 'broken/segv,broken/hangs,broken/exits,broken/errs,broken/fair,cpu/flash' "$broken"
  is $code 1 "broken implementations on $cores cores exit 1"
done
same broken1 broken3 "crashes, hangs and refusals"
is "$(wc -l < "$dir/broken3.jsonl")" 18 "each case has its record"

head -n 31 "$dir/four.jsonl" > "$dir/resumed.jsonl"
verify resumed 4 --resume "$problems"
is "$(sort "$dir/resumed.same" | uniq | wc -l)" "$(sort "$dir/four.same" | uniq | wc -l)" \
  "--resume adds what is missing and nothing twice"

"$ATTNBENCH" verify --device cpu --cores 2 --timeout 60 --plugin "$zoo" --impl broken/hangs \
  "$broken" > "$dir/int" 2>&1 &
pid=$!
sleep 1
kill -INT $pid
wait $pid
is $? 130 "an interrupt exits 130"
sleep 0.2
is "$(ps -o pid= --ppid $pid 2> /dev/null | wc -l)" 0 "and leaves no worker"
done_testing
