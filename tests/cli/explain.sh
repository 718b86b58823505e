#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# attnbench explain: the model of a known GPU needs no GPU and runs nothing; on device cpu each
# implementation is run, and what it reached stands beside the model; --json says the same.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-explain.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
explain() { "$ATTNBENCH" explain "$@" > "$dir/out" 2> "$dir/err"; }
says() { grep -q -e "$1" "$dir/out"; ok $? "$2"; }

# ---- a known GPU

explain --machine h200 'b=2 hq=16 sq=8k d=128'
is "$? $(wc -c < "$dir/err")" "0 0" "the model of an H200 exits 0"
says '^machine *NVIDIA H200, 132 multiprocessors at 1980 MHz' "names the machine"
says 'baselines/h200.jsonl' "and where its numbers come from"
machine=$srcdir/profiles/machines/h200.machine
at=$(awk '/^matmul_tflops/ { printf "%.3f ms", 4 * 2 * 16 * 8192 * 8192 * 128 / $3 / 1e9 }' "$machine")
says "^modelled *matrix units *$at *the bound" "matrix units bound it: its FLOP at the machine's rate"
says '^ *exponentials *513.54 us' "2^31 exponentials by 16 a clock on 132 multiprocessors"
says '^nothing was run' "and says that nothing was run"
explain --machine h200 'op=decode hq=32 hkv=8 sk=8k b=16'
bytes=$((16 * 8192 * 8 * 128 * 2 * 2 + 2 * 16 * 32 * 128 * 2 + 16 * 32 * 4)) # K, V; q, o; lse
at=$(awk -v bytes=$bytes '/^read_gbps/ { printf "%.2f us", bytes / $3 / 1e3 }' "$machine")
says "^ *memory *$at *the bound" "memory bounds a decode"
explain --machine h200 --device cuda 'sq=8k d=64,128'
is "$? $(grep -c '^nothing was run' "$dir/out")" "0 2" "of a sweep each problem; no GPU is needed"
explain --machine a100-80gb 'sq=8k'
says 'not measured' "numbers of a data sheet are called so"
explain --machine h200 --json 'b=2 hq=16 sq=8k d=128' 'sq=1k softcap=30 d=64'
is "$(wc -l < "$dir/out")" 2 "--json: a line a problem"
is "$(grep -c '"run":null' "$dir/out")" 2 "without a run"
is "$(sed -n '1s/.*"bound":"\([a-z ]*\)".*/\1/p' "$dir/out")" "matrix units" "that names the bound"

known="--machine h200 --plugin $builddir/tests/tune/variants.so --impl tune/*"
# shellcheck disable=SC2086
explain $known 's=32 d=8'
is "$(grep -c 'its own choice, of which h200.tune says nothing' "$dir/out")" 2 "what would be chosen is told with its table"
# shellcheck disable=SC2086
explain $known --variant short 's=32 d=8'
is "$? $(grep -c 'forced by --variant' "$dir/out")" "0 1" "or the one that it must be"
says '^  variant *--variant short: it has no such variant for this problem' "and who has not that says so"
is "$(grep -c 'own choice' "$dir/out")" 0 "and chooses no other"

# ---- this machine

problem='hq=4 hkv=2 sq=200 d=64 mask=causal'
explain --device cpu --samples 6 --impl 'cpu/naive,cpu/flash,cpu/rope' "$problem"
is $? 0 "device cpu exits 0"
is "$(grep -c '^cpu/' "$dir/out")" 3 "every implementation has its part"
is "$(grep -c '^  reached *[0-9.]* % of the bound (matrix units' "$dir/out")" 2 "says what it reached"
is "$(grep -c '^  SRAM *[0-9.]* kB of 232.4 kB at most' "$dir/out")" 2 "and how full SRAM was"
is "$(grep -c '^  bytes .*(io-model): 1.000 of its model' "$dir/out")" 2 "and that it moves what it means to"
says '^cpu/rope *unsupported' "what refuses says so"
says '^ *exponentials *-  ' "what is not known is no number"
explain --device cpu --samples 6 --json --impl 'cpu/flash' "$problem" "$problem"
is "$? $(wc -l < "$dir/out")" "0 2" "--json: a line a run, of a problem given twice, too"
if command -v python3 > /dev/null; then
  python3 - "$dir/out" << 'END'
import json, sys
for line in open(sys.argv[1]):
    x = json.loads(line)
    run, model = x["run"], x["modelled"]
    assert run["status"] == "pass" and run["read_bytes"] + run["write_bytes"] == run["model_bytes"]
    assert run["sram_peak_bytes"] <= run["sram_bytes"] == 232448
    assert abs(run["of_bound"] * run["median_s"] / model["matrix_units_s"] - 1) < 1e-6
    assert model["exponentials_s"] is None and x["machine"]["clock_hz"] is None
    assert x["exponentials"] == 4 * 200 * 201 / 2 and x["flops"] == 4 * 64 * x["exponentials"]
END
  ok $? "whose numbers agree with one another"
fi
explain --device cpu --samples 6 --plugin "$builddir/tests/plugin/wrong.so" --impl plugin/plain "$problem"
is $? 1 "a wrong one exits 1"
is "$(grep -c 'reached' "$dir/out")" 0 "and reached nothing"

# ---- bad input

bad() {
  code=$1 pattern=$2
  shift 2
  explain "$@"
  is "$? $(wc -l < "$dir/err") $(wc -c < "$dir/out")" "$code 1 0" "exit $code, one line: $*"
  grep -q -e "$pattern" "$dir/err"
  ok $? "says $pattern: $(cat "$dir/err")"
}
bad 2 "needs a problem"
bad 2 "list --machines" --machine pony 'sq=8'
bad 2 "list --machines" --machine ../models/llama3-8b 'sq=8'
bad 2 "leave out --device cpu" --machine h200 --device cpu 'sq=8'
bad 2 "--variant foo: no implementation here has such a variant" --machine h200 --variant foo 's=8k hq=32'
bad 2 "unknown key" --machine h200 'pony=8'
bad 2 "no such implementation" --device cpu --impl cpu/pony 'sq=8'
if ! "$ATTNBENCH" list --device cuda 2> /dev/null | grep -q 'cuda *present'; then
  bad 3 "--machine NAME" --device cuda 'sq=8'
fi

done_testing
