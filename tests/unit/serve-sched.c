/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler and the replay on a fake clock and a fake model, whose step takes a + b seconds a
 * token and samples a token that depends on the sequence alone. Laws: every token is computed once
 * and in order, whatever was cached; no step exceeds its budget; prompts are served first come,
 * first served; the prefix cache finds what the independent recount finds, at any size; the parts
 * of a TTFT add up to it; times count from arrival even if the engine was busy (no coordinated
 * omission); no page leaks, with preemption or without.
 */
#include "config.h"

#include "harness/base/rng.h"
#include "harness/serve/engine.h"
#include "impl/attn.h"
#include "tests/tap.h"

#include <math.h>

struct fake {
  double now, a, b;
  struct sched *s;
  int64_t budget, largest, wrong;
  int64_t *computed; /* (requests) tokens that were computed or found */
  int32_t last_prompt;
  bool launches; /* its parts leave something for them */
};

static double fake_now(void *self)
{
  return ((struct fake *)self)->now;
}

static void fake_wait(void *self, double when)
{
  struct fake *f = self;
  f->now = when > f->now ? when : f->now;
}

static void blame(struct fake *f, bool right, const char *what)
{
  if (!right && f->wrong++ < 5)
    diag("%s", what);
}

static int32_t fake_sample(uint64_t request, int64_t at)
{
  return (int32_t)rng_below(request, (uint64_t)at, 1000);
}

static int fake_step(void *self, const struct step *st, int32_t *sampled, struct step_times *t,
                     char *err, size_t errlen)
{
  struct fake *f = self;
  int32_t prompt = -1;
  for (int64_t i = 0; i < st->nitems; i++) {
    const struct step_item *item = &st->item[i];
    int32_t r = f->s->who[i];
    int64_t input = f->s->trace->request[r].input, end = item->first + item->n;
    bool again = f->s->request[r].admissions > 1;
    if (f->computed[r] < 0 || (again && item->first < f->computed[r]))
      f->computed[r] = item->first; /* what was found in the cache */
    blame(f, item->first == f->computed[r], "a token was left out or computed twice");
    blame(f, item->npages * f->s->o.page >= end, "a token has no page");
    blame(f, item->sample == (end >= input && end == f->s->request[r].known), "sample");
    for (int64_t k = 0; k < item->n; k++)
      blame(f,
            item->first + k < input || item->token[k] == fake_sample((uint64_t)r, item->first + k),
            "a sampled token is not what comes next");
    if (end < input || item->first < input) {
      blame(f, again || prompt <= r, "a later prompt came first");
      prompt = r;
    }
    f->computed[r] = end;
    sampled[i] = fake_sample((uint64_t)r, end);
  }
  f->largest = st->tokens > f->largest ? st->tokens : f->largest;
  f->now += f->a + f->b * (double)st->tokens;
  double seconds = f->b * (double)st->tokens;
  *t = (struct step_times){.part = {0.5 * seconds, 0.25 * seconds, NAN}};
  if (f->launches)
    *t = (struct step_times){.part = {0.5 * seconds, 0.25 * seconds, 0.125 * seconds},
                             .launches = true};
  return ATTN_OK;
}

static struct sched s;
static struct engine_result result;
static struct request_times times[4000];
static int64_t computed[4000];
static char err[512];

static int replay(const struct trace *t, const struct sched_options *o, struct fake *f, double rate)
{
  result = (struct engine_result){.request = times};
  f->s = &s;
  f->computed = computed;
  for (size_t i = 0; i < t->n; i++)
    computed[i] = -1;
  int status = sched_init(&s, t, "made", o, err, sizeof err);
  if (status)
    return status;
  struct engine_task task = {
      .sched = &s, .model = {fake_step, f}, .clock = {fake_now, fake_wait, f}, .rate = rate};
  return engine_run(&task, &result, err, sizeof err);
}

/* Conversations: each turn's prompt is the one before and some blocks more. */
static void make_trace(struct trace *t, size_t n, double gap)
{
  int64_t ids[16], next = 100, length[20] = {0}, id[20][16];
  double at = 0;
  *t = (struct trace){0};
  for (size_t i = 0; i < n; i++) {
    uint32_t c = rng_below(3, 4 * i, 20), more = 1 + rng_below(3, 4 * i + 1, 3);
    if (length[c] + more > 12)
      length[c] = 0;
    if (!length[c])
      id[c][length[c]++] = c % 3; /* a system prompt that many share */
    for (uint32_t k = 0; k < more; k++)
      id[c][length[c]++] = next++;
    memcpy(ids, id[c], sizeof ids);
    int64_t input = length[c] * TRACE_BLOCK - rng_below(3, 4 * i + 2, TRACE_BLOCK);
    at += gap * rng_below(3, 4 * i + 3, 1000) / 500.0;
    trace_add(t, at, input, 1 + rng_below(4, i, 40), ids, (size_t)length[c]);
  }
}

