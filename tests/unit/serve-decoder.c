/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder against a plain one in fp64 that keeps no cache and knows no pages, from the same
 * weights. Laws: its logits are the plain ones' within 2^-18 of the largest, whatever attention is
 * put into it, paged or contiguous, a prompt at once, in chunks, or behind a cached prefix; a
 * product adds its terms in the same order whatever rows are beside it, to the bit; the logits of a
 * sequence are the same bits whatever sequences are beside it, and with a cached prefix the same
 * bits as without, for cpu/naive and cpu/flash, whose rows do not depend on the batch; branches of
 * a fork are what separate sequences are.
 */
#include "config.h"

#include "harness/base/rng.h"
#include "harness/serve/compute-gemm.h"
#include "harness/serve/decoder-parts.h"
#include "harness/run/catalog.h"
#include "impl/attn.h"
#include "tests/tap.h"

#include <math.h>

#define TOKENS 70
#define PAGE 4
#define PAGES 200
#define LONGEST 512

static struct device dev;
static const struct attn_model shape = {.name = "test",
                                        .layers = 2,
                                        .hidden = 48,
                                        .ffn = 40,
                                        .vocab = 50,
                                        .hq = 6,
                                        .hkv = 2,
                                        .d = 16,
                                        .context = LONGEST,
                                        .rope_theta = 10000};
static char err[512];

static const struct attn_impl *impl(const char *name)
{
  for (int i = 0; catalog_impl(i); i++)
    if (!strcmp(catalog_impl(i)->name, name))
      return catalog_impl(i);
  return NULL;
}

static struct decoder_options options(const char *prefill, const char *decode, bool contiguous)
{
  return (struct decoder_options){
      .model = shape,
      .page = contiguous ? LONGEST : PAGE,
      .npages = contiguous ? 8 : PAGES,
      .contiguous = contiguous,
      .tokens = 128,
      .batch = 80,
      .seed = 3,
      .prefill = impl(prefill),
      .decode = impl(decode),
      .rope = impl("cpu/rope"),
      .scaling = {.factor = 1, .theta = 10000, .rotary = 16, .attention = 1}};
}

/* ---- the plain decoder ------------------------------------------------------------------------
 */

static double weight(const void *w, int64_t in, int64_t row, int64_t k)
{
  const float *panel = (const float *)w + row / GEMM_COLUMNS * in * GEMM_COLUMNS;
  return panel[k * GEMM_COLUMNS + row % GEMM_COLUMNS];
}

static void product(double *y, const double *x, const void *w, int64_t out, int64_t in)
{
  for (int64_t r = 0; r < out; r++) {
    y[r] = 0;
    for (int64_t k = 0; k < in; k++)
      y[r] += weight(w, in, r, k) * x[k];
  }
}

static void normed(double *y, const double *x, const void *gain)
{
  double sum = 0;
  for (int64_t k = 0; k < shape.hidden; k++)
    sum += x[k] * x[k];
  for (int64_t k = 0; k < shape.hidden; k++)
    y[k] = x[k] / sqrt(sum / (double)shape.hidden + 1e-5) * (double)((const float *)gain)[k];
}

static void rotate(double *head, int64_t position)
{
  for (int64_t i = 0; i < shape.d / 2; i++) {
    double angle = (double)position * pow(shape.rope_theta, -2.0 * (double)i / (double)shape.d);
    double a = head[i], b = head[i + shape.d / 2];
    head[i] = a * cos(angle) - b * sin(angle);
    head[i + shape.d / 2] = a * sin(angle) + b * cos(angle);
  }
}

enum { Q = 6 * 16, KV = 2 * 16, ALL = Q + 2 * KV, HIDDEN = 48, FFN = 40 };

/* o (Q) of query row t over rows 0 .. t of qkv, rotated. */
static void attention(double *o, double (*qkv)[ALL], int64_t t)
{
  for (int64_t h = 0; h < shape.hq; h++) {
    const int64_t kv = Q + h / (shape.hq / shape.hkv) * shape.d;
    double p[LONGEST], sum = 0;
    memset(o + h * shape.d, 0, (size_t)shape.d * sizeof *o);
    for (int64_t j = 0; j <= t; j++) {
      p[j] = 0;
      for (int64_t i = 0; i < shape.d; i++)
        p[j] += qkv[t][h * shape.d + i] * qkv[j][kv + i];
      sum += p[j] = exp(p[j] / sqrt((double)shape.d));
    }
    for (int64_t j = 0; j <= t; j++)
      for (int64_t i = 0; i < shape.d; i++)
        o[h * shape.d + i] += p[j] / sum * qkv[j][kv + KV + i];
  }
}

