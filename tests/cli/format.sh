#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Law: clang-format changes nothing in any source file of the tree.  Its output differs between major
# versions; the tree keeps to one.
. "${srcdir:=.}/tests/tap.sh"

: "${CLANG_FORMAT:=$(command -v clang-format)}"
[ -n "$CLANG_FORMAT" ] || skip_all "no clang-format: install it to check the style"
version=$("$CLANG_FORMAT" --version | sed 's/.*version \([0-9]*\).*/\1/')
[ "$version" = 14 ] || skip_all "clang-format $version formats otherwise than 14, which the tree uses"

cd "$srcdir" || exit 1
for file in $(find impl reference harness reports tests -name '*.[ch]' -o -name '*.cu' -o \
    -name '*.cuh' -o -name '*.cpp' | sort); do
  difference=$("$CLANG_FORMAT" "$file" | diff "$file" - | head -n 6)
  [ -z "$difference" ] || echo "$difference" | sed 's/^/# /'
  [ -z "$difference" ]
  ok $? "$file is formatted"
done
done_testing
