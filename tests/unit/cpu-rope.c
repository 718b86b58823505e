/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu/rope and cpu/rope-fp32.  Laws: the verdict passes; appending in parts is appending whole, bit
 * for bit; pages change nothing; interleaved pairs are half pairs in another order; what is no new
 * token keeps its bits; bytes counted are those of traffic(), and the compulsory ones where nothing
 * is ragged; a position in the wrong place fails the verdict.
 */
#include "config.h"

#include "impl/convert.h"
#include "impl/cpu/cpu.h"
#include "impl/cpu/machine.h"
#include "reference/reference.h"
#include "tests/tap.h"

#define CANARY 0x5a

/* A problem with its tensors, dense or paged; the cache is full of canaries. */
struct scene {
  struct attn_problem p;
  struct attn_args a;
  int32_t *cu_q, *cu_k, *table, *lengths;
  size_t cache_bytes[2]; /* k, v */
};

static struct attn_tensor tensor(const struct attn_problem *p, int64_t rows, int64_t len,
                                 int64_t heads, int64_t width, size_t *bytes)
{
  bool bhsd = p->layout == ATTN_BHSD;
  *bytes = (size_t)(rows * heads * width) * attn_dtype_size(p->dtype);
  char *data = malloc(*bytes + 1);
  memset(data, CANARY, *bytes);
  return (struct attn_tensor){data, len * heads * width, bhsd ? width : heads * width,
                              bhsd ? len * width : width};
}

static void draw(const struct attn_problem *p, struct attn_tensor *t, size_t bytes, uint64_t seed)
{
  for (size_t i = 0; i < bytes / attn_dtype_size(p->dtype); i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    attn_store(p->dtype, t->data, (int64_t)i, (float)(int64_t)seed * 0x1p-62f);
  }
}

static void lay_out(struct scene *s)
{
  const struct attn_problem *p = &s->p;
  int64_t stride = attn_problem_pages(p, p->sk), sq, sk;
  s->cu_q = calloc((size_t)p->b + 1, sizeof *s->cu_q);
  s->cu_k = calloc((size_t)p->b + 1, sizeof *s->cu_k);
  s->lengths = calloc((size_t)p->b, sizeof *s->lengths);
  s->table = calloc((size_t)(p->b * stride) + 1, sizeof *s->table);
  for (int64_t b = 0; b < p->b; b++) {
    attn_problem_seq(p, b, &sq, &sk);
    s->cu_q[b + 1] = s->cu_q[b] + (int32_t)sq;
    s->cu_k[b + 1] = s->cu_k[b] + (int32_t)sk;
    s->lengths[b] = (int32_t)sk;
    for (int64_t j = 0; j < stride; j++) /* backwards, the sequences mixed */
      s->table[b * stride + j] = (int32_t)((stride - 1 - j) * p->b + b);
  }
  s->a.block_table = p->page ? s->table : NULL;
  s->a.block_table_stride = stride;
  s->a.seqlens_k = p->page ? s->lengths : NULL;
  s->a.cu_seqlens_q = p->nruns ? s->cu_q : NULL;
  s->a.cu_seqlens_k = p->nruns && !p->page ? s->cu_k : NULL;
}

static struct scene scene_open(const char *text)
{
  struct scene s = {.p = {0}};
  char err[256];
  size_t bytes;
  if (attn_problem_parse(text, &s.p, err, sizeof err))
    diag("%s: %s", text, err);
  const struct attn_problem *p = &s.p;
  int64_t new = attn_problem_total_q(p), len = p->page ? p->page : p->sk;
  int64_t rows = p->page ? attn_problem_pages(p, p->sk) * p->b * p->page : attn_problem_total_k(p);
  lay_out(&s);
  s.a.q = tensor(p, new, p->sq, p->hq, p->d, &bytes);
  draw(p, &s.a.q, bytes, 1);
  s.a.o = tensor(p, new, p->sq, p->hq, p->d, &bytes);
  s.a.k_new = tensor(p, new, p->sq, p->hkv, p->d, &bytes);
  draw(p, &s.a.k_new, bytes, 2);
  s.a.v_new = tensor(p, new, p->sq, p->hkv, p->dv, &bytes);
  draw(p, &s.a.v_new, bytes, 3);
  s.a.k = tensor(p, rows, len, p->hkv, p->d, &s.cache_bytes[0]);
  s.a.v = tensor(p, rows, len, p->hkv, p->dv, &s.cache_bytes[1]);
  if (p->nruns)
    s.a.q.sb = s.a.o.sb = s.a.k_new.sb = s.a.v_new.sb = 0;
  if (p->nruns && !p->page)
    s.a.k.sb = s.a.v.sb = 0;
  return s;
}

static void scene_close(struct scene *s)
{
  void *all[] = {s->a.q.data, s->a.o.data, s->a.k_new.data, s->a.v_new.data, s->a.k.data,
                 s->a.v.data, s->cu_q,     s->cu_k,         s->table,        s->lengths};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    free(all[i]);
}

