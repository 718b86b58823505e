# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# apply.sh - what a mutant's text says, and its source with the fault in it; for build.sh,
# build-cuda.sh and the tests.

# Prints the mutated file, or says why not.
mutate() { # MUTANT FILE
  awk -v name="$1" '
    FNR == NR && /^@@@$/ { part = 1; next }
    FNR == NR && /^===$/ && part == 1 { part = 2; next }
    FNR == NR { if (part) text[part] = text[part] $0 "\n"; next }
    { file = file $0 "\n" }
    END {
      at = text[1] == "" ? 0 : index(file, text[1])
      rest = substr(file, at + 1)
      if (at == 0 || index(rest, text[1]) > 0) {
        print name ": its text is " (at ? "twice" : "not") " in the file" > "/dev/stderr"
        exit 1
      }
      printf "%s%s%s", substr(file, 1, at - 1), text[2], substr(file, at + length(text[1]))
    }' "$1" "$2"
}

field() { sed -n "s/^$2: //p; /^@@@/q" "$1"; }

symbol() { echo "attn_$1" | tr '/-' '__'; }

object() { echo "$1" | tr / _; }

# A CUDA source with, of its tables, the rows alone that the zoo compiles: head_dim 64 (of e4m3 caches
# the fewest queries of 128), bf16.
rows() { # FILE
  sed '/^    [a-z0-9_(]*row<.*\(fp16\|__half\)/d
    /^    \(DECODE_[A-Z]*(\|decode_variant<\)fp16/d
    /^    \(DECODE_[A-Z]*(\|decode_variant<\)bf16, [a-z0-9]*, \(128, [13]\|256\)/d
    /^    WIDE_FORMS(\(fp16\|bf16, __nv_bfloat16, 128\)/d' "$1"
}
