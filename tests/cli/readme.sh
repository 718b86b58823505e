# SPDX-License-Identifier: Apache-2.0
#
# Every number in README and in doc/kernels.md comes from a committed record: their results are rows of
# the tables that attnbench report makes from each file of profiles/baselines that they name, and
# README's figure shows such a report's data.
. "$srcdir/tests/tap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/attnbench-readme.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
readme=$srcdir/README.md

for text in "$srcdir/doc/kernels.md" "$readme"; do
  name=$(basename "$text")
  rm -rf "$dir/report"
  mkdir "$dir/report"
  failed=0
  # shellcheck disable=SC2046 # names and patterns
  for file in $(grep -o 'profiles/baselines/[a-z0-9*-]*\.jsonl' "$text" | sort -u | sed "s|^|$srcdir/|"); do
    "$ATTNBENCH" report "$file" --out "$dir/report/$(basename "$file" .jsonl)" > "$dir/log" 2>&1 || {
      failed=$((failed + 1)); sed "s|^|# $file: |" "$dir/log"; }
  done
  is "$failed" 0 "the files that $name names make reports"
  cat "$dir"/report/*/tables/*.md > "$dir/rows"
  sed -n '/<!-- results -->/,/<!-- end of results -->/p' "$text" | grep '^|' > "$dir/shown"
  n=$(wc -l < "$dir/shown")
  ok $((n < 4)) "$name shows $n rows"
  missing=0
  while IFS= read -r row; do
    grep -qxF -e "$row" "$dir/rows" || { missing=$((missing + 1)); printf '# in no report: %s\n' "$row"; }
  done < "$dir/shown"
  is "$missing" 0 "each is a row of one"
done

# Outside of these tables: no measured figure, that is none with a unit of speed.
strays=$(sed '/<!-- results -->/,/<!-- end of results -->/d' "$readme" |
  grep -cE '[0-9] ?(TFLOP/s|TFLOPS|GB/s|TB/s|ms|us)\b')
is "$strays" 0 "no other figure with a unit of speed stands in README"

for dat in "$srcdir"/doc/figures/*.dat; do
  [ -f "$dat" ] || continue
  ls "$dir"/report/*/figures/*.svg > /dev/null 2>&1 || continue # no gnuplot, no figures
  fresh=$(find "$dir/report/h200" -name "$(basename "$dat")")
  [ -n "$fresh" ] && cmp -s "$dat" "$fresh"
  ok $? "doc/figures/$(basename "$dat") is what the baselines say"
done

# An awk program for each block of the report's figures: line[1 ... n]; sets bad.
found=0
blocks() { # PROGRAM
  for dat in "$dir"/report/*/figures/*.dat; do
    [ -f "$dat" ] || continue
    awk 'BEGIN { RS = "\n\n\n+" } { n = split($0, line, "\n") } '"$1"' END { exit bad }' "$dat" || {
      found=$((found + 1)); echo "# in $dat"; }
  done
}

# gnuplot counts blocks that have rows, so that one without would lend its name to the next.
blocks '{ rows = 0
  for (i = 1; i <= n; i++) if (line[i] != "" && line[i] !~ /^#/) rows++
  if (!rows) { bad = 1; print "# empty block: " line[n] } }'
is "$found" 0 "no figure has a block without rows"

# A line over the sequence length has one value for each: no other problem is in its panel.
found=0 failed=0 lines=0
for text in "$srcdir"/profiles/baselines/h200*.jsonl; do
  rm -rf "$dir/report"
  "$ATTNBENCH" report "$text" --out "$dir/report/it" > "$dir/log" 2>&1 || {
    failed=$((failed + 1)); sed "s|^|# $text: |" "$dir/log"; }
  lines=$((lines + $(cat "$dir"/report/it/figures/*.dat 2> /dev/null | grep -c '^# tokens value')))
  blocks '$0 ~ /\n# tokens value/ { delete seen
    for (i = 1; i <= n; i++) { split(line[i], word, " ")
      if (word[1] ~ /^[0-9]/ && seen[word[1]]++) { print "# twice: " line[i]; bad = 1 } } }'
done
is "$failed" 0 "each file of records makes a report"
[ "$lines" -gt 0 ]
ok $? "their figures have $lines lines over the length"
is "$found" 0 "no line of a figure has two values for a length"

done_testing
