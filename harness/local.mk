# SPDX-License-Identifier: Apache-2.0
# harness/: how it is measured; everything but main.c is in the library.
libattnbench_a_SOURCES += \
  harness/arena.h \
  harness/device.h \
  harness/instrument.h \
  harness/record.h \
  harness/store.h
bin_PROGRAMS += attnbench
attnbench_SOURCES = harness/main.c
attnbench_LDADD = libattnbench.a $(JANSSON_LIBS) $(CUPTI_LIBS) $(CUDA_LIBS)
