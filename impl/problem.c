/* SPDX-License-Identifier: Apache-2.0
 *
 * problem.c - problem strings: check and print a problem, and the words and numbers that the parser
 * (problem-parse.c) reads.
 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impl/problem.h"

#define MAX_LENGTH INT32_MAX /* of any dimension: kernels and cu_seqlens count in 32 bits */
#define MAX_VOLUME                                                               \
  (INT64_C(1) << 60) /* of b*hq*sq*sk and of any tensor: byte counts fit 64 bits \
                      */

int attn_fail(char *err, size_t errlen, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(err, errlen, fmt, ap);
  va_end(ap);
  return ATTN_EINVAL;
}

/* ---- names ---------------------------------------------------------------------------------- */

const char *const attn_op_names[] = {"fwd", "bwd", "decode", "append", "rope"};
const char *const attn_dtype_names[] = {"fp32", "bf16", "fp16", "e4m3"};
const char *const attn_mask_names[] = {"none", "causal", "causal-topleft", "window"};
const char *const attn_kv_names[] = {"dtype", "e4m3"};
const char *const attn_layout_names[] = {"bshd", "bhsd", "packed"};

size_t attn_dtype_size(enum attn_dtype t)
{
  static const size_t size[] = {[ATTN_F32] = 4, [ATTN_BF16] = 2, [ATTN_F16] = 2, [ATTN_E4M3] = 1};
  return size[t];
}

enum attn_dtype attn_problem_kv_type(const struct attn_problem *p)
{
  return p->kv == ATTN_KV_E4M3 ? ATTN_E4M3 : p->dtype;
}

const char *attn_op_name(enum attn_op op)
{
  return attn_op_names[op];
}

const char *attn_dtype_name(enum attn_dtype t)
{
  return attn_dtype_names[t];
}

/* Of softcap and scale: what fp32 computes with them stays finite, and no quotient is lost. The
 * backward computes weights again from scores, whose rounding it raises e to the power of. */
#define REAL_MIN 1e-30
#define REAL_MAX 1e30
#define SCALE_MAX_BWD 1e3

/* ---- check ---------------------------------------------------------------------------------- */

static int check_dimension(const char *name, int64_t n, int64_t min, char *err, size_t errlen)
{
  if (n < min || n > MAX_LENGTH)
    return attn_fail(err, errlen, "%s=%lld: want a whole number from %lld to %lld", name,
                     (long long)n, (long long)min, (long long)MAX_LENGTH);
  return ATTN_OK;
}

static int check_dimensions(const struct attn_problem *p, char *err, size_t errlen)
{
  const struct {
    const char *name;
    int64_t n, min;
  } dims[] = {
      {"b", p->b, 1},   {"hq", p->hq, 1},     {"hkv", p->hkv, 1},
      {"sq", p->sq, 1}, {"sk", p->sk, 1},     {"d", p->d, 1},
      {"dv", p->dv, 1}, {"page", p->page, 0}, {"prefix", p->prefix, 0},
  };
  for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
    int rc = check_dimension(dims[i].name, dims[i].n, dims[i].min, err, errlen);
    if (rc)
      return rc;
  }
  if (p->hq % p->hkv)
    return attn_fail(err, errlen,
                     "hq=%lld is not a multiple of hkv=%lld: each KV head serves the same number "
                     "of query heads",
                     (long long)p->hq, (long long)p->hkv);
  double rows = (double)p->b * p->hq * fmax(p->sq, p->sk);
  if ((double)p->b * p->hq * p->sq * p->sk > MAX_VOLUME || rows * fmax(p->d, p->dv) > MAX_VOLUME)
    return attn_fail(err, errlen, "b*hq*sq*sk or a tensor exceeds 2^60 elements: make it smaller");
  return ATTN_OK;
}

