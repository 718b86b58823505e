/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h - two sets of records, cell by cell: what got slower, what moves more bytes, what
 * fails.
 *
 * A cell is an implementation on a problem on a kind of device in one cache state and mode.  Each
 * quantity of a cell gets a verdict of its own.
 */
#ifndef HARNESS_COMPARE_H
#define HARNESS_COMPARE_H

#include <stdio.h>

#include "harness/record/record.h"
#include "harness/gate/stats.h"

/* ---- cells (compare-load.c) ------------------------------------------------------------------ */

enum quantity {
  QUANTITY_TIME,
  QUANTITY_BYTES,
  QUANTITY_WORKSPACE,
  QUANTITY_ERROR,
  QUANTITIES,
};

/* What two cells must share for a quantity to be comparable. Unknown: "", NaN, -1. */
struct conditions {
  char kind[8], name[128], uuid_hash[17], distribution[16];
  double multiprocessors, sram_bytes, power_limit_w, sm_clock_hz, rest_s;
  int ecc, mig;
  int64_t seed;
};

struct cell {
  char *impl, *problem;
  const char *cache, *mode; /* "" when not timed */
  enum record_status status;
  char reason[256], build[176],
      source[16]; /* build: what was compiled, and chosen; source: of the bytes */
  struct conditions on;
  double *samples; /* seconds, of all processes of all records that share build and conditions */
  size_t *start, processes;
  double value[QUANTITIES]; /* of the last record; time: the median of the processes' medians */
  int line;                 /* of the last record */
};

struct cells {
  const char *file;
  struct cell *item;
  bool shared;       /* history: another file has one of its cells */
  int n, bad, newer; /* lines that are no records; records of a schema that is not known yet */
  int serving;       /* records of attnbench serve, which have no cells */
};

/* Reads a results file; of one implementation only, where impl is not NULL. -1 and a line in err.
 */
int cells_read(struct cells *c, const char *file, const char *impl, char *err, size_t errlen);
void cells_free(struct cells *c);
bool cell_timed(const struct cell *c);
struct stats_units cell_units(const struct cell *c);
/* Same implementation, problem and kind of device; and the same cache state and mode. */
bool cell_same_case(const struct cell *a, const struct cell *b);
bool cell_same(const struct cell *a, const struct cell *b);

/* ---- the noise floor (floor.c) --------------------------------------------------------------- */

struct floor_cell {
  struct cell key; /* what identifies it; no samples */
  double floor, worst;
  int comparisons;
};

/* How far two measurements of one thing were apart on one machine. */
struct noise_floor {
  struct conditions on;
  size_t processes; /* a side */
  int comparisons, false_alarms, judged;
  double overall; /* 99th percentile of all cells and comparisons */
  struct floor_cell *cell;
  int n;
};

int floor_read(struct noise_floor *f, const char *file, char *err, size_t errlen);
int floor_write(const struct noise_floor *f, const char *file, char *err, size_t errlen);
void floor_free(struct noise_floor *f);
bool floor_same_device(const struct noise_floor *f, const struct cell *c);
/* The relative change that a cell shows without cause; NaN: not known for so few processes. */
double floor_of(const struct noise_floor *f, const struct cell *c, size_t processes);

/* ---- the comparison (compare.c) -------------------------------------------------------------- */

enum verdict { VERDICT_NONE, VERDICT_SAME, VERDICT_BETTER, VERDICT_WORSE, VERDICT_AMBIGUOUS };
#define VERDICTS (VERDICT_AMBIGUOUS + 1)

struct finding {
  enum verdict verdict; /* none: not measured on both sides */
  double base, now, ratio, lo, hi, p, q, p_least, mde, floor;
  bool by_sample;
};

enum pairing { PAIR_BOTH, PAIR_CHANGED, PAIR_NEW, PAIR_MISSING };
#define PAIRINGS (PAIR_MISSING + 1)

struct compared {
  const struct cell *base, *now; /* NULL: new, missing */
  enum pairing state;
  bool failing; /* it fails, and did not before */
  struct finding of[QUANTITIES];
};

struct compare_options {
  double threshold, bytes_threshold, error_threshold; /* relative */
  double rate;                                        /* of false discoveries */
  unsigned quantities;                                /* bit set of 1 << quantity */
  bool anyway;                                        /* whatever the conditions */
  bool paired;                                        /* process i of both sides ran together */
  bool screen; /* what looks worse is measured again, so here it need not stand out among all */
  const struct noise_floor *floor; /* or NULL */
};

struct comparison {
  struct compared *item;
  int n;
  int states[PAIRINGS], verdicts[QUANTITIES][VERDICTS], failing;
  int lopsided[QUANTITIES]; /* known on one side only, or by other counters */
  int judged;               /* hypotheses about time */
  size_t processes, enough; /* fewest of a side; with how many a lone change can be significant */
  bool by_sample;           /* somewhere the unit is the sample */
  char warning[512];        /* what differs and was compared all the same */
};

/* -1 and a line in err: nothing in common, or conditions differ. c borrows the cells. */
int compare_cells(const struct cells *base, const struct cells *now,
                  const struct compare_options *o, struct comparison *c, char *err, size_t errlen);
void comparison_free(struct comparison *c);
/* Nothing slower, nothing more, nothing newly failing. */
bool comparison_well(const struct comparison *c);

/* compare-conditions.c: -1 and a line in err where something differs that the quantities (bits)
 * depend on. */
int conditions_match(const struct cell *base, const struct cell *now, unsigned quantities,
                     char *err, size_t errlen);

/* ---- words and formats (compare-words.c, compare-print.c, compare-ci.c) -----------------------
 */

const char *quantity_name(enum quantity q);
const char *verdict_word(enum quantity q, enum verdict v);
/* "1.02 ms -> 1.04 ms (+2.0 %, 1.8 to 2.2 %; sees 0.4 %)" */
void finding_text(enum quantity q, const struct finding *f, char *buf, size_t len);
/* "verdict changed: pass -> fail (o[...] is ...)", "new", "missing"; "" where both sides pass. */
void pairing_text(const struct compared *c, char *buf, size_t len);

struct compare_print {
  const char *base, *now; /* what the sides are called */
  bool all;               /* cells that are the same, too */
};
struct compare_format {
  const char *name;
  void (*print)(const struct comparison *c, const struct compare_print *p, FILE *out);
};
/* "text", "markdown", "junit", "tap", "annotations"; NULL: no such format. */
const struct compare_format *compare_format_find(const char *name);
void compare_text(const struct comparison *c, const struct compare_print *p, FILE *out);
void compare_markdown(const struct comparison *c, const struct compare_print *p, FILE *out);
void compare_junit(const struct comparison *c, const struct compare_print *p, FILE *out);
void compare_tap(const struct comparison *c, const struct compare_print *p, FILE *out);
void compare_annotations(const struct comparison *c, const struct compare_print *p, FILE *out);
/* Sentences: what was compared, and what limits it; one a line. */
void compare_summary(const struct comparison *c, FILE *out);

#endif
