#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Laws of the recorded kill matrices, profiles/baselines/zoo-cpu.jsonl and zoo-h200.jsonl: each names
# exactly the planted faults of its folder, all of them were seen but races that a GPU did not lose, and
# no correct build was accused.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-zoo.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
own='"\(bound\|lse\|ends\|guards\|inputs\|strides\|layout\|adjoint\|[a-z0-9]*-[a-z0-9-]*\)":\["'

check() { # MATRIX FOLDER
  matrix=$srcdir/profiles/baselines/$1
  for m in "$srcdir/$2"/*.mutant; do basename "$m" .mutant; done | sort > "$dir/zoo"
  grep '"clean":false' "$matrix" | sed 's/.*"mutant":"\([^"]*\)".*/\1/' | sort > "$dir/recorded"
  comm -3 "$dir/zoo" "$dir/recorded" | sed 's/^/# only in one of them: /'
  cmp -s "$dir/zoo" "$dir/recorded"
  ok $? "$1 names the faults of $2 (if not: HACKING, Tests, says how to record it again)"
  grep '"clean":false' "$matrix" | grep '"equivalent":null' | grep -v '"kind":"race:' |
    sed 's/"alarms".*//' | grep -v "$own" | sed 's/.*"mutant":"\([^"]*\)".*/# not seen: \1/' > "$dir/unseen"
  cat "$dir/unseen"
  is "$(wc -l < "$dir/unseen")" 0 "each was seen"
  is "$(grep '"clean":true' "$matrix" | sed 's/.*"killed"/"killed"/; s/"alarms".*//' | grep -c "$own")" 0 \
    "no correct build was accused"
}

check zoo-cpu.jsonl tests/mutants
[ ! -f "$srcdir/profiles/baselines/zoo-h200.jsonl" ] || check zoo-h200.jsonl tests/mutants/cuda
done_testing
