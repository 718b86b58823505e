# SPDX-License-Identifier: Apache-2.0
# harness/: how it is measured, a room a task. Everything but cli/ is in the library.
# base/: what needs nothing else.
libattnbench_a_SOURCES += \
  harness/base/clock.h \
  harness/base/path.h \
  harness/base/rng.h \
  harness/base/sha256.c harness/base/sha256.h \
  harness/base/spent.c harness/base/spent.h

# device/: memory, launches, clocks and counters of host and GPU.
libattnbench_a_SOURCES += \
  harness/device/arena.c harness/device/arena.h \
  harness/device/device.c harness/device/device.h \
  harness/device/device-host.c harness/device/device-host.h \
  harness/device/host-ceilings.c \
  harness/device/host-info.c harness/device/host-info.h \
  harness/device/instrument.c harness/device/instrument.h \
  harness/device/instrument-io-model.c
if HAVE_CUDA
libattnbench_a_SOURCES += \
  harness/device/device-cuda.c harness/device/device-cuda.h \
  harness/device/cuda-ceilings.c \
  harness/device/cuda-graph.c \
  harness/device/cuda-kernels.cu harness/device/cuda-kernels.h \
  harness/device/cuda-presence.c \
  harness/device/cuda-timing.c \
  harness/device/nvml.c harness/device/nvml.h
cuda_objects += harness/device/cuda-kernels.o
endif
if HAVE_CUPTI
libattnbench_a_SOURCES += \
  harness/device/instrument-cupti.c harness/device/instrument-cupti.h \
  harness/device/instrument-cupti-activity.c \
  harness/device/instrument-cupti-host.cpp \
  harness/device/instrument-cupti-range.c
endif

# record/: lines of JSON, and the files that hold them.
libattnbench_a_SOURCES += \
  harness/record/build.c harness/record/build.h \
  harness/record/fields.h \
  harness/record/record.c harness/record/record.h \
  harness/record/store.c harness/record/store.h

# run/: problems on implementations, in workers: verified, timed, counted.
libattnbench_a_SOURCES += \
  harness/run/catalog.c harness/run/catalog.h \
  harness/run/group.c harness/run/group.h \
  harness/run/group-check.c \
  harness/run/group-law.c \
  harness/run/group-time.c \
  harness/run/group-verify.c \
  harness/run/group-zoo.c \
  harness/run/lock.c harness/run/lock.h \
  harness/run/regime.c harness/run/regime.h \
  harness/run/rules.c harness/run/rules.h \
  harness/run/rules-plain.c \
  harness/run/rules-rope.c \
  harness/run/run.c harness/run/run.h harness/run/run-parts.h \
  harness/run/run-batch.c \
  harness/run/run-emit.c \
  harness/run/run-lanes.c \
  harness/run/run-merge.c \
  harness/run/show.c \
  harness/run/tensors.c harness/run/tensors.h \
  harness/run/tensors-cache.c \
  harness/run/tensors-flip.c \
  harness/run/tensors-pages.c \
  harness/run/tensors-scales.c \
  harness/run/worker.c harness/run/worker.h

# tune/: which compiled variant a problem gets on a device.
libattnbench_a_SOURCES += \
  harness/tune/advice.c harness/tune/advice.h \
  harness/tune/choices.c harness/tune/choices.h \
  harness/tune/tune.c harness/tune/tune.h \
  harness/tune/tune-write.c

# explain/: what bounds a problem on a machine.
libattnbench_a_SOURCES += \
  harness/explain/explain.c harness/explain/explain.h \
  harness/explain/explain-json.c \
  harness/explain/explain-print.c \
  harness/explain/explain-variant.c \
  harness/explain/limits.c harness/explain/limits.h \
  harness/explain/machine-file.c harness/explain/machine-file.h \
  harness/explain/text.h

