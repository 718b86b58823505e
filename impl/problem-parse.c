/* SPDX-License-Identifier: Apache-2.0
 *
 * problem-parse.c - reads a problem string: a table of keys, then defaults, then the check.
 *
 * What a string may leave out: op=fwd dtype=bf16 b=1 hq=1 hkv=hq d=128 dv=d layout=bshd; mask=none,
 * or causal where the queries are new tokens on a cache (op=decode, op=append); sq=sk or sk=sq when
 * one of them is given (s= gives both), but sq=1 for op=decode.  With op=rope: rope=none
 * theta=10000 rotary=d pairs=half; for YaRN band=1:32 ramp=turns
 * attention=0.1*ln(factor)+1; for Llama 3 band=1:4.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/echo.h"
#include "impl/problem.h"

#define COUNT "a whole number from 1, k = 1024 and M = 1048576 allowed"

struct key {
  const char *name;
  const char *want; /* ends an error message */
  bool (*set)(struct attn_problem *p, const char *value);
};

static struct attn_slice slice(const char *text)
{
  return (struct attn_slice){text, strlen(text)};
}

/* ---- values --------------------------------------------------------------------------------- */

/* Index of value in names, or -1. */
static int choose(const char *const *names, int n, const char *value)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], value))
      return i;
  return -1;
}

static bool set_op(struct attn_problem *p, const char *value)
{
  int i = choose(attn_op_names, 5, value);
  p->op = (enum attn_op)(i < 0 ? 0 : i);
  return i >= 0;
}

static bool set_dtype(struct attn_problem *p, const char *value)
{
  int i = choose(attn_dtype_names, 3, value);
  p->dtype = (enum attn_dtype)(i < 0 ? 0 : i);
  return i >= 0;
}

static bool set_layout(struct attn_problem *p, const char *value)
{
  int i = choose(attn_layout_names, 3, value);
  p->layout = (enum attn_layout)(i < 0 ? 0 : i);
  return i >= 0;
}

static bool set_count(int64_t *n, const char *value)
{
  return attn_parse_count(slice(value), n) && *n > 0;
}

static bool set_b(struct attn_problem *p, const char *value)
{
  return set_count(&p->b, value);
}

static bool set_hq(struct attn_problem *p, const char *value)
{
  return set_count(&p->hq, value);
}

static bool set_hkv(struct attn_problem *p, const char *value)
{
  return set_count(&p->hkv, value);
}

static bool set_sq(struct attn_problem *p, const char *value)
{
  return set_count(&p->sq, value);
}

static bool set_sk(struct attn_problem *p, const char *value)
{
  return set_count(&p->sk, value);
}

static bool set_s(struct attn_problem *p, const char *value)
{
  return set_count(&p->sq, value) && set_count(&p->sk, value);
}

static bool set_d(struct attn_problem *p, const char *value)
{
  return set_count(&p->d, value);
}

static bool set_dv(struct attn_problem *p, const char *value)
{
  return set_count(&p->dv, value);
}

static bool set_page(struct attn_problem *p, const char *value)
{
  return attn_parse_count(slice(value), &p->page);
}

static bool set_kv(struct attn_problem *p, const char *value)
{
  int i = choose(attn_kv_names, 2, value);
  p->kv = (enum attn_kv)(i < 0 ? 0 : i);
  return i >= 0;
}

static bool set_prefix(struct attn_problem *p, const char *value)
{
  return attn_parse_count(slice(value), &p->prefix);
}

static bool set_flag(bool *flag, const char *value)
{
  *flag = !strcmp(value, "1");
  return *flag || !strcmp(value, "0");
}

static bool set_alibi(struct attn_problem *p, const char *value)
{
  return set_flag(&p->alibi, value);
}

static bool set_deterministic(struct attn_problem *p, const char *value)
{
  return set_flag(&p->deterministic, value);
}

