/* SPDX-License-Identifier: Apache-2.0
 *
 * reference-paged.c - SEMANTICS 1.10, 1.11: the reference on a paged cache gives, to the last bit,
 * what it gives on the contiguous one; slots past the end and pages that nobody owns are NaN
 * throughout. SEMANTICS 1.13: on an e4m3 cache it gives what it gives on the numbers times their
 * scales.
 */
#include "config.h"

#include "tests/unit/reference-fixture.h"

#define SPARE 3

static const struct attn_problem small = {.op = ATTN_DECODE,
                                          .dtype = ATTN_BF16,
                                          .b = 3,
                                          .hq = 6,
                                          .hkv = 2,
                                          .sq = 5,
                                          .sk = 21,
                                          .d = 8,
                                          .dv = 13,
                                          .mask = ATTN_MASK_CAUSAL};

/* The keys or values of f in pages: sequence s takes every fifth page, from the s-th on. */
static int64_t page_of(const struct fixture *f, int64_t s, int64_t k, int64_t pages)
{
  int64_t nth = k;
  for (int64_t i = 0; i < s; i++)
    nth += attn_problem_pages(&f->p, f->sk[i]);
  return (nth * 5 + 2) % pages;
}

static struct attn_tensor pool(const struct fixture *f, const struct attn_tensor *from,
                               int64_t page, int64_t pages, int64_t width)
{
  int64_t h = f->p.hkv, n = pages * page * h * width;
  struct attn_tensor t = {NULL, page * h * width, h * width, width};
  if (f->p.layout == ATTN_BHSD)
    t = (struct attn_tensor){NULL, page * h * width, width, page * width};
  t.data = malloc((size_t)n * 4);
  for (int64_t i = 0; i < n; i++)
    put(f, &t, i, NAN);
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t j = 0; j < f->sk[s]; j++)
      for (int64_t g = 0; g < h; g++)
        for (int64_t c = 0; c < width; c++)
          put(f, &t, page_of(f, s, j / page, pages) * t.sb + j % page * t.ss + g * t.sh + c,
              get(f, from, at_k(f, from, s, g, j) + c));
  return t;
}

/* Pages in all, of no common divisor with the stride of page_of. */
static int64_t pages_of(const struct fixture *f)
{
  int64_t n = SPARE;
  for (int64_t s = 0; s < f->nseq; s++)
    n += attn_problem_pages(&f->p, f->sk[s]);
  return n % 5 ? n : n + 1;
}

static bool same_rows(const struct fixture *f, const struct attn_problem *paged,
                      const struct attn_args *args)
{
  double o[13], want[13], lse, want_lse;
  struct attn_problem flat = *paged;
  flat.page = 0;
  flat.kv = ATTN_KV_DTYPE;
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < f->sq[s]; i++) {
        if (ref_row_host(&flat, &f->a, s, h, i, want, &want_lse) ||
            ref_row_host(paged, args, s, h, i, o, &lse))
          return false;
        if (lse != want_lse || memcmp(o, want, sizeof o))
          return false;
      }
  return true;
}

static void against_contiguous(struct attn_problem p, int64_t page, const char *what)
{
  struct fixture f;
  fixture_open(&f, &p, IID, 7);
  f.p.page = p.page = page;
  struct attn_args args = f.a;
  int64_t pages = pages_of(&f), stride = attn_problem_pages(&p, p.sk);
  int32_t *table = malloc((size_t)(f.nseq * stride) * sizeof *table);
  for (int64_t s = 0; s < f.nseq; s++)
    for (int64_t k = 0; k < stride; k++)
      table[s * stride + k] =
          k < attn_problem_pages(&p, f.sk[s]) ? (int32_t)page_of(&f, s, k, pages) : INT32_MAX - 255;
  args.k = pool(&f, &f.a.k, page, pages, p.d);
  args.v = pool(&f, &f.a.v, page, pages, p.dv);
  args.block_table = table;
  args.block_table_stride = stride;
  ok(same_rows(&f, &p, &args), "1.10, 1.11 pages of %lld: %s", (long long)page, what);
  args.block_table = NULL;
  double o[13], lse;
  ok(ref_row_host(&p, &args, 0, 0, 0, o, &lse) == ATTN_EINVAL, "no table is no cache");
  free(args.k.data);
  free(args.v.data);
  free(table);
  fixture_close(&f);
}

/* ref_verify_host looks at every row and passes what ref_forward_host wrote. */
static void verdict(void)
{
  struct attn_problem p = small;
  struct fixture f;
  struct ref_verdict v;
  struct attn_numerics exact = {0};
  fixture_open(&f, &p, IID, 9);
  f.p.page = p.page = 4;
  int64_t pages = pages_of(&f), stride = attn_problem_pages(&p, p.sk);
  int32_t table[32];
  for (int64_t i = 0; i < f.nseq * stride; i++)
    table[i] = (int32_t)page_of(&f, i / stride, i % stride, pages);
  struct attn_args args = f.a;
  args.k = pool(&f, &f.a.k, p.page, pages, p.d);
  args.v = pool(&f, &f.a.v, p.page, pages, p.dv);
  args.block_table = table;
  args.block_table_stride = stride;
  bool good = !ref_forward_host(&p, &args) && !ref_verify_host(&p, &exact, &args, NULL, &v);
  ok(good && v.pass && v.checked_rows == v.total_rows && v.total_rows == 3 * 6 * 5,
     "a paged forward is verified in all %lld rows", (long long)v.total_rows);
  int32_t kept = table[1];
  table[1] = table[stride + 1];
  table[stride + 1] = kept;
  good = !ref_verify_host(&p, &exact, &args, NULL, &v);
  ok(good && !v.pass, "and with pages of two sequences exchanged it fails");
  free(args.k.data);
  free(args.v.data);
  fixture_close(&f);
}