static int check_lengths(const struct attn_problem *p, int64_t sq, int64_t sk, char *err,
                         size_t errlen)
{
  bool on_cache = p->op == ATTN_DECODE || p->op == ATTN_APPEND || p->op == ATTN_ROPE;
  if (on_cache && sq > sk)
    return attn_fail(err, errlen,
                     "op=%s has sq=%lld queries on sk=%lld keys: the queries are the last tokens "
                     "of the cache, so sq must not exceed sk",
                     attn_op_name(p->op), (long long)sq, (long long)sk);
  return ATTN_OK;
}

static int check_runs(const struct attn_problem *p, char *err, size_t errlen)
{
  int64_t b = 0, sq = 0, sk = 0;
  double total_q = 0, total_k = 0;
  if (p->nruns < 0 || p->nruns > ATTN_MAX_RUNS)
    return attn_fail(err, errlen, "seqs has %d runs: want at most %d", p->nruns, ATTN_MAX_RUNS);
  for (int i = 0; i < p->nruns; i++) {
    const struct attn_run *r = &p->runs[i];
    int rc = check_dimension("seqs count", r->count, 1, err, errlen);
    if (!rc)
      rc = check_dimension("seqs sq", r->sq, 0, err, errlen);
    if (!rc)
      rc = check_dimension("seqs sk", r->sk, 0, err, errlen);
    if (!rc)
      rc = check_lengths(p, r->sq, r->sk, err, errlen);
    if (rc)
      return rc;
    b += r->count;
    total_q += (double)r->count * r->sq;
    total_k += (double)r->count * r->sk;
    sq = r->sq > sq ? r->sq : sq;
    sk = r->sk > sk ? r->sk : sk;
  }
  if (b != p->b || sq != p->sq || sk != p->sk)
    return attn_fail(err, errlen, "seqs says b=%lld sq=%lld sk=%lld, the problem says otherwise",
                     (long long)b, (long long)sq, (long long)sk);
  if (total_q > MAX_LENGTH || total_k > MAX_LENGTH)
    return attn_fail(err, errlen, "seqs has more than %lld tokens: cu_seqlens cannot count them",
                     (long long)MAX_LENGTH);
  return ATTN_OK;
}

/* Single sequences may be empty. */
static int check_some(const struct attn_problem *p, char *err, size_t errlen)
{
  if (p->nruns && (!p->sq || !p->sk))
    return attn_fail(err, errlen, "seqs: no sequence has %s: give one of them some",
                     p->sq ? "keys" : "queries");
  return ATTN_OK;
}

/* What only a paged cache has. */
static int check_cache(const struct attn_problem *p, char *err, size_t errlen)
{
  int64_t shortest = p->nruns ? p->runs[0].sk : p->sk;
  for (int i = 1; i < p->nruns; i++)
    shortest = p->runs[i].sk < shortest ? p->runs[i].sk : shortest;
  if (p->page && p->op == ATTN_BWD)
    return attn_fail(err, errlen,
                     "page=%lld with op=bwd: gradients have no paged cache; leave "
                     "page out",
                     (long long)p->page);
  if (p->kv && !p->page)
    return attn_fail(err, errlen,
                     "kv=%s without pages: only a paged cache has a type of its own; "
                     "add page=16, or leave kv out",
                     attn_kv_names[p->kv]);
  if (p->op == ATTN_ROPE && (p->kv || p->prefix))
    return attn_fail(err, errlen,
                     "op=rope writes the problem's dtype into pages of one sequence; leave kv and "
                     "prefix out");
  if (p->prefix && !p->page)
    return attn_fail(err, errlen,
                     "prefix=%lld without pages: sequences share whole pages of a paged cache; add "
                     "page=16, or leave prefix out",
                     (long long)p->prefix);
  if (p->prefix && p->prefix % p->page)
    return attn_fail(err, errlen,
                     "prefix=%lld with page=%lld: sequences share whole pages, so prefix must be a "
                     "multiple of page",
                     (long long)p->prefix, (long long)p->page);
  if (p->prefix > shortest)
    return attn_fail(err, errlen,
                     "prefix=%lld is longer than a sequence of %lld tokens: every sequence begins "
                     "with the prefix, so make it no longer than the shortest",
                     (long long)p->prefix, (long long)shortest);
  return ATTN_OK;
}

