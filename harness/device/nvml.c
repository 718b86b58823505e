/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c - the few calls of NVML that the harness needs, declared here because toolkits come
 * without nvml.h and drivers always with libnvidia-ml.so.1.
 */
#include "config.h"

#include "harness/device/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_NS 10000000L

typedef struct nvmlDevice *nvml_handle;
enum { NVML_OK = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_TEMPERATURE_GPU = 0 };

static struct {
  void *library;
  int (*init)(void);
  int (*shutdown)(void);
  const char *(*error_string)(int);
  int (*driver_version)(char *, unsigned);
  int (*handle_by_pci)(const char *, nvml_handle *);
  int (*clock)(nvml_handle, int, unsigned *);         /* MHz */
  int (*power)(nvml_handle, unsigned *);              /* mW */
  int (*power_limit)(nvml_handle, unsigned *);        /* mW */
  int (*temperature)(nvml_handle, int, unsigned *);   /* C */
  int (*throttle)(nvml_handle, unsigned long long *); /* bits */
  int (*ecc)(nvml_handle, unsigned *, unsigned *);    /* current, pending */
  int (*mig)(nvml_handle, unsigned *, unsigned *);    /* current, pending */
} nvml;

static const struct {
  const char *name;
  void **call;
  const char *older_name;
} calls[] = {
    {"nvmlInit_v2", (void **)&nvml.init, NULL},
    {"nvmlShutdown", (void **)&nvml.shutdown, NULL},
    {"nvmlErrorString", (void **)&nvml.error_string, NULL},
    {"nvmlSystemGetDriverVersion", (void **)&nvml.driver_version, NULL},
    {"nvmlDeviceGetHandleByPciBusId_v2", (void **)&nvml.handle_by_pci, NULL},
    {"nvmlDeviceGetClockInfo", (void **)&nvml.clock, NULL},
    {"nvmlDeviceGetPowerUsage", (void **)&nvml.power, NULL},
    {"nvmlDeviceGetEnforcedPowerLimit", (void **)&nvml.power_limit, NULL},
    {"nvmlDeviceGetTemperature", (void **)&nvml.temperature, NULL},
    {"nvmlDeviceGetCurrentClocksEventReasons", (void **)&nvml.throttle,
     "nvmlDeviceGetCurrentClocksThrottleReasons"},
    {"nvmlDeviceGetEccMode", (void **)&nvml.ecc, NULL},
    {"nvmlDeviceGetMigMode", (void **)&nvml.mig, NULL},
};

/* Loads the library once and keeps it. */
static const char *load(void)
{
  static char reason[160];
  if (nvml.library)
    return NULL;
  void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib)
    return "libnvidia-ml.so.1 cannot be loaded: clocks, power and throttling stay unknown (it "
           "comes "
           "with the NVIDIA driver)";
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    *calls[i].call = dlsym(lib, calls[i].name);
    if (!*calls[i].call && calls[i].older_name)
      *calls[i].call = dlsym(lib, calls[i].older_name);
    if (!*calls[i].call) {
      snprintf(reason, sizeof reason, "libnvidia-ml.so.1 has no %s: update the driver",
               calls[i].name);
      dlclose(lib);
      return reason;
    }
  }
  nvml.library = lib;
  return NULL;
}

static const char *begin(void)
{
  static char reason[160];
  const char *why = load();
  if (why)
    return why;
  int e = nvml.init();
  if (e == NVML_OK)
    return NULL;
  snprintf(reason, sizeof reason, "NVML does not start: %s", nvml.error_string(e));
  return reason;
}

bool nvml_hold(void)
{
  return !begin();
}

void nvml_drop(bool held)
{
  if (held)
    nvml.shutdown();
}

const char *nvml_absent(void)
{
  const char *why = begin();
  if (!why)
    nvml.shutdown();
  return why;
}

void nvml_driver_version(char *text, size_t len)
{
  text[0] = 0;
  if (begin())
    return;
  if (nvml.driver_version(text, (unsigned)len))
    text[0] = 0;
  nvml.shutdown();
}

/* Sums over the polls in which each number was known. */
struct mean {
  double sum;
  int n;
};

struct nvml_poll {
  nvml_handle gpu;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool stop;
  struct mean sm_clock, memory_clock, power;
  double temperature;
  uint64_t throttle;
};

static void add(struct mean *m, unsigned value)
{
  m->sum += value;
  m->n++;
}

static double value(const struct mean *m, double unit)
{
  return m->n ? m->sum / m->n * unit : NAN;
}

static void poll_once(struct nvml_poll *p)
{
  unsigned v = 0;
  unsigned long long bits = 0;
  if (!nvml.clock(p->gpu, NVML_CLOCK_SM, &v))
    add(&p->sm_clock, v);
  if (!nvml.clock(p->gpu, NVML_CLOCK_MEM, &v))
    add(&p->memory_clock, v);
  if (!nvml.power(p->gpu, &v))
    add(&p->power, v);
  if (!nvml.temperature(p->gpu, NVML_TEMPERATURE_GPU, &v))
    p->temperature = fmax(p->temperature, v); /* fmax drops the NaN it starts with */
  if (!nvml.throttle(p->gpu, &bits))
    p->throttle |= bits;
}

static void *poller(void *arg)
{
  struct nvml_poll *p = arg;
  struct timespec t;
  pthread_mutex_lock(&p->lock);
  clock_gettime(CLOCK_REALTIME, &t);
  do {
    poll_once(p);
    t.tv_nsec += POLL_NS;
    t.tv_sec += t.tv_nsec / 1000000000L;
    t.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&p->wake, &p->lock, &t);
  } while (!p->stop);
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

struct nvml_poll *nvml_poll_start(const char *pci)
{
  struct nvml_poll *p = calloc(1, sizeof *p);
  if (!p || begin()) {
    free(p);
    return NULL;
  }
  p->temperature = NAN;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  if (!nvml.handle_by_pci(pci, &p->gpu) && !pthread_create(&p->thread, NULL, poller, p))
    return p;
  nvml.shutdown();
  free(p);
  return NULL;
}

static int mode(int (*get)(nvml_handle, unsigned *, unsigned *), nvml_handle gpu)
{
  unsigned current = 0, pending = 0;
  return get(gpu, &current, &pending) ? -1 : current != 0;
}

void nvml_poll_stop(struct nvml_poll *p, struct device_state *out)
{
  unsigned limit = 0;
  *out =
      (struct device_state){NAN, NAN, NAN, NAN, NAN, .throttle = UINT64_MAX, .ecc = -1, .mig = -1};
  if (!p)
    return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->lock);
  pthread_join(p->thread, NULL);
  out->sm_clock_hz = value(&p->sm_clock, 1e6);
  out->memory_clock_hz = value(&p->memory_clock, 1e6);
  out->power_w = value(&p->power, 1e-3);
  out->temperature_c = p->temperature;
  out->throttle = p->throttle;
  if (!nvml.power_limit(p->gpu, &limit))
    out->power_limit_w = limit * 1e-3;
  out->ecc = mode(nvml.ecc, p->gpu);
  out->mig = mode(nvml.mig, p->gpu);
  nvml.shutdown();
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->wake);
  free(p);
}