/* Two sequences begin with the same keys, which lie in the pages of the first alone. */
static void prefix(void)
{
  struct attn_problem p = small;
  struct fixture f;
  p.b = 2;
  fixture_open(&f, &p, IID, 11);
  p.prefix = 8;
  f.p.page = p.page = 4;
  for (int64_t g = 0; g < p.hkv; g++)
    for (int64_t j = 0; j < p.prefix; j++) {
      for (int64_t c = 0; c < p.d; c++)
        put(&f, &f.a.k, at_k(&f, &f.a.k, 1, g, j) + c,
            get(&f, &f.a.k, at_k(&f, &f.a.k, 0, g, j) + c));
      for (int64_t c = 0; c < p.dv; c++)
        put(&f, &f.a.v, at_k(&f, &f.a.v, 1, g, j) + c,
            get(&f, &f.a.v, at_k(&f, &f.a.v, 0, g, j) + c));
    }
  int64_t pages = pages_of(&f), stride = attn_problem_pages(&p, p.sk);
  int32_t table[16];
  for (int64_t i = 0; i < f.nseq * stride; i++)
    table[i] = (int32_t)page_of(&f, i % stride < 2 ? 0 : i / stride, i % stride, pages);
  struct attn_args args = f.a;
  args.k = pool(&f, &f.a.k, p.page, pages, p.d);
  args.v = pool(&f, &f.a.v, p.page, pages, p.dv);
  args.block_table = table;
  args.block_table_stride = stride;
  ok(same_rows(&f, &p, &args),
     "1.15 sequences that share the pages of a prefix: each its own result");
  free(args.k.data);
  free(args.v.data);
  fixture_close(&f);
}

/* ---- e4m3 -------------------------------------------------------------------------------------
 */

/* Of 16 bits, so that all products with e4m3 numbers are fp32 numbers. */
static const float k_scales[2] = {0x1.8a5cp-3f, 0x1.1f3ap1f},
                   v_scales[2] = {0x1.f00ep0f, 0x1.3p-5f};

/* A pool of codes; what they mean takes the place of the numbers that they are nearest to. */
static struct attn_tensor quantised(const struct fixture *f, const struct attn_tensor *from,
                                    int64_t pages, int64_t width, const float *scale)
{
  int64_t page = f->p.page, h = f->p.hkv;
  struct attn_tensor t = {NULL, page * h * width, h * width, width};
  t.data = malloc((size_t)(pages * t.sb));
  memset(t.data, 0x7f, (size_t)(pages * t.sb));
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t j = 0; j < f->sk[s]; j++)
      for (int64_t g = 0; g < h; g++)
        for (int64_t c = 0; c < width; c++) {
          int64_t flat = at_k(f, from, s, g, j) + c;
          int64_t at = page_of(f, s, j / page, pages) * t.sb + j % page * t.ss + g * t.sh + c;
          attn_store(ATTN_E4M3, t.data, at, (float)get(f, from, flat) / scale[g]);
          put(f, from, flat, scale[g] * attn_load(ATTN_E4M3, t.data, at));
        }
  return t;
}

static void e4m3(void)
{
  struct attn_problem p = small;
  struct fixture f;
  p.dtype = ATTN_F32;
  fixture_open(&f, &p, IID, 13);
  p.kv = ATTN_KV_E4M3;
  f.p.page = p.page = 4;
  int64_t pages = pages_of(&f), stride = attn_problem_pages(&p, p.sk);
  int32_t table[32];
  for (int64_t i = 0; i < f.nseq * stride; i++)
    table[i] = (int32_t)page_of(&f, i / stride, i % stride, pages);
  struct attn_args args = f.a;
  args.k = quantised(&f, &f.a.k, pages, p.d, k_scales);
  args.v = quantised(&f, &f.a.v, pages, p.dv, v_scales);
  args.block_table = table;
  args.block_table_stride = stride;
  args.k_scale = k_scales;
  args.v_scale = v_scales;
  double o[13], want[13], lse, want_lse, other[13];
  ok(same_rows(&f, &p, &args), "1.13 e4m3 numbers mean themselves times their scale");
  args.k_scale = v_scales;
  ref_row_host(&p, &args, 1, 2, 3, o, &lse);
  args.k_scale = k_scales;
  args.v_scale = k_scales;
  ref_row_host(&p, &args, 1, 2, 3, other, &want_lse);
  args.v_scale = v_scales;
  ref_row_host(&p, &args, 1, 2, 3, want, &want_lse);
  ok(lse != want_lse && memcmp(other, want, sizeof want), "and either scale matters");
  args.k_scale = NULL;
  ok(ref_row_host(&p, &args, 0, 0, 0, o, &lse) == ATTN_EINVAL, "no scales are no e4m3 cache");
  free(args.k.data);
  free(args.v.data);
  fixture_close(&f);
}

int main(void)
{
  struct attn_problem p = small;
  const int64_t sizes[] = {1, 3, 4, 7, 21, 32};
  for (int i = 0; i < 6; i++)
    against_contiguous(p, sizes[i], "bshd");
  p.layout = ATTN_BHSD;
  against_contiguous(p, 4, "bhsd");
  p = small;
  p.layout = ATTN_PACKED;
  p.nruns = 3;
  p.b = 4;
  p.runs[0] = (struct attn_run){2, 3, 5};
  p.runs[1] = (struct attn_run){1, 0, 4};
  p.runs[2] = (struct attn_run){1, 5, 21};
  against_contiguous(p, 4, "ragged");
  verdict();
  prefix();
  e4m3();
  return done_testing();
}
