# SPDX-License-Identifier: Apache-2.0
dist_man_MANS = doc/attnbench.1
dist_doc_DATA = doc/gate.md doc/faults.md doc/kernels.md doc/serving.md doc/tuning.md
EXTRA_DIST += doc/figures/throughput-fwd.svg doc/figures/throughput-fwd.dat