/* Row `token` of a sequence in a cache tensor. */
static const char *cached(const struct scene *s, const struct attn_tensor *t, int64_t b,
                          int64_t token, int64_t h)
{
  int64_t at = (s->p.nruns ? 0 : b * t->sb) + (token + (s->p.nruns ? s->cu_k[b] : 0)) * t->ss;
  if (s->p.page)
    at = s->table[b * s->a.block_table_stride + token / s->p.page] * t->sb +
         token % s->p.page * t->ss;
  return (const char *)t->data + (size_t)(at + h * t->sh) * attn_dtype_size(s->p.dtype);
}

static int run(struct attn_machine *m, const struct attn_impl *impl, struct scene *s)
{
  attn_machine_reset(m);
  return impl->run(&s->p, &s->a, m);
}

/* ---- the verdict, bytes, and what must stay -------------------------------------------------- */

static const char *const problems[] = {
    "op=rope dtype=fp32 b=2 hq=4 hkv=2 sq=70 sk=301 d=64 rope=llama3:8 trained=64 theta=5e5",
    "op=rope dtype=bf16 b=2 hq=6 hkv=3 sq=9 sk=9 d=80 dv=48 rotary=32 pairs=interleaved",
    "op=rope dtype=fp16 hq=2 hkv=1 sq=3 sk=1M d=8 rope=yarn:32 trained=32k",
    "op=rope dtype=fp32 hq=2 hkv=1 sq=65 sk=131072 d=8 rope=ntk:32 layout=bhsd",
    "op=rope dtype=bf16 b=2 hq=4 hkv=2 sq=131 sk=300 d=64 page=16 rope=linear:4 layout=bhsd",
    "op=rope dtype=fp32 hq=4 hkv=2 d=24 page=7 rope=dyn:4 trained=16 seqs=2x5/33+1x0/9+1x70/100",
    "op=rope dtype=bf16 hq=4 hkv=2 d=24 rotary=2 seqs=2x5/33+1x0/9+1x70/100+1x1/1",
};

/* Bytes of the cache that are no canary any more. */
static int64_t changed(const struct scene *s)
{
  const char *data[2] = {s->a.k.data, s->a.v.data};
  int64_t n = 0;
  for (int i = 0; i < 2; i++)
    for (size_t c = 0; c < s->cache_bytes[i]; c++)
      n += data[i][c] != CANARY;
  return n;
}

static void verdicts(struct attn_machine *m, const struct attn_impl *impl)
{
  struct attn_device dev = {.kind = ATTN_CPU, .sram_bytes = m->sram_bytes};
  for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
    struct scene s = scene_open(problems[i]);
    struct ref_verdict v;
    struct attn_traffic t;
    uint64_t read, write;
    int status = run(m, impl, &s);
    attn_machine_totals(m, &read, &write, NULL);
    impl->traffic(&s.p, &dev, &t);
    ref_verify_rope(&s.p, &impl->numerics, &s.a, NULL, NULL, &v);
    ok(!status && v.pass, "%s, within %.2f of the bound: %s", impl->name, v.bound_ratio,
       problems[i]);
    ok((double)read == t.read_bytes && (double)write == t.write_bytes &&
           t.write_bytes == attn_problem_compulsory_write(&s.p) &&
           t.read_bytes <= attn_problem_compulsory_read(&s.p) * 1.02,
       "bytes counted are those of traffic(), and at most 2 %% above the compulsory ones");
    int64_t fresh = attn_problem_total_q(&s.p) * s.p.hkv * (s.p.d + s.p.dv) *
                    (int64_t)attn_dtype_size(s.p.dtype);
    ok(changed(&s) <= fresh && changed(&s) > fresh * 9 / 10,
       "[8.2] no more of the cache changed than the new tokens");
    scene_close(&s);
  }
}

/* ---- the same numbers elsewhere -------------------------------------------------------------- */

/* Moves past tokens of new rows. */
static void skip_tokens(struct scene *s, int64_t tokens)
{
  struct attn_tensor *t[] = {&s->a.q, &s->a.o, &s->a.k_new, &s->a.v_new};
  for (int i = 0; i < 4; i++)
    t[i]->data = (char *)t[i]->data + (size_t)(tokens * t[i]->ss) * attn_dtype_size(s->p.dtype);
}

static void in_parts(struct attn_machine *m, const struct attn_impl *impl, int64_t page)
{
  char text[256];
  snprintf(text, sizeof text,
           "op=rope dtype=bf16 hq=4 hkv=2 sq=100 sk=141 d=64 page=%d rope=yarn:4 trained=32",
           (int)page);
  struct scene whole = scene_open(text), parts = scene_open(text);
  static const int64_t part[] = {1, 63, 7, 29};
  struct attn_args first = parts.a;
  int status = run(m, impl, &whole);
  parts.p.sk = 41;
  for (int i = 0; i < 4; i++) {
    parts.p.sq = part[i];
    parts.p.sk += part[i];
    status = status ? status : run(m, impl, &parts);
    skip_tokens(&parts, part[i]);
  }
  parts.a = first;
  bool same = !memcmp(whole.a.o.data, parts.a.o.data, 100 * 4 * 64 * 2) &&
              !memcmp(whole.a.k.data, parts.a.k.data, whole.cache_bytes[0]) &&
              !memcmp(whole.a.v.data, parts.a.v.data, whole.cache_bytes[1]);
  ok(!status && same, "%s: four parts are the whole, bit for bit; page=%d", impl->name, (int)page);
  scene_close(&whole);
  scene_close(&parts);
}

