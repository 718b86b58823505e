/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder on a GPU.  Laws: from the same seed its logits are the cpu device's within 2^-5 of
 * the largest (weights and activations are bf16 there, some ten roundings of 2^-9), for chunks,
 * single tokens and several sequences in a step, whatever attention of the registry takes its
 * problems, paged or contiguous; what is sampled is the first of the largest logits; branches of a
 * fork that copied on write are what separate sequences are; no page that no token has filled (they
 * are NaN) reaches a logit; the parts of a step's time add up to no more than the step.
 */
#include "config.h"

#include <math.h>

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "harness/run/catalog.h"
#include "harness/serve/decoder.h"
#include "tests/tap.h"

#define PAGE 16
#define PAGES 64
#define CONTEXT 256
#define VOCAB 1000
#define SEQS 3
#define BOUND 0x1p-5
#define SAME 0x1p-6 /* between two decoders of one device */

static struct device host, gpu;
static char err[512];
static const struct attn_model shape = {.name = "test",
                                        .layers = 2,
                                        .hidden = 128,
                                        .ffn = 192,
                                        .vocab = VOCAB,
                                        .hq = 4,
                                        .hkv = 2,
                                        .d = 64,
                                        .context = CONTEXT,
                                        .rope_theta = 10000};

struct run {
  struct decoder *d;
  struct kv kv;
  struct kv_seq seq[SEQS];
  int32_t token[SEQS][CONTEXT], sampled[SEQS];
  float logits[SEQS][VOCAB];
  bool longer; /* parts of a step took longer than the step */
};

static const struct attn_impl *impl(const char *name)
{
  for (int i = 0; catalog_impl(i); i++)
    if (!strcmp(catalog_impl(i)->name, name))
      return catalog_impl(i);
  return NULL;
}

static bool start(struct run *r, struct device *dev, const char *prefill, const char *decode,
                  bool contiguous, const char *gathered)
{
  struct decoder_options o = {
      .model = shape,
      .page = contiguous ? CONTEXT : PAGE,
      .npages = contiguous ? SEQS : PAGES,
      .contiguous = contiguous,
      .tokens = 256,
      .batch = SEQS,
      .seed = 5,
      .prefill = impl(prefill),
      .decode = impl(decode),
      .gathered = gathered ? impl(gathered) : NULL,
      .gather_least = 30, /* some of the chunks */
      .rope = impl(dev == &host ? "cpu/rope" : "cuda/rope"),
      .scaling = {.factor = 1, .theta = 10000, .rotary = 64, .attention = 1}};
  memset(r, 0, sizeof *r);
  for (int i = 0; i < SEQS; i++)
    for (int k = 0; k < CONTEXT; k++)
      r->token[i][k] = (int32_t)rng_below(7 + (uint64_t)i, (uint64_t)k, VOCAB);
  return !decoder_create(&r->d, dev, &o, err, sizeof err) &&
         !kv_init(&r->kv, (int32_t)o.npages, o.page);
}

static void stop(struct run *r)
{
  for (int i = 0; i < SEQS; i++)
    kv_release(&r->kv, &r->seq[i]);
  kv_free(&r->kv);
  decoder_destroy(r->d);
}

/* Brings sequence i to end[i] tokens, in one step; its logits, if it had any to compute. */
static bool advance(struct run *r, const int64_t *end)
{
  struct step_item item[SEQS];
  struct kv_copy copy[SEQS + 1];
  struct step_times times;
  struct step st = {.item = item, .copy = copy};
  int who[SEQS];
  for (int i = 0; i < SEQS; i++) {
    int64_t first = r->seq[i].length, n = end[i] - first;
    if (n <= 0)
      continue;
    if (kv_append(&r->kv, &r->seq[i], n, &copy[st.ncopies]))
      return false;
    st.ncopies += copy[st.ncopies].from != PAGE_NONE;
    who[st.nitems] = i;
    item[st.nitems++] =
        (struct step_item){r->token[i] + first, first, n, r->seq[i].table, r->seq[i].npages, true};
    st.tokens += n;
  }
  double begin = clock_now(), sum = 0;
  int status = decoder_run(r->d, &st, r->sampled, &times, err, sizeof err);
  for (int p = 0; p < STEP_PARTS; p++)
    sum += times.part[p];
  r->longer |= sum > 1.01 * (clock_now() - begin);
  for (int64_t i = 0; !status && i < st.nitems; i++)
    status = decoder_logits(r->d, i, r->logits[who[i]]);
  return !status;
}

