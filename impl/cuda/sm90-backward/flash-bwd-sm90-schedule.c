/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-schedule.c - the order in which the Hopper backward computes key blocks, and which
 * of them several blocks share.
 */
#include "config.h"

#include <stdlib.h>

#include "impl/cuda/sm90-backward/flash-bwd-sm90-schedule.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t heads_of(const struct bwd90_jobs *j)
{
  return j->p->b * j->p->hkv;
}

/* ---- a schedule ------------------------------------------------------------------------------ */

/* So many more key blocks, each shared by `parts` blocks; first: their place in the order.  False:
 * that is more than there is room for. */
static bool add(struct bwd90_schedule *s, int64_t first, int64_t blocks, int parts)
{
  if (s->stretches == BWD90_STRETCHES)
    return false;
  s->stretch[s->stretches++] =
      (struct bwd90_stretch){s->units, (int32_t)first, parts, s->shared, s->sums};
  s->units += (int32_t)(blocks * parts);
  if (parts > 1) {
    s->shared += (int32_t)blocks;
    s->sums += (int32_t)(blocks * (parts - 1));
  }
  return s->shared <= BWD90_SHARED && s->sums <= BWD90_SUMS;
}

static struct bwd90_schedule empty(int64_t section, int64_t last)
{
  return (struct bwd90_schedule){.section = (int32_t)section, .last = (int32_t)last};
}

void attn_flash_bwd_sm90_schedule_plain(const struct bwd90_jobs *j, int64_t section,
                                        struct bwd90_schedule *s)
{
  *s = empty(section, (heads_of(j) - 1) / section * section);
  add(s, 0, heads_of(j) * j->blocks, 1);
}

/* Accumulators are zeroed so many sections before they are needed, with one less, blocks wait at
 * the first units of a section of several heads; of one head each, one before, so that they are
 * still in L2 (flash-bwd-sm90-make-dq.cuh); and so many units before, else the first blocks wait
 * for one another. */
#define AHEAD_SECTIONS 2
#define AHEAD_UNITS 64

int32_t attn_flash_bwd_sm90_ahead(const struct bwd90_schedule *s, int64_t heads, int64_t blocks)
{
  int64_t units = ceil_div(AHEAD_UNITS, blocks > 0 ? blocks : 1);
  int64_t n = s->section > 1 ? AHEAD_SECTIONS * s->section : 1;
  n = n > units ? n : units;
  if (heads - s->last > s->section)
    n = n > heads - s->last + units ? n : heads - s->last + units;
  n = ceil_div(n, s->section) * s->section;
  return (int32_t)(n > s->last ? heads : n);
}

/* ---- how long it takes ----------------------------------------------------------------------- */

/* Steps that a unit takes beside its own, and that parts take: to give one, 128 x 128 sums for dK
 * and dV, until word of it is there, to take one.  By these, what is measured of one sequence of 1k
 * and 2k, 1 to 16 parts, follows to 3 % in the mean. */
#define UNIT_STEPS 2.0
#define GIVE_STEPS 1.5
#define AWAIT_STEPS 1.0
#define TAKE_STEPS 0.5

/* Steps of key block n of a sequence: query blocks that see any key of it, as bwd90_range(), of all
 * heads of the group. */
static int64_t steps_of(const struct bwd90_jobs *j, int64_t seq, int64_t n)
{
  const struct attn_problem *p = j->p;
  int64_t sq, sk, lo, hi, i, first = n * j->kn, end;
  attn_problem_seq(p, seq, &sq, &sk);
  end = least(first + j->kn, sk);
  if (first >= sk || sq == 0)
    return 0;
  int64_t shift = p->mask == ATTN_MASK_CAUSAL_TOPLEFT ? 0 : sk - sq;
  int64_t left = -1, right = -1;
  if (p->mask == ATTN_MASK_CAUSAL || p->mask == ATTN_MASK_CAUSAL_TOPLEFT)
    right = 0;
  if (p->mask == ATTN_MASK_WINDOW) {
    left = p->window_left;
    right = p->window_right;
  }
  lo = right < 0 ? 0 : first - shift - right;
  hi = left < 0 ? sq : least(sq, end - shift + left);
  i = lo > 0 ? lo / j->km : 0;
  return lo < hi && hi > 0 ? ((hi - 1) / j->km + 1 - i) * (p->hq / p->hkv) : 0;
}

/* The key block at a place in the order: its head, its number within. */
static int64_t block_at(const struct bwd90_jobs *j, const struct bwd90_schedule *s, int64_t at,
                        int64_t *head)
{
  int64_t first = least(at / (s->section * j->blocks) * s->section, s->last);
  int64_t here = first == s->last ? heads_of(j) - first : s->section, r = at - first * j->blocks;
  *head = first + r % here;
  return r / here;
}