static void plain_layer(const struct layer *l, double (*x)[HIDDEN], int64_t n)
{
  static double qkv[LONGEST][ALL];
  double h[HIDDEN], o[Q], up[2 * FFN], y[HIDDEN];
  for (int64_t t = 0; t < n; t++) {
    normed(h, x[t], l->attention_gain);
    product(qkv[t], h, l->qkv, ALL, HIDDEN);
    for (int64_t i = 0; i < Q + KV; i += shape.d)
      rotate(&qkv[t][i], t);
  }
  for (int64_t t = 0; t < n; t++) {
    attention(o, qkv, t);
    product(y, o, l->out, HIDDEN, Q);
    for (int64_t k = 0; k < HIDDEN; k++)
      x[t][k] += y[k];
    normed(h, x[t], l->mlp_gain);
    product(up, h, l->gate_up, 2 * FFN, HIDDEN);
    for (int64_t k = 0; k < FFN; k++)
      up[k] = up[k] / (1 + exp(-up[k])) * up[FFN + k];
    product(y, up, l->down, HIDDEN, FFN);
    for (int64_t k = 0; k < HIDDEN; k++)
      x[t][k] += y[k];
  }
}

/* Logits behind the last of n tokens. */
static void plain(const struct decoder *d, const int32_t *token, int64_t n, double *logits)
{
  static double x[LONGEST][HIDDEN];
  double h[HIDDEN];
  for (int64_t t = 0; t < n; t++)
    for (int64_t k = 0; k < HIDDEN; k++)
      x[t][k] = (double)((const float *)d->embedding)[token[t] * HIDDEN + k];
  for (int64_t i = 0; i < d->layers; i++)
    plain_layer(&d->layer[i], x, n);
  normed(h, x[n - 1], d->gain);
  product(logits, h, d->head, shape.vocab, HIDDEN);
}

/* ---- steps ------------------------------------------------------------------------------------
 */

struct sequence {
  struct kv_seq seq;
  int32_t token[LONGEST];
};

/* Computes the tokens up to `end` of some sequences in one step; logits of the last of each. */
static int advance(struct decoder *d, struct kv *kv, struct sequence **s, int n, int64_t end,
                   float (*logits)[50])
{
  struct step_item item[80];
  struct kv_copy copy[80];
  int32_t sampled[80];
  struct step_times times;
  struct step st = {.item = item, .nitems = n, .copy = copy};
  for (int i = 0; i < n; i++) {
    int64_t first = s[i]->seq.length;
    if (kv_append(kv, &s[i]->seq, end - first, &copy[st.ncopies]))
      return ATTN_ENOMEM;
    st.ncopies += copy[st.ncopies].from != PAGE_NONE;
    item[i] = (struct step_item){s[i]->token + first, first, end - first, s[i]->seq.table,
                                 s[i]->seq.npages,    true};
    st.tokens += end - first;
  }
  int status = decoder_run(d, &st, sampled, &times, err, sizeof err);
  if (status)
    diag("%s", err);
  for (int i = 0; !status && i < n; i++)
    status = decoder_logits(d, i, logits[i]);
  return status;
}

static void release(struct kv *kv, struct sequence *s, int n)
{
  for (int i = 0; i < n; i++)
    kv_release(kv, &s[i].seq);
}

static void make_tokens(struct sequence *s, uint64_t seed)
{
  memset(&s->seq, 0, sizeof s->seq);
  for (int i = 0; i < LONGEST; i++)
    s->token[i] = (int32_t)rng_below(seed, (uint64_t)i, (uint32_t)shape.vocab);
}

static double error(const float *got, const double *want)
{
  double worst = 0, largest = 0;
  for (int i = 0; i < shape.vocab; i++) {
    worst = fmax(worst, fabs((double)got[i] - want[i]));
    largest = fmax(largest, fabs(want[i]));
  }
  return worst / largest;
}

