/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of the cuda device: looking for it leaves fork safe; a kernel that lasts a known time is
 * measured within 2 %, an empty one as nothing, and one on a side stream in full; time x clock is
 * the cycles that were spun; cold reads are slower than warm ones; a launch that synchronises is
 * refused and one that fails is reported, and both leave the device usable; an overrun by one byte
 * is found; a fault of the GPU is reported for good.
 */
#include "config.h"

#include "harness/device/arena.h"
#include "harness/base/clock.h"
#include "harness/device/device-cuda.h"
#include "harness/gate/stats.h"
#include "tests/flip.h"
#include "tests/gpu/probe.h"
#include "tests/tap.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

static struct device dev;
static const struct device_timing warm = {CACHE_WARM, MODE_SUSTAINED, 0};
static const struct device_timing cold = {CACHE_COLD, MODE_SUSTAINED, 0};
static const struct device_timing rested = {CACHE_COLD, MODE_RESTED, 0.05};

static int status_of(cudaError_t e)
{
  return e == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}

static int launch_spin_ns(void *ns, void *stream)
{
  return status_of(probe_spin_ns(*(uint64_t *)ns, stream));
}

static int launch_spin_cycles(void *cycles, void *stream)
{
  return status_of(probe_spin_cycles(*(uint64_t *)cycles, stream));
}

static int launch_empty(void *ctx, void *stream)
{
  return status_of(cuda_kernel_empty(stream));
}

static int launch_refuser(void *ctx, void *stream)
{
  return ATTN_EUNSUPPORTED;
}

static int launch_waiter(void *ctx, void *stream)
{
  return status_of(cudaStreamSynchronize(stream));
}

/* Spins on another stream between two events. */
struct side {
  cudaStream_t stream;
  cudaEvent_t fork, join;
  uint64_t ns;
};

static int launch_side(void *ctx, void *stream)
{
  struct side *s = ctx;
  cudaError_t e = cudaEventRecord(s->fork, stream);
  e = e ? e : cudaStreamWaitEvent(s->stream, s->fork, 0);
  e = e ? e : probe_spin_ns(s->ns, s->stream);
  e = e ? e : cudaEventRecord(s->join, s->stream);
  return status_of(e ? e : cudaStreamWaitEvent(stream, s->join, 0));
}

struct memory {
  void *data;
  size_t bytes;
};

static int launch_read(void *ctx, void *stream)
{
  struct memory *m = ctx;
  uint32_t *sink = ((struct cuda *)dev.self)->sink;
  return status_of(cuda_kernel_read(m->data, m->bytes, sink, dev.info.multiprocessors, stream));
}

/* Median of 9; NaN with a diagnosis if one fails. */
static double timed(const struct device_timing *t, device_launch launch, void *ctx, double *mhz)
{
  double seconds[9], clock[9];
  if (launch(ctx, device_cuda.stream(&dev)) || device_cuda.sync(&dev))
    return NAN;
  for (int i = 0; i < 9; i++) {
    struct device_sample s = {NAN, NAN};
    if (device_cuda.time(&dev, t, launch, ctx, &s)) {
      diag("%s", dev.error);
      return NAN;
    }
    seconds[i] = s.seconds;
    clock[i] = s.mhz;
  }
  if (mhz)
    *mhz = stats_median(clock, 9);
  return stats_median(seconds, 9);
}

/* Bound: hidden event pairs and graphs agree within 2 % above 50 us; what cannot be captured has no
 * figure and harms nothing. */
static void test_graph(void)
{
  uint64_t ns = 100000;
  double graph = NAN, row = NAN, hidden = timed(&warm, launch_spin_ns, &ns, NULL);
  int status = device_cuda.graph(&dev, launch_spin_ns, &ns, &graph, &row);
  ok(!status && fabs(graph / hidden - 1) < 0.02 && fabs(row / hidden - 1) < 0.02,
     "hidden pair %.2f us, by graph %.2f us, in a row %.2f us", 1e6 * hidden, 1e6 * graph,
     1e6 * row);
  status = device_cuda.graph(&dev, launch_waiter, NULL, &graph, &row);
  ok(!status && isnan(graph) && !device_cuda.sync(&dev), "what waits has no figure by graph");
}

/* Looks, as a parent of workers does, then opens the device in a child. */
static void test_fork(void)
{
  ok(device_cuda.count() > 0, "%d GPUs counted without initialising CUDA", device_cuda.count());
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    const struct device_options o = {0};
    int status = device_cuda.open(&dev, &o);
    if (!status)
      status = device_cuda.sync(&dev);
    _exit(status);
  }
  int how = -1;
  waitpid(child, &how, 0);
  ok(WIFEXITED(how) && WEXITSTATUS(how) == ATTN_OK, "a forked child can open the device");
}