# gate/: statistics, and what they say of two runs or of many.
libattnbench_a_SOURCES += \
  harness/gate/compare.c harness/gate/compare.h \
  harness/gate/compare-ci.c \
  harness/gate/compare-conditions.c \
  harness/gate/compare-load.c \
  harness/gate/compare-print.c \
  harness/gate/compare-words.c \
  harness/gate/floor.c \
  harness/gate/history.c harness/gate/history.h \
  harness/gate/history-plot.c \
  harness/gate/stats.c harness/gate/stats.h \
  harness/gate/stats-change.c \
  harness/gate/stats-effect.c \
  harness/gate/stats-test.c

# serve/: the serving scenario: KV cache, prefix cache, traces, batching, decoder.
libattnbench_a_SOURCES += \
  harness/serve/compute.c harness/serve/compute.h \
  harness/serve/compute-cpu.c \
  harness/serve/compute-gemm.c harness/serve/compute-gemm.h \
  harness/serve/compute-gemm-kernel.h \
  harness/serve/decoder.c harness/serve/decoder.h \
  harness/serve/decoder-calls.c harness/serve/decoder-parts.h \
  harness/serve/decoder-size.c \
  harness/serve/engine.c harness/serve/engine.h \
  harness/serve/fragment.c harness/serve/fragment.h \
  harness/serve/kv.c harness/serve/kv.h \
  harness/serve/pages.c harness/serve/pages.h \
  harness/serve/prefix.c harness/serve/prefix.h \
  harness/serve/recount.c harness/serve/recount.h \
  harness/serve/sched.c harness/serve/sched.h \
  harness/serve/scenario-fork.c \
  harness/serve/scenario-heads.c \
  harness/serve/scenario-memory.c \
  harness/serve/scenario-prefill.c \
  harness/serve/scenario-replay.c \
  harness/serve/scenario-rope.c \
  harness/serve/serve.c harness/serve/serve.h harness/serve/serve-parts.h \
  harness/serve/serve-record.c \
  harness/serve/serve-replay.c \
  harness/serve/serve-setting.c \
  harness/serve/serve-trace.c \
  harness/serve/step.h \
  harness/serve/trace.c harness/serve/trace.h \
  harness/serve/trace-azure.c \
  harness/serve/trace-mooncake.c
if HAVE_CUDA
libattnbench_a_SOURCES += \
  harness/serve/compute-cuda.c \
  harness/serve/compute-kernels.cu harness/serve/compute-kernels.h
cuda_objects += harness/serve/compute-kernels.o
endif

# cli/: the command line, a file a command.
bin_PROGRAMS += attnbench
attnbench_SOURCES = \
  harness/cli/main.c \
  harness/cli/ab.c harness/cli/ab.h \
  harness/cli/cmd-aa.c \
  harness/cli/cmd-compare.c \
  harness/cli/cmd-doctor.c \
  harness/cli/cmd-explain.c \
  harness/cli/cmd-history.c \
  harness/cli/cmd-list.c \
  harness/cli/cmd-report.c \
  harness/cli/cmd-run.c \
  harness/cli/cmd-serve.c \
  harness/cli/cmd-tune.c \
  harness/cli/doctor.c harness/cli/doctor.h \
  harness/cli/minimize.c harness/cli/minimize.h \
  harness/cli/options.c harness/cli/options.h harness/cli/options-table.h \
  harness/cli/options-parse.c \
  harness/cli/tell.c \
  harness/cli/zoo.c harness/cli/zoo.h \
  harness/cli/zoo-marks.c harness/cli/zoo-run.c harness/cli/zoo-print.c
attnbench_LDADD = libattnbench.a $(JANSSON_LIBS) $(CUPTI_LIBS) $(CUDA_LIBS)

# What this binary was built from; rewritten only when it changed.
harness/record/build.$(OBJEXT): harness/record/build-info.h impl/impl-hash.h
harness/record/build-info.h: FORCE
	@$(MKDIR_P) harness/record
	@$(SHELL) $(srcdir)/build-aux/build-info $@ '$(srcdir)' '$(NVCC)' '$(CFLAGS) $(NVCCFLAGS)'
FORCE:
.PHONY: FORCE
CLEANFILES += harness/record/build-info.h
EXTRA_DIST += build-aux/build-info