/* The prompt at once, in chunks, and its last tokens one by one. */
static void logits_of(const char *prefill, const char *decode, bool contiguous,
                      const char *gathered)
{
  struct decoder *d;
  struct decoder_options o = options(prefill, decode, contiguous);
  struct kv kv;
  static struct sequence whole, chunks;
  o.gathered = gathered ? impl(gathered) : NULL;
  o.gather_least = 13; /* some of the chunks */
  struct sequence *a = &whole, *b = &chunks;
  static float logits[1][50];
  double want[50], worst = 0;
  int status = decoder_create(&d, &dev, &o, err, sizeof err);
  kv_init(&kv, (int32_t)o.npages, o.page);
  make_tokens(a, 1);
  make_tokens(b, 1);
  plain(d, a->token, TOKENS, want);
  if (!status)
    status = advance(d, &kv, &a, 1, TOKENS, logits);
  worst = fmax(worst, error(logits[0], want));
  static const int64_t ends[] = {1, 13, 50, 67, 68, 69, TOKENS};
  for (size_t i = 0; !status && i < sizeof ends / sizeof *ends; i++)
    status = advance(d, &kv, &b, 1, ends[i], logits);
  worst = fmax(worst, error(logits[0], want));
  ok(!status && worst < 0x1p-18, "%s, %s, %s: logits of a plain fp64 decoder within %.1e", prefill,
     decode,
     contiguous ? "contiguous"
     : gathered ? "paged, large chunks gathered"
                : "paged",
     worst);
  kv_release(&kv, &a->seq);
  kv_release(&kv, &b->seq);
  kv_free(&kv);
  decoder_destroy(d);
}

/* A sequence alone, and in a batch with 69 others; behind a cached prefix, and cold. */
static void same_bits(const char *name)
{
  static struct sequence s[70], alone, cached;
  static float batch[80][50], one[1][50], behind[1][50];
  struct sequence *list[70], *a = &alone, *c = &cached;
  struct decoder *d;
  struct decoder_options o = options(name, name, false);
  struct kv kv;
  o.tokens = 70 * 20;
  o.npages = 800;
  int status = decoder_create(&d, &dev, &o, err, sizeof err);
  kv_init(&kv, (int32_t)o.npages, o.page);
  for (int i = 0; i < 70; i++) {
    make_tokens(&s[i], i == 5 ? 1 : 100 + (uint64_t)i);
    list[i] = &s[i];
  }
  make_tokens(a, 1);
  make_tokens(c, 1);
  for (int64_t end = 19; !status && end <= 21; end++)
    status = advance(d, &kv, list, 70, end, batch);
  status = status ? status : advance(d, &kv, &a, 1, 19, one);
  for (int64_t end = 20; !status && end <= 21; end++)
    status = advance(d, &kv, &a, 1, end, one);
  ok(!status && !memcmp(batch[5], one[0], sizeof one[0]),
     "%s: the same bits alone and among 69 others, in two calls", name);
  for (int i = 0; i < 4; i++) /* 16 tokens by the other sequence's pages */
    kv_adopt(&kv, &c->seq, a->seq.table[i]);
  status = status ? status : advance(d, &kv, &c, 1, 21, behind);
  release(&kv, &s[69], 1);
  make_tokens(&s[69], 1);
  list[0] = &s[69];
  status = status ? status : advance(d, &kv, list, 1, 21, batch);
  ok(!status && !memcmp(batch[0], behind[0], sizeof behind[0]),
     "%s: with 16 of 21 tokens cached the same bits as cold", name);
  release(&kv, s, 70);
  release(&kv, a, 1);
  release(&kv, c, 1);
  kv_free(&kv);
  decoder_destroy(d);
}

/* A prompt over many tiles of keys: at once, in chunks, and behind a cached prefix. */
static void long_prompt(const char *name)
{
  static struct sequence s[3];
  static float logits[3][1][50];
  struct sequence *list[3] = {&s[0], &s[1], &s[2]};
  struct decoder *d;
  struct decoder_options o = options(name, name, false);
  struct kv kv;
  o.tokens = LONGEST;
  o.npages = 400;
  int status = decoder_create(&d, &dev, &o, err, sizeof err);
  kv_init(&kv, (int32_t)o.npages, o.page);
  for (int i = 0; i < 3; i++)
    make_tokens(&s[i], 1);
  status = status ? status : advance(d, &kv, &list[0], 1, 500, logits[0]);
  for (int64_t end = 93; !status && end <= 500; end += 37)
    status = advance(d, &kv, &list[1], 1, end, logits[1]);
  for (int i = 0; i < 120; i++)
    kv_adopt(&kv, &s[2].seq, s[0].seq.table[i]);
  status = status ? status : advance(d, &kv, &list[2], 1, 500, logits[2]);
  ok(!status && !memcmp(logits[0], logits[1], sizeof logits[0]),
     "%s: 500 tokens in chunks, the same bits as at once", name);
  ok(!status && !memcmp(logits[0], logits[2], sizeof logits[0]),
     "%s: 480 of 500 tokens cached, the same bits as cold", name);
  release(&kv, s, 3);
  kv_free(&kv);
  decoder_destroy(d);
}

