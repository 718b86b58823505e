/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths.h - what is plotted over the sequence length (lengths.c); draw_lengths draws it.
 */
#ifndef REPORTS_LENGTHS_H
#define REPORTS_LENGTHS_H

#include "reports/figure.h"

extern const struct length_plot plot_throughput, plot_bandwidth, plot_relative, plot_traffic,
    plot_amplification, plot_memory;

#endif
