/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of the cpu device: a launch is timed no shorter than it lasts; a rested launch really waits
 * its rest; a cold launch finds its data out of the cache and so takes longer than a warm one; the
 * launch's status comes back; what is uploaded comes down; ceilings are positive and a copy is not
 * faster than this machine's reading by more than noise allows.
 */
#include "config.h"

#include "harness/base/clock.h"
#include "harness/device/device.h"
#include "harness/device/instrument.h"
#include "tests/flip.h"
#include "tests/tap.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct device dev;
static const struct device_timing warm = {CACHE_WARM, MODE_SUSTAINED, 0};

static int sleeper(void *ctx, void *stream)
{
  clock_pause(*(double *)ctx);
  return ATTN_OK;
}

static int refuser(void *ctx, void *stream)
{
  return ATTN_EUNSUPPORTED;
}

/* Reads 256 KiB in a chain of dependent loads, so that latency shows. */
enum { LINES = 4096 };
static struct line {
  struct line *next;
  char pad[56];
} lines[LINES];

static int walker(void *ctx, void *stream)
{
  const struct line *l = lines;
  for (int i = 0; i < LINES; i++)
    l = *(struct line *volatile const *)&l->next;
  return l == lines ? ATTN_OK : ATTN_EDEVICE;
}

static double fastest(const struct device_timing *t, device_launch launch, void *ctx)
{
  double best = INFINITY;
  for (int i = 0; i < 15; i++) {
    struct device_sample s = {NAN, NAN};
    if (dev.ops->time(&dev, t, launch, ctx, &s))
      return NAN;
    best = s.seconds < best ? s.seconds : best;
  }
  return best;
}

static void test_time(void)
{
  struct device_sample s;
  double asleep = 0.02;
  ok(!dev.ops->time(&dev, &warm, sleeper, &asleep, &s) && s.seconds >= 0.02,
     "a launch of 20 ms is timed no shorter than 20 ms");
  ok(s.seconds < 2, "and not in other units");
  ok(isnan(s.mhz), "the clock is unknown, not 0");
  struct device_timing rested = {CACHE_WARM, MODE_RESTED, 0.1};
  double before = clock_now(), nothing = 0;
  ok(!dev.ops->time(&dev, &rested, sleeper, &nothing, &s) && clock_now() - before >= 0.1,
     "a rested launch waits 100 ms first");
  ok(s.seconds < 0.1, "and the wait is not in its time");
  ok(dev.ops->time(&dev, &warm, refuser, NULL, &s) == ATTN_EUNSUPPORTED,
     "a launch's status returns");
}

static void test_cache(void)
{
  struct device_timing cold = {CACHE_COLD, MODE_SUSTAINED, 0};
  for (int i = 0; i < LINES; i++)
    lines[(size_t)i * 1597 % LINES].next = &lines[(size_t)(i + 1) * 1597 % LINES];
  double w = fastest(&warm, walker, NULL), c = fastest(&cold, walker, NULL);
  diag("4096 dependent lines: warm %.1f us, cold %.1f us", 1e6 * w, 1e6 * c);
  ok(c > 1.5 * w, "cold reads take over 1.5 times as long as warm ones");
}

static void test_memory(void)
{
  void *p;
  char text[7] = "", big[13];
  size_t room;
  ok(!dev.ops->alloc(&dev, 10, &p) && (uintptr_t)p % 1024 == 0, "memory is 1024-byte aligned");
  ok(!dev.ops->upload(&dev, p, "onward", 7) && !dev.ops->download(&dev, text, p, 7), "up and down");
  is_str(text, "onward", "what went up comes down");
  dev.ops->free(&dev, p);
  ok(!dev.ops->fill(&dev, big, 0x04030201, 11) && big[10] == 3 && big[3] == 4,
     "fill repeats its pattern to the last odd byte");
  ok(!dev.ops->available(&dev, &room) && room > 0 && room <= dev.info.memory_bytes,
     "available memory is positive and not more than there is");
}

static void test_ceilings(void)
{
  struct device_ceilings c;
  ok(!dev.ops->ceilings(&dev, MODE_RESTED, &c), "ceilings are measured");
  diag("copy %.1f GB/s, read %.1f GB/s, fp32 %.4f TFLOP/s", c.copy_gbps, c.read_gbps,
       c.matmul_tflops);
  ok(c.copy_gbps > 0.1 && c.copy_gbps < 10e3, "copy is between 0.1 and 10000 GB/s");
  ok(c.read_gbps > 0.1 * c.copy_gbps, "reading is not ten times slower than copying");
  ok(c.matmul_tflops > 1e-4 && c.matmul_tflops < 100,
     "fp32 is between 0.1 GFLOP/s and 100 TFLOP/s");
}

static void spin(void)
{
  alarm(60); /* whatever becomes of the parent */
  for (volatile unsigned turns = 0;; turns++)
    ;
}

/* Others at work on the same cores do not lower the ceiling of products, or fast runs would look
 * impossible. Four of them a core leave a fifth of its time; the rate must stay above 0.4 (what two
 * threads of one physical core take from each other is another thing). */
static void test_busy(void)
{
  struct device_ceilings alone, beside;
  pid_t others[256];
  int n = 4 * dev.info.multiprocessors;
  n = n < 256 ? n : 256;
  int status = dev.ops->ceilings(&dev, MODE_RESTED, &alone);
  fflush(stdout);
  for (int i = 0; i < n; i++)
    if (!(others[i] = fork()))
      spin();
  status = status ? status : dev.ops->ceilings(&dev, MODE_RESTED, &beside);
  for (int i = 0; i < n; i++)
    if (others[i] > 0) {
      kill(others[i], SIGKILL);
      waitpid(others[i], NULL, 0);
    }
  ok(!status && beside.matmul_tflops > 0.4 * alone.matmul_tflops,
     "beside %d others %.4f TFLOP/s, before %.4f", n, beside.matmul_tflops, alone.matmul_tflops);
}

static void test_identity(void)
{
  const char *why = "";
  ok(device_find("cpu") == &device_host && !device_find("abacus"), "devices are found by name");
  ok(device_all()[0] == &device_host, "the cpu device is the first of the table");
  ok(!device_host.absent() && device_host.count() == 1, "there always is one");
  ok(dev.info.kind == ATTN_CPU && dev.info.sram_bytes == 232448, "M is 227 KiB by default");
  ok(dev.info.name[0] && dev.info.multiprocessors > 0 && dev.info.memory_bytes > 0,
     "it has a name");
  ok(instrument_for(&dev, &why) == &instrument_io_model && !why, "io-model counts on it");
  diag("%s, %d cores, %.1f GiB, cache %.1f MiB", dev.info.name, dev.info.multiprocessors,
       (double)dev.info.memory_bytes / 0x1p30, (double)dev.info.l2_bytes / 0x1p20);
  struct device tiny;
  struct device_options o = {.sram_bytes = 16};
  ok(device_host.open(&tiny, &o) == ATTN_EINVAL && tiny.error[0], "16 bytes of SRAM are refused");
}

int main(void)
{
  struct device_options o = {0};
  if (!ok(device_host.open(&dev, &o) == ATTN_OK, "the cpu device opens"))
    return done_testing();
  test_identity();
  test_time();
  test_cache();
  test_memory();
  test_flip(&dev);
  test_ceilings();
  test_busy();
  device_host.close(&dev);
  return done_testing();
}
