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

for c in list verify run compare aa history report doctor; do
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

bad 2 "--resume needs --out" verify --device cpu --resume 'b=1 hq=1 sq=8 d=16'
if [ -w /dev/full ]; then
  "$ATTNBENCH" list > /dev/full 2> /dev/null
  is $? 3 "output that cannot be written exits 3"
fi

for what in --suites --models; do
  n=$("$ATTNBENCH" list $what | wc -l)
  ok $((n < 4)) "list $what lists $n"
done
list=$("$ATTNBENCH" list --device cpu)
case $list in *cpu/flash*) ok 0 "list names cpu/flash" ;; *) ok 1 "list names cpu/flash" ;; esac
doctor=$("$ATTNBENCH" doctor)
is $? 0 "doctor exits 0"
case $doctor in *cpu*) ok 0 "doctor names the cpu device" ;; *) ok 1 "doctor names the cpu device" ;; esac

done_testing
