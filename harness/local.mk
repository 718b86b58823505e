# SPDX-License-Identifier: Apache-2.0
# harness/: how it is measured; everything but main.c is in the library.
libattnbench_a_SOURCES += \
  harness/arena.c harness/arena.h \
  harness/device.c harness/device.h \
  harness/device-host.c harness/device-host.h \
  harness/host-ceilings.c \
  harness/host-info.c harness/host-info.h \
  harness/instrument.c harness/instrument.h \
  harness/instrument-io-model.c \
  harness/build.c harness/build.h \
  harness/catalog.c harness/catalog.h \
  harness/clock.h \
  harness/compare.c harness/compare.h \
  harness/compare-ci.c \
  harness/compare-conditions.c \
  harness/compare-load.c \
  harness/compare-print.c \
  harness/compare-words.c \
  harness/doctor.c harness/doctor.h \
  harness/floor.c \
  harness/group.c harness/group.h \
  harness/group-check.c \
  harness/group-law.c \
  harness/group-time.c \
  harness/group-verify.c \
  harness/group-zoo.c \
  harness/history.c harness/history.h \
  harness/history-plot.c \
  harness/record.c harness/record.h \
  harness/regime.c harness/regime.h \
  harness/rng.h \
  harness/rules.c harness/rules.h \
  harness/rules-plain.c \
  harness/run.c harness/run.h harness/run-parts.h \
  harness/run-batch.c \
  harness/run-emit.c \
  harness/run-merge.c \
  harness/show.c \
  harness/stats.c harness/stats.h \
  harness/stats-change.c \
  harness/stats-effect.c \
  harness/stats-test.c \
  harness/store.c harness/store.h \
  harness/tensors.c harness/tensors.h \
  harness/tensors-flip.c \
  harness/tensors-pages.c \
  harness/worker.c harness/worker.h
libattnbench_a_SOURCES += harness/sha256.c harness/sha256.h
if HAVE_CUDA
libattnbench_a_SOURCES += \
  harness/device-cuda.c harness/device-cuda.h \
  harness/cuda-ceilings.c \
  harness/cuda-kernels.cu harness/cuda-kernels.h \
  harness/cuda-presence.c \
  harness/cuda-timing.c \
  harness/nvml.c harness/nvml.h
cuda_objects += harness/cuda-kernels.o
endif
if HAVE_CUPTI
libattnbench_a_SOURCES += \
  harness/instrument-cupti.c harness/instrument-cupti.h \
  harness/instrument-cupti-activity.c \
  harness/instrument-cupti-host.cpp \
  harness/instrument-cupti-range.c
endif
bin_PROGRAMS += attnbench
attnbench_SOURCES = \
  harness/main.c \
  harness/options.c harness/options.h \
  harness/ab.c harness/ab.h \
  harness/cmd-aa.c \
  harness/cmd-compare.c \
  harness/cmd-doctor.c \
  harness/cmd-history.c \
  harness/cmd-list.c \
  harness/cmd-report.c \
  harness/cmd-run.c \
  harness/minimize.c harness/minimize.h \
  harness/zoo.c harness/zoo.h \
  harness/zoo-print.c
attnbench_LDADD = libattnbench.a $(JANSSON_LIBS) $(CUPTI_LIBS) $(CUDA_LIBS)

# What this binary was built from; rewritten only when it changed.
harness/build.$(OBJEXT): harness/build-info.h impl/impl-hash.h
harness/build-info.h: FORCE
	@$(MKDIR_P) harness
	@$(SHELL) $(srcdir)/build-aux/build-info $@ '$(srcdir)' '$(NVCC)' '$(CFLAGS) $(NVCCFLAGS)'
FORCE:
.PHONY: FORCE
CLEANFILES += harness/build-info.h
EXTRA_DIST += build-aux/build-info
