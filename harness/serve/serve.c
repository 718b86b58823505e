/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.c - opens the device, picks the implementations, runs a scenario.
 */
#include "config.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/run/catalog.h"
#include "harness/run/worker.h"
#include "harness/serve/serve-parts.h"

#define CPU_BUDGET 512 /* tokens a step */
#define GPU_BUDGET 8192
#define CPU_KV_MEMORY ((size_t)64 << 20)

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
  *o = (struct serve_options){.page = 16, .batch = 32, .rate = 1, .repeat = 6, .seed = 1};
}

/* Of this device, by name. */
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
  const char *names = s->o->impl, *comma = names ? strchr(names, ',') : NULL;
  const char *rope = s->dev.info.kind == ATTN_CPU ? "cpu/rope" : "cuda/rope";
  s->rope = pick(s, rope, strlen(rope));
  if (!s->rope || !names)
    return s->rope ? ATTN_OK : ATTN_EINVAL;
  s->prefill = pick(s, names, comma ? (size_t)(comma - names) : strlen(names));
  s->decode = comma && s->prefill ? pick(s, comma + 1, strlen(comma + 1)) : s->prefill;
  return s->decode ? ATTN_OK : ATTN_EINVAL;
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

/* What nobody asked for, by the device. */
static int fill_in(struct serve *s, struct serve_options *o)
{
  bool cpu = s->dev.info.kind == ATTN_CPU;
  size_t room = CPU_KV_MEMORY;
  if (!o->kv_memory && !cpu && s->dev.ops->available(&s->dev, &room))
    return serve_fail(s, ATTN_EDEVICE, "%.200s", s->dev.error);
  if (!o->kv_memory)
    o->kv_memory = cpu ? (double)room : floor((double)room / 2);
  return ATTN_OK;
}

static int begin(struct serve *s)
{
  const char *absent = s->o->device->absent();
  if (absent)
    return serve_fail(s, ATTN_EDEVICE, "--device %s: %s; attnbench doctor says more",
                      s->o->device->name, absent);
  if (advice_read(&s->advice, s->o->choices, s->err, s->errlen))
    return ATTN_EINVAL;
  int status = s->o->device->open(&s->dev, &s->o->device_options);
  if (status)
    return serve_fail(s, status, "%.200s", s->dev.error);
  advice_apply(&s->advice, &s->dev.info);
  if (!compute_find(&s->dev))
    return serve_fail(s, ATTN_EUNSUPPORTED, "serve does not run on device %s: choose --device cpu",
                      s->dev.ops->name);
  snprintf(s->run_id, sizeof s->run_id, "%llx-%d", (unsigned long long)time(NULL), (int)getpid());
  status = pick_all(s);
  if (!status && s->o->out && store_open(&s->store, s->o->out, s->err, s->errlen))
    status = ATTN_EINVAL;
  return status;
}

int serve_run(const char *scenario, const struct serve_options *given, struct serve_summary *sum,
              char *err, size_t errlen)
{
  struct serve_options o = *given;
  struct serve s = {
      .o = &o, .scenario = scenario, .store = {.fd = -1}, .sum = sum, .err = err, .errlen = errlen};
  *sum = (struct serve_summary){0};
  *err = '\0';
  if (!o.budget)
    o.budget = strcmp(o.device->name, device_host.name) ? GPU_BUDGET : CPU_BUDGET;
  int status = check_options(&s);
  if (status)
    return status;
  worker_catch_interrupts();
  status = begin(&s);
  if (!status)
    status = fill_in(&s, &o);
  for (size_t i = 0; !status && i < SCENARIOS; i++)
    if (!strcmp(scenarios[i].name, scenario))
      status = scenarios[i].run(&s);
  replay_end(&s);
  if (s.store.fd >= 0)
    store_close(&s.store);
  if (s.dev.self)
    s.dev.ops->close(&s.dev);
  advice_free(&s.advice);
  return status;
}
