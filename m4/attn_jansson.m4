dnl SPDX-License-Identifier: Apache-2.0
dnl ATTN_JANSSON: the JSON library; LDFLAGS/JANSSON_LIBS may name a static one.
AC_DEFUN([ATTN_JANSSON], [
  AC_ARG_VAR([JANSSON_LIBS], [linker flags for jansson (default -ljansson)])
  AS_IF([test -z "$JANSSON_LIBS"], [JANSSON_LIBS=-ljansson])
  jansson_found=no
  AC_CHECK_HEADER([jansson.h], [
    save_LIBS=$LIBS
    LIBS="$JANSSON_LIBS $LIBS"
    AC_MSG_CHECKING([for json_dumpb in $JANSSON_LIBS])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <jansson.h>]],
      [[json_t *j = json_object(); return (int)json_dumpb(j, 0, 0, 0);]])],
      [jansson_found=yes])
    AC_MSG_RESULT([$jansson_found])
    LIBS=$save_LIBS])
  AS_IF([test "$jansson_found" = no],
    [AC_MSG_ERROR([jansson is missing: install libjansson-dev (Debian, Ubuntu), or run ./quickstart, which does])])
  AC_SUBST([JANSSON_LIBS])
])
