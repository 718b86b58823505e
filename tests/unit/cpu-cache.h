/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-cache.h - runs on caches, what is asked of each, and the same numbers in another layout.
 */
#ifndef TESTS_UNIT_CPU_CACHE_H
#define TESTS_UNIT_CPU_CACHE_H

#include "tests/unit/cpu-truth.h"

static inline bool parse(const char *text, struct attn_problem *p)
{
  char err[256];
  int rc = attn_problem_parse(text, p, err, sizeof err);
  if (rc)
    diag("%s: %s", text, err);
  return !rc;
}

/* Right, nothing else written, and as many bytes as modelled. */
static inline bool holds(struct attn_machine *m, const struct attn_impl *impl, struct fixture *f)
{
  char text[ATTN_PROBLEM_TEXT];
  struct ran r = run_on(m, impl, f);
  if (r.refused)
    return true;
  struct miss miss = check_forward(f);
  bool intact = gaps_intact(f, B_O);
  bool bytes = (double)r.read == r.model.read_bytes && (double)r.write == r.model.write_bytes &&
               r.model.read_bytes >= attn_problem_compulsory_read(&f->p) &&
               r.model.write_bytes >= attn_problem_compulsory_write(&f->p);
  bool good = !r.status && !miss.count && intact && bytes && r.peak <= m->sram_bytes;
  attn_problem_print(&f->p, text, sizeof text);
  if (!good)
    diag("%s %s: status %d, %d elements off (first %s[%lld,%lld,%lld,%lld] %g for %g), gaps %s, "
         "moved %llu + %llu, model %.0f + %.0f",
         impl->name, text, r.status, miss.count, miss.what ? miss.what : "", (long long)miss.s,
         (long long)miss.i, (long long)miss.h, (long long)miss.c, miss.got, miss.want,
         intact ? "whole" : "written to", (unsigned long long)r.read, (unsigned long long)r.write,
         r.model.read_bytes, r.model.write_bytes);
  return good;
}

static inline bool same_outputs(const struct fixture *a, const struct fixture *b)
{
  FOR_ELEMENTS(a, B_O, s, r, h, c)
  {
    double x = value(a, B_O, s, r, h, c), y = value(b, B_O, s, r, h, c);
    if (memcmp(&x, &y, sizeof x))
      return false;
  }
  return !memcmp(a->args.lse, b->args.lse, (size_t)a->lse_count * sizeof(float));
}

/* The same keys and values, elsewhere. */
static inline void copy_inputs(const struct fixture *from, struct fixture *to)
{
  for (int which = B_Q; which <= B_V; which++)
    FOR_ELEMENTS(from, which, s, r, h, c)
  set_value(to, which, s, r, h, c, value(from, which, s, r, h, c));
}

#endif