static double difference(const float *a, const float *b)
{
  double worst = 0, largest = 0;
  for (int k = 0; k < VOCAB; k++) {
    double x = fabs((double)a[k] - (double)b[k]);
    worst = isnan(x) ? INFINITY : fmax(worst, x);
    largest = fmax(largest, fabs((double)b[k]));
  }
  return worst / largest;
}

static int32_t first_of_largest(const float *x)
{
  int32_t best = 0;
  for (int32_t k = 1; k < VOCAB; k++)
    best = x[k] > x[best] ? k : best;
  return best;
}

/* Prompts that end apart, in chunks, some already decoding; then all decode. */
static const int64_t ends[][SEQS] = {{37, 0, 0},    {38, 150, 1},  {39, 151, 2},
                                     {40, 152, 33}, {41, 153, 34}, {42, 154, 35}};
#define STEPS (int)(sizeof ends / sizeof *ends)

static void test_against_host(const char *prefill, const char *decode, bool contiguous,
                              const char *gathered)
{
  static struct run a, b;
  double worst = 0;
  bool good = start(&a, &gpu, prefill, decode, contiguous, gathered), first = true;
  good = start(&b, &host, "cpu/flash", "cpu/flash", false, NULL) && good;
  for (int k = 0; good && k < STEPS; k++) {
    good = advance(&a, ends[k]) && advance(&b, ends[k]);
    for (int i = 0; good && i < SEQS; i++)
      if (ends[k][i])
        worst = fmax(worst, difference(a.logits[i], b.logits[i]));
  }
  for (int i = 0; good && i < SEQS; i++)
    first &= a.sampled[i] == first_of_largest(a.logits[i]);
  ok(good && worst <= BOUND, "%s and %s, %s: logits differ by %.2e from the cpu device's", prefill,
     decode,
     contiguous ? "contiguous"
     : gathered ? "paged, large chunks gathered"
                : "paged",
     worst);
  if (!good)
    diag("%s", err);
  ok(good && first, "the first of the largest logits is sampled");
  ok(good && !a.longer, "parts of a step are within the step");
  stop(&a);
  stop(&b);
}

/* Sequences 1 and 2 branch off 0 in the middle of a page; then all go on, each with its own token.
 */
static void test_fork(void)
{
  static struct run a, b;
  double worst = 0;
  const int64_t prompt[SEQS] = {37, 0, 0}, apart[SEQS] = {37, 37, 37}, next[SEQS] = {38, 38, 38};
  bool good = start(&a, &gpu, "cuda/flash-sm80", "cuda/decode", false, NULL);
  good =
      start(&b, &gpu, "cuda/flash-sm80", "cuda/decode", false, NULL) && good && advance(&a, prompt);
  int used = good ? pages_used(&a.kv.pages) : 0;
  for (int i = 1; good && i < SEQS; i++) {
    good = !kv_fork(&a.kv, &a.seq[0], &a.seq[i]);
    memcpy(b.token[i], b.token[0], 37 * sizeof(int32_t));
  }
  ok(good && pages_used(&a.kv.pages) == used, "a fork takes no page");
  good = good && advance(&b, apart) && advance(&a, next) && advance(&b, next);
  for (int i = 0; good && i < SEQS; i++)
    worst = fmax(worst, difference(a.logits[i], b.logits[i]));
  ok(good && worst <= SAME, "branches are what separate sequences are: %.2e", worst);
  ok(good && a.kv.copies == SEQS - 1, "all but the last copied a page on write");
  stop(&a);
  stop(&b);
}

int main(void)
{
  const struct device_options o = {0};
  const char *why = device_cuda.absent();
  if (why)
    skip_all(why);
  if (device_cuda.open(&gpu, &o) || device_host.open(&host, &o)) {
    ok(false, "the devices open: %s %s", gpu.error, host.error);
    return done_testing();
  }
  test_against_host("cuda/flash-sm80", "cuda/decode", false, NULL);
  test_against_host("cuda/flash-sm80", "cuda/flash-sm80", false, NULL);
  test_against_host("cuda/naive", "cuda/naive", true, NULL);
  test_against_host("cuda/flash-sm80", "cuda/decode", true, NULL);
  if (gpu.info.sm == 90)
    test_against_host("cuda/flash-sm90", "cuda/decode", true, NULL);
  test_against_host("cuda/flash-sm80", "cuda/decode", false, "cuda/naive");
  test_fork();
  device_host.close(&host);
  device_cuda.close(&gpu);
  return done_testing();
}
