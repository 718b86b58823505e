# SPDX-License-Identifier: Apache-2.0
# reference/: what is true. Knows impl/attn.h and no implementation.
libattnbench_a_SOURCES += \
  reference/reference.h \
  reference/semantics.h \
  reference/bound.h \
  reference/clones.h \
  reference/compare.h \
  reference/internal.h \
  reference/compare.c \
  reference/exact.c \
  reference/exact-grad.c \
  reference/law.h \
  reference/law-scene.h \
  reference/law.c \
  reference/law-adjoint.c \
  reference/law-bits.c \
  reference/law-compare.c \
  reference/law-eight-bit.c \
  reference/law-gradient.c \
  reference/law-pages.c \
  reference/law-probe.c \
  reference/law-reduction.c \
  reference/law-relation.c \
  reference/law-rotation.c \
  reference/law-set.c \
  reference/law-values.c \
  reference/matrix.c \
  reference/parallel.c \
  reference/plan.c \
  reference/rope.c \
  reference/rope.h \
  reference/verify.c
if HAVE_CUDA
libattnbench_a_SOURCES += \
  reference/exact-cuda.cu \
  reference/exact-access.cuh \
  reference/exact-dots.cuh \
  reference/exact-finish.cuh \
  reference/exact-passes.cuh \
  reference/exact-rows.cuh \
  reference/exact-scan.cuh \
  reference/exact-values.cuh
cuda_objects += reference/exact-cuda.o
endif
EXTRA_DIST += reference/SEMANTICS reference/BOUNDS