/* Three branches of a prompt that ends inside a page, against three sequences of their own. */
static void forked(void)
{
  static struct sequence branch[3], own[3];
  static float got[3][50], want[3][50];
  struct sequence *b[3] = {&branch[0], &branch[1], &branch[2]}, *w[3] = {&own[0], &own[1], &own[2]};
  struct decoder *d;
  struct decoder_options o = options("cpu/flash", "cpu/flash", false);
  struct kv kv;
  int status = decoder_create(&d, &dev, &o, err, sizeof err);
  kv_init(&kv, (int32_t)o.npages, o.page);
  make_tokens(b[0], 1);
  status = status ? status : advance(d, &kv, b, 1, 18, got);
  for (int i = 0; i < 3; i++) {
    if (i) {
      make_tokens(b[i], 1);
      kv_fork(&kv, &branch[0].seq, &branch[i].seq);
    }
    for (int k = 18; k < LONGEST; k++)
      branch[i].token[k] = (int32_t)rng_below(50 + (uint64_t)i, (uint64_t)k, 50);
    make_tokens(w[i], 1);
    memcpy(own[i].token, branch[i].token, sizeof own[i].token);
  }
  status = status ? status : advance(d, &kv, w, 3, 18, want);
  for (int64_t end = 19; !status && end < 30; end++) {
    status = advance(d, &kv, b, 3, end, got);
    status = status ? status : advance(d, &kv, w, 3, end, want);
  }
  ok(!status && kv.copies == 2 && !memcmp(got, want, sizeof got),
     "branches of a fork, after %lld copies on write, are what separate sequences are",
     (long long)kv.copies);
  release(&kv, branch, 3);
  release(&kv, own, 3);
  kv_free(&kv);
  decoder_destroy(d);
}

static void products(void)
{
  enum { ROWS = 13, OUT = 37, IN = 29 };
  struct compute c = {&compute_cpu, &dev, NULL};
  static float x[ROWS * IN], y[ROWS * OUT], alone[OUT];
  void *w = NULL;
  double worst = 0;
  bool same = true;
  c.ops->open(&c);
  int status = c.ops->weights(&c, &w, OUT, IN, 9, 1);
  for (int i = 0; i < ROWS * IN; i++)
    x[i] = (float)rng_below(1, (uint64_t)i, 2001) / 1000 - 1;
  status = status ? status : c.ops->gemm(&c, y, x, w, ROWS, OUT, IN, false);
  for (int r = 0; r < ROWS; r++) {
    c.ops->gemm(&c, alone, x + r * IN, w, 1, OUT, IN, false);
    same &= !memcmp(alone, y + r * OUT, sizeof alone);
    for (int o = 0; o < OUT; o++) {
      double sum = 0, size = 0;
      for (int k = 0; k < IN; k++) {
        sum += (double)x[r * IN + k] * weight(w, IN, o, k);
        size += fabs((double)x[r * IN + k] * weight(w, IN, o, k));
      }
      worst = fmax(worst, fabs(sum - (double)y[r * OUT + o]) / size);
    }
  }
  ok(!status && worst <= (IN + 1) * 0x1p-24, "products are right within n eps, %.1e", worst);
  ok(same, "and a row's bits do not depend on the rows beside it");
  memcpy(alone, y, sizeof alone);
  c.ops->gemm(&c, y, x, w, 1, OUT, IN, true);
  same = true;
  for (int o = 0; o < OUT; o++)
    same &= y[o] == alone[o] + alone[o];
  ok(same, "add adds");
  dev.ops->free(&dev, w);
  c.ops->close(&c);
}

int main(void)
{
  device_host.open(&dev, &(struct device_options){.cores = 2});
  products();
  logits_of("cpu/naive", "cpu/naive", false, NULL);
  logits_of("cpu/naive", "cpu/naive", true, NULL);
  logits_of("cpu/flash", "cpu/flash", false, NULL);
  logits_of("cpu/flash", "cpu/flash", true, NULL);
  logits_of("cpu/flash", "cpu/split-decode", false, NULL);
  logits_of("cpu/flash", "cpu/split-decode", true, NULL);
  logits_of("cpu/flash", "cpu/flash", false, "cpu/naive");
  same_bits("cpu/naive");
  same_bits("cpu/flash");
  long_prompt("cpu/naive");
  long_prompt("cpu/flash");
  forked();
  device_host.close(&dev);
  return done_testing();
}
