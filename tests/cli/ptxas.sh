#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bound: no shipped kernel spills registers, and ptxas serialised none of its tensor-core pipelines
# (notes C7510 to C7519).  Reads what ptxas said when this build tree was compiled.
. "${srcdir:=.}/tests/tap.sh"

cd "$builddir" || exit 1
reports=$(find impl reference harness -name '*.ptxas' 2>/dev/null | sort)
[ -n "$reports" ] || skip_all "no CUDA kernel in this build"

# "function spill-bytes" lines: a properties line names the function, the next has its numbers.
spills() {
  awk '/Function properties for/ { name = $NF }
    /bytes spill stores/ {
      stores = loads = 0
      for (i = 3; i < NF; i++) {
        if ($i == "spill" && $(i + 1) ~ /^stores/) stores = $(i - 2)
        if ($i == "spill" && $(i + 1) ~ /^loads/) loads = $(i - 2)
      }
      print name, stores + loads
    }' "$1"
}

# shellcheck disable=SC2086 # a list of names without blanks
functions=$(cat $reports | grep -c 'Function properties for')
[ "$functions" -gt 0 ]
ok $? "ptxas reported on $functions functions"

for report in $reports; do
  source=${report%.o.ptxas}.cu
  found=$(spills "$report" | awk '$2 > 0')
  [ -z "$found" ] || echo "$found" | sed 's/$/ bytes spilled/; s/^/# /'
  [ -z "$found" ]
  ok $? "$source: $(spills "$report" | wc -l | tr -d ' ') functions, none spills"
  notes=$(grep -E 'C75[0-9][0-9]' "$report")
  [ -z "$notes" ] || echo "$notes" | sed 's/^/# /'
  [ -z "$notes" ]
  ok $? "$source: no serialised pipeline"
done
done_testing
