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
  harness/record.h \
  harness/store.h
bin_PROGRAMS += attnbench
attnbench_SOURCES = harness/main.c
attnbench_LDADD = libattnbench.a $(JANSSON_LIBS) $(CUPTI_LIBS) $(CUDA_LIBS)