static int check_options(const struct attn_problem *p, char *err, size_t errlen)
{
  bool window = p->mask == ATTN_MASK_WINDOW;
  if (window && (p->window_left < -1 || p->window_left > MAX_LENGTH || p->window_right < -1 ||
                 p->window_right > MAX_LENGTH))
    return attn_fail(err, errlen, "mask=window:%lld:%lld: want lengths, or -1 for unlimited",
                     (long long)p->window_left, (long long)p->window_right);
  if (!window && (p->window_left || p->window_right))
    return attn_fail(err, errlen, "window lengths without mask=window");
  double scale_max = p->op == ATTN_BWD ? SCALE_MAX_BWD : REAL_MAX;
  if (p->softcap != 0 && !(p->softcap >= REAL_MIN && p->softcap <= REAL_MAX))
    return attn_fail(err, errlen, "softcap=%g: want a number from %g to %g, or leave it out",
                     p->softcap, REAL_MIN, REAL_MAX);
  if (p->scale != 0 && !(p->scale >= REAL_MIN && p->scale <= scale_max))
    return attn_fail(err, errlen,
                     "scale=%g with op=%s: want a number from %g to %g, or leave it out for "
                     "1/sqrt(d)",
                     p->scale, attn_op_name(p->op), REAL_MIN, scale_max);
  if (!(p->dropout_p >= 0 && p->dropout_p < 1) || (p->dropout_p == 0 && p->dropout_seed))
    return attn_fail(err, errlen, "dropout=%g: want a probability above 0 and below 1",
                     p->dropout_p);
  if ((p->layout == ATTN_PACKED) != (p->nruns > 0))
    return attn_fail(err, errlen, "%s",
                     p->nruns
                         ? "seqs= batches are packed: leave layout out"
                         : "layout=packed needs lengths: write seqs=COUNTxSQ/SK+... instead of "
                           "b, sq and sk");
  return check_cache(p, err, errlen);
}

int attn_problem_check(const struct attn_problem *p, char *err, size_t errlen)
{
  int rc = check_some(p, err, errlen);
  if (!rc)
    rc = check_dimensions(p, err, errlen);
  if (!rc)
    rc = p->nruns ? check_runs(p, err, errlen) : check_lengths(p, p->sq, p->sk, err, errlen);
  if (!rc)
    rc = check_options(p, err, errlen);
  if (!rc)
    rc = attn_rope_check(p, err, errlen);
  return rc;
}

/* ---- print ---------------------------------------------------------------------------------- */

struct out {
  char *buf;
  size_t len, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct out *o, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(o->buf + o->used, o->len - o->used, fmt, ap);
  va_end(ap);
  o->used += n < 0 ? 0 : (size_t)n;
  if (o->used >= o->len)
    o->used = o->len - 1;
}

static void put_count(struct out *o, const char *key, int64_t n)
{
  put(o, " %s=%lld", key, (long long)n);
}

void attn_print_real(double x, char text[32])
{
  int digits = 6;
  do
    snprintf(text, 32, "%.*g", digits, x);
  while (strtod(text, NULL) != x && ++digits <= 17);
}

static void put_real(struct out *o, const char *key, double x)
{
  char text[32];
  attn_print_real(x, text);
  put(o, " %s=%s", key, text);
}

static void put_runs(struct out *o, const struct attn_problem *p)
{
  for (int i = 0; i < p->nruns; i++) {
    const struct attn_run *r = &p->runs[i];
    put(o, "%s%lldx%lld/%lld", i ? "+" : " seqs=", (long long)r->count, (long long)r->sq,
        (long long)r->sk);
  }
}

