/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-bits.c - bitwise claims of the cpu device.
 *
 * cpu/flash equals cpu/flash-materialised bit for bit on any input: O, LSE, dQ, dK, dV, over random
 * problems with every option, SRAM size and kind of data, infinities and NaN patterns among them.
 * And the same bits come out of every run and of any number of cores.
 */
#include "tests/unit/cpu-fixture.h"

#define ROUNDS 240

/* ---- random problems ------------------------------------------------------------------------- */

static const char *pick(uint64_t *rng, const char *const *from, int64_t n)
{
  return from[draw_in(rng, 0, n - 1)];
}
#define PICK(rng, list) pick(rng, list, (int64_t)(sizeof(list) / sizeof *(list)))

static void random_problem(uint64_t *rng, char *text, size_t len, const char *op)
{
  static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
  static const char *const masks[] = {"mask=none",        "mask=causal",      "mask=causal-topleft",
                                      "mask=window:13:4", "mask=window:-1:2", "mask=window:3:-1"};
  static const char *const extras[] = {
      "",         "softcap=3", "alibi=1", "dropout=0.2@11", "softcap=2 alibi=1 dropout=0.4@77",
      "scale=0.5"};
  int64_t hkv = draw_in(rng, 1, 3), group = draw_in(rng, 1, 3);
  int n = snprintf(text, len, "op=%s dtype=%s hq=%d hkv=%d d=%d dv=%d %s %s ", op,
                   PICK(rng, dtypes), (int)(hkv * group), (int)hkv, (int)draw_in(rng, 1, 72),
                   (int)draw_in(rng, 1, 72), PICK(rng, masks), PICK(rng, extras));
  if (draw_in(rng, 0, 1))
    snprintf(text + n, len - (size_t)n, "b=%d sq=%d sk=%d", (int)draw_in(rng, 1, 2),
             (int)draw_in(rng, 1, 220), (int)draw_in(rng, 1, 220));
  else
    snprintf(text + n, len - (size_t)n, "seqs=1x%d/%d+2x%d/%d+1x0/5+1x7/0",
             (int)draw_in(rng, 1, 150), (int)draw_in(rng, 1, 150), (int)draw_in(rng, 1, 60),
             (int)draw_in(rng, 1, 60));
}

/* Ordinary numbers, large ones, or any bit pattern. */
static void random_data(struct fixture *f, int kind)
{
  if (kind == 1)
    fill(f, B_Q, 300);
  if (kind < 2)
    return;
  for (int which = B_Q; which <= B_DOUT; which++)
    for (int64_t e = 0; which != B_O && e < f->b[which].elements; e++) {
      if (draw_in(&f->rng, 0, 199))
        continue;
      if (f->p.dtype == ATTN_F32)
        ((uint32_t *)f->b[which].t.data)[e] = (uint32_t)draw(&f->rng);
      else
        ((uint16_t *)f->b[which].t.data)[e] = (uint16_t)draw(&f->rng);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

struct result {
  void *data[BUFFERS];
  float *lse;
};

static void result_take(struct result *r, const struct fixture *f)
{
  for (int i = 0; i < BUFFERS; i++) {
    r->data[i] = malloc((size_t)f->b[i].elements * 4 + 1);
    memcpy(r->data[i], f->b[i].t.data, (size_t)f->b[i].elements * attn_dtype_size(f->p.dtype));
  }
  r->lse = malloc((size_t)f->lse_count * sizeof(float) + 1);
  memcpy(r->lse, f->args.lse, (size_t)f->lse_count * sizeof(float));
}

static void result_free(struct result *r)
{
  for (int i = 0; i < BUFFERS; i++)
    free(r->data[i]);
  free(r->lse);
}

static bool same(const struct result *r, const struct fixture *f)
{
  bool equal = !memcmp(r->lse, f->args.lse, (size_t)f->lse_count * sizeof(float));
  for (int i = 0; i < BUFFERS; i++)
    equal &=
        !memcmp(r->data[i], f->b[i].t.data, (size_t)f->b[i].elements * attn_dtype_size(f->p.dtype));
  return equal;
}

/* Runs both on one problem; backward is given flash's O and LSE. */
static bool equal_bits(struct attn_machine *ma, const struct attn_impl *a, struct attn_machine *mb,
                       const struct attn_impl *b, struct fixture *f)
{
  struct result r;
  if (f->p.op == ATTN_BWD) {
    f->p.op = ATTN_FWD;
    run_on(ma, &attn_cpu_flash, f);
    f->p.op = ATTN_BWD;
  }
  if (run_on(ma, a, f).status)
    return false;
  result_take(&r, f);
  bool equal = !run_on(mb, b, f).status && same(&r, f);
  result_free(&r);
  return equal;
}

static void test_twin(const char *op, int kind, const char *what)
{
  const size_t sizes[] = {28 * 1024, 48 * 1024, 227 * 1024};
  struct attn_machine *m[3];
  int good = 0;
  for (int i = 0; i < 3; i++)
    m[i] = attn_machine_create(sizes[i], 2);
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t rng = 7919u * (uint64_t)round + (uint64_t)kind;
    char text[512], err[256];
    struct attn_problem p;
    struct fixture f;
    random_problem(&rng, text, sizeof text, op);
    if (attn_problem_parse(text, &p, err, sizeof err)) {
      diag("%s: %s", text, err);
      continue;
    }
    fixture_init(&f, &p, rng, draw_in(&rng, 0, 2), 2);
    random_data(&f, kind);
    struct attn_machine *on = m[round % 3];
    bool equal = equal_bits(on, &attn_cpu_flash, on, &attn_cpu_flash_materialised, &f);
    good += equal;
    if (!equal)
      diag("M = %zu: %s", on->sram_bytes, text);
    fixture_free(&f);
  }
  ok(good == ROUNDS, "%s, %s: flash equals its materialising twin in %d of %d problems", op, what,
     good, ROUNDS);
  for (int i = 0; i < 3; i++)
    attn_machine_destroy(m[i]);
}

/* The order of every sum follows from the problem and M alone. */
static void test_cores(void)
{
  static const struct attn_impl *const impls[] = {&attn_cpu_naive, &attn_cpu_flash,
                                                  &attn_cpu_flash_materialised};
  static const char *const ops[] = {"fwd", "bwd"};
  struct attn_machine *one = attn_machine_create(64 * 1024, 1);
  struct attn_machine *four = attn_machine_create(64 * 1024, 4);
  for (int i = 0; i < 3; i++)
    for (int o = 0; o < 2; o++) {
      char text[512], err[256];
      struct attn_problem p;
      struct fixture f;
      snprintf(text, sizeof text, "op=%s b=1 hq=4 hkv=2 sq=300 sk=700 d=40 mask=causal", ops[o]);
      attn_problem_parse(text, &p, err, sizeof err);
      fixture_init(&f, &p, 3, 0, 2);
      ok(equal_bits(one, impls[i], four, impls[i], &f), "%s %s: the same bits from 1 and 4 cores",
         impls[i]->name, ops[o]);
      fixture_free(&f);
    }
  attn_machine_destroy(one);
  attn_machine_destroy(four);
}

int main(void)
{
  static const char *const ops[] = {"fwd", "bwd"};
  static const char *const kinds[] = {"ordinary numbers", "scores up to hundreds",
                                      "any bit pattern in places"};
  for (int o = 0; o < 2; o++)
    for (int kind = 0; kind < 3; kind++)
      test_twin(ops[o], kind, kinds[kind]);
  test_cores();
  return done_testing();
}
