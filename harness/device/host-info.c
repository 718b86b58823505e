/* SPDX-License-Identifier: Apache-2.0
 *
 * host-info.c - reads /proc, sysfs and the control group (v2, then v1).
 */
#include "config.h"

#include "harness/device/host-info.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Copies what follows "key<blanks>:" in a file of such lines; 0 if found. */
static int field(const char *path, const char *key, char *value, size_t len)
{
  char line[512];
  int found = -1;
  FILE *f = fopen(path, "r");
  if (!f)
    return -1;
  while (found && fgets(line, sizeof line, f)) {
    char *colon = strchr(line, ':');
    if (!colon || strncmp(line, key, strlen(key)))
      continue;
    colon += 1 + strspn(colon + 1, " \t");
    colon[strcspn(colon, "\n")] = 0;
    snprintf(value, len, "%s", colon);
    found = 0;
  }
  fclose(f);
  return found;
}

/* The number a one-line file holds; none if it is missing or says "max". */
static size_t number(const char *path, size_t none)
{
  unsigned long long n;
  FILE *f = fopen(path, "r");
  if (!f)
    return none;
  if (fscanf(f, "%llu", &n) == 1)
    none = (size_t)n;
  fclose(f);
  return none;
}

void host_cpu_name(char *name, size_t len)
{
  if (field("/proc/cpuinfo", "model name", name, len) &&
      field("/proc/cpuinfo", "CPU part", name, len))
    snprintf(name, len, "unknown processor");
}

int host_cores(void)
{
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set) && CPU_COUNT(&set) > 0)
    return CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

static size_t meminfo(const char *key)
{
  char text[64];
  if (field("/proc/meminfo", key, text, sizeof text))
    return SIZE_MAX;
  return (size_t)strtoull(text, NULL, 10) * 1024;
}

static size_t cgroup_limit(void)
{
  size_t v1 = number("/sys/fs/cgroup/memory/memory.limit_in_bytes", SIZE_MAX);
  return number("/sys/fs/cgroup/memory.max", v1);
}

size_t host_memory_total(void)
{
  size_t limit = cgroup_limit(), total = meminfo("MemTotal");
  return limit < total ? limit : total;
}

/* Page cache that the group would give back before it runs out. */
static size_t cgroup_reclaimable(void)
{
  char key[64];
  unsigned long long n;
  size_t found = 0;
  FILE *f = fopen("/sys/fs/cgroup/memory.stat", "r");
  if (!f)
    f = fopen("/sys/fs/cgroup/memory/memory.stat", "r");
  if (!f)
    return 0;
  while (fscanf(f, "%63s %llu", key, &n) == 2)
    if (!strcmp(key, "inactive_file"))
      found = (size_t)n;
  fclose(f);
  return found;
}

size_t host_memory_available(void)
{
  size_t limit = cgroup_limit(), available = meminfo("MemAvailable");
  size_t v1 = number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0);
  size_t used = number("/sys/fs/cgroup/memory.current", v1), cache = cgroup_reclaimable();
  used -= cache < used ? cache : used;
  size_t room = limit > used ? limit - used : 0;
  return room < available ? room : available;
}

size_t host_address_room(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
    return SIZE_MAX;
  size_t used = number("/proc/self/statm", 0) * (size_t)sysconf(_SC_PAGESIZE);
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

size_t host_llc_bytes(void)
{
  static const char *const sysfs[] = {"/sys/devices/system/cpu/cpu0/cache/index4/size",
                                      "/sys/devices/system/cpu/cpu0/cache/index3/size",
                                      "/sys/devices/system/cpu/cpu0/cache/index2/size"};
  for (size_t i = 0; i < sizeof sysfs / sizeof *sysfs; i++) {
    size_t kib = number(sysfs[i], 0);
    if (kib)
      return kib * 1024;
  }
  long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return l3 > 0 ? (size_t)l3 : (size_t)32 << 20;
}
