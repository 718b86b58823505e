#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every command explains itself, and bad input is one line that says what, where and what to do,
# with exit code 2 (input) or 3 (environment).
. "$srcdir/tests/tap.sh"

# bad CODE PATTERN ARGS...: exit code, one line on stderr, nothing that looks like a result
bad() {
  code=$1 pattern=$2
  shift 2
  err=$("$ATTNBENCH" "$@" 2>&1 >/dev/null)
  got=$?
  is "$got" "$code" "exit $code: $*"
  is "$(printf '%s\n' "$err" | wc -l)" 1 "one line: $*"
  case $err in
    *"$pattern"*) ok 0 "says \"$pattern\"" ;;
    *) printf '# %s\n' "$err"; ok 1 "says \"$pattern\"" ;;
  esac
}

for c in list verify run explain compare aa history report doctor serve; do
  help=$("$ATTNBENCH" $c --help 2>&1)
  is $? 0 "$c --help exits 0"
  case $help in
    "usage: attnbench $c"*) ok 0 "$c --help starts with its usage" ;;
    *) ok 1 "$c --help starts with its usage" ;;
  esac
  case $help in *Exit:*) ok 0 "$c documents its exit codes" ;; *) ok 1 "$c documents its exit codes" ;; esac
done
"$ATTNBENCH" --help > /dev/null
is $? 0 "--help exits 0"
"$ATTNBENCH" > /dev/null 2>&1
is $? 2 "no command exits 2"

bad 2 "unknown command" frobnicate
bad 2 "--help lists them" verify --frobnicate
bad 2 "needs a value" verify --seed
bad 2 "--seed pony" verify --seed pony
bad 2 "--device pony" verify --device pony
bad 2 "pony" verify --device cpu 'b=1 hq=1 sq=8 d=16 pony=1'
bad 2 "d=0" verify --device cpu 'b=1 hq=1 sq=8 d=0'
bad 2 "hkv" verify --device cpu 'b=1 hq=3 hkv=2 sq=8 d=16'
bad 2 "--suite nowhere" verify --device cpu --suite nowhere
bad 2 "attnbench list" verify --device cpu --impl 'cpu/pony' 'b=1 hq=1 sq=8 d=16'
bad 2 "cannot read" report /nonexistent/records.jsonl
bad 2 "--out" verify --device cpu --out /nonexistent/x.jsonl 'b=1 hq=1 sq=8 d=16'
bad 2 "no-such.so" verify --device cpu --plugin ./no-such.so 'b=1 hq=1 sq=8 d=16'

bad 2 "a whole number from 1 to 512" run --samples 9999
bad 2 "a whole number from 1 to 512" run --samples 2.5
bad 2 "a whole number from 0 to 1023" run --gpu -1
bad 2 "a number from 0 to 1;" run --ci 3
bad 2 "a whole number from 1 to 1000" aa --comparisons 0
bad 2 "no such implementation" list --impl 'cpu/pony'
bad 2 "no such implementation for device cpu" list --device cpu --impl 'cuda/*'

# What was given comes back short, printable and on one line, and what to do still stands behind it.
long=$(awk 'BEGIN { for (i = 0; i < 3000; i++) printf "x" }')
wild=$(printf 'a\nb\001\377')
for given in "$long" "$wild"; do
  bad 2 "cpu or cuda" run --device "$given"
  bad 2 "--help lists them" "$given"
  bad 2 "--help lists them" run "--$given"
  bad 2 "write key=value" run --device cpu "${given#a?}"
  bad 2 "known keys" run --device cpu "${given#a?}=1"
  bad 2 "attnbench list" run --device cpu --impl "$given"
  bad 2 "attnbench list" run --device cpu --suite "$given"
  bad 2 "cannot read" compare "$given" "$given"
  bad 2 "cannot read" report "$given"
  bad 2 "attnbench aa" compare --floor "$given" a b
done
said=$("$ATTNBENCH" run --device "$wild" 2>&1)
case $said in *'a\x0ab\x01\xff'*) ok 0 "bytes that do not print are escaped" ;; *) ok 1 "bytes that do not print are escaped: $said" ;; esac
ok $(("$(printf '%s' "$("$ATTNBENCH" run --device "$long" 2>&1)" | wc -c)" > 400)) "a long word is shortened"

# What fails is repeated by the command that stands below it.
there=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-commands.XXXXXX") || exit 1
plugin="$there/it's; my.so"
cp "$builddir/tests/plugin/wrong.so" "$plugin"
attnbench() { "$ATTNBENCH" "$@"; }
again=$(attnbench verify --device cpu --plugin "$plugin" --impl plugin/plain 'sq=16 d=8' 2> /dev/null | sed -n 's/.*again: //p')
is "$(eval "$again" 2> /dev/null | sed -n 's/.*again: //p')" "$again" "a command with quotes repeats itself: $again"
ok "$([ -n "$again" ]; echo $?)" "and is there"

# A suite's name is in its records, whatever the file is called.
echo 'op=fwd s=8 d=8' > "$there/$(printf 'a\377b').suite"
attnbench verify --device cpu --impl cpu/naive --quiet --suite "$there/$(printf 'a\377b').suite" --out "$there/r" > /dev/null
is "$? $(grep -c '"suite":"a\\\\xffb"' "$there/r")" "0 1" "bytes of a suite's name that are no text are escaped"
rm -r "$there"

bad 2 "want a number from 1e-30 to 1e+30" verify --device cpu 's=8 d=8 softcap=1e300'
bad 2 "want a number from 1e-30 to 1e+30" verify --device cpu 's=8 d=8 softcap=1e-300'
bad 2 "want a number from 1e-30 to 1e+30" verify --device cpu 's=8 d=8 scale=1e38'
for p in scale=1e30 scale=1e-30 softcap=1e30 softcap=1e-30 'op=bwd scale=1e3' 'op=bwd softcap=1e-30'; do
  "$ATTNBENCH" verify --device cpu --quiet "hq=2 s=40 d=64 $p" > /dev/null 2>&1
  is $? 0 "the ends of the range verify: $p"
done

bad 2 "--graph: device cpu has no graphs" run --device cpu --graph 'b=1 hq=1 sq=8 d=16'
bad 2 "--resume needs --out" verify --device cpu --resume 'b=1 hq=1 sq=8 d=16'
if [ -w /dev/full ]; then
  "$ATTNBENCH" list > /dev/full 2> /dev/null
  is $? 3 "output that cannot be written exits 3"
fi

for what in --suites --models --machines; do
  n=$("$ATTNBENCH" list $what | wc -l)
  ok $((n < 3)) "list $what lists $n"
done
list=$("$ATTNBENCH" list --device cpu)
n=$("$ATTNBENCH" list --device cpu --impl 'cpu/n*' | grep -c '^cpu/')
is "$n" 1 "list --impl lists what matches and nothing else"
case $list in *cpu/flash*) ok 0 "list names cpu/flash" ;; *) ok 1 "list names cpu/flash" ;; esac
doctor=$("$ATTNBENCH" doctor)
is $? 0 "doctor exits 0"
case $doctor in *cpu*) ok 0 "doctor names the cpu device" ;; *) ok 1 "doctor names the cpu device" ;; esac

done_testing
