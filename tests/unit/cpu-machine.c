/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-machine.c - the two-level-memory machine: it refuses tile sets larger than M, counts every
 * byte in the size it has in HBM, converts as convert.h does, and calls every task exactly once.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "impl/convert.h"
#include "impl/cpu/machine.h"
#include "tests/tap.h"

/* ---- SRAM ------------------------------------------------------------------------------------ */

struct sizes {
  int64_t floats[3];
  bool got[3], aligned;
  size_t used;
};

static int allocate(struct attn_core *core, int64_t i, void *ctx)
{
  struct sizes *s = ctx;
  s->aligned = true;
  for (int k = 0; k < 3; k++) {
    float *tile = attn_tile_alloc(core, s->floats[k]);
    s->got[k] = tile != NULL;
    s->aligned &= (uintptr_t)tile % 32 == 0;
  }
  s->used = core->sram_used;
  return ATTN_OK;
}

static void test_refusal(void)
{
  struct attn_machine *m = attn_machine_create(4096, 1);
  struct sizes fits = {.floats = {500, 500, 16}}, over = {.floats = {500, 525, 1}};
  size_t peak;
  m->parallel(m, 1, allocate, &fits);
  attn_machine_totals(m, NULL, NULL, &peak);
  ok(fits.got[0] && fits.got[1] && fits.got[2] && fits.aligned && peak == (504 + 504 + 16) * 4,
     "tiles of 4096 bytes together fit into 4096, 32-byte aligned");
  m->parallel(m, 1, allocate, &over);
  ok(over.got[0] && !over.got[1] && !over.got[2],
     "a tile beyond M is refused, and every later one of that task");
  attn_machine_reset(m);
  m->parallel(m, 1, allocate, &fits);
  ok(fits.got[2], "the next task starts with an empty SRAM");
  struct sizes huge = {.floats = {INT64_MAX / 8, 1, 1}};
  m->parallel(m, 1, allocate, &huge);
  ok(!huge.got[0], "a size that would overflow is refused");
  attn_machine_destroy(m);
}

