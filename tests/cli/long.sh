#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Laws reach long sequences: at 1,048,576 keys those whose work is linear in the tokens hold, in
# seconds; what is not tried is in the record, with its reason.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-long.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT

# verify IMPL PROBLEM
verify() {
  rm -f "$dir/r.jsonl"
  "$ATTNBENCH" verify --device cpu --full --impl "$1" --timeout 600 --out "$dir/r.jsonl" "$2" \
    > "$dir/log" 2>&1
}
laws() { # STATE: how many
  sed 's/.*"checks":{\([^}]*\)}.*/\1/' "$dir/r.jsonl" | tr ',' '\n' | grep '"[a-z]*-[a-z-]*":' |
    grep -c "\"$1\""
}

verify cpu/split-decode 'op=decode dtype=bf16 hq=1 hkv=1 sk=1024k d=24 dv=8 mask=none'
is $? 0 "a decode over 1,048,576 keys is verified"
n=$(laws pass)
ok $((n < 12)) "$n laws and probes hold there"
is "$(laws fail)" 0 "none fails"
for law in one-hot keys-twice split-merge value-sum; do
  grep -q "\"$law\":\"pass\"" "$dir/r.jsonl"
  ok $? "$law among them"
done
is "$(grep -c '"left_out":{}' "$dir/r.jsonl")" 1 "and none is left out"

verify cpu/flash 'op=fwd dtype=bf16 hq=4 hkv=2 s=4k d=16 mask=window:30:0'
is $? 0 "a window over 4,096 tokens is verified"
n=$(laws pass)
ok $((n < 9)) "$n laws and probes hold there"

verify cpu/flash 'op=fwd dtype=bf16 hq=1 hkv=1 s=1k d=16'
is $? 0 "so is a problem of many scores a token"
is "$(laws pass)" 0 "whose laws are left out"
is "$(grep -c '"one-hot":"too many scores a token"' "$dir/r.jsonl")" 1 "with a reason"
done_testing