static bool same_cache(const struct scene *x, const struct scene *y)
{
  bool same = true;
  for (int64_t b = 0; b < x->p.b; b++) {
    int64_t sq, sk;
    attn_problem_seq(&x->p, b, &sq, &sk);
    for (int64_t j = sk - sq; j < sk; j++)
      for (int64_t h = 0; h < x->p.hkv; h++)
        same =
            same &&
            !memcmp(cached(x, &x->a.k, b, j, h), cached(y, &y->a.k, b, j, h), (size_t)x->p.d * 2) &&
            !memcmp(cached(x, &x->a.v, b, j, h), cached(y, &y->a.v, b, j, h), (size_t)x->p.dv * 2);
  }
  return same;
}

static void on_pages(struct attn_machine *m, const struct attn_impl *impl)
{
  const char *dense = "op=rope hq=4 hkv=2 d=24 rope=dyn:4 trained=16 seqs=2x5/33+1x70/100+1x3/3";
  struct scene x = scene_open(dense);
  int status = run(m, impl, &x);
  for (int page = 1; page <= 64; page = page * 3 + 1) {
    char text[256];
    snprintf(text, sizeof text, "%s page=%d", dense, page);
    struct scene y = scene_open(text);
    status = status ? status : run(m, impl, &y);
    ok(!status && same_cache(&x, &y), "%s: pages of %d hold what a dense cache holds", impl->name,
       page);
    scene_close(&y);
  }
  scene_close(&x);
}

static void other_pairs(struct attn_machine *m, const struct attn_impl *impl)
{
  struct scene x = scene_open("op=rope dtype=fp32 sq=5 sk=905 d=16 rotary=12");
  struct scene y = scene_open("op=rope dtype=fp32 sq=5 sk=905 d=16 rotary=12 pairs=interleaved");
  const float *q = x.a.q.data, *xo = x.a.o.data, *yo = y.a.o.data;
  float *to = y.a.q.data;
  for (int i = 0; i < 5; i++)
    for (int c = 0; c < 6; c++) {
      to[i * 16 + 2 * c] = q[i * 16 + c];
      to[i * 16 + 2 * c + 1] = q[i * 16 + 6 + c];
    }
  int status = run(m, impl, &x);
  status = status ? status : run(m, impl, &y);
  bool same = !status;
  for (int i = 0; i < 5; i++)
    for (int c = 0; c < 6; c++)
      same = same && yo[i * 16 + 2 * c] == xo[i * 16 + c] &&
             yo[i * 16 + 2 * c + 1] == xo[i * 16 + 6 + c];
  ok(same, "%s: interleaved pairs are half pairs in another order", impl->name);
  scene_close(&x);
  scene_close(&y);
}

/* ---- what fails ------------------------------------------------------------------------------ */

static void wrong_position(struct attn_machine *m)
{
  struct scene s = scene_open("op=rope dtype=bf16 b=2 hq=2 hkv=1 sq=4 sk=9 d=16");
  struct ref_verdict v;
  s.p.sk = 8; /* one position back, and one slot */
  int status = run(m, &attn_cpu_rope, &s);
  s.p.sk = 9;
  ref_verify_rope(&s.p, NULL, &s.a, NULL, NULL, &v);
  ok(!status && !v.pass, "[8.1] positions off by one fail: %s", v.worst.tensor);
  scene_close(&s);
  s = scene_open("op=rope dtype=fp32 sq=4 sk=64k d=16");
  status = run(m, &attn_cpu_rope_fp32, &s);
  ref_verify_rope(&s.p, NULL, &s.a, NULL, NULL, &v);
  ok(!status && !v.pass && v.drift.angle_max > 1e-4 && v.drift.position == 65535,
     "angles in fp32 that are not declared fail at 64k: %.2g rad", v.drift.angle_max);
  ref_verify_rope(&s.p, &attn_cpu_rope_fp32.numerics, &s.a, NULL, NULL, &v);
  ok(v.pass, "declared, they pass");
  scene_close(&s);
}

int main(void)
{
  const struct attn_impl *impls[] = {&attn_cpu_rope, &attn_cpu_rope_fp32};
  struct attn_machine *m = attn_machine_create(0, 2), *little = attn_machine_create(4096, 2);
  for (int i = 0; i < 2; i++) {
    verdicts(m, impls[i]);
    in_parts(m, impls[i], 0);
    in_parts(little, impls[i], 16);
    on_pages(little, impls[i]);
    other_pairs(m, impls[i]);
  }
  wrong_position(m);
  attn_machine_destroy(m);
  attn_machine_destroy(little);
  return done_testing();
}
