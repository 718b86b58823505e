dnl SPDX-License-Identifier: Apache-2.0
dnl ATTN_CUPTI: --with-cupti[=DIR|no]; in the toolkit root, then extras/CUPTI.
AC_DEFUN([ATTN_CUPTI], [
  AC_ARG_WITH([cupti],
    [AS_HELP_STRING([--with-cupti@<:@=DIR@:>@], [CUPTI range profiler (default: look in the CUDA toolkit)])],
    [], [with_cupti=check])
  cupti_found=no
  AS_IF([test "$cuda_found" != no && test "x$with_cupti" != xno], [
    AS_CASE([$with_cupti],
      [yes|check], [cupti_roots="$cuda_root $cuda_root/extras/CUPTI"],
      [cupti_roots=$with_cupti])
    for cupti_root in $cupti_roots; do
      AS_IF([test "$cupti_found" = no && test -f "$cupti_root/include/cupti_range_profiler.h"], [
        for cupti_lib in "$cupti_root/lib64" "$cupti_root/lib" "$cupti_root/targets/x86_64-linux/lib"; do
          AS_IF([test "$cupti_found" = no && test -f "$cupti_lib/libcupti.so"], [
            cupti_found=$cupti_root
            CUPTI_CPPFLAGS="-I$cupti_root/include"
            CUPTI_LIBS="-L$cupti_lib -Wl,-rpath,$cupti_lib -lcupti"])
        done])
    done
    AS_IF([test "$cupti_found" = no && test "x$with_cupti" != xcheck],
      [AC_MSG_ERROR([--with-cupti was asked for, but cupti_range_profiler.h and libcupti.so were not found in $cupti_roots])])
  ])
  AS_IF([test "$cupti_found" != no],
    [AC_DEFINE([HAVE_CUPTI], [1], [CUPTI range profiler present])],
    [CUPTI_CPPFLAGS= CUPTI_LIBS=])
  AC_SUBST([CUPTI_CPPFLAGS])
  AC_SUBST([CUPTI_LIBS])
  AM_CONDITIONAL([HAVE_CUPTI], [test "$cupti_found" != no])
])
