/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps.  Laws: a line stands for the product of its lists, leftmost key outermost; what a line
 * leaves out follows as in a plain problem string; a refused line says why, and emits nothing after
 * the fault.
 */
#include "config.h"

#include "impl/attn.h"
#include "tests/tap.h"

struct lines {
  char text[8192];
  int count, stop_after;
};

static int collect(const struct attn_problem *p, void *ctx)
{
  struct lines *l = ctx;
  char text[ATTN_PROBLEM_TEXT];
  attn_problem_print(p, text, sizeof text);
  snprintf(l->text + strlen(l->text), sizeof l->text - strlen(l->text), "%s%s", text, "\n");
  return ++l->count == l->stop_after ? ATTN_EDEVICE : ATTN_OK;
}

static char models[512];

static int sweep(const char *text, struct lines *l, char *err, size_t errlen)
{
  *l = (struct lines){.count = 0};
  return attn_problem_sweep(text, models, collect, l, err, errlen);
}

#define HEAD "op=fwd dtype=bf16 b=1 hq=1 hkv=1 "

static const struct {
  const char *name, *text, *lines;
} sweeps[] = {
    {"a plain problem stands for itself", "sq=7 sk=9 mask=causal",
     HEAD "sq=7 sk=9 d=128 mask=causal\n"},
    {"a range doubles, and moves both lengths", "sq=512..2k",
     HEAD "sq=512 sk=512 d=128\n" HEAD "sq=1024 sk=1024 d=128\n" HEAD "sq=2048 sk=2048 d=128\n"},
    {"a range stops below an end that it does not meet", "sk=3..11",
     HEAD "sq=3 sk=3 d=128\n" HEAD "sq=6 sk=6 d=128\n"},
    {"s moves both lengths", "s=5..5", HEAD "sq=5 sk=5 d=128\n"},
    {"a length that is given stays", "sq=2 sk=4,8",
     HEAD "sq=2 sk=4 d=128\n" HEAD "sq=2 sk=8 d=128\n"},
    {"a comma before key= starts a key, before a value continues the list",
     "d=64,128,sq=4,mask=none,causal",
     HEAD "sq=4 sk=4 d=64\n" HEAD "sq=4 sk=4 d=64 mask=causal\n" HEAD "sq=4 sk=4 d=128\n" HEAD
          "sq=4 sk=4 d=128 mask=causal\n"},
    {"ranges stand in lists", "sq=1..2,5",
     HEAD "sq=1 sk=1 d=128\n" HEAD "sq=2 sk=2 d=128\n" HEAD "sq=5 sk=5 d=128\n"},
    {"words and ragged batches are swept too", "op=fwd,bwd seqs=1x2/3+1x4/4,2x5/5",
     "op=fwd dtype=bf16 hq=1 hkv=1 seqs=1x2/3+1x4/4 d=128\n"
     "op=fwd dtype=bf16 hq=1 hkv=1 seqs=2x5/5 d=128\n"
     "op=bwd dtype=bf16 hq=1 hkv=1 seqs=1x2/3+1x4/4 d=128\n"
     "op=bwd dtype=bf16 hq=1 hkv=1 seqs=2x5/5 d=128\n"},
    {"tokens gives b, hidden gives hq", "tokens=16k hidden=2048 d=64,256 sq=8k..16k",
     "op=fwd dtype=bf16 b=2 hq=32 hkv=32 sq=8192 sk=8192 d=64\n"
     "op=fwd dtype=bf16 b=1 hq=32 hkv=32 sq=16384 sk=16384 d=64\n"
     "op=fwd dtype=bf16 b=2 hq=8 hkv=8 sq=8192 sk=8192 d=256\n"
     "op=fwd dtype=bf16 b=1 hq=8 hkv=8 sq=16384 sk=16384 d=256\n"},
    {"tokens counts by whichever length is given", "tokens=8 sk=4",
     "op=fwd dtype=bf16 b=2 hq=1 hkv=1 sq=4 sk=4 d=128\n"},
    {"hidden goes with a given hkv and the default d", "hidden=1024 hkv=2 s=4",
     "op=fwd dtype=bf16 b=1 hq=8 hkv=2 sq=4 sk=4 d=128\n"},
    {"a model gives hq, hkv and d", "model=llama3-8b,falcon-7b sq=4",
     "op=fwd dtype=bf16 b=1 hq=32 hkv=8 sq=4 sk=4 d=128\n"
     "op=fwd dtype=bf16 b=1 hq=71 hkv=1 sq=4 sk=4 d=64\n"},
    {"what the line says goes before the model", "model=llama3-8b hkv=4 d=64 sq=4",
     "op=fwd dtype=bf16 b=1 hq=32 hkv=4 sq=4 sk=4 d=64\n"},
};

