/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache against a plain model that keeps every cached prefix as a string of tokens and
 * searches it linearly. Laws: a lookup finds exactly the longest prefix that the same policy on the
 * same memory still has; what it hands out holds those tokens, whatever the hash does (a good one,
 * 8 bits of it, one value for all); what is evicted is the longest idle and in nobody's use; a
 * sequence never shares a page that another writes; nothing leaks.
 */
#include "config.h"

#include "harness/base/rng.h"
#include "harness/serve/prefix.h"
#include "harness/serve/recount.h"
#include "impl/attn.h"
#include "tests/tap.h"

#define PAGES 60
#define PAGE 4
#define LIVE 6
#define LONGEST 60 /* tokens of a prompt */
#define ROUNDS 200000

struct known {
  int32_t token[LONGEST];
  int64_t pages;
  int users;
  int64_t released;
};

static struct kv kv;
static struct prefix px;
static struct known known[PAGES]; /* the plain model: a prefix of so many pages is cached */
static int nknown;
static int32_t memory[PAGES][PAGE];
static struct kv_seq seq[LIVE];
static int32_t prompt[LIVE][LONGEST];
static int64_t length[LIVE], clock_now_;
static uint64_t draws;
static int wrong, hits, evictions;

static uint32_t draw(uint32_t n)
{
  return rng_below(7, draws++, n);
}

static void blame(bool right, const char *what)
{
  if (!right && wrong++ < 5)
    diag("%s", what);
}

static struct known *search(const int32_t *token, int64_t pages)
{
  for (int i = 0; i < nknown; i++)
    if (known[i].pages == pages &&
        !memcmp(known[i].token, token, (size_t)(pages * PAGE) * sizeof *token))
      return &known[i];
  return NULL;
}

static uint64_t same_hash(uint64_t before, const int32_t *token, int64_t n)
{
  return 42;
}

static uint64_t short_hash(uint64_t before, const int32_t *token, int64_t n)
{
  uint64_t h = before;
  for (int64_t i = 0; i < n; i++)
    h = rng_at(h, (uint64_t)token[i]);
  return h & 0xff;
}

/* Few distinct prefixes, so that they meet often. */
static void make_prompt(int s)
{
  length[s] = 1 + draw(LONGEST);
  uint32_t family = draw(5), turn = draw(LONGEST), branch = draw(3);
  for (int64_t i = 0; i < length[s]; i++)
    prompt[s][i] = (int32_t)rng_below(family + (i >= turn ? 100 * branch : 0), (uint64_t)i, 3);
}

static int32_t in_use(void)
{
  static bool used[PAGES];
  int32_t n = 0;
  memset(used, 0, sizeof used);
  for (int s = 0; s < LIVE; s++)
    for (int64_t i = 0; i < seq[s].npages; i++) {
      n += !used[seq[s].table[i]];
      used[seq[s].table[i]] = true;
    }
  return n;
}

/* The model's own eviction, before the cache takes pages. */
static void forget(int32_t pages)
{
  for (int32_t room = PAGES - in_use(); pages > 0; pages--) {
    int idle = 0, oldest = -1;
    for (int i = 0; i < nknown; i++) {
      idle += !known[i].users;
      if (!known[i].users && (oldest < 0 || known[i].released < known[oldest].released))
        oldest = i;
    }
    if (idle >= room && oldest >= 0) {
      known[oldest] = known[--nknown];
      evictions++;
    }
    room--;
  }
}

static void admit(int s)
{
  struct kv_copy copy;
  int64_t want = 0, idle, got;
  make_prompt(s);
  while (search(prompt[s], want + 1) && (want + 1) * PAGE <= length[s])
    want++;
  blame(prefix_probe(&px, prompt[s], length[s], &idle) == want, "probe found another length");
  blame(!prefix_match(&px, &seq[s], prompt[s], length[s], &got), "match failed");
  blame(got == want * PAGE, "match found another length");
  for (int64_t i = 0; i < got; i++)
    blame(memory[seq[s].table[i / PAGE]][i % PAGE] == prompt[s][i], "another's tokens were served");
  hits += want > 0;
  for (int64_t i = 1; i <= want; i++)
    search(prompt[s], i)->users++;
  int64_t needs = kv_needs(&kv, &seq[s], length[s] - got);
  bool fits = needs <= pages_available(&kv.pages);
  if (fits)
    forget((int32_t)needs);
  blame(!kv_append(&kv, &seq[s], length[s] - got, &copy) == fits, "append");
  if (!fits)
    length[s] = got; /* keeps what it shares */
  for (int64_t i = got; i < length[s]; i++)
    memory[seq[s].table[i / PAGE]][i % PAGE] = prompt[s][i];
  int64_t full = length[s] / PAGE;
  blame(prefix_insert(&px, &seq[s], prompt[s], want, full) == full, "an entry was there already");
  for (int64_t i = want + 1; i <= full; i++) {
    known[nknown] = (struct known){.pages = i, .users = 1};
    memcpy(known[nknown++].token, prompt[s], (size_t)(i * PAGE) * sizeof(int32_t));
  }
}