static void test_identity(void)
{
  const struct attn_device *i = &dev.info;
  ok(i->kind == ATTN_CUDA && i->sm >= 50 && i->multiprocessors > 0, "it says what it is");
  ok(i->l2_bytes > 0 && i->sram_bytes >= 48 << 10 && i->memory_bytes > 0, "and how large it is");
  ok(strlen(dev.uuid_hash) == 16 && strspn(dev.uuid_hash, "0123456789abcdef") == 16,
     "its UUID's hash is 16 hexadecimal digits");
  ok(dev.runtime[0] && dev.driver[0], "runtime %s, driver %s", dev.runtime, dev.driver);
  diag("%s, sm_%d, %d SMs, L2 %zu, SRAM %zu, memory %zu", i->name, i->sm, i->multiprocessors,
       i->l2_bytes, i->sram_bytes, i->memory_bytes);
}

static void test_memory(void)
{
  void *p[3];
  unsigned char back[11];
  for (int i = 0; i < 3; i++)
    ok(!device_cuda.alloc(&dev, 100, &p[i]) && (uintptr_t)p[i] % 1024 == 0, "1024-byte aligned");
  ok(!device_cuda.upload(&dev, p[0], "0123456789", 11) &&
         !device_cuda.download(&dev, back, p[0], 11) && !memcmp(back, "0123456789", 11),
     "what goes up comes down");
  ok(!device_cuda.fill(&dev, p[0], 0x04030201, 7) && !device_cuda.download(&dev, back, p[0], 11) &&
         !memcmp(back,
                 "\1\2\3\4\1\2\3"
                 "789",
                 11),
     "fill repeats its pattern to the last odd byte and not beyond");
  for (int i = 0; i < 3; i++)
    device_cuda.free(&dev, p[i]);
  ok(device_cuda.alloc(&dev, (size_t)1 << 50, &p[0]) == ATTN_ENOMEM && !p[0], "a PiB is refused");
  ok(strstr(dev.error, "1048576.000 GiB") && strstr(dev.error, "free"), "with both sizes");
  diag("%s", dev.error);
  ok(!device_cuda.sync(&dev), "and the device lives on");
}

static void test_arena(void)
{
  struct arena a;
  struct arena_buffer *b;
  char err[200] = "";
  arena_init(&a, &dev);
  ok(!arena_alloc(&a, "o", 1001, &b) && !arena_check_guards(&a, err, sizeof err),
     "guards are whole");
  ok(!probe_flip((char *)b->data + 1000, device_cuda.stream(&dev)) && !device_cuda.sync(&dev) &&
         !arena_check_guards(&a, err, sizeof err),
     "the last byte is ours");
  ok(!probe_flip((char *)b->data + 1001, device_cuda.stream(&dev)) && !device_cuda.sync(&dev) &&
         arena_check_guards(&a, err, sizeof err) == ATTN_EDEVICE,
     "a kernel's write one byte past the end is found");
  is_str(err, "buffer o: byte 1 past its end was overwritten", "and named");
  arena_destroy(&a);
}

static void test_time(void)
{
  static const uint64_t known[] = {20000, 100000, 1000000};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint64_t ns = known[i];
    double t = timed(&warm, launch_spin_ns, &ns, NULL) * 1e9;
    ok(fabs(t - (double)ns) <= 0.02 * (double)ns, "%.3f us are measured as %.3f", 1e-3 * (double)ns,
       1e-3 * t);
  }
  uint64_t ns = 100000;
  double t = timed(&rested, launch_spin_ns, &ns, NULL) * 1e9;
  ok(fabs(t - 1e5) <= 2e3, "rested and cold, 100 us are measured as %.3f", 1e-3 * t);
  double empty = timed(&warm, launch_empty, NULL, NULL);
  ok(fabs(empty) < 0.5e-6, "an empty kernel takes nothing: %.3f us", 1e6 * empty);
  empty = timed(&rested, launch_empty, NULL, NULL);
  ok(fabs(empty) < 0.5e-6, "also rested and cold: %.3f us", 1e6 * empty);
  diag("empty hidden pair %.3f us", 1e6 * ((struct cuda *)dev.self)->empty_s);
}

static void test_side_stream(void)
{
  struct side s = {.ns = 1000000};
  cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&s.fork, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&s.join, cudaEventDisableTiming);
  double t = timed(&warm, launch_side, &s, NULL);
  ok(fabs(t - 1e-3) <= 0.02e-3, "1 ms on a side stream that joins is measured as %.4f", 1e3 * t);
  cudaStreamDestroy(s.stream);
  cudaEventDestroy(s.fork);
  cudaEventDestroy(s.join);
}

static void test_clock(void)
{
  uint64_t cycles = 2000000;
  double mhz = NAN, t = timed(&warm, launch_spin_cycles, &cycles, &mhz);
  ok(fabs(t * mhz * 1e6 - 2e6) <= 0.02 * 2e6, "2e6 cycles are %.4g: %.4f ms at %.0f MHz",
     t * mhz * 1e6, 1e3 * t, mhz);
}

