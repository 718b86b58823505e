#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Laws: an implementation's hash is blind to comments and white space, and to nothing else; and
# every file of impl/SOURCES is there.
. "${srcdir:=.}/tests/tap.sh"

tool=$(cd "$srcdir" && pwd)/build-aux/impl-hash
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/impl"
printf '# a comment\ncpu/one: impl/one.c\ncpu/two: impl/one.c impl/two.c\n' > "$tree/impl/SOURCES"
echo 'int two;' > "$tree/impl/two.c"

# hash NAME CODE: the hash of NAME when impl/one.c is CODE
hash() {
  printf '%s\n' "$2" > "$tree/impl/one.c"
  sh "$tool" "$tree" | sed -n "s|^$1 ||p"
}

base=$(hash cpu/one 'int f(void) { return 1 / 2; }')
is "${#base}" 64 "a hash has 64 hex digits"
is "$(hash cpu/one 'int f(void) { /* one */ return 1 / 2; } // half')" "$base" \
  "comments do not count"
is "$(hash cpu/one "int f(void)
{
	return 1 / 2;
}")" "$base" "white space does not count"
differ "$(hash cpu/one 'int f(void) { return 1 / 3; }')" "$base" "a digit counts"
differ "$(hash cpu/one 'int f(void) { return 1 // 2; }')" "$base" "code made a comment counts"

text=$(hash cpu/one 'char *s = "/* a */";')
differ "$(hash cpu/one 'char *s = "/* b */";')" "$text" "a comment inside a string counts"
differ "$(hash cpu/one 'char *s = "/*a*/";')" "$text" "white space inside a string counts"
quote=$(hash cpu/one "char c = '\"'; /* x */ int a;")
is "$(hash cpu/one "char c = '\"'; /* y */ int a;")" "$quote" "a quoted quote opens no string"
escape=$(hash cpu/one 'char *s = "\""; /* x */ int a;')
is "$(hash cpu/one 'char *s = "\""; /* y */ int a;')" "$escape" "an escaped quote ends no string"

both=$(hash cpu/two 'int a;')
differ "$(hash cpu/one 'int a;')" "$both" "every file of a list counts"
is "$(sh "$tool" --header "$tree" | sed -n 2p)" "{\"cpu/two\", \"\", \"$both\"}," "rows for C"

# The parts of one implementation.
printf 'cpu/four fwd: impl/one.c\ncpu/four bwd: impl/one.c impl/two.c\n' > "$tree/impl/SOURCES"
hash 'cpu/four fwd' 'int a;' > "$tree/fwd"
hash 'cpu/four bwd' 'int a;' > "$tree/bwd"
echo 'int three;' > "$tree/impl/two.c"
is "$(hash 'cpu/four fwd' 'int a;')" "$(cat "$tree/fwd")" "a change of the backward leaves the forward's hash"
differ "$(hash 'cpu/four bwd' 'int a;')" "$(cat "$tree/bwd")" "and changes its own"
is "$(sh "$tool" --header "$tree" | sed -n 1p)" "{\"cpu/four\", \"fwd\", \"$(cat "$tree/fwd")\"}," "a part's row for C"

echo 'cpu/three: impl/missing.c' >> "$tree/impl/SOURCES"
said=$(sh "$tool" "$tree" 2>&1 > /dev/null)
is "$?: $said" "1: impl/SOURCES: cpu/three: no file impl/missing.c" "a missing source is an error"

missing=$(grep -v '^#' "$srcdir/impl/SOURCES" | cut -d: -f2 | tr ' ' '\n' | sort -u |
  while read -r file; do [ -z "$file" ] || [ -f "$srcdir/$file" ] || echo "$file"; done)
is "$missing" "" "every file in impl/SOURCES exists"

unlisted=$(grep -v '^#' "$srcdir/impl/SOURCES" | while IFS=: read -r name files; do
  for file in $files; do
    sed -n 's|^#include "\(impl/.*\.cuh\)"$|\1|p' "$srcdir/$file" | while read -r header; do
      case " $files " in *" $header "*) ;; *) echo "$name: $header" ;; esac
    done
  done
done)
is "$unlisted" "" "every .cuh that a listed file includes is listed"
done_testing