static bool set_softcap(struct attn_problem *p, const char *value)
{
  return attn_parse_real(value, &p->softcap) && p->softcap >= 0;
}

static bool set_scale(struct attn_problem *p, const char *value)
{
  return attn_parse_real(value, &p->scale) && p->scale > 0;
}

/* p@seed */
static bool set_dropout(struct attn_problem *p, const char *value)
{
  char real[64];
  const char *at = strchr(value, '@');
  size_t len = at ? (size_t)(at - value) : strlen(value);
  if (len >= sizeof real)
    return false;
  memcpy(real, value, len);
  real[len] = 0;
  uint64_t seed = 0;
  for (const char *c = at ? at + 1 : ""; *c; c++)
    if (*c < '0' || *c > '9' || __builtin_mul_overflow(seed, 10, &seed) ||
        __builtin_add_overflow(seed, (uint64_t)(*c - '0'), &seed))
      return false;
  p->dropout_seed = seed;
  return attn_parse_real(real, &p->dropout_p) && p->dropout_p >= 0 && p->dropout_p < 1 &&
         (!at || at[1]);
}

static bool window_length(struct attn_slice s, int64_t *n)
{
  *n = -1;
  return attn_slice_is(s, "-1") || attn_parse_count(s, n);
}

/* none, causal, causal-topleft or window:L:R */
static bool set_mask(struct attn_problem *p, const char *value)
{
  int i = choose(attn_mask_names, 3, value);
  p->mask = i < 0 ? ATTN_MASK_WINDOW : (enum attn_mask)i;
  if (i >= 0)
    return true;
  const char *left = value + strlen("window:");
  const char *colon = strncmp(value, "window:", strlen("window:")) ? NULL : strchr(left, ':');
  return colon &&
         window_length((struct attn_slice){left, (size_t)(colon - left)}, &p->window_left) &&
         window_length(slice(colon + 1), &p->window_right);
}

static bool run_length(const char *from, const char *to, int64_t *n)
{
  return attn_parse_count((struct attn_slice){from, (size_t)(to - from)}, n) && *n <= INT32_MAX;
}

/* [COUNTx]SQ[/SK] */
static bool set_run(struct attn_run *r, const char *text, const char *end)
{
  const char *x = memchr(text, 'x', (size_t)(end - text)), *sq = x ? x + 1 : text;
  const char *slash = memchr(sq, '/', (size_t)(end - sq));
  r->count = 1;
  if (x && (!run_length(text, x, &r->count) || !r->count))
    return false;
  if (!run_length(sq, slash ? slash : end, &r->sq))
    return false;
  r->sk = r->sq;
  return !slash || run_length(slash + 1, end, &r->sk);
}

static bool set_seqs(struct attn_problem *p, const char *value)
{
  p->nruns = 0;
  for (const char *at = value;; at++) {
    const char *end = at + strcspn(at, "+");
    if (p->nruns == ATTN_MAX_RUNS || !set_run(&p->runs[p->nruns++], at, end))
      return false;
    at = end;
    if (!*at)
      return true;
  }
}

/* ---- keys ----------------------------------------------------------------------------------- */

enum { OP, DTYPE, B, HQ, HKV, S, SQ, SK, SEQS, D, DV, MASK, SOFTCAP, ALIBI, DROPOUT, SCALE, PAGE };
enum { KV = PAGE + 1, PREFIX, LAYOUT, DETERMINISTIC, ROPE, THETA, TRAINED, ROTARY, PAIRS, BAND };
enum { RAMP = BAND + 1, ATTENTION, NKEYS };

