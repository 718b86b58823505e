/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c - a table of probes, each of which finds one thing in working order or says what to do.
 */
#include "config.h"

#include "harness/cli/doctor.h"

#include "harness/record/build.h"
#include "harness/device/device.h"
#include "harness/device/host-info.h"
#include "harness/device/instrument.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_CUDA
#include <cublas_v2.h>

#include "harness/device/nvml.h"
#endif

#define GIB(bytes) ((double)(bytes) / 0x1p30)
#define LITTLE_MEMORY ((size_t)2 << 30)

/* What the probes share: the GPU, opened by the first that needs it. */
struct patient {
  struct device gpu;
  bool open;
};

enum finding { FOUND, MISSING, UNTRIED };
static const char *const finding_name[] = {"ok", "missing", "untried"};

/* text says what was found, or what is wrong and what to do. */
typedef enum finding (*probe)(struct patient *p, char *text, size_t len);

static enum finding see_build(struct patient *p, char *text, size_t len)
{
  const struct build_info *b = build_info();
  snprintf(text, len, "attnbench %s (%s), compiler %s%s%s", b->version, b->commit, b->compiler,
           *b->nvcc ? ", nvcc " : "", b->nvcc);
  return FOUND;
}

static enum finding see_cpu(struct patient *p, char *text, size_t len)
{
  struct device dev;
  struct device_options o = {0};
  if (device_host.open(&dev, &o)) {
    snprintf(text, len, "%s", dev.error);
    return MISSING;
  }
  snprintf(text, len, "%s, %d cores, last-level cache %.1f MiB, M = %.0f KiB", dev.info.name,
           dev.info.multiprocessors, (double)dev.info.l2_bytes / 0x1p20,
           (double)dev.info.sram_bytes / 0x1p10);
  device_host.close(&dev);
  return FOUND;
}

static enum finding see_memory(struct patient *p, char *text, size_t len)
{
  size_t room = host_memory_available();
  bool enough = room >= LITTLE_MEMORY;
  snprintf(text, len, "%.1f GiB available of %.1f%s", GIB(room), GIB(host_memory_total()),
           enough ? "" : ": at least 2 GiB are wanted; end other programs or raise the limit");
  return enough ? FOUND : MISSING;
}

static enum finding see_gnuplot(struct patient *p, char *text, size_t len)
{
  FILE *f = popen("\"${GNUPLOT:-gnuplot}\" --version 2>/dev/null", "r");
  bool found = f && fgets(text, (int)len, f);
  if (f)
    pclose(f);
  if (found)
    text[strcspn(text, "\n")] = 0;
  else
    snprintf(text, len,
             "not on the PATH: reports have tables and no plots; apt install gnuplot-nox");
  return found ? FOUND : MISSING;
}

#ifdef HAVE_CUDA
static enum finding needs_gpu(char *text, size_t len)
{
  snprintf(text, len, "needs the cuda device");
  return UNTRIED;
}

static enum finding see_driver(struct patient *p, char *text, size_t len)
{
  const char *why = device_cuda.absent();
  char version[32];
  nvml_driver_version(version, sizeof version);
  if (why)
    snprintf(text, len, "%s", why);
  else
    snprintf(text, len, "NVIDIA driver %s, %d GPU%s", *version ? version : "of unknown version",
             device_cuda.count(), device_cuda.count() == 1 ? "" : "s");
  return why ? MISSING : FOUND;
}

static enum finding see_cuda(struct patient *p, char *text, size_t len)
{
  const struct device_options o = {0};
  const struct attn_device *i = &p->gpu.info;
  const char *why = device_cuda.absent();
  size_t room = 0;
  if (!why && device_cuda.open(&p->gpu, &o))
    why = p->gpu.error;
  if (why) {
    snprintf(text, len, "%s", why);
    return MISSING;
  }
  p->open = true;
  device_cuda.available(&p->gpu, &room);
  snprintf(text, len, "%s, sm_%d, %d SMs, %.1f GiB free of %.1f, L2 %.1f MiB, CUDA %s", i->name,
           i->sm, i->multiprocessors, GIB(room), GIB(i->memory_bytes), (double)i->l2_bytes / 0x1p20,
           p->gpu.runtime);
  return FOUND;
}

