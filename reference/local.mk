# SPDX-License-Identifier: Apache-2.0
# reference/: what is true. Knows impl/attn.h and no implementation.
libattnbench_a_SOURCES += reference/reference.h
