# SPDX-License-Identifier: Apache-2.0
# reports/: records in; a page, figures and tables out. A figure is a row in figure.c, a table one
# in report.c.
libattnbench_a_SOURCES += \
  reports/attributes.c \
  reports/canvas.c reports/canvas.h \
  reports/figure-drift.c \
  reports/figure-error.c \
  reports/figure-lengths.c \
  reports/figure-matrix.c \
  reports/figure-roofline.c \
  reports/figure-serving-bars.c \
  reports/figure-serving-prefill.c \
  reports/figure-serving-replay.c \
  reports/figure-single.c \
  reports/figure.c reports/figure.h \
  reports/fit.c \
  reports/format.c reports/format.h \
  reports/gnuplot.c \
  reports/length-panel.c reports/length-panel.h \
  reports/length-words.c \
  reports/lengths.c reports/lengths.h \
  reports/load.c \
  reports/matrix.c reports/matrix.h \
  reports/model.h \
  reports/page-words.c \
  reports/page.c reports/page.h \
  reports/report.c reports/report.h \
  reports/serving.c reports/serving.h \
  reports/svg.c \
  reports/table-devices.c \
  reports/table-fits.c \
  reports/table-bits.c \
  reports/table-matrix.c \
  reports/table-results.c \
  reports/table-serving.c \
  reports/table-summary.c \
  reports/table-against.c \
  reports/table-panels.c \
  reports/table-throughput.c \
  reports/table-training.c \
  reports/table.c reports/table.h \
  reports/tables.h \
  reports/view.c
