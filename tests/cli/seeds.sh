#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Law: laws, probes and bounds hold for any seed and in every regime; three seeds are drawn anew
# each time, and printed.
. "$srcdir/tests/tap.sh"

log=$(mktemp "${TMPDIR:-/tmp}/attnbench-seeds.XXXXXX") || exit 1
trap 'rm -f "$log"' EXIT

# verified OPTIONS...: exits 0, and says what failed if not
verified() {
  "$ATTNBENCH" verify --device cpu --suite verify-fast "$@" > "$log" 2>&1
  is $? 0 "verify --suite verify-fast $*"
  grep -A 2 -E '^(fail|crash|timeout)' "$log" | sed 's/^/# /'
}

for seed in 1 $(od -An -N12 -tu4 /dev/urandom); do
  verified --full --seed "$seed"
done
for regime in scores-x6 v-mean-8 sink rising falling large low subnormal; do
  verified --regime $regime --seed "$seed"
done
"$ATTNBENCH" verify --device cpu --regime none > "$log" 2>&1
is $? 2 "an unknown regime is refused"
done_testing
