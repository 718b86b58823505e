#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The zoo of cheats: implementations that look faster than they are, all in one run. Each must end as
# fail, none may take an honest neighbour with it, and what is not caught may gain nothing.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-cheats.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
zoo=$(cd "$builddir" && pwd)/tests/cheats

# status NAME: of its record; median NAME: in whole microseconds, or nothing
status() { sed -n "s|.*\"impl\":\"$1\".*\"status\":\"\([a-z]*\)\".*|\1|p" "$dir/zoo.jsonl"; }
reason() { sed -n "s|.*\"impl\":\"$1\".*\"reason\":\"\([^\"]*\)\".*|\1|p" "$dir/zoo.jsonl"; }
median() {
  sed -n "s|.*\"impl\":\"$1\".*\"median_s\":\([0-9.e-]*\),.*|\1|p" "$dir/zoo.jsonl" |
    awk '{ printf "%d", $1 * 1e6 }'
}
caught() {
  is "$(status "$1")" fail "$1: $2"
  is "$(median "$1")" "" "$1 has no speed"
}

"$ATTNBENCH" run --device cpu --quick --quiet --plugin "$zoo/cheats.so" --impl 'cheat/*' \
  --out "$dir/zoo.jsonl" 'dtype=fp32 b=1 hq=2 hkv=1 sq=96 sk=128 d=32' > "$dir/log" 2>&1
is $? 1 "a run with cheats in it exits 1"

caught cheat/first_output "one output for ever"
caught cheat/watches_inputs "the last output, while an element of q is the same"
caught cheat/skips_after_third "nothing from the fourth run on"
caught cheat/batched "fifteen runs' work in one"
caught cheat/foreseen "the default seed's output, computed in prepare"
caught cheat/thread "a thread that is still at it"
for c in zeros nans copies_v mean_v nothing first_rows reads_less other_problem no_lse; do
  caught cheat/$c "wrong at once"
done
caught cheat/leaves_rows_later "one row of sixteen left out, later"
caught cheat/reads_less_later "half of the keys, later"
caught cheat/zeroes_inputs "inputs zeroed"
caught cheat/zeroes_later "inputs zeroed, later"
caught cheat/overrun "a byte past the output"
case $(reason cheat/zeroes_later) in
  "timed run"*"changed its inputs") ok 0 "the reason is the inputs" ;;
  *) ok 1 "the reason is the inputs: $(reason cheat/zeroes_later)" ;;
esac

# These do what they are asked, because the harness leaves them no occasion not to.
for c in spots_poison slow_clock fair; do
  is "$(status cheat/$c)" pass "cheat/$c passes"
  ok $(($(median cheat/$c) < 3000)) "and takes its 3 ms: $(median cheat/$c) us"
done

"$ATTNBENCH" run --device cpu --quick --quiet --warm --plugin "$zoo/cheats.so" \
  --impl 'cheat/skips_after_third,cheat/fair' --processes 2 \
  --out "$dir/more.jsonl" 'dtype=bf16 b=1 hq=2 hkv=1 sq=96 sk=128 d=32' > "$dir/log" 2>&1
is "$(grep -c '"status":"fail"' "$dir/more.jsonl") $(grep -c '"status":"pass"' "$dir/more.jsonl")" \
  "1 1" "with a warm cache, bf16 and two processes, too"

if [ -r "$zoo/cheats-cuda.so" ] && "$ATTNBENCH" list --device cuda 2> /dev/null | grep -q 'cuda *present'; then
  "$ATTNBENCH" run --device cuda --quick --quiet --plugin "$zoo/cheats-cuda.so" \
    --impl 'cheat-cuda/*' --out "$dir/zoo.jsonl" 'dtype=fp32 b=1 hq=2 hkv=1 sq=96 sk=128 d=32' \
    > "$dir/log" 2>&1
  is $? 1 "a run with cheats on the GPU exits 1"
  for c in side_stream side_stream_late default_stream skips first_output zeroes_later overrun; do
    caught cheat-cuda/$c "on the GPU"
  done
  is "$(status cheat-cuda/waits)" crash "cheat-cuda/waits: run waits for the device"
  is "$(status cheat-cuda/wild)" crash "cheat-cuda/wild: an illegal address"
  is "$(status cheat-cuda/fair)" pass "cheat-cuda/fair passes beside them"
  ok $(($(median cheat-cuda/ten_ms) < 10000)) "10 ms are 10 ms: $(median cheat-cuda/ten_ms) us"
fi

done_testing
