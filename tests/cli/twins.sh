#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The check same-bits: an implementation that says whose bits it has on any input fails where it has
# others, though both are right, and is not asked where the other does not run.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-twins.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
zoo=$(cd "$builddir" && pwd)/tests/broken/broken.so
problem='dtype=fp32 b=2 hq=4 hkv=2 sq=33 sk=97 d=32'
verify() {
  rm -f "$dir/out.jsonl"
  "$ATTNBENCH" verify --device cpu --plugin "$zoo" --impl "$1" --out "$dir/out.jsonl" "$problem" > "$dir/out" 2>&1
}
said() { grep "\"impl\":\"$1\"" "$dir/out.jsonl" | sed -n 's/.*"same-bits":"\([a-z]*\)".*/\1/p'; }

verify 'broken/fair,twin/of_fair'
is "$? $(said twin/of_fair)" "0 pass" "it has the bits that it says"
verify 'cpu/naive,twin/of_naive'
is "$? $(said twin/of_naive)" "1 fail" "it has others"
grep -q 'same-bits: its outputs are not those of cpu/naive bit for bit' "$dir/out"
ok $? "which is said"
verify 'twin/of_naive'
is "$? $(said twin/of_naive)" "0 " "alone it is not asked"
verify 'cpu/flash*'
is "$? $(said cpu/flash-materialised)" "0 pass" "cpu/flash-materialised has the bits of cpu/flash"
done_testing