static const struct key keys[NKEYS] = {
    [OP] = {"op", "fwd, bwd, decode, append or rope", set_op},
    [DTYPE] = {"dtype", "fp32, bf16 or fp16", set_dtype},
    [B] = {"b", COUNT, set_b},
    [HQ] = {"hq", COUNT, set_hq},
    [HKV] = {"hkv", COUNT, set_hkv},
    [S] = {"s", COUNT, set_s},
    [SQ] = {"sq", COUNT, set_sq},
    [SK] = {"sk", COUNT, set_sk},
    [SEQS] = {"seqs", "COUNTxSQ/SK joined by +, at most 64 of them", set_seqs},
    [D] = {"d", COUNT, set_d},
    [DV] = {"dv", COUNT, set_dv},
    [MASK] = {"mask", "none, causal, causal-topleft or window:L:R with -1 for unlimited", set_mask},
    [SOFTCAP] = {"softcap", "a number from 1e-30 to 1e30, or 0 for none", set_softcap},
    [ALIBI] = {"alibi", "0 or 1", set_alibi},
    [DROPOUT] = {"dropout", "P@SEED with 0 < P < 1, or 0 for none", set_dropout},
    [SCALE] = {"scale", "a number from 1e-30 to 1e30", set_scale},
    [PAGE] = {"page", COUNT ", or 0 for contiguous", set_page},
    [KV] = {"kv", "dtype, or e4m3 for 8-bit pages with a scale for each head", set_kv},
    [PREFIX] = {"prefix", COUNT ", or 0 for none", set_prefix},
    [LAYOUT] = {"layout", "bshd, bhsd or packed", set_layout},
    [DETERMINISTIC] = {"deterministic", "0 or 1", set_deterministic},
    [ROPE] = {"rope", "none, or linear, ntk, dyn, yarn or llama3 with :FACTOR from 1",
              attn_rope_set_rope},
    [THETA] = {"theta", "a number above 1", attn_rope_set_theta},
    [TRAINED] = {"trained", COUNT, attn_rope_set_trained},
    [ROTARY] = {"rotary", COUNT, attn_rope_set_rotary},
    [PAIRS] = {"pairs", "half or interleaved", attn_rope_set_pairs},
    [BAND] = {"band", "LOW:HIGH with 0 < LOW < HIGH, turns over the trained length",
              attn_rope_set_band},
    [RAMP] = {"ramp", "turns or index", attn_rope_set_ramp},
    [ATTENTION] = {"attention", "a number above 0", attn_rope_set_attention},
};

/* Edit distance, for "did you mean": asked only where at most half of the key was mistyped and no
 * other key is as near. */
static int distance(struct attn_slice a, const char *b)
{
  int row[16], nb = (int)strlen(b);
  for (int j = 0; j <= nb; j++)
    row[j] = j;
  for (size_t i = 0; i < a.len; i++) {
    int diagonal = row[0];
    row[0] = (int)i + 1;
    for (int j = 1; j <= nb; j++) {
      int change = diagonal + (a.text[i] != b[j - 1]);
      int shift = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
      diagonal = row[j];
      row[j] = change < shift ? change : shift;
    }
  }
  return row[nb];
}

static int unknown_key(struct attn_slice key, char *err, size_t errlen)
{
  char list[256] = "";
  int best = 0, best_distance = 99;
  bool tie = false;
  for (int i = 0; i < NKEYS; i++) {
    int away = distance(key, keys[i].name);
    tie = away < best_distance ? false : tie || away == best_distance;
    if (away < best_distance) {
      best = i;
      best_distance = away;
    }
    strcat(strcat(list, " "), keys[i].name);
  }
  char hint[40] = "";
  if (!tie && best_distance <= 2 && 2 * best_distance <= (int)strlen(keys[best].name))
    snprintf(hint, sizeof hint, "did you mean %s? ", keys[best].name);
  return attn_fail(err, errlen, "unknown key \"%s\": %sknown keys:%s", ATTN_ECHO(key.text, key.len),
                   hint, list);
}