static void put_mask(struct out *o, const struct attn_problem *p)
{
  bool causal_by_default = p->op == ATTN_DECODE || p->op == ATTN_APPEND;
  if (p->mask == ATTN_MASK_WINDOW)
    put(o, " mask=window:%lld:%lld", (long long)p->window_left, (long long)p->window_right);
  else if (p->mask != ATTN_MASK_NONE || causal_by_default)
    put(o, " mask=%s", attn_mask_names[p->mask]);
}

static void put_options(struct out *o, const struct attn_problem *p)
{
  if (p->softcap)
    put_real(o, "softcap", p->softcap);
  if (p->alibi)
    put(o, " alibi=1");
  if (p->dropout_p) {
    put_real(o, "dropout", p->dropout_p);
    put(o, "@%llu", (unsigned long long)p->dropout_seed);
  }
  if (p->scale)
    put_real(o, "scale", p->scale);
  if (p->page)
    put_count(o, "page", p->page);
  if (p->kv)
    put(o, " kv=%s", attn_kv_names[p->kv]);
  if (p->prefix)
    put_count(o, "prefix", p->prefix);
  if (p->layout == ATTN_BHSD)
    put(o, " layout=bhsd");
  if (p->deterministic)
    put(o, " deterministic=1");
}

void attn_problem_print(const struct attn_problem *p, char *buf, size_t len)
{
  struct out o = {buf, len, 0};
  if (!len)
    return;
  put(&o, "op=%s dtype=%s", attn_op_name(p->op), attn_dtype_name(p->dtype));
  if (!p->nruns)
    put_count(&o, "b", p->b);
  put_count(&o, "hq", p->hq);
  put_count(&o, "hkv", p->hkv);
  if (p->nruns) {
    put_runs(&o, p);
  } else {
    put_count(&o, "sq", p->sq);
    put_count(&o, "sk", p->sk);
  }
  put_count(&o, "d", p->d);
  if (p->dv != p->d)
    put_count(&o, "dv", p->dv);
  put_mask(&o, p);
  put_options(&o, p);
  if (p->op == ATTN_ROPE) {
    char text[256];
    attn_rope_print(p, text, sizeof text);
    put(&o, "%s", text);
  }
}

/* ---- words and numbers ---------------------------------------------------------------------- */

static bool is_separator(char c)
{
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',';
}

bool attn_next_piece(const char **at, struct attn_slice *piece)
{
  const char *s = *at;
  while (is_separator(*s))
    s++;
  const char *end = s;
  while (*end && !is_separator(*end))
    end++;
  *piece = (struct attn_slice){s, (size_t)(end - s)};
  *at = end;
  return end > s;
}

bool attn_split_pair(struct attn_slice piece, struct attn_slice *key, struct attn_slice *value)
{
  const char *eq = memchr(piece.text, '=', piece.len);
  if (!eq)
    return false;
  *key = (struct attn_slice){piece.text, (size_t)(eq - piece.text)};
  *value = (struct attn_slice){eq + 1, piece.len - key->len - 1};
  return true;
}

bool attn_slice_is(struct attn_slice s, const char *word)
{
  return s.len == strlen(word) && !memcmp(s.text, word, s.len);
}

bool attn_parse_count(struct attn_slice s, int64_t *out)
{
  int64_t n = 0, unit = 1;
  size_t len = s.len;
  if (len && s.text[len - 1] == 'k')
    unit = 1024;
  if (len && s.text[len - 1] == 'M')
    unit = 1024 * 1024;
  len -= unit > 1;
  if (!len)
    return false;
  for (size_t i = 0; i < len; i++) {
    if (s.text[i] < '0' || s.text[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
        __builtin_add_overflow(n, s.text[i] - '0', &n))
      return false;
  }
  return !__builtin_mul_overflow(n, unit, out);
}

bool attn_parse_real(const char *text, double *out)
{
  char *end;
  *out = strtod(text, &end);
  return end != text && !*end && isfinite(*out);
}