/* No device has more; if one had, every unit would be a whole key block. */
#define PROCESSORS 512

/* Processors by when they are free, the first at the top of a heap. */
struct clock {
  int64_t n;
  double free[PROCESSORS];
};

/* The first that is free takes something that lasts so long, and then, from some time on, `more`.
 * Result: when it is free again. */
static double take(struct clock *c, double steps, double from, double more)
{
  double t = c->free[0] + steps;
  int64_t i = 0;
  t = (t > from ? t : from) + more;
  for (int64_t k = 1; k < c->n; k = 2 * i + 1) {
    k += k + 1 < c->n && c->free[k + 1] < c->free[k];
    if (c->free[k] >= t)
      break;
    c->free[i] = c->free[k];
    i = k;
  }
  c->free[i] = t;
  return t;
}

/* The parts of a key block, of which the last waits for the others. */
static void take_parts(const struct bwd90_jobs *j, struct clock *c, int64_t steps, int parts)
{
  double size = (double)j->kn * j->d / (128 * 128), there = 0;
  for (int i = 0; i < parts - 1; i++) {
    int64_t here = steps * (i + 1) / parts - steps * i / parts;
    double end = take(c, (double)here + UNIT_STEPS, 0, GIVE_STEPS * size);
    there = end > there ? end : there;
  }
  int64_t rest = steps - steps * (parts - 1) / parts;
  take(c, (double)rest + UNIT_STEPS, parts > 1 ? there + AWAIT_STEPS : 0,
       TAKE_STEPS * size * (parts - 1));
}

/* The units of key blocks from this place on, in their order. */
static void run(const struct bwd90_jobs *j, const struct bwd90_schedule *s, int64_t from,
                struct clock *c)
{
  int64_t head;
  for (int64_t i = 0; i < s->stretches; i++) {
    const struct bwd90_stretch *x = &s->stretch[i];
    int32_t units = (i + 1 < s->stretches ? x[1].unit : s->units) - x->unit;
    int64_t at = x->block > from ? x->block : from;
    for (; at < x->block + units / x->parts; at++) {
      int64_t n = block_at(j, s, at, &head);
      take_parts(j, c, steps_of(j, head / j->p->hkv, n), x->parts);
    }
  }
}

static double last_free(const struct clock *c)
{
  double last = 0;
  for (int64_t i = 0; i < c->n; i++)
    last = c->free[i] > last ? c->free[i] : last;
  return last;
}

/* When the last of the key blocks from this place on ends. */
static double end_from(const struct bwd90_jobs *j, const struct bwd90_schedule *s, int64_t from)
{
  struct clock c = {.n = j->processors};
  run(j, s, from, &c);
  return last_free(&c);
}

double attn_flash_bwd_sm90_end(const struct bwd90_jobs *j, const struct bwd90_schedule *s)
{
  return end_from(j, s, 0);
}

/* ---- the one that ends first ----------------------------------------------------------------- */

/* So many rounds of key blocks in the last section, and the longest of them begin long before the
 * end. */
#define WIDE_ROUNDS 2.2
/* Up to so many rounds are also tried as one section, and shared. */
#define FEW_ROUNDS 4
/* Of so many at the end it is simulated when they end. */
#define ROUNDS 40
/* What is worth more heads in the last section, of the whole: more of what is read and added to
 * comes from memory, not L2; and what is worth shared key blocks. */
#define WIDE_GAIN .01
#define SHARED_GAIN .03
/* A product with the number of parts has 31 bits. */
#define MOST_STEPS (1 << 26)

/* The best schedule so far. */
struct best {
  const struct bwd90_jobs *j;
  int64_t from; /* the key block that is simulated first */
  double end;   /* 0: there is none yet */
  struct bwd90_schedule *s;
};

static void compare(struct best *b, const struct bwd90_schedule *s, double gain)
{
  double end = end_from(b->j, s, b->from);
  if (b->end == 0 || end < b->end - gain) {
    b->end = end;
    *b->s = *s;
  }
}

/* Most steps of key block n of any head. */
static int64_t most_steps(const struct bwd90_jobs *j, int64_t n)
{
  int64_t most = 0, sequences = j->p->nruns ? j->p->b : 1;
  for (int64_t i = 0; i < sequences; i++) {
    int64_t steps = steps_of(j, i, n);
    most = steps > most ? steps : most;
  }
  return most;
}

/* Shared by so many, none has more steps. */
static int parts_of(int64_t steps, int64_t most)
{
  return steps > most ? (int)least(ceil_div(steps, most), BWD90_PARTS) : 1;
}

/* Neighbouring key blocks of all heads, that are shared by equally many. */
struct bundle {
  int64_t n, blocks, steps;
  int64_t unit; /* steps of the longest unit */
};