static int parse_pair(struct attn_slice piece, struct attn_problem *p, unsigned *seen, char *err,
                      size_t errlen)
{
  struct attn_slice key, value;
  char text[ATTN_PROBLEM_TEXT];
  if (!attn_split_pair(piece, &key, &value))
    return attn_fail(err, errlen,
                     "\"%s\" has no '=': write key=value (lists belong to suites and sweeps)",
                     ATTN_ECHO(piece.text, piece.len));
  int i = 0;
  while (i < NKEYS && !attn_slice_is(key, keys[i].name))
    i++;
  if (i == NKEYS)
    return unknown_key(key, err, errlen);
  if (*seen & 1u << i)
    return attn_fail(err, errlen, "%s is given twice: keep one", keys[i].name);
  *seen |= 1u << i;
  if (value.len < sizeof text) {
    memcpy(text, value.text, value.len);
    text[value.len] = 0;
    if (keys[i].set(p, text))
      return ATTN_OK;
  }
  return attn_fail(err, errlen, "%s: want %s", ATTN_ECHO(piece.text, piece.len), keys[i].want);
}

/* ---- defaults ------------------------------------------------------------------------------- */

static void derive_ragged(struct attn_problem *p)
{
  p->b = p->sq = p->sk = 0;
  for (int i = 0; i < p->nruns; i++) {
    const struct attn_run *r = &p->runs[i];
    p->b += r->count;
    p->sq = r->sq > p->sq ? r->sq : p->sq;
    p->sk = r->sk > p->sk ? r->sk : p->sk;
  }
}

static int fill_lengths(struct attn_problem *p, unsigned seen, char *err, size_t errlen)
{
  unsigned pair = 1u << SQ | 1u << SK;
  if (seen & 1u << SEQS && seen & (pair | 1u << S | 1u << B))
    return attn_fail(err, errlen, "seqs gives the lengths: leave out b, s, sq and sk");
  if (seen & 1u << S && seen & pair)
    return attn_fail(err, errlen, "s gives sq and sk: leave these out");
  if (p->nruns) {
    derive_ragged(p);
    return ATTN_OK;
  }
  bool appends = p->op == ATTN_APPEND || p->op == ATTN_ROPE;
  if (!(seen & (pair | 1u << S)) || (appends && seen & 1u << SK && !(seen & 1u << SQ)))
    return attn_fail(err, errlen, "sq is missing: say how many queries a sequence has (sq=4k)");
  if (p->op == ATTN_DECODE && !(seen & 1u << SK) && !(seen & 1u << S))
    return attn_fail(err, errlen, "sk is missing: say how long the cache is (sk=8k)");
  if (!p->sq)
    p->sq = p->op == ATTN_DECODE ? 1 : p->sk;
  if (!p->sk)
    p->sk = p->sq;
  return ATTN_OK;
}

static void fill_defaults(struct attn_problem *p, unsigned seen)
{
  bool on_cache = p->op == ATTN_DECODE || p->op == ATTN_APPEND;
  if (!p->hkv)
    p->hkv = p->hq;
  if (!p->dv)
    p->dv = p->d;
  if (!(seen & 1u << MASK))
    p->mask = on_cache ? ATTN_MASK_CAUSAL : ATTN_MASK_NONE;
  if (!(seen & 1u << LAYOUT))
    p->layout = p->nruns ? ATTN_PACKED : ATTN_BSHD;
  if (p->op == ATTN_ROPE)
    attn_rope_defaults(p);
}

int attn_problem_parse(const char *text, struct attn_problem *p, char *err, size_t errlen)
{
  struct attn_slice piece;
  unsigned seen = 0;
  memset(p, 0, sizeof *p);
  p->dtype = ATTN_BF16;
  p->b = p->hq = 1;
  p->d = 128;
  while (attn_next_piece(&text, &piece)) {
    int rc = parse_pair(piece, p, &seen, err, errlen);
    if (rc)
      return rc;
  }
  int rc = fill_lengths(p, seen, err, errlen);
  if (rc)
    return rc;
  fill_defaults(p, seen);
  return attn_problem_check(p, err, errlen);
}
