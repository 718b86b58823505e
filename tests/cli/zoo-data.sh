#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Laws of the recorded kill matrix, profiles/baselines/zoo-cpu.jsonl: it names exactly the planted
# faults of tests/mutants, all of them were seen, and no correct build was accused.
. "$srcdir/tests/tap.sh"

matrix=$srcdir/profiles/baselines/zoo-cpu.jsonl
dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-zoo.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT

for m in "$srcdir"/tests/mutants/*.mutant; do basename "$m" .mutant; done | sort > "$dir/zoo"
grep '"clean":false' "$matrix" | sed 's/.*"mutant":"\([^"]*\)".*/\1/' | sort > "$dir/recorded"
comm -3 "$dir/zoo" "$dir/recorded" | sed 's/^/# only in one of them: /'
cmp -s "$dir/zoo" "$dir/recorded"
ok $? "it names the faults of tests/mutants (if not: HACKING, Tests, says how to record it again)"

own='"\(bound\|lse\|ends\|guards\|inputs\|strides\|layout\|adjoint\|[a-z]*-[a-z-]*\)":\["'
is "$(grep '"clean":false' "$matrix" | grep '"equivalent":null' | grep -vc "$own")" 0 "each was seen"
is "$(grep '"clean":true' "$matrix" | sed 's/.*"killed"/"killed"/' | grep -c "$own")" 0 \
  "no correct build was accused"
done_testing