static void test_defaults(void)
{
  struct attn_machine *m = attn_machine_create(0, 0);
  ok(m->sram_bytes == 232448 && m->ncores >= 1, "by default M is 227 KiB and all cores work");
  attn_machine_destroy(m);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct copy {
  enum attn_dtype t;
  void *from, *to;
  int64_t rows, cols, stride;
  bool padded;
};

/* Loads a tile with rows 16 apart and stores it again. */
static int copy_tile(struct attn_core *core, int64_t i, void *ctx)
{
  struct copy *c = ctx;
  float *tile = attn_tile_alloc(core, c->rows * 16);
  for (int64_t e = 0; e < c->rows * 16; e++)
    tile[e] = 77;
  attn_tile_load(core, tile, 16, c->t, c->from, c->stride, c->rows, c->cols);
  for (int64_t r = 0; r < c->rows; r++)
    for (int64_t k = c->cols; k < 16; k++)
      c->padded &= tile[r * 16 + k] == (k < (c->cols + 7) / 8 * 8 ? 0 : 77);
  attn_tile_store(core, tile, 16, c->t, c->to, c->stride, c->rows, c->cols);
  return ATTN_OK;
}

static void test_bytes(enum attn_dtype t)
{
  enum { ROWS = 5, COLS = 6, STRIDE = 11 };
  struct attn_machine *m = attn_machine_create(4096, 1);
  uint64_t read, write, size = attn_dtype_size(t);
  unsigned char from[ROWS * STRIDE * 4], to[sizeof from];
  struct copy c = {t, from, to, ROWS, COLS, STRIDE, true};
  for (int64_t e = 0; e < ROWS * STRIDE; e++)
    attn_store(t, from, e, (float)e - 20);
  memset(to, 0xee, sizeof to);
  m->parallel(m, 1, copy_tile, &c);
  attn_machine_totals(m, &read, &write, NULL);
  bool right = true;
  for (size_t b = 0; b < sizeof to; b++) {
    size_t e = b / size;
    bool inside = e / STRIDE < ROWS && e % STRIDE < COLS;
    right &= to[b] == (inside ? from[b] : 0xee);
  }
  ok(read == ROWS * COLS * size && write == ROWS * COLS * size,
     "%s: a tile of 5 x 6 costs %d bytes each way", attn_dtype_name(t), (int)(ROWS * COLS * size));
  ok(right && c.padded, "%s: the tile comes back, its pad is 0, nothing else is touched",
     attn_dtype_name(t));
  attn_machine_destroy(m);
}

/* ---- conversion ------------------------------------------------------------------------------ */

struct convert {
  enum attn_dtype t;
  int64_t wrong;
};

static int widen_all(struct attn_core *core, int64_t block, void *ctx)
{
  struct convert *c = ctx;
  uint16_t from[256];
  float *tile = attn_tile_alloc(core, 256);
  for (int i = 0; i < 256; i++)
    from[i] = (uint16_t)(block * 256 + i);
  attn_tile_load(core, tile, 256, c->t, from, 256, 1, 256);
  for (int i = 0; i < 256; i++)
    c->wrong += attn_bits(tile[i]) != attn_bits(attn_load(c->t, from, i));
  return ATTN_OK;
}

/* Patterns around every exponent, and where roundings tie. */
static int narrow_many(struct attn_core *core, int64_t block, void *ctx)
{
  struct convert *c = ctx;
  uint16_t to[256], want[256];
  float *tile = attn_tile_alloc(core, 256);
  for (uint32_t i = 0; i < 256; i++)
    tile[i] = attn_float((uint32_t)block << 20 | (i & 15) << 16 | (i >> 4) * 0x1001 % 0x10000);
  attn_tile_store(core, tile, 256, c->t, to, 256, 1, 256);
  for (int i = 0; i < 256; i++) {
    attn_store(c->t, want, i, tile[i]);
    c->wrong += to[i] != want[i];
  }
  return ATTN_OK;
}

static void test_conversion(enum attn_dtype t)
{
  struct attn_machine *m = attn_machine_create(4096, 1);
  struct convert c = {t, 0};
  m->parallel(m, 256, widen_all, &c);
  ok(c.wrong == 0, "%s to fp32 is exact for all 65536 patterns", attn_dtype_name(t));
  c.wrong = 0;
  m->parallel(m, 4096, narrow_many, &c);
  ok(c.wrong == 0, "fp32 to %s rounds to nearest even, subnormals, infinities and NaN included",
     attn_dtype_name(t));
  attn_machine_destroy(m);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

struct tally {
  atomic_int count[1000];
  int64_t fail_at;
};

static int tick(struct attn_core *core, int64_t i, void *ctx)
{
  struct tally *t = ctx;
  atomic_fetch_add(&t->count[i], 1);
  core->hbm_read_bytes += 3;
  return i == t->fail_at ? ATTN_EDEVICE : ATTN_OK;
}

static void test_tasks(int cores)
{
  struct attn_machine *m = attn_machine_create(1024, cores);
  static struct tally t;
  bool once = true;
  uint64_t read;
  for (int64_t n = 0; n <= 1000; n += n < 5 ? 1 : 199) {
    memset(&t, 0, sizeof t);
    t.fail_at = -1;
    attn_machine_reset(m);
    once &= m->parallel(m, n, tick, &t) == ATTN_OK;
    for (int64_t i = 0; i < 1000; i++)
      once &= t.count[i] == (i < n);
    attn_machine_totals(m, &read, NULL, NULL);
    once &= read == 3 * (uint64_t)n;
  }
  ok(once, "%d cores: every task runs once, and the counters of all cores add up", cores);
  memset(&t, 0, sizeof t);
  t.fail_at = 10;
  ok(m->parallel(m, 1000, tick, &t) == ATTN_EDEVICE, "%d cores: a failure is reported", cores);
  t.fail_at = -1;
  ok(m->parallel(m, 1000, tick, &t) == ATTN_OK, "%d cores: and does not stick", cores);
  attn_machine_destroy(m);
}

/* What hangs can be told from what goes on: every task is a beat. */
static void test_beats(void)
{
  struct attn_machine *m = attn_machine_create(4096, 2);
  struct sizes s = {.floats = {8, 8, 8}};
  volatile uint64_t beats = 0;
  attn_machine_watch(m, &beats);
  for (int i = 0; i < 5; i++)
    m->parallel(m, 1, allocate, &s);
  ok(beats == 5, "five tasks are five beats");
  attn_machine_watch(m, NULL);
  m->parallel(m, 1, allocate, &s);
  ok(beats == 5, "nobody looks: nothing is counted");
  attn_machine_destroy(m);
}

int main(void)
{
  test_refusal();
  test_defaults();
  test_beats();
  test_bytes(ATTN_F32);
  test_bytes(ATTN_BF16);
  test_bytes(ATTN_F16);
  test_bytes(ATTN_E4M3);
  test_conversion(ATTN_BF16);
  test_conversion(ATTN_F16);
  test_tasks(1);
  test_tasks(2);
  test_tasks(7);
  return done_testing();
}
