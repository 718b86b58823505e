dnl SPDX-License-Identifier: Apache-2.0
dnl ATTN_CUDNN: --with-cudnn[=DIR|no]. Only the headers of cuDNN 9.10 or later are needed to build;
dnl the library is loaded at run time, from DIR too. Looked for in the CUDA toolkit and where the
dnl compiler looks.
AC_DEFUN([ATTN_CUDNN], [
  AC_ARG_WITH([cudnn],
    [AS_HELP_STRING([--with-cudnn@<:@=DIR@:>@], [cuDNN headers (default: look in the CUDA toolkit and /usr/include)])],
    [], [with_cudnn=check])
  cudnn_found=no
  AS_IF([test "$cuda_found" != no && test "x$with_cudnn" != xno], [
    AS_CASE([$with_cudnn],
      [yes|check], [cudnn_root=],
      [cudnn_root=$with_cudnn; CUDNN_CPPFLAGS="-I$cudnn_root/include"
       AS_IF([test ! -f "$cudnn_root/include/cudnn.h"],
         [AC_MSG_ERROR([--with-cudnn=$cudnn_root: there is no include/cudnn.h in it: install libcudnn9-dev-cuda-13, or name another folder])])])
    save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDNN_CPPFLAGS $CUDA_CPPFLAGS"
    AC_MSG_CHECKING([for the headers of cuDNN 9.10 or later])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cudnn.h>
#include <cudnn_graph.h>
#if CUDNN_VERSION < 91000
#error too old
#endif]], [[cudnnBackendDescriptor_t d; return cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);]])],
      [cudnn_found=yes])
    AC_MSG_RESULT([$cudnn_found])
    CPPFLAGS=$save_CPPFLAGS
    AS_IF([test "$cudnn_found" = no && test "x$with_cudnn" != xcheck],
      [AC_MSG_ERROR([--with-cudnn was asked for, but cudnn.h of cuDNN 9.10 or later does not compile: install libcudnn9-dev-cuda-13, or name the folder that holds include/cudnn.h with --with-cudnn=DIR])])
  ])
  AS_IF([test "$cudnn_found" != no], [
    AC_DEFINE([HAVE_CUDNN], [1], [cuDNN headers present])
    AC_DEFINE_UNQUOTED([CUDA_STUBS], ["$cuda_lib/stubs"], [folder of the CUDA driver stub])
    AS_IF([test -n "$cudnn_root"],
      [cudnn_lib=$cudnn_root/lib64
       AS_IF([test ! -d "$cudnn_lib"], [cudnn_lib=$cudnn_root/lib])
       AC_DEFINE_UNQUOTED([CUDNN_LIBDIR], ["$cudnn_lib"], [where --with-cudnn says the library is])])
    cudnn_found="${cudnn_root:-yes}, loaded at run time"],
    [CUDNN_CPPFLAGS=])
  AC_SUBST([CUDNN_CPPFLAGS])
  AM_CONDITIONAL([HAVE_CUDNN], [test "$cudnn_found" != no])
])
