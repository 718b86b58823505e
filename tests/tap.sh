# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# tap.sh - the Test Anything Protocol for shell tests: source it, call ok and is, end with
# done_testing.  $srcdir and $builddir come from make; by hand they are both ".".

: "${srcdir:=.}" "${builddir:=.}"
tap_count=0

# ok STATUS NAME: passes if STATUS is 0.
ok() {
  tap_count=$((tap_count + 1))
  if [ "$1" -eq 0 ]; then echo "ok $tap_count - $2"; else echo "not ok $tap_count - $2"; fi
}

# is GOT WANT NAME
is() {
  if [ "$1" = "$2" ]; then ok 0 "$3"; else
    printf '# got:  %s\n# want: %s\n' "$1" "$2"
    ok 1 "$3"
  fi
}

# differ A B NAME
differ() {
  if [ "$1" != "$2" ]; then ok 0 "$3"; else
    printf '# both: %s\n' "$1"
    ok 1 "$3"
  fi
}

skip_all() {
  echo "1..0 # SKIP $1"
  exit 0
}

done_testing() {
  echo "1..$tap_count"
}
