#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Law: every suite, planted fault, law and check that doc/faults.md names exists, and every row of
# its table names one of each.
. "$srcdir/tests/tap.sh"

doc=$srcdir/doc/faults.md
dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-faults.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
sed '/^## /,$d' "$doc" | grep '^| [a-z]' | grep -v '^| kind of fault' > "$dir/rows"
n=$(wc -l < "$dir/rows")
ok $((n < 25)) "$n kinds of faults"

# Column 3 of '| kind | suites | faults | laws |' ...
names() { cut -d'|' -f"$1" "$dir/rows" | grep -o '`[^`]*`' | tr -d '`' | sort -u; }
none() { cut -d'|' -f"$1" "$dir/rows" | grep -vc '`'; }
missing() { # FILE-PATTERN with NAME in it, names on stdin
  while read -r name; do
    file=$(echo "$1" | sed "s/NAME/$name/")
    [ -f "$srcdir/$file" ] || echo "$name"
  done
}
is "$(none 3) $(none 4) $(none 5)" "0 0 0" "each has a suite, a planted fault and a check"
is "$(names 3 | missing profiles/suites/NAME.suite)" "" "every suite is there"
is "$(names 4 | missing tests/mutants/NAME.mutant)" "" "every planted fault is there"
sed -n 's/.*{"\([a-z-]*\)", [a-z_]*, [a-z_]*, [0-9]*}.*/\1/p' "$srcdir"/reference/law-*.c > "$dir/laws"
ok $(($(wc -l < "$dir/laws") < 25)) "$(wc -l < "$dir/laws") laws"
printf '%s\n' bound lse ends guards inputs >> "$dir/laws"
is "$(names 5 | grep -vxF -f "$dir/laws")" "" "every law and check is there"
is "$(sed -n 's/^.* wrong timing.*\(tests\/cheats\).*/\1/p' "$doc")" "tests/cheats" "and the rest has reasons"
done_testing