static void good_lines(void)
{
  for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++) {
    struct lines l;
    char err[512] = "";
    if (sweep(sweeps[i].text, &l, err, sizeof err))
      diag("%s", err);
    is_str(l.text, sweeps[i].lines, sweeps[i].name);
  }
}

static const struct {
  const char *text, *says;
  int emitted;
} faults[] = {
    {"", "sq is missing", 0},
    {"64,128", "\"64\" has no '='", 0},
    {"sq=4 d=64 d=128", "d is given twice", 0},
    {"sq=4..2", "sq=4..2: want FROM..TO", 0},
    {"sq=0..8", "sq=0..8: want FROM..TO", 0},
    {"sq=4..", "sq=4..: want FROM..TO", 0},
    {"sq=..", "sq=..: want a whole number", 0},
    {"sq=1..8M,1..8M,1..8M", "sq has more than 64 values", 0},
    {"sq=1..9223372036854775807", "sq=2147483648: want a whole number from 1 to", 31},
    {"sq=4 d=64,32x", "d=32x: want a whole number", 1},
    {"sq=4 hq=4,6 hkv=4", "hq=6 is not a multiple of hkv=4", 1},
    {"tokens=16k sq=3000", "tokens=16384 is not a multiple of sq=3000", 0},
    {"tokens=1k sq=2k", "tokens=1024 is not a multiple of sq=2048", 0},
    {"tokens=8", "tokens=8 needs sq", 0},
    {"tokens=8 seqs=2x4", "tokens=8 needs sq", 0},
    {"tokens=8 b=2 sq=4", "tokens=8 gives b: leave b out", 0},
    {"tokens=x sq=4", "tokens=x: want a whole number", 0},
    {"hidden=2048 hq=8 sq=4", "hidden=2048 gives hq: leave hq out", 0},
    {"hidden=100 sq=4", "hidden=100 is not a multiple of d=128", 0},
    {"model=gpt-9 sq=4", "model=gpt-9: cannot read", 0},
    {"model=../models/llama3-8b sq=4", "want the name of a file NAME.model", 0},
    {"model= sq=4", "want the name of a file NAME.model", 0},
};

static void bad_lines(void)
{
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    struct lines l;
    char err[512] = "";
    int rc = sweep(faults[i].text, &l, err, sizeof err);
    bool pass = rc == ATTN_EINVAL && strstr(err, faults[i].says) && !strchr(err, '\n') &&
                l.count == faults[i].emitted;
    if (!pass)
      diag("status %d, %d emitted, error \"%s\", want \"%s\"", rc, l.count, err, faults[i].says);
    ok(pass, "refused: %s", faults[i].text);
  }
}

int main(void)
{
  const char *srcdir = getenv("srcdir");
  snprintf(models, sizeof models, "%s/profiles/models", srcdir ? srcdir : ".");
  good_lines();
  bad_lines();

  struct lines l = {.stop_after = 2};
  char err[256];
  int rc = attn_problem_sweep("sq=1..64", models, collect, &l, err, sizeof err);
  ok(rc == ATTN_EDEVICE && l.count == 2, "a status of emit ends the sweep and is relayed");
  return done_testing();
}
