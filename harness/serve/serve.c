/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.c - opens the device, picks the implementations, runs a scenario.
 */
#include "config.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/run/catalog.h"
#include "harness/run/worker.h"
#include "harness/serve/serve-parts.h"

static const struct scenario {
  const char *name, *summary;
  int (*run)(struct serve *s);
} scenarios[] = {
    {"replay", "a trace, with the prefix cache off and on", scenario_replay},
    {"prefill", "TTFT by prompt length and cached share", scenario_prefill},
    {"heads", "MHA, GQA and MQA heads of one model", scenario_heads},
    {"memory", "KV memory wasted, contiguous against paged", scenario_memory},
    {"rope", "contexts beyond the trained length, with each scaling", scenario_rope},
    {"fork", "a prompt forked 8 ways: what it adds to the cache", scenario_fork},
};
#define SCENARIOS (sizeof scenarios / sizeof *scenarios)

const char *serve_scenario(int i, const char **summary)
{
  if (i < 0 || (size_t)i >= SCENARIOS)
    return NULL;
  *summary = scenarios[i].summary;
  return scenarios[i].name;
}

void serve_defaults(struct serve_options *o)
{
  *o = (struct serve_options){.page = 16,
                              .budget = 512,
                              .batch = 32,
                              .rate = 1,
                              .repeat = 6,
                              .kv_memory = 64 << 20,
                              .seed = 1};
}

/* prefill[,decode] by name; the device's defaults where not given. */
static const struct attn_impl *pick(struct serve *s, const char *name, size_t n)
{
  for (int i = 0; catalog_impl(i); i++) {
    const struct attn_impl *impl = catalog_impl(i);
    if (strlen(impl->name) == n && !strncmp(impl->name, name, n) &&
        impl->device == s->dev.info.kind)
      return impl;
  }
  serve_fail(s, ATTN_EINVAL,
             "--impl %.*s: no implementation of device %s; attnbench list names them",
             n < 60 ? (int)n : 60, name, s->dev.ops->name);
  return NULL;
}

static int pick_all(struct serve *s)
{
  bool cpu = s->dev.info.kind == ATTN_CPU;
  const char *names = s->o->impl ? s->o->impl : cpu ? "cpu/flash" : "cuda/flash-sm80,cuda/decode";
  const char *rope = cpu ? "cpu/rope" : "cuda/rope", *comma = strchr(names, ',');
  s->prefill = pick(s, names, comma ? (size_t)(comma - names) : strlen(names));
  s->decode = comma && s->prefill ? pick(s, comma + 1, strlen(comma + 1)) : s->prefill;
  s->rope = s->decode ? pick(s, rope, strlen(rope)) : NULL;
  return s->rope ? ATTN_OK : ATTN_EINVAL;
}

static int check_options(struct serve *s)
{
  if (s->o->batch > s->o->budget)
    return serve_fail(
        s, ATTN_EINVAL,
        "--batch %lld with --budget %lld: each sequence that decodes takes a token of "
        "the step's budget; give a --budget of %lld or more",
        (long long)s->o->batch, (long long)s->o->budget, (long long)s->o->batch);
  if (s->o->contiguous && s->o->prefix == PREFIX_ON)
    return serve_fail(s, ATTN_EINVAL,
                      "--contiguous with --prefix on: only pages can be shared; leave one out");
  return ATTN_OK;
}

static int begin(struct serve *s)
{
  const char *absent = s->o->device->absent();
  if (absent)
    return serve_fail(s, ATTN_EDEVICE, "--device %s: %s; attnbench doctor says more",
                      s->o->device->name, absent);
  int status = s->o->device->open(&s->dev, &s->o->device_options);
  if (status)
    return serve_fail(s, status, "%.200s", s->dev.error);
  if (!compute_find(&s->dev))
    return serve_fail(s, ATTN_EUNSUPPORTED, "serve does not run on device %s: choose --device cpu",
                      s->dev.ops->name);
  snprintf(s->run_id, sizeof s->run_id, "%llx-%d", (unsigned long long)time(NULL), (int)getpid());
  status = pick_all(s);
  if (!status && s->o->out && store_open(&s->store, s->o->out, s->err, s->errlen))
    status = ATTN_EINVAL;
  return status;
}

int serve_run(const char *scenario, const struct serve_options *o, struct serve_summary *sum,
              char *err, size_t errlen)
{
  struct serve s = {
      .o = o, .scenario = scenario, .store = {.fd = -1}, .sum = sum, .err = err, .errlen = errlen};
  *sum = (struct serve_summary){0};
  *err = '\0';
  int status = check_options(&s);
  if (status)
    return status;
  worker_catch_interrupts();
  status = begin(&s);
  for (size_t i = 0; !status && i < SCENARIOS; i++)
    if (!strcmp(scenarios[i].name, scenario))
      status = scenarios[i].run(&s);
  if (s.store.fd >= 0)
    store_close(&s.store);
  if (s.dev.self)
    s.dev.ops->close(&s.dev);
  return status;
}