static void check_sums(const struct trace *t, const char *name)
{
  double worst = 0;
  int missing = 0;
  for (size_t i = 0; i < t->n; i++) {
    double sum = 0, ttft = times[i].first - times[i].arrival;
    for (int p = 0; p < TTFT_PARTS; p++)
      sum += times[i].part[p];
    missing += !(times[i].done >= times[i].first);
    worst = fmax(worst, isnan(sum) ? INFINITY : fabs(sum - ttft) / ttft);
  }
  ok(!missing && worst < 1e-9, "%s: the parts of TTFT add up to it, within %.1e", name, worst);
}

static void conversations(int64_t npages, bool prefix, const char *name)
{
  struct trace t;
  struct recount count = {0};
  struct fake f = {.a = 1e-3, .b = 1e-5};
  struct sched_options o = {.page = 16,
                            .npages = npages,
                            .budget = 512,
                            .batch = 32,
                            .vocab = 1000,
                            .seed = 1,
                            .prefix = prefix};
  int64_t cached = 0, limit, tokens = 0;
  make_trace(&t, 600, 0.02);
  int status = replay(&t, &o, &f, 1);
  ok(!status && !f.wrong && s.ndone == 600, "%s: every token once and in order, to the end", name);
  ok(f.largest <= 512, "%s: no step over its budget, the largest has %lld", name,
     (long long)f.largest);
  check_sums(&t, name);
  for (size_t i = 0; i < t.n; i++) {
    cached += s.request[i].cached;
    tokens += t.request[i].input + t.request[i].output - 1;
  }
  if (prefix) {
    struct recount_task task = {&t, s.event, s.nevents, o.page, o.npages};
    ok(!recount_run(&task, &count) && !count.wrong && count.cached >= cached,
       "%s: the recount agrees, %lld tokens found, %lld evictions, %lld preemptions", name,
       (long long)cached, (long long)s.kv.pages.evicted, (long long)s.preemptions);
    recount_unlimited(&t, o.page, &limit);
    ok(npages > 100000 ? cached == limit : cached < limit,
       "%s: %lld tokens are reusable without limit", name, (long long)limit);
  }
  if (!s.preemptions)
    ok(result.computed == tokens - cached, "%s: what was found was not computed", name);
  const char *why = pages_check(&s.kv.pages);
  ok(pages_used(&s.kv.pages) == 0 && !why && (!prefix || !prefix_check(&s.px)), "%s: no page leaks",
     name);
  sched_free(&s);
  trace_free(&t);
}

/* A prompt that is all there already: its last token is computed, for its logits. */
static void all_cached(void)
{
  struct trace t = {0};
  struct fake f = {.b = 1};
  struct sched_options o = {
      .page = 16, .npages = 100, .budget = 64, .batch = 1, .vocab = 10, .prefix = true};
  const int64_t id = 1;
  for (int i = 0; i < 2; i++)
    trace_add(&t, 0, TRACE_BLOCK, 2, &id, 1);
  int status = replay(&t, &o, &f, 1);
  ok(!status && !f.wrong && s.request[1].cached == TRACE_BLOCK - 16 &&
         result.computed == TRACE_BLOCK + 1 + 16 + 1,
     "of a prompt that is all cached the last page is computed");
  sched_free(&s);
  trace_free(&t);
}

/* Long outputs of short prompts fill the cache while they decode. */
static void preemption(void)
{
  struct trace t = {0};
  struct fake f = {.a = 1e-3, .b = 1e-5};
  struct sched_options o = {
      .page = 16, .npages = 60, .budget = 64, .batch = 32, .vocab = 1000, .prefix = true};
  struct recount count = {0};
  for (int i = 0; i < 40; i++)
    trace_add(&t, 0.01 * i, 20 + i, 200, NULL, 0);
  int status = replay(&t, &o, &f, 1);
  ok(!status && !f.wrong && s.ndone == 40 && s.preemptions > 40,
     "%lld preemptions: every token is what it was, to the end", (long long)s.preemptions);
  check_sums(&t, "preemption");
  bool in_order = true;
  for (int i = 1; i < 40; i++)
    in_order &= times[i].done >= times[i - 1].done;
  ok(in_order, "who is preempted comes back before those who wait: all end in order");
  struct recount_task task = {&t, s.event, s.nevents, o.page, o.npages};
  status = recount_run(&task, &count);
  ok(!status && !count.wrong && count.cached > 0,
     "a preempted sequence finds %lld tokens of its prompt again", (long long)count.cached);
  ok(pages_used(&s.kv.pages) == 0 && !pages_check(&s.kv.pages), "preemption: no page leaks");
  sched_free(&s);
  trace_free(&t);
}

/* By hand: a step takes 1 s a token. Three requests of 4 tokens come at 0, 1 and 2 s, budget 4: the
 * first has its token at 4 s, the second at 8 + 1 (beside a decode), though the engine looked at
 * the queue at 4 s only. */
