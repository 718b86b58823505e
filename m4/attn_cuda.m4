dnl SPDX-License-Identifier: Apache-2.0
dnl ATTN_CUDA: --with-cuda[=DIR|no]. Default: use it if nvcc and cuBLAS are here. An explicit
dnl request must succeed. Sets HAVE_CUDA, NVCC, NVCCFLAGS, CUDA_CPPFLAGS, CUDA_LIBS.
AC_DEFUN([ATTN_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [CUDA toolkit (default: look for it)])],
    [], [with_cuda=check])
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
  cuda_found=no
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda],
      [yes|check], [cuda_hint=/usr/local/cuda],
      [cuda_hint=$with_cuda])
    AS_IF([test "x$with_cuda" != xyes && test "x$with_cuda" != xcheck],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_hint/bin])],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR$cuda_hint/bin])])
    AS_IF([test -n "$NVCC"], [
      dnl nvcc on the PATH may be a wrapper: ask it for its root.
      touch conftest.cu
      cuda_root=`$NVCC -dryrun -c conftest.cu -o conftest.o 2>&1 | sed -n 's/^#\$ TOP=//p' | head -n 1`
      rm -f conftest.cu conftest.o
      cuda_root=`cd "$cuda_root" 2>/dev/null && pwd`
      AS_IF([test -z "$cuda_root"], [cuda_root=$cuda_hint])
      cuda_lib=$cuda_root/lib64
      AS_IF([test ! -d "$cuda_lib"], [cuda_lib=$cuda_root/targets/x86_64-linux/lib])
      CUDA_CPPFLAGS="-I$cuda_root/include"
      CUDA_LIBS="-L$cuda_lib -Wl,-rpath,$cuda_lib -lcublas -lcudart_static -lstdc++ -ldl -lrt -lpthread"
      save_LIBS=$LIBS; save_CPPFLAGS=$CPPFLAGS
      LIBS="$CUDA_LIBS $LIBS"; CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
      AC_MSG_CHECKING([whether the CUDA runtime and cuBLAS link])
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>
#include <cublas_v2.h>]], [[cublasHandle_t h; int n; cublasCreate(&h); return cudaGetDeviceCount(&n);]])],
        [cuda_links=yes], [cuda_links=no])
      AC_MSG_RESULT([$cuda_links])
      LIBS=$save_LIBS; CPPFLAGS=$save_CPPFLAGS
      AS_IF([test "$cuda_links" = yes], [cuda_found="$cuda_root"])
    ])
    AS_IF([test "$cuda_found" = no && test "x$with_cuda" != xcheck],
      [AC_MSG_ERROR([--with-cuda was asked for, but no working CUDA toolkit was found at $cuda_hint: name its folder with --with-cuda=DIR])])
  ])
  AS_IF([test "$cuda_found" != no],
    [AC_DEFINE([HAVE_CUDA], [1], [CUDA toolkit present])],
    [CUDA_CPPFLAGS= CUDA_LIBS=])
  AS_IF([test -z "$NVCCFLAGS"], [NVCCFLAGS="-O3"])
  AS_IF([test "x$enable_werror" = xyes],
    [AC_SUBST([NVCC_WERROR], ["-Werror all-warnings"])])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AM_CONDITIONAL([HAVE_CUDA], [test "$cuda_found" != no])
])
