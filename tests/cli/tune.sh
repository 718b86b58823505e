#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# attnbench tune: of a plugin whose variants have known speeds it writes which is the fastest, by
# lengths, never one that is wrong; run goes by the table, --variant forces another, and the record
# says which ran and who chose; malformed tables stop every command with file and line.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-tune.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
work="--device cpu --cores 1 --plugin $builddir/tests/tune/variants.so"
few='hq=8 s=32 d=8' many='hq=1 s=256 d=8'
bench() { "$ATTNBENCH" "$@" > "$dir/out" 2> "$dir/err"; }
says() { grep -q -e "$1" "$dir/${3:-out}"; ok $? "$2"; }
# the variant of the last record, and who chose it
chosen() { tail -n 1 "$dir/records" | sed -n 's/.*"variant":{"name":"\([a-z]*\)","by":"\([a-z]*\)".*/\1 \2/p'; }
record() {
  rm -f "$dir/records"
  bench run $work --impl tune/work --quick --samples 3 --rest 0 --out "$dir/records" "$@"
}

# ---- the table

bench tune $work --quick --rest 0 --out "$dir/t.tune" "$few dtype=bf16" "$many dtype=bf16"
is $? 0 "tune exits 0"
says '^choices: .*/t.tune' "says where the table is"
is "$(grep -c 'own choice' "$dir/out")" 2 "a point for each size, of what has a choice alone"
rules=$(sed -n 's/^tune/tune/p' "$dir/t.tune")
is "$rules" "tune/work op=fwd d<=8 mask=none options=0 pages=0 keys<=90 -> short
tune/work op=fwd d<=8 mask=none options=0 pages=0 keys<=512 -> steady" \
  "each variant where it is the fastest, up to the middle of 32 and 256 keys"
says '^device = ' "for the device" t.tune
is "$(grep -c '^# op=fwd.*: steady [0-9.]* ms, short [0-9.]* ms$' "$dir/t.tune")" 2 \
  "with the times that it rests on"
bench tune $work --quick --rest 0 --out "$dir/r.tune" \
  "$few dtype=bf16" "$many dtype=bf16" 'hq=1 s=32 d=8 dtype=bf16'
is "$(sed -n 's/^tune.*pages=0 //p' "$dir/r.tune")" "rows<=90 keys<=64 -> short
keys<=90 -> short
keys<=512 -> steady" "few rows and many are apart, too: the lines of the fewest come first"
bench tune $work --quick --rest 0 --out "$dir/w.tune" "hq=1 s=256 d=8 dtype=fp32"
is $? 1 "a variant that is wrong: exit 1"
is "$(sed -n 's/^tune.*-> //p' "$dir/w.tune")" steady "and it is not chosen, however fast"
says 'steady [0-9.]* ms, short [0-9.]* ms, wrong fail' "the table says so" w.tune

"$ATTNBENCH" tune $work --rest 0 --out "$dir/i.tune" "$few dtype=bf16" 'hq=1 s=256 d=8 dtype=bf16,fp16,fp32' \
  > "$dir/out" 2> "$dir/err" &
pid=$!
until grep -q '^tune/work' "$dir/out" || ! kill -0 $pid 2> /dev/null; do sleep 0.1; done
kill -INT $pid
wait $pid
is $? 130 "interrupted: exit 130"
is "$(ls "$dir" | grep '^i.tune')" i.tune.partial "what was measured is kept, and is no table yet"
is "$(grep -c '^tune/work.*-> short' "$dir/i.tune.partial")" 1 "of the points that were complete"

# ---- dispatch

record --choices "$dir/t.tune" 'hq=1 s=32 d=8 dtype=bf16'
is "$? $(chosen)" "0 short table" "the table's choice runs, and the record says so"
record --choices "$dir/t.tune" 'hq=1 s=256 d=8 dtype=bf16'
is "$? $(chosen)" "0 steady table" "by lengths"
record --choices none 'hq=1 s=32 d=8 dtype=bf16'
is "$? $(chosen)" "0 steady default" "--choices none: its own"
record --variant short --choices "$dir/t.tune" 'hq=1 s=256 d=8 dtype=bf16'
is "$? $(chosen)" "0 short forced" "--variant goes before the table"
bench run $work --impl tune/work --quick --samples 3 --rest 0 --variant steady --resume \
  --out "$dir/records" 'hq=1 s=256 d=8 dtype=bf16'