static void open_loop(void)
{
  struct trace t = {0};
  struct fake f = {.b = 1};
  struct sched_options o = {.page = 2, .npages = 100, .budget = 4, .batch = 4, .vocab = 10};
  trace_add(&t, 0, 4, 1, NULL, 0);
  trace_add(&t, 1, 4, 1, NULL, 0);
  trace_add(&t, 2, 4, 2, NULL, 0);
  ok(!replay(&t, &o, &f, 1) && times[0].first == 4 && times[1].first == 8 && times[2].first == 12,
     "tokens come when the steps before are done");
  ok(times[1].arrival == 1 && times[1].part[TTFT_QUEUE] == 3 && times[2].part[TTFT_QUEUE] == 6,
     "a request that comes during a step waits from its arrival on");
  ok(times[2].done == 13 && result.seconds == 13 && result.sampled == 4,
     "and the last ends at 13 s");
  sched_free(&s);
  f.now = 0;
  ok(!replay(&t, &o, &f, 2) && times[2].arrival == 1 && times[2].part[TTFT_QUEUE] == 7,
     "twice the rate: arrivals at half the times, waits from there");
  sched_free(&s);
  f.now = 0;
  ok(!replay(&t, &o, &f, 0.05) && times[1].part[TTFT_QUEUE] == 0 && times[1].first == 24 &&
         result.busy[TTFT_QUEUE] == 16 + 16,
     "a slow trace: the engine waits for the arrivals");
  sched_free(&s);
  f.now = 0;
  f.launches = true;
  ok(!replay(&t, &o, &f, 1) && times[0].part[TTFT_OTHER] == 0.5 &&
         times[0].part[TTFT_LAUNCH] == 0.5 && result.launches,
     "where the device has times of its own, launching is what they leave of a step");
  check_sums(&t, "with launches");
  sched_free(&s);
  trace_free(&t);
}

/* Three equal prompts one after the other, of which one or none does not enter the cache. */
static void prompts_apart(void)
{
  static const int64_t found[4][3] = {{0, 15, 15}, {0, 0, 15}, {0, 15, 15}, {0, 15, 15}};
  struct sched_options o = {
      .page = 5, .npages = 100, .budget = 32, .batch = 1, .vocab = 10, .prefix = true};
  bool right = true;
  for (int apart = -1; apart < 3; apart++) {
    struct trace t = {0};
    struct fake f = {.b = 1};
    const int64_t id = 1;
    for (int i = 0; i < 3; i++) {
      trace_add(&t, 0, 20, 1, &id, 1);
      t.request[i].apart = i == apart;
    }
    right &= !replay(&t, &o, &f, 1);
    for (int i = 0; i < 3; i++)
      right &= s.request[i].cached == found[apart + 1][i];
    sched_free(&s);
    trace_free(&t);
  }
  ok(right, "a prompt apart finds cached pages and leaves none");
}

static void refusals(void)
{
  struct trace t = {0};
  struct sched_options o = {.page = 16, .npages = 4, .budget = 4, .batch = 4, .vocab = 10};
  trace_add(&t, 0, 10, 1, NULL, 0);
  trace_add(&t, 1, 60, 5, NULL, 0);
  ok(sched_init(&s, &t, "trace.csv", &o, err, sizeof err) == ATTN_EINVAL &&
         strstr(err, "trace.csv: row 2: 65 tokens") && strstr(err, "--kv-memory"),
     "a request that can never fit is named: %s", err);
  trace_free(&t);
}

static bool stop_soon(void *ctx)
{
  return s.ndone >= 5;
}

static void interrupted(void)
{
  struct trace t;
  struct fake f = {.a = 1e-3, .b = 1e-5, .s = &s, .computed = computed};
  struct sched_options o = {.page = 16, .npages = 10000, .budget = 512, .batch = 32, .vocab = 1000};
  make_trace(&t, 100, 0.02);
  for (size_t i = 0; i < t.n; i++)
    computed[i] = -1;
  sched_init(&s, &t, "made", &o, err, sizeof err);
  struct engine_task task = {.sched = &s,
                             .model = {fake_step, &f},
                             .clock = {fake_now, fake_wait, &f},
                             .rate = 1,
                             .stopped = stop_soon};
  int status = engine_run(&task, &result, err, sizeof err), done = 0;
  for (size_t i = 0; i < t.n; i++)
    done += !isnan(times[i].done);
  ok(!status && result.interrupted && done == s.ndone && done >= 5 && done < 100,
     "an interrupted replay keeps what was measured, %d requests", done);
  ok(pages_used(&s.kv.pages) == 0, "and gives its pages back");
  sched_free(&s);
  trace_free(&t);
}

int main(void)
{
  conversations(200000, true, "unlimited");
  conversations(6000, true, "small cache");
  conversations(1000, true, "cache of three prompts");
  conversations(1000, false, "no prefix cache");
  all_cached();
  preemption();
  open_loop();
  prompts_apart();
  refusals();
  interrupted();
  return done_testing();
}
