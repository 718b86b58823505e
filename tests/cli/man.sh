#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Law: the man page and --help name the same commands and options.
. "${srcdir:=.}/tests/tap.sh"

page=$srcdir/doc/attnbench.1

# Options that a command's --help lists.
options() { "$ATTNBENCH" "$1" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p'; }

commands=$("$ATTNBENCH" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
is "$(echo "$commands" | sort | xargs)" \
  "$(sed -n 's/^\.B attnbench //p' "$page" | sort | xargs)" "the same commands"

helped=$(for command in $commands; do options "$command"; done | sort -u | xargs)
paged=$(sed -n '/^\.SH OPTIONS/,/^\.SH PROBLEMS/p' "$page" | sed 's/\\//g' |
  sed -n 's/^\.BI* \(--[a-z-]*\).*/\1/p; s/^\.BR \(--help\).*/\1/p' | sort -u | xargs)
is "$paged" "$helped" "the same options"

for key in op dtype b hq hkv s sq sk seqs d dv mask softcap scale alibi dropout page layout \
  rope theta trained rotary pairs band ramp attention deterministic tokens hidden model; do
  grep -q "[^a-z]$key=" "$page"
  ok $? "explains $key="
done
done_testing