static enum finding see_cublas(struct patient *p, char *text, size_t len)
{
  cublasHandle_t h;
  int v = 0;
  if (!p->open)
    return needs_gpu(text, len);
  cublasStatus_t s = cublasCreate(&h);
  if (s != CUBLAS_STATUS_SUCCESS) {
    snprintf(text, len, "does not start: %s", cublasGetStatusString(s));
    return MISSING;
  }
  cublasGetVersion(h, &v);
  cublasDestroy(h);
  snprintf(text, len, "version %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  return FOUND;
}

static enum finding see_cudnn(struct patient *p, char *text, size_t len)
{
  void *lib = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  size_t (*version)(void) = lib ? (size_t(*)(void))dlsym(lib, "cudnnGetVersion") : NULL;
  if (version) {
    size_t v = version();
    snprintf(text, len, "version %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
  } else {
    snprintf(text, len,
             "libcudnn.so.9 is not found: peer/cudnn is left out; install cuDNN 9 and name its "
             "folder in LD_LIBRARY_PATH");
  }
  if (lib)
    dlclose(lib);
  return version ? FOUND : MISSING;
}

/* "RmProfilingAdminOnly: 1" of the driver's parameters; -1 where it does not say. */
static int admin_only(void)
{
  char line[128];
  int value = -1;
  FILE *f = fopen("/proc/driver/nvidia/params", "r");
  while (f && fgets(line, sizeof line, f))
    sscanf(line, "RmProfilingAdminOnly: %d", &value);
  if (f)
    fclose(f);
  return value;
}

static enum finding see_counters(struct patient *p, char *text, size_t len)
{
  const char *why;
  int only = admin_only();
  if (!p->open)
    return needs_gpu(text, len);
  instrument_for(&p->gpu, &why);
  snprintf(text, len, "%s (the driver grants them to %s; this is %s)",
           why ? why : "DRAM and L2 bytes are counted",
           only < 0   ? "an unknown set of users"
           : only > 0 ? "root alone"
                      : "every user",
           geteuid() == 0 ? "root" : "not root");
  return why ? MISSING : FOUND;
}

static enum finding see_nvml(struct patient *p, char *text, size_t len)
{
  struct device_state s;
  const char *why = nvml_absent();
  if (!p->open)
    return needs_gpu(text, len);
  snprintf(text, len, "%s", why ? why : "the device is lost");
  if (why || device_cuda.state_begin(&p->gpu) || device_cuda.state_end(&p->gpu, &s))
    return MISSING;
  snprintf(text, len, "%.0f of %.0f W, %.0f C, SM %.0f MHz, ECC %s, MIG %s", s.power_w,
           s.power_limit_w, s.temperature_c, 1e-6 * s.sm_clock_hz,
           s.ecc < 0 ? "unknown"
           : s.ecc   ? "on"
                     : "off",
           s.mig < 0 ? "unknown"
           : s.mig   ? "on: its slices have no counters"
                     : "off");
  return FOUND;
}
#else
static enum finding see_cuda(struct patient *p, char *text, size_t len)
{
  snprintf(text, len, "built without CUDA: install the toolkit and configure --with-cuda=DIR");
  return MISSING;
}
#endif

static const struct {
  const char *name;
  probe see;
} probes[] = {
    {"build", see_build},     {"cpu", see_cpu},           {"memory", see_memory},
    {"gnuplot", see_gnuplot},
#ifdef HAVE_CUDA
    {"driver", see_driver},   {"cuda", see_cuda},         {"cublas", see_cublas},
    {"cudnn", see_cudnn},     {"counters", see_counters}, {"nvml", see_nvml},
#else
    {"cuda", see_cuda},
#endif
};

int doctor_report(FILE *out)
{
  struct patient p = {.open = false};
  int missing = 0;
  for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
    char text[400] = "";
    enum finding f = probes[i].see(&p, text, sizeof text);
    missing += f == MISSING;
    fprintf(out, "%-9s %-8s %s\n", probes[i].name, finding_name[f], text);
  }
  if (p.open)
    p.gpu.ops->close(&p.gpu);
  return missing;
}
