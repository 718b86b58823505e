#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Laws of build-aux/measure, on an attnbench that only says how it was called: every suite and problem
# of a step exists, every file of records is that of a baseline, and what is not asked for is not run.
. "$srcdir/tests/tap.sh"

tool=$(cd "$srcdir" && pwd)/build-aux/measure
suites=$(cd "$srcdir" && pwd)/profiles/suites
dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-measure.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
cat > "$dir/attnbench" <<'END'
#!/bin/sh
[ "$1" != list ] || { printf 'cuda/naive  x\ncuda/flash-sm90  x\npeer/cudnn  x\ncpu/naive  x\n'; exit; }
for word in "$@"; do printf '%s\n' "$word"; done >> "$LOG"
echo 'pass  cuda/naive'
END
chmod +x "$dir/attnbench"
touch "$dir/azure_conv_2023_4k.csv" "$dir/mooncake_conversation_4k.jsonl"

measure() { (cd "$dir" && LOG=$dir/log TRACES=$dir sh "$tool" "$@") > "$dir/out" 2>&1; }

measure
is "$?: $(grep -c 'OUT \[STEP' "$dir/out")" "2: 1" "without a folder it says how it is used"

steps=$(sed -n '/^steps="/,/"$/s/^\(steps="\)*\([a-z-]*\) [0-9]* .*/\2/p' "$tool" | grep -v -e tests -e sanitize)
# shellcheck disable=SC2086 # a list of names
measure "$dir/all" $steps
is "$?" 0 "all steps that need no GPU of their own run"
is "$(awk 'NR > 1 && $NF == 0 && $3 > 0 { print $1 }' "$dir/out")" "$steps" "each ends with 0 and is counted"

missing=$(sed -n '/^--suite$/{n;p}' "$dir/log" | sort -u | while read -r suite; do
  [ -f "$suites/$suite.suite" ] || echo "$suite"; done)
is "$missing" "" "every suite that they name exists"

bad=$(grep '^op=' "$dir/log" | sort -u | while read -r problem; do
  "$ATTNBENCH" explain --machine h200 --json "$problem" > /dev/null 2>&1 || echo "$problem"; done)
is "$bad" "" "every problem that they name is one"

strange=$(sed -n '/^--out$/{n;p}' "$dir/log" | sort -u | while read -r name; do
  name=$(basename "$name" .jsonl)
  case $name in main) name=h200 ;; *) name=h200-$name ;; esac
  [ -f "$srcdir/profiles/baselines/$name.jsonl" ] || echo "$name"; done)
is "$strange" "" "every file of records is a baseline's"

: > "$dir/log"
measure "$dir/one" traffic
is "$(grep -c '^run$' "$dir/log"): $(sed -n '/^--suite$/{n;p}' "$dir/log")" "1: traffic" "one step runs alone"
BUDGET=0 measure "$dir/none" traffic decode
is "$(grep -c 'no time left' "$dir/out")" 2 "without time none is begun"
: > "$dir/log"
(cd "$dir" && LOG=$dir/log sh "$tool" "$dir/none" memory replay) > "$dir/out" 2>&1
said=$(grep -l '^skip - ' "$dir/none/memory.txt" "$dir/none/replay.txt" | wc -l)
is "$(grep -c . "$dir/log"): $said" "0: 2" "without traces their steps say so"

# refused WORD ARGUMENTS...: one line with the word, exit 2, no step
refused() {
  word=$1
  shift
  : > "$dir/log"
  measure "$@"
  is "$?: $(wc -l < "$dir/out"): $(grep -c -e "$word" "$dir/out"): $(wc -c < "$dir/log")" "2: 1: 1: 0" \
    "refused in a line that says $word: $*"
}
refused "no such step" "$dir/none" pony
: > "$dir/file"
refused "not a folder" "$dir/file" traffic
BUDGET=abc refused "BUDGET=abc" "$dir/none" traffic
measure --help
is "$?: $(grep -c 'OUT \[STEP' "$dir/out"): $(ls -d -- --help 2> /dev/null)" "2: 1: " "an option is no folder"

# A step of several commands has the code of the one that failed, whichever it is.
printf '#!/bin/sh\n[ "$1" = list ] && exit\ncase "$*" in *s=8k*) exit 3 ;; esac\n' > "$dir/attnbench"
measure "$dir/bad" training
is "$?: $(awk '$1 == "training" { print $NF }' "$dir/out")" "1: 3" "a command that fails is its step's code"

# Told to stop, with all that it runs: the step at work ends, no other begins, and the table is printed.
printf '#!/bin/sh\ntrap "exit 130" TERM\n[ "$1" = list ] && exit\necho run >> "$LOG"\nwhile :; do sleep 0.1; done\n' \
  > "$dir/attnbench"
: > "$dir/log"
(cd "$dir" && LOG=$dir/log exec setsid sh "$tool" "$dir/stop" traffic decode) > "$dir/out" 2>&1 &
group=$!
while [ ! -s "$dir/log" ]; do sleep 0.1; done
kill -s TERM -- "-$group"
wait $group
is "$?: $(wc -l < "$dir/log"): $(grep -c '^traffic\|^decode' "$dir/out")" "130: 1: 1" "an end is taken: the table is of what was begun"
done_testing