static void release(int s)
{
  for (int64_t i = length[s] / PAGE; i > 0; i--) {
    struct known *k = search(prompt[s], i);
    if (!--k->users)
      k->released = ++clock_now_;
  }
  kv_release(&kv, &seq[s]);
  length[s] = 0;
}

static void random_prompts(prefix_hash hash, const char *name, bool collides)
{
  nknown = wrong = hits = evictions = 0;
  kv_init(&kv, PAGES, PAGE);
  prefix_init(&px, &kv, hash);
  for (int i = 0; i < ROUNDS && !wrong; i++) {
    int s = (int)draw(LIVE);
    if (length[s])
      release(s);
    else
      admit(s);
    if (i % 211 == 0) {
      const char *why = prefix_check(&px);
      why = why ? why : pages_check(&kv.pages);
      blame(!why, why ? why : "");
    }
  }
  for (int s = 0; s < LIVE; s++)
    if (length[s])
      release(s);
  ok(!wrong && hits > 1000 && evictions > 1000,
     "hash of %s: %d rounds find what the plain model finds, %d hits, %d evictions", name, ROUNDS,
     hits, evictions);
  ok(pages_used(&kv.pages) == 0 && pages_available(&kv.pages) == PAGES, "%s: no page leaks", name);
  ok((px.collisions > 0) == collides, "%s: %lld collisions met", name, (long long)px.collisions);
  prefix_free(&px);
  kv_free(&kv);
}

/* Two prompts, one key, by force: neither gets the other's page. */
static void forced_collision(void)
{
  static const int32_t a[PAGE] = {1, 2, 3, 4}, b[PAGE] = {4, 3, 2, 1};
  struct kv_seq one = {0}, two = {0}, three = {0};
  struct kv_copy copy;
  int64_t tokens;
  kv_init(&kv, 8, PAGE);
  prefix_init(&px, &kv, same_hash);
  kv_append(&kv, &one, PAGE, &copy);
  prefix_insert(&px, &one, a, 0, 1);
  prefix_match(&px, &two, b, PAGE, &tokens);
  ok(tokens == 0 && px.collisions == 1, "the same key with other tokens is no hit");
  kv_append(&kv, &two, PAGE, &copy);
  ok(prefix_insert(&px, &two, b, 0, 1) == 1, "both are entered under the key");
  prefix_match(&px, &three, b, PAGE, &tokens);
  ok(tokens == PAGE && three.table[0] == two.table[0], "and each is found by its tokens");
  ok(kv.pages.refs[two.table[0]] == 2, "a live sequence's page is shared");
  kv_release(&kv, &one);
  kv_release(&kv, &two);
  kv_release(&kv, &three);
  prefix_free(&px);
  kv_free(&kv);
}

/* By hand: of five prompts of blocks 1 2 | 1 3 | 1 2 4 | 1 2 | 3, with pages of half a block, an
 * unlimited cache finds 0, 1, 2, and of the last block of the fourth all but the page with its last
 * token; the fifth begins as nobody did. */
static void unlimited(void)
{
  static const int64_t ids[5][3] = {{1, 2}, {1, 3}, {1, 2, 4}, {1, 2}, {3}};
  static const size_t n[5] = {2, 2, 3, 2, 1};
  struct trace t = {0};
  int64_t cached = -1;
  for (int i = 0; i < 5; i++)
    trace_add(&t, i, (int64_t)n[i] * TRACE_BLOCK, 1, ids[i], n[i]);
  int status = recount_unlimited(&t, TRACE_BLOCK / 2, &cached);
  ok(!status && cached == TRACE_BLOCK * (0 + 1 + 2 + 1) + TRACE_BLOCK / 2,
     "an unlimited cache finds %lld tokens of the trace made by hand", (long long)cached);
  trace_free(&t);
}

int main(void)
{
  random_prompts(NULL, "all tokens", false);
  random_prompts(short_hash, "8 bits", true);
  random_prompts(same_hash, "one value", true);
  forced_collision();
  unlimited();
  return done_testing();
}