static int longer(const void *a, const void *b)
{
  const struct bundle *x = a, *y = b;
  return x->unit != y->unit ? (x->unit < y->unit) - (x->unit > y->unit)
                            : (x->n > y->n) - (x->n < y->n);
}

/* All key blocks as bundles; their number. */
static int bundles_of(const struct bwd90_jobs *j, struct bundle *bundle)
{
  int64_t wide = ceil_div(j->blocks, BWD90_STRETCHES);
  int n = 0;
  for (int64_t at = 0; at < j->blocks; at += wide) {
    struct bundle *x = &bundle[n++];
    *x = (struct bundle){.n = at, .blocks = least(wide, j->blocks - at)};
    for (int64_t i = 0; i < x->blocks; i++) {
      int64_t steps = most_steps(j, at + i);
      x->steps = steps > x->steps ? steps : x->steps;
    }
  }
  return n;
}

/* Shared so that no unit has more steps, longest first. */
static bool share(const struct bwd90_jobs *j, struct bundle *bundle, int n, int64_t most,
                  struct bwd90_schedule *s)
{
  bool room = true;
  for (int i = 0; i < n; i++)
    bundle[i].unit = ceil_div(bundle[i].steps, parts_of(bundle[i].steps, most));
  qsort(bundle, (size_t)n, sizeof *bundle, longer);
  *s = empty(heads_of(j), 0);
  for (int i = 0; i < n; i++) {
    const struct bundle *x = &bundle[i];
    room &= add(s, x->n * heads_of(j), x->blocks * heads_of(j), parts_of(x->steps, most));
  }
  return room;
}

static void try_shared(struct best *b)
{
  struct bundle bundle[BWD90_STRETCHES];
  int64_t longest = 0, before = 0;
  int n = bundles_of(b->j, bundle);
  for (int i = 0; i < n; i++)
    longest = bundle[i].steps > longest ? bundle[i].steps : longest;
  for (int half = 3; half <= 2 * BWD90_PARTS && longest < MOST_STEPS; half++) {
    int64_t most = ceil_div(2 * longest, half);
    struct bwd90_schedule s;
    if (most > 0 && most != before && share(b->j, bundle, n, most, &s))
      compare(b, &s, SHARED_GAIN * b->end);
    before = most;
  }
}

/* Sections up to this head, and then a last one. */
static void try_last(struct best *b, int64_t section, int64_t last, double gain)
{
  struct bwd90_schedule s = empty(section, last);
  add(&s, 0, heads_of(b->j) * b->j->blocks, 1);
  compare(b, &s, gain);
}

/* Unequal key blocks: sections, of which the last may have more heads; a few all together, also
 * shared. */
static void schedule_unequal(struct best *b, int64_t section)
{
  const struct attn_problem *p = b->j->p;
  int64_t heads = heads_of(b->j), blocks = b->j->blocks, n = b->j->processors;
  int64_t wide = heads - least(ceil_div((int64_t)(WIDE_ROUNDS * (double)n), blocks), heads);
  double steps = attn_problem_pairs(p) * (double)p->hq / ((double)b->j->km * b->j->kn * (double)n);
  b->from = (heads - least(ceil_div(ROUNDS * n, blocks), heads)) / section * section * blocks;
  try_last(b, section, b->s->last, 0);
  if (wide / section * section < b->s->last)
    try_last(b, section, wide / section * section, WIDE_GAIN * steps);
  if (heads * blocks > FEW_ROUNDS * n)
    return;
  try_last(b, section, 0, WIDE_GAIN * steps);
  try_shared(b);
}

/* Equal key blocks, head after head: those that are left over after full rounds are shared. */
static void schedule_equal(struct best *b)
{
  const struct bwd90_jobs *j = b->j;
  int64_t all = heads_of(j) * j->blocks, left = all % j->processors;
  int64_t steps = steps_of(j, 0, 0);
  b->from = all - left;
  for (int parts = 1; parts <= BWD90_PARTS && parts <= steps && steps < MOST_STEPS; parts++) {
    struct bwd90_schedule s = empty(1, b->s->last);
    if (all > left)
      add(&s, 0, all - left, 1);
    if (left > 0 && add(&s, all - left, left, parts))
      compare(b, &s, 0);
  }
}

void attn_flash_bwd_sm90_schedule(const struct bwd90_jobs *j, int64_t section,
                                  struct bwd90_schedule *s)
{
  const struct attn_problem *p = j->p;
  int64_t n = j->processors;
  attn_flash_bwd_sm90_schedule_plain(j, section, s);
  if (n <= 0 || n > PROCESSORS || heads_of(j) * j->blocks == 0)
    return;
  struct best b = {.j = j, .s = s};
  if (p->mask == ATTN_MASK_NONE && !p->nruns)
    schedule_equal(&b);
  else
    schedule_unequal(&b, section);
}
