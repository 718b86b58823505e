# SPDX-License-Identifier: Apache-2.0
# TAP programs: tests/unit (C, one file a subject), tests/cli (shell), tests/gpu, tests/records.
# LOG_DRIVER runs those without an extension, SH_LOG_DRIVER the scripts.
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
TEST_EXTENSIONS = .sh
SH_LOG_DRIVER = $(LOG_DRIVER)
SH_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = \
  srcdir='$(srcdir)'; export srcdir; \
  builddir='$(builddir)'; export builddir; \
  ATTNBENCH='$(abs_builddir)/attnbench'; export ATTNBENCH; \
  ATTNBENCH_DATADIR='$(abs_srcdir)'; export ATTNBENCH_DATADIR; \
  CC='$(CC)'; export CC; \
  NVCC='$(NVCC)'; export NVCC; \
  CLANG_FORMAT='$(CLANG_FORMAT)'; export CLANG_FORMAT;
TEST_LDADD = libattnbench.a $(JANSSON_LIBS) $(CUPTI_LIBS) $(CUDA_LIBS)
LDADD = $(TEST_LDADD)

# C tests: tests/unit/NAME is tests/unit/NAME.c.
unit_tests = \
  tests/unit/baselines \
  tests/unit/bound-flush \
  tests/unit/bwd-schedule \
  tests/unit/choices \
  tests/unit/arena \
  tests/unit/compare \
  tests/unit/cpu-attention \
  tests/unit/cpu-bits \
  tests/unit/cpu-block \
  tests/unit/cpu-cascade \
  tests/unit/cpu-machine \
  tests/unit/cpu-paged \
  tests/unit/cpu-rope \
  tests/unit/cpu-traffic \
  tests/unit/data \
  tests/unit/explain \
  tests/unit/cupti-host \
  tests/unit/device-host \
  tests/unit/e4m3 \
  tests/unit/items \
  tests/unit/lock \
  tests/unit/losses \
  tests/unit/mask-sides \
  tests/unit/problem \
  tests/unit/problem-count \
  tests/unit/problem-rope \
  tests/unit/problem-sweep \
  tests/unit/reference-paged \
  tests/unit/reference-backward \
  tests/unit/reference-random \
  tests/unit/reference-rope \
  tests/unit/reference-semantics \
  tests/unit/reference-verdict \
  tests/unit/report \
  tests/unit/rules \
  tests/unit/schema \
  tests/unit/serve-decoder \
  tests/unit/serve-kv \
  tests/unit/serve-prefix \
  tests/unit/serve-record \
  tests/unit/serve-sched \
  tests/unit/serve-trace \
  tests/unit/sha256 \
  tests/unit/spent \
  tests/unit/stats \
  tests/unit/stats-change \
  tests/unit/stats-effect \
  tests/unit/store \
  tests/unit/worker
if HAVE_CUDNN
unit_tests += tests/unit/cudnn
endif
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)

# Of the Hopper backward, but plain C: without CUDA, too.
tests_unit_bwd_schedule_SOURCES = tests/unit/bwd-schedule.c
if !HAVE_CUDA
tests_unit_bwd_schedule_SOURCES += impl/cuda/sm90-backward/flash-bwd-sm90-schedule.c
endif
reference_fixture = tests/unit/reference-fixture.h tests/unit/reference-emulate.h
tests_unit_reference_backward_SOURCES = tests/unit/reference-backward.c $(reference_fixture)
tests_unit_reference_random_SOURCES = tests/unit/reference-random.c $(reference_fixture)
tests_unit_reference_semantics_SOURCES = tests/unit/reference-semantics.c $(reference_fixture)
tests_unit_reference_verdict_SOURCES = tests/unit/reference-verdict.c $(reference_fixture)

# Tests that need a GPU; they skip with a reason where there is none.
gpu_tests =
if HAVE_CUDA
gpu_tests += tests/gpu/device tests/gpu/cupti tests/gpu/kernels tests/gpu/lengths tests/gpu/reference
gpu_tests += tests/gpu/serve tests/gpu/tune
tests_gpu_reference_SOURCES = tests/gpu/reference.c $(reference_fixture)
tests_gpu_device_SOURCES = tests/gpu/device.c tests/gpu/probe.cu tests/gpu/probe.h
tests_gpu_cupti_SOURCES = tests/gpu/cupti.c tests/gpu/open.h tests/gpu/probe.cu tests/gpu/probe.h
tests_gpu_kernels_SOURCES = tests/gpu/kernels.c tests/gpu/open.h
tests_gpu_lengths_SOURCES = tests/gpu/lengths.c tests/gpu/open.h
cuda_objects += tests/gpu/probe.o
check_PROGRAMS += tests/gpu/launch tests/gpu/sweep
EXTRA_PROGRAMS += tests/gpu/sweep-lanes
CLEANFILES += tests/gpu/sweep-lanes
tests_gpu_sweep_lanes_SOURCES = tests/gpu/sweep.c tests/gpu/lanes-sm90.cu
cuda_objects += tests/gpu/lanes-sm90.o
endif
check_PROGRAMS += $(gpu_tests)
TESTS += $(gpu_tests)

