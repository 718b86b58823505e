# SPDX-License-Identifier: Apache-2.0
# impl/: what is measured. One implementation = its file(s) here + one row in registry.c + one line
# in impl/SOURCES (the files that its impl_hash covers).
lib_LIBRARIES = libattnbench.a
libattnbench_a_SOURCES = \
  impl/attn.h \
  impl/convert.h \
  impl/cpu/block.c \
  impl/cpu/block.h \
  impl/cpu/block-kernels.h \
  impl/cpu/cpu.h \
  impl/cpu/flash-backward.c \
  impl/cpu/flash-materialised.c \
  impl/cpu/flash.c \
  impl/cpu/flash.h \
  impl/cpu/gradient.c \
  impl/cpu/gradient.h \
  impl/cpu/machine.c \
  impl/cpu/machine.h \
  impl/cpu/materialise-backward.c \
  impl/cpu/materialise.c \
  impl/cpu/materialise.h \
  impl/cpu/naive.c \
  impl/cpu/plan.c \
  impl/cpu/plan.h \
  impl/cpu/rope.c \
  impl/cpu/split-decode.c \
  impl/cpu/cascade.c \
  impl/cpu/packed.c \
  impl/cpu/packed.h \
  impl/dropout.h \
  impl/echo.h \
  impl/model.c \
  impl/model.h \
  impl/problem.c \
  impl/problem.h \
  impl/problem-count.c \
  impl/problem-parse.c \
  impl/problem-rope.c \
  impl/problem-sweep.c \
  impl/registry.c \
  impl/rope.h
if HAVE_CUDA
libattnbench_a_SOURCES += \
  impl/cuda/decode/cascade.c \
  impl/cuda/decode/decode.c \
  impl/cuda/decode/decode-variants.c \
  impl/cuda/decode/decode.h \
  impl/cuda/decode/decode-d64.cu \
  impl/cuda/decode/decode-d128.cu \
  impl/cuda/decode/decode-d256.cu \
  impl/cuda/decode/decode-e4m3.cu \
  impl/cuda/decode/decode-sm90.cu \
  impl/cuda/decode/decode-forward.cuh \
  impl/cuda/decode/decode-line.cuh \
  impl/cuda/decode/decode-load.cuh \
  impl/cuda/decode/decode-merge.cuh \
  impl/cuda/decode/decode-operands.cuh \
  impl/cuda/decode/decode-queries.cuh \
  impl/cuda/decode/decode-rows.cuh \
  impl/cuda/decode/decode-wide.cuh \
  impl/cuda/sm80-backward/flash-bwd-sm80.c \
  impl/cuda/sm80-backward/flash-bwd-sm80-variants.c \
  impl/cuda/sm80-backward/flash-bwd-sm80.cuh \
  impl/cuda/sm80-backward/flash-bwd-sm80-step.cuh \
  impl/cuda/sm80-backward/flash-bwd-sm80-tile.cuh \
  impl/cuda/sm80-backward/flash-bwd-sm80.h \
  impl/cuda/sm80-backward/flash-bwd-sm80-d64.cu \
  impl/cuda/sm80-backward/flash-bwd-sm80-d128.cu \
  impl/cuda/sm80-backward/flash-bwd-sm80-d256.cu \
  impl/cuda/sm80-forward/flash-sm80.c \
  impl/cuda/sm80-forward/flash-sm80-variants.c \
  impl/cuda/sm80-forward/flash-sm80.cuh \
  impl/cuda/sm80-forward/flash-sm80-load.cuh \
  impl/cuda/sm80-forward/flash-sm80-place.cuh \
  impl/cuda/sm80-forward/flash-sm80-tile.cuh \
  impl/cuda/sm80-forward/flash-sm80.h \
  impl/cuda/sm80-forward/flash-sm80-d64.cu \
  impl/cuda/sm80-forward/flash-sm80-d128.cu \
  impl/cuda/sm80-forward/flash-sm80-d256.cu \
  impl/cuda/materialised/flash-materialised.c \
  impl/cuda/materialised/flash-materialised-kernels.cu \
  impl/cuda/materialised/flash-materialised.h \
  impl/cuda/sm90-backward/flash-bwd-sm90.c \
  impl/cuda/sm90-backward/flash-bwd-sm90-variants.c \
  impl/cuda/sm90-backward/flash-bwd-sm90-schedule.c \
  impl/cuda/sm90-backward/flash-bwd-sm90-schedule.h \
  impl/cuda/sm90-backward/flash-bwd-sm90.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90.h \
  impl/cuda/sm90-backward/flash-bwd-sm90-d64.cu \
  impl/cuda/sm90-backward/flash-bwd-sm90-d64-options.cu \
  impl/cuda/sm90-backward/flash-bwd-sm90-d128.cu \
  impl/cuda/sm90-backward/flash-bwd-sm90-d128-options.cu \
  impl/cuda/sm90-backward/flash-bwd-sm90-d256.cu \
  impl/cuda/sm90-backward/flash-bwd-sm90-d256-options.cu \
  impl/cuda/sm90-backward/flash-bwd-sm90-d256-twopass.cu \
  impl/cuda/sm90-backward/flash-bwd-sm90-ends.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-load.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-make-dq.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-options.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-roles.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-split-dq.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-split-tile.cuh \
  impl/cuda/sm90-backward/flash-bwd-sm90-twopass.cuh \
  impl/cuda/sm90-forward/flash-sm90.c \
  impl/cuda/sm90-forward/flash-sm90-launch.c \
  impl/cuda/sm90-forward/flash-sm90-plan.c \
  impl/cuda/sm90-forward/flash-sm90-variants.c \
  impl/cuda/sm90-forward/flash-sm90.cuh \
  impl/cuda/sm90-forward/flash-sm90-config.cuh \
  impl/cuda/sm90-forward/flash-sm90-consume.cuh \
  impl/cuda/sm90-forward/flash-sm90-issue.cuh \
  impl/cuda/sm90-forward/flash-sm90-pages.cuh \
  impl/cuda/sm90-forward/flash-sm90-produce.cuh \
  impl/cuda/sm90-forward/flash-sm90-score.cuh \
  impl/cuda/sm90-forward/flash-sm90-softmax.cuh \
  impl/cuda/sm90-forward/flash-sm90-store.cuh \
  impl/cuda/sm90-forward/flash-sm90-tile.cuh \
  impl/cuda/sm90-forward/flash-sm90.h \
  impl/cuda/sm90-forward/flash-sm90-d64.cu \
  impl/cuda/sm90-forward/flash-sm90-d64-options.cu \
  impl/cuda/sm90-forward/flash-sm90-d64-paged.cu \
  impl/cuda/sm90-forward/flash-sm90-d128.cu \
  impl/cuda/sm90-forward/flash-sm90-d128-options.cu \
  impl/cuda/sm90-forward/flash-sm90-d128-paged.cu \
  impl/cuda/sm90-forward/flash-sm90-d256.cu \
  impl/cuda/sm90-forward/flash-sm90-d256-options.cu \
  impl/cuda/sm90-forward/flash-sm90-d256-paged.cu \
  impl/cuda/sm90-forward/flash-sm90-schedule.cu \
  impl/cuda/alibi.cuh \
  impl/cuda/mask-sides.h \
  impl/cuda/mma.cuh \
  impl/cuda/naive/naive.c \
  impl/cuda/naive/naive-compute.c \
  impl/cuda/naive/naive-stack.h \
  impl/cuda/naive/naive.h \
  impl/cuda/naive/naive-row.cuh \
  impl/cuda/naive/naive-rows.cu \
  impl/cuda/sm90-backward/ptx-bwd-sm90.cuh \
  impl/cuda/ptx-sm90.cuh \
  impl/cuda/rope/rope.c \
  impl/cuda/rope/rope.cuh \
  impl/cuda/rope/rope.h \
  impl/cuda/rope/rope-kernels.cu \
  impl/cuda/tensor-map.c \
  impl/cuda/tensor-map.h