static void test_cache(void)
{
  struct memory m = {.bytes = dev.info.l2_bytes / 4 / 4096 * 4096};
  ok(!device_cuda.alloc(&dev, m.bytes, &m.data) && !device_cuda.fill(&dev, m.data, 0, m.bytes),
     "a quarter of L2");
  double w = timed(&warm, launch_read, &m, NULL), c = timed(&cold, launch_read, &m, NULL);
  diag("reading %.1f MiB: warm %.2f us, cold %.2f us", (double)m.bytes / 0x1p20, 1e6 * w, 1e6 * c);
  ok(c > 1.2 * w, "cold takes over 1.2 times as long as warm");
  device_cuda.free(&dev, m.data);
}

static void test_bad_launches(void)
{
  struct device_sample s;
  uint64_t ns = 1000;
  double before = clock_now();
  ok(!device_cuda.time(&dev, &rested, launch_spin_ns, &ns, &s) && clock_now() - before >= 0.05,
     "a rested launch waits 50 ms first");
  ok(device_cuda.time(&dev, &warm, launch_refuser, NULL, &s) == ATTN_EUNSUPPORTED,
     "a launch's status returns");
  before = clock_now();
  ok(device_cuda.time(&dev, &warm, launch_waiter, NULL, &s) == ATTN_EDEVICE,
     "a launch that synchronises is refused");
  ok(clock_now() - before < 5, "within 5 s");
  diag("%s", dev.error);
  ok(!device_cuda.sync(&dev) && fabs(timed(&warm, launch_empty, NULL, NULL)) < 0.5e-6,
     "and the device lives on");
}

static void test_state(void)
{
  struct device_state s;
  uint64_t ns = 100000000;
  int status = device_cuda.state_begin(&dev);
  status = status ? status : launch_spin_ns(&ns, device_cuda.stream(&dev));
  status = status ? status : device_cuda.sync(&dev);
  status = status ? status : device_cuda.state_end(&dev, &s);
  ok(!status, "the state is polled over 100 ms of work");
  if (isnan(s.power_w)) {
    skip("no NVML here");
    return;
  }
  diag("SM %.0f MHz, memory %.0f MHz, %.0f of %.0f W, %.0f C, throttle 0x%llx, ECC %d, MIG %d",
       1e-6 * s.sm_clock_hz, 1e-6 * s.memory_clock_hz, s.power_w, s.power_limit_w, s.temperature_c,
       (unsigned long long)s.throttle, s.ecc, s.mig);
  ok(s.sm_clock_hz > 1e8 && s.sm_clock_hz < 5e9 && s.power_w > 5 && s.power_w < 5000 &&
         s.temperature_c > 0 && s.temperature_c < 130 && s.power_limit_w >= 10,
     "clock, power and temperature are those of a GPU");
}

static void test_ceilings(void)
{
  struct device_ceilings c;
  if (!ok(!device_cuda.ceilings(&dev, MODE_RESTED, &c), "ceilings are measured"))
    diag("%s", dev.error);
  diag("copy %.0f GB/s, read %.0f GB/s, bf16 %.1f TFLOP/s", c.copy_gbps, c.read_gbps,
       c.matmul_tflops);
  ok(c.copy_gbps > 50 && c.read_gbps > 0.7 * c.copy_gbps && c.read_gbps < 1.6 * c.copy_gbps,
     "reading and copying agree");
  ok(dev.info.sm < 80 || c.matmul_tflops > 5, "a matrix product is fast where there is bf16");
  if (strstr(dev.info.name, "H200"))
    ok(c.copy_gbps > 3700 && c.copy_gbps < 4500 && c.matmul_tflops > 720 && c.matmul_tflops < 870,
       "an H200 has its known ceilings: 3.9 to 4.3 TB/s and 770 to 800 TFLOP/s");
}

/* Last: the context does not survive it. */
static void test_fault(void)
{
  ok(!probe_flip((void *)8, device_cuda.stream(&dev)), "a wild write is enqueued");
  ok(device_cuda.sync(&dev) == ATTN_EDEVICE && dev.error[0], "and reported");
  diag("%s", dev.error);
  ok(device_cuda.sync(&dev) == ATTN_EDEVICE, "for good");
}

int main(void)
{
  const struct device_options o = {0};
  const char *why = device_cuda.absent();
  if (why)
    skip_all(why);
  test_fork();
  if (!ok(device_cuda.open(&dev, &o) == ATTN_OK, "the device opens")) {
    diag("%s", dev.error);
    return done_testing();
  }
  test_identity();
  test_memory();
  test_arena();
  test_flip(&dev);
  test_time();
  test_side_stream();
  test_clock();
  test_graph();
  test_cache();
  test_bad_launches();
  test_state();
  test_ceilings();
  test_fault();
  device_cuda.close(&dev);
  return done_testing();
}