cli_tests = \
  tests/cli/readme.sh \
  tests/cli/cheats.sh \
  tests/cli/commands.sh \
  tests/cli/explain.sh \
  tests/cli/run.sh \
  tests/cli/format.sh \
  tests/cli/streams.sh \
  tests/cli/twins.sh \
  tests/cli/gate.sh \
  tests/cli/gate-record.sh \
  tests/cli/isolation.sh \
  tests/cli/lanes.sh \
  tests/cli/impl-hash.sh \
  tests/cli/man.sh \
  tests/cli/measure.sh \
  tests/cli/ptxas.sh \
  tests/cli/quickstart.sh \
  tests/cli/report.sh \
  tests/cli/seeds.sh \
  tests/cli/semantics.sh \
  tests/cli/faults.sh \
  tests/cli/long.sh \
  tests/cli/tune.sh \
  tests/cli/zoo-data.sh tests/cli/zoo.sh \
  tests/cli/serve.sh
TESTS += $(cli_tests)
EXTRA_DIST += tests/unit/simulate.h tests/flip.h
EXTRA_DIST += tests/traces/mooncake.jsonl tests/traces/azure.csv
EXTRA_DIST += $(cli_tests) tests/tap.h tests/tap.sh

# The zoos of planted faults: the sources of impl/cpu and of impl/cuda, one line changed in each.
mutant_tests = tests/mutants/kill.sh tests/mutants/kill-cuda.sh
TESTS += $(mutant_tests)
EXTRA_DIST += tests/mutants