cuda_objects += \
  impl/cuda/decode/decode-d64.o \
  impl/cuda/decode/decode-d128.o \
  impl/cuda/decode/decode-d256.o \
  impl/cuda/decode/decode-e4m3.o \
  impl/cuda/decode/decode-sm90.o \
  impl/cuda/sm80-backward/flash-bwd-sm80-d64.o \
  impl/cuda/sm80-backward/flash-bwd-sm80-d128.o \
  impl/cuda/sm80-backward/flash-bwd-sm80-d256.o \
  impl/cuda/sm80-forward/flash-sm80-d64.o \
  impl/cuda/sm80-forward/flash-sm80-d128.o \
  impl/cuda/sm80-forward/flash-sm80-d256.o \
  impl/cuda/materialised/flash-materialised-kernels.o \
  impl/cuda/sm90-backward/flash-bwd-sm90-d64.o \
  impl/cuda/sm90-backward/flash-bwd-sm90-d64-options.o \
  impl/cuda/sm90-backward/flash-bwd-sm90-d128.o \
  impl/cuda/sm90-backward/flash-bwd-sm90-d128-options.o \
  impl/cuda/sm90-backward/flash-bwd-sm90-d256.o \
  impl/cuda/sm90-backward/flash-bwd-sm90-d256-options.o \
  impl/cuda/sm90-backward/flash-bwd-sm90-d256-twopass.o \
  impl/cuda/sm90-forward/flash-sm90-d64.o \
  impl/cuda/sm90-forward/flash-sm90-d64-options.o \
  impl/cuda/sm90-forward/flash-sm90-d64-paged.o \
  impl/cuda/sm90-forward/flash-sm90-d128.o \
  impl/cuda/sm90-forward/flash-sm90-d128-options.o \
  impl/cuda/sm90-forward/flash-sm90-d128-paged.o \
  impl/cuda/sm90-forward/flash-sm90-d256.o \
  impl/cuda/sm90-forward/flash-sm90-d256-options.o \
  impl/cuda/sm90-forward/flash-sm90-d256-paged.o \
  impl/cuda/sm90-forward/flash-sm90-schedule.o \
  impl/cuda/naive/naive-rows.o \
  impl/cuda/rope/rope-kernels.o
endif
cuda_objects +=
if HAVE_CUDNN
libattnbench_a_SOURCES += \
  impl/peer/cudnn-api.c \
  impl/peer/cudnn-api.h \
  impl/peer/cudnn-graph.c \
  impl/peer/cudnn-graph.h \
  impl/peer/cudnn-plan.c \
  impl/peer/cudnn-plan.h \
  impl/peer/cudnn-ragged.cu \
  impl/peer/cudnn-ragged.h \
  impl/peer/cudnn-sdpa.c \
  impl/peer/cudnn-sdpa.h \
  impl/peer/cudnn.c \
  impl/peer/cudnn.h
cuda_objects += impl/peer/cudnn-ragged.o
endif

# Hashes of the implementations' sources, comments and white space stripped.
BUILT_SOURCES += impl/impl-hash.h
CLEANFILES += impl/impl-hash.h
impl/impl-hash.h: $(srcdir)/impl/SOURCES $(srcdir)/build-aux/impl-hash $(libattnbench_a_SOURCES)
	@$(MKDIR_P) impl
	$(AM_V_GEN)$(SHELL) $(srcdir)/build-aux/impl-hash --header $(srcdir) > $@.tmp && mv $@.tmp $@
EXTRA_DIST += impl/SOURCES build-aux/impl-hash
