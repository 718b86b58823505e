# SPDX-License-Identifier: Apache-2.0
# TAP programs: tests/unit (C, one file a room), tests/cli (shell), tests/gpu, tests/records.
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
TEST_EXTENSIONS = .sh
SH_LOG_DRIVER = $(LOG_DRIVER)
SH_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = srcdir='$(srcdir)' builddir='$(builddir)' \
  ATTNBENCH='$(abs_builddir)/attnbench' export srcdir builddir ATTNBENCH;
TEST_LDADD = libattnbench.a $(JANSSON_LIBS) $(CUPTI_LIBS) $(CUDA_LIBS)
LDADD = $(TEST_LDADD)

unit_tests =
unit_tests += tests/unit/arena tests/unit/device-host
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
