#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Law: nothing in the program works on CUDA's default stream. The device's stream does not wait for
# it, nor it for the device's, so that a copy or a fill there races with the kernels.
. "${srcdir:=.}/tests/tap.sh"

cd "$srcdir" || exit 1
calls='cuda(Memcpy|Memcpy2D|Memcpy3D|Memset|Memset2D)\(|cuMem(cpy|set)[A-Za-z0-9]*\('
found=$(grep -rnE "$calls" impl harness reference | grep -vE 'Async')
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
is "$found" "" "no copy or fill on the default stream"

launches=$(grep -rnE '<<<' impl harness reference --include='*.cu' --include='*.cuh' | wc -l)
named=$(grep -rnE '<<<.*,.*,.*stream.*>>>' impl harness reference --include='*.cu' \
  --include='*.cuh' | wc -l)
is "$named" "$launches" "every launch names its stream"
done_testing