is "$? $(chosen) $(wc -l < "$dir/records")" "0 steady forced 2" "--resume: another variant is not recorded yet"
record --variant wrong 'hq=1 s=32 d=8 dtype=fp32'
is "$? $(chosen)" "1 wrong forced" "it really runs what it is told"
record --variant wrong 'hq=1 s=32 d=8 dtype=bf16'
is "$?" 0 "what has no such variant for the problem"
says '^unsupported.*tune/work' "is unsupported"
record --impl cpu/flash --choices none 'hq=1 s=32 d=8'
is "$(grep -c '"variant":null' "$dir/records")" 1 "no variants, none in the record"
bench explain $work --impl tune/work --samples 6 --choices "$dir/t.tune" 'hq=1 s=32 d=8 dtype=bf16'
says '^  variant *short, tile 16 x 16, .*chosen by t.tune' "explain names variant, tile and table"
bench explain $work --impl tune/work --samples 6 --choices "$dir/t.tune" 'hq=1 s=32 d=72 dtype=bf16'
says '^  variant *steady, .*own choice, of which t.tune says nothing' "or that the table has no line for it"
bench explain $work --impl tune/work --samples 6 --choices none 'hq=1 s=32 d=8 dtype=bf16'
says '^  variant *steady, .*own choice, without a table' "or that there is none"

# ---- the profiles folder

mkdir -p "$dir/data/profiles/machines"
cp -R "$srcdir/profiles/suites" "$srcdir/profiles/models" "$dir/data/profiles/"
cp "$dir/t.tune" "$dir/data/profiles/machines/here.tune"
ATTNBENCH_DATADIR=$dir/data record 'hq=1 s=32 d=8 dtype=bf16'
is "$? $(chosen)" "0 short table" "the table of this device's name is found"
sed 's/^device.*/device = another/' "$dir/t.tune" > "$dir/data/profiles/machines/here.tune"
ATTNBENCH_DATADIR=$dir/data record 'hq=1 s=32 d=8 dtype=bf16'
is "$? $(chosen)" "0 steady default" "another device's is not"
ATTNBENCH_DATADIR=$dir/data bench list --variants $work
says '^choices for another: 2 lines of .*here.tune' "list shows the tables"
says '^tune/work  *short  *tile 16 x 16' "and the variants"
rm "$dir/data/profiles/machines/here.tune"
ATTNBENCH_DATADIR=$dir/data bench tune $work --quick --samples 6 --rest 0 'hq=1 s=32 d=8 dtype=bf16'
at=$(sed -n 's/^choices: //p' "$dir/out")
is "$(dirname "$at")" "$dir/data/profiles/machines" "tune writes where the next command looks"
ATTNBENCH_DATADIR=$dir/data record 'hq=1 s=32 d=8 dtype=bf16'
is "$? $(chosen)" "0 short table" "which goes by it"

# ---- bad input

bad() {
  code=$1 pattern=$2
  shift 2
  bench "$@"
  is "$? $(wc -l < "$dir/err")" "$code 1" "exit $code, one line: $*"
  grep -q -e "$pattern" "$dir/err"
  ok $? "says $pattern: $(cat "$dir/err")"
}
printf 'device = x\n\ntune/work op=pony -> short\n' > "$dir/bad.tune"
bad 2 "bad.tune:3: op=pony" run $work --choices "$dir/bad.tune" 'sq=8'
printf 'device = x\ntune/work -> pony\n' > "$dir/bad.tune"
bad 2 "bad.tune:2: pony: no variant" run $work --choices "$dir/bad.tune" 'sq=8'
bad 2 "no-such.tune" run $work --choices "$dir/no-such.tune" 'sq=8'
bad 2 "nothing to choose" tune --device cpu 'hq=1 s=32 d=8'
bad 2 "nothing to choose" tune $work --impl tune/alone 'hq=1 s=32 d=8'
bad 2 "no such implementation" tune --device cpu --impl cpu/pony
bad 3 "choose another --out" tune $work --out "$dir/no/such/x.tune" 'hq=1 s=32 d=8'
bad 2 "--help lists them" tune --choices none
done_testing