# A folder is distributed with what the build has put there.
dist-hook:
	rm -rf $(distdir)/tests/mutants/*.log $(distdir)/tests/mutants/*.trs $(distdir)/tests/mutants/zoo*

# Sanitizers, on the host and on a GPU; not part of check.
EXTRA_DIST += tests/sanitize.sh
check-sanitize: all
	$(MAKE) check TESTS=
	CC='$(CC)' $(SHELL) $(srcdir)/tests/sanitize.sh $(srcdir) .
clean-local:
	rm -rf sanitize
.PHONY: check-sanitize

# Records that nobody measured, for reports and the schema.
check_PROGRAMS += tests/records/synthetic
EXTRA_DIST += tests/records/synthetic.h tests/schema.h tests/unit/report-fixture.h

# The example plugin, right and wrong; only attn.h is needed to build one.
plugins = tests/plugin/plain.so tests/plugin/wrong.so
check_DATA = $(plugins)
CLEANFILES += $(plugins)
EXTRA_DIST += tests/plugin/attention.c
EXTRA_DIST += tests/unit/cpu-cache.h tests/unit/cpu-fixture.h tests/unit/cpu-truth.h
PLUGIN_CC = $(CC) -std=gnu11 -O2 -Wall -Wextra -shared -fPIC -I$(top_srcdir) $(CFLAGS)
tests/plugin/plain.so: tests/plugin/attention.c impl/attn.h
	@$(MKDIR_P) tests/plugin
	$(AM_V_CCLD)$(PLUGIN_CC) -o $@ $(srcdir)/tests/plugin/attention.c -lm
tests/plugin/wrong.so: tests/plugin/attention.c impl/attn.h
	@$(MKDIR_P) tests/plugin
	$(AM_V_CCLD)$(PLUGIN_CC) -DWRONG -o $@ $(srcdir)/tests/plugin/attention.c -lm

# The zoo of cheats; on a GPU, too.
cheats = tests/cheats/stored.c tests/cheats/wrong.c tests/cheats/meddling.c tests/cheats/table.c
cheats_headers = tests/cheats/cheats.h tests/cheats/honest.h
check_DATA += tests/cheats/cheats.so
CLEANFILES += tests/cheats/cheats.so tests/cheats/cheats-cuda.so tests/steady/steady-cuda.so
EXTRA_DIST += $(cheats) $(cheats_headers) tests/cheats/cuda.cu tests/steady/steady.cu
tests/cheats/cheats.so: $(cheats) $(cheats_headers) impl/attn.h
	@$(MKDIR_P) tests/cheats
	$(AM_V_CCLD)cd $(srcdir) && $(CC) -std=gnu11 -O2 -Wall -Wextra -Wno-unused-parameter $(WERROR) \
	  -shared -fPIC -I. $(CFLAGS) -o $(abs_builddir)/$@ $(cheats) -lm -lpthread
if HAVE_CUDA
check_DATA += tests/cheats/cheats-cuda.so tests/steady/steady-cuda.so
tests/steady/steady-cuda.so: tests/steady/steady.cu impl/attn.h
	@$(MKDIR_P) tests/steady
	$(AM_V_NVCC)$(NVCC) -I$(top_srcdir) -std=c++17 -O3 -shared -Xcompiler -fPIC $(CUDA_ARCH) -o $@ \
	  $(srcdir)/tests/steady/steady.cu
tests/cheats/cheats-cuda.so: tests/cheats/cuda.cu impl/attn.h
	@$(MKDIR_P) tests/cheats
	$(AM_V_NVCC)$(NVCC) -I$(top_srcdir) -std=c++17 -O2 -shared -Xcompiler -fPIC $(CUDA_ARCH) -o $@ \
	  $(srcdir)/tests/cheats/cuda.cu
endif

# Implementations that crash, hang, leak and exit.
neighbours = tests/broken/zoo/clean-shy.so tests/broken/zoo/hog.so tests/broken/zoo/wrong.so
check_DATA += tests/broken/broken.so $(neighbours)
CLEANFILES += tests/broken/broken.so $(neighbours)
EXTRA_DIST += tests/broken/broken.c tests/broken/neighbours.c
tests/broken/broken.so: tests/broken/broken.c tests/cheats/honest.h impl/attn.h
	@$(MKDIR_P) tests/broken
	$(AM_V_CCLD)cd $(srcdir) && $(CC) -std=gnu11 -O2 -Wall -Wextra -Wno-unused-parameter $(WERROR) \
	  -shared -fPIC -I. $(CFLAGS) -o $(abs_builddir)/$@ tests/broken/broken.c -lm

NEIGHBOUR_CC = $(PLUGIN_CC) -Wno-unused-parameter $(WERROR) $(srcdir)/tests/broken/neighbours.c -lm
tests/broken/zoo/clean-shy.so: tests/broken/neighbours.c tests/cheats/honest.h impl/attn.h
	@$(MKDIR_P) tests/broken/zoo
	$(AM_V_CCLD)$(NEIGHBOUR_CC) -DSHY -DNAME='"clean/shy"' -o $@
tests/broken/zoo/hog.so: tests/broken/neighbours.c tests/cheats/honest.h impl/attn.h
	@$(MKDIR_P) tests/broken/zoo
	$(AM_V_CCLD)$(NEIGHBOUR_CC) -DHOG -DNAME='"mutant/hog"' -o $@
tests/broken/zoo/wrong.so: tests/broken/neighbours.c tests/cheats/honest.h impl/attn.h
	@$(MKDIR_P) tests/broken/zoo
	$(AM_V_CCLD)$(NEIGHBOUR_CC) -DNAME='"mutant/wrong"' -o $@

# Attention that serve must not give a time to.
check_DATA += tests/serve/short.so
CLEANFILES += tests/serve/short.so
EXTRA_DIST += tests/serve/short.c
tests/serve/short.so: tests/serve/short.c impl/attn.h
	@$(MKDIR_P) tests/serve
	$(AM_V_CCLD)cd $(srcdir) && $(CC) -std=gnu11 -O2 -Wall -Wextra -Wno-unused-parameter $(WERROR) \
	  -shared -fPIC -I. $(CFLAGS) -o $(abs_builddir)/$@ tests/serve/short.c -lm

# An implementation with variants of known speed.
check_DATA += tests/tune/variants.so
CLEANFILES += tests/tune/variants.so
EXTRA_DIST += tests/tune/variants.c
tests/tune/variants.so: tests/tune/variants.c tests/cheats/honest.h impl/attn.h
	@$(MKDIR_P) tests/tune
	$(AM_V_CCLD)cd $(srcdir) && $(CC) -std=gnu11 -O2 -Wall -Wextra -Wno-unused-parameter $(WERROR) \
	  -shared -fPIC -I. $(CFLAGS) -o $(abs_builddir)/$@ tests/tune/variants.c -lm

# Implementations of known speed, before and after a planted slowdown.
check_DATA += tests/steady/before.so tests/steady/after.so
CLEANFILES += tests/steady/before.so tests/steady/after.so
EXTRA_DIST += tests/steady/steady.c
STEADY_CC = cd $(srcdir) && $(CC) -std=gnu11 -O2 -Wall -Wextra -Wno-unused-parameter $(WERROR) \
  -shared -fPIC -I. $(CFLAGS)
tests/steady/before.so: tests/steady/steady.c tests/cheats/honest.h impl/attn.h
	@$(MKDIR_P) tests/steady
	$(AM_V_CCLD)$(STEADY_CC) -o $(abs_builddir)/$@ tests/steady/steady.c -lm
tests/steady/after.so: tests/steady/steady.c tests/cheats/honest.h impl/attn.h
	@$(MKDIR_P) tests/steady
	$(AM_V_CCLD)$(STEADY_CC) -DA=60 -o $(abs_builddir)/$@ tests/steady/steady.c -lm
