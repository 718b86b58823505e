/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn.c - peer/cudnn without a GPU: what it refuses, and that cuDNN's engines for an H200,
 * described by its properties, recognise every graph that the wrapper builds.
 *
 * Where there is no driver, the toolkit's stub of it stands in, so that cuDNN gets as far as
 * loading the code that it has compiled.
 */
#include "config.h"

#include <dlfcn.h>

#include "impl/peer/cudnn-plan.h"
#include "impl/peer/cudnn-sdpa.h"
#include "impl/peer/cudnn.h"
#include "tests/tap.h"

static const char h200[] =
    "{\"deviceName\":\"NVIDIA H200\",\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"multiProcessorCount\":132,"
    "\"warpSize\":32,\"maxBlockSize\":[1024,1024,64],\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"maxCtasPerSM\":32,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"totalGlobalMem\":150000000000,\"l2CacheSize\":62914560,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000}";

static const struct attn_device device = {.kind = ATTN_CUDA, .name = "NVIDIA H200", .sm = 90};

static struct attn_problem problem(const char *text)
{
  struct attn_problem p;
  char err[256];
  if (attn_problem_parse(text, &p, err, sizeof err)) {
    printf("Bail out! %s: %s\n", text, err);
    exit(1);
  }
  return p;
}

/* Each refusal that needs no library names its cause. */
static void refuses(void)
{
  const struct {
    const char *problem, *why;
  } rows[] = {
      {"op=fwd dtype=fp32 b=1 hq=1 hkv=1 sq=64 sk=64 d=64", "fp32"},
      {"op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=64 sk=64 d=36", "multiples of 8"},
      {"op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=64 sk=64 d=64 dv=60", "multiples of 8"},
      {"op=bwd dtype=bf16 b=1 hq=1 hkv=1 sq=64 sk=64 d=264", "256"},
      {"op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=64 sk=64 d=64 softcap=30", "softcap"},
      {"op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=64 sk=64 d=64 alibi=1", "alibi"},
      {"op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=64 sk=64 d=64 dropout=0.1@1", "dropout"},
      {"op=decode dtype=bf16 b=1 hq=1 hkv=1 sq=1 sk=64 d=64 page=16", "paged"},
      {"op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=65 sk=64 d=64 mask=causal", "no key"},
      {"op=fwd dtype=bf16 hq=1 hkv=1 seqs=1x64/64+1x9/8 d=64 mask=causal", "no key"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct attn_problem p = problem(rows[i].problem);
    const char *why = attn_peer_cudnn.unsupported(&p, &device);
    if (!ok(why && strstr(why, rows[i].why) && !strchr(why, '\n'), "refused: %s", rows[i].problem))
      diag("%s", why ? why : "taken");
  }
}

static const char *const taken[] = {
    "op=fwd dtype=bf16 b=2 hq=16 hkv=16 sq=2048 sk=2048 d=64",
    "op=fwd dtype=fp16 b=2 hq=16 hkv=4 sq=2048 sk=2048 d=128 mask=causal",
    "op=fwd dtype=bf16 b=2 hq=8 hkv=8 sq=2048 sk=2048 d=256 mask=causal layout=bhsd",
    "op=fwd dtype=bf16 b=1 hq=8 hkv=1 sq=777 sk=1000 d=192 dv=128 mask=causal",
    "op=fwd dtype=bf16 b=1 hq=8 hkv=8 sq=777 sk=1000 d=96 mask=causal-topleft",
    "op=fwd dtype=bf16 b=1 hq=8 hkv=8 sq=512 sk=2048 d=128 mask=window:128:0",
    "op=fwd dtype=bf16 b=1 hq=8 hkv=8 sq=512 sk=2048 d=128 mask=window:128:64",
    "op=fwd dtype=bf16 b=1 hq=8 hkv=8 sq=512 sk=2048 d=128 mask=window:128:-1",
    "op=fwd dtype=bf16 hq=8 hkv=2 seqs=2x512/1024+3x100/333 d=128 mask=causal",
    "op=fwd dtype=bf16 hq=8 hkv=2 seqs=2x512/512+3x333/333 d=128 mask=window:64:0",
    "op=append dtype=bf16 b=4 hq=32 hkv=8 sq=1024 sk=4096 d=128",
    "op=decode dtype=bf16 b=16 hq=32 hkv=8 sq=1 sk=8192 d=128",
    "op=decode dtype=bf16 hq=32 hkv=8 seqs=2x1/4096+3x1/100 d=128",
    "op=bwd dtype=bf16 b=2 hq=16 hkv=16 sq=2048 sk=2048 d=64",
    "op=bwd dtype=fp16 b=2 hq=16 hkv=4 sq=2048 sk=2048 d=128 mask=causal",
    "op=bwd dtype=bf16 b=2 hq=8 hkv=8 sq=2048 sk=2048 d=256 mask=causal layout=bhsd",
    "op=bwd dtype=bf16 b=1 hq=8 hkv=1 sq=777 sk=1000 d=192 dv=128 mask=causal",
    "op=bwd dtype=bf16 b=1 hq=8 hkv=8 sq=512 sk=2048 d=128 mask=window:128:0",
    "op=bwd dtype=bf16 hq=8 hkv=2 seqs=2x512/1024+3x100/333 d=128 mask=causal",
    "op=bwd dtype=bf16 hq=8 hkv=2 seqs=2x512/1024+3x100/333 d=128 mask=window:64:0",
    "op=bwd dtype=bf16 b=2 hq=16 hkv=4 sq=2048 sk=2048 d=128 mask=causal deterministic=1",
};

static void build(struct attn_cg *g, const struct attn_cudnn_api *api, const char *text)
{
  struct attn_problem p = problem(text);
  struct attn_cudnn_spec s;
  attn_cudnn_spec(&p, &s);
  attn_cg_init(g, api);
  if (s.backward)
    attn_cudnn_backward(g, &s);
  else
    attn_cudnn_forward(g, &s);
}

/* Pattern matching is literal, so an engine that takes the graph has understood all of it. */
static void recognised(const struct attn_cudnn_api *api, const struct attn_cudnn_target *target,
                       const char *text)
{
  cudnnBackendDescriptor_t configs[ATTN_CUDNN_ENGINES];
  char reason[256] = "";
  int64_t n;
  struct attn_cg g;
  build(&g, api, text);
  int rc = attn_cudnn_engines(&g, target, configs, &n, reason, sizeof reason);
  if (!ok(rc == ATTN_OK && n > 0, "an engine takes %s", text))
    diag("%s", reason);
  attn_cg_destroy(&g);
}

/* A graph that no engine takes is refused with cuDNN's own words. */
static void refused_by_cudnn(const struct attn_cudnn_api *api,
                             const struct attn_cudnn_target *target)
{
  cudnnBackendDescriptor_t plan = NULL;
  char reason[256] = "";
  struct attn_cg g;
  build(&g, api, "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=64 sk=64 d=36");
  int rc = attn_cudnn_plan(&g, target, &plan, reason, sizeof reason);
  if (!ok(rc == ATTN_EUNSUPPORTED && !plan && strstr(reason, "multiple of 8"),
          "cuDNN's refusal of d=36 is passed on"))
    diag("%d: %s", rc, reason);
  attn_cg_destroy(&g);
}

/* cuDNN compiles the kernel; without a GPU only loading it fails. */
static void compiles(const struct attn_cudnn_api *api, const struct attn_cudnn_target *target,
                     const char *text)
{
  cudnnBackendDescriptor_t plan = NULL;
  char reason[256] = "";
  struct attn_cg g;
  build(&g, api, text);
  int rc = attn_cudnn_plan(&g, target, &plan, reason, sizeof reason);
  if (!ok(rc == ATTN_OK || (rc == ATTN_EDEVICE && strstr(reason, "cuLibraryLoadData")),
          "compiles %s", text))
    diag("%d: %s", rc, reason);
  if (plan)
    api->destroy_descriptor(plan);
  attn_cg_destroy(&g);
}

int main(void)
{
  const char *why;
  struct attn_cg properties;
  refuses();
  if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
    dlopen(CUDA_STUBS "/libcuda.so", RTLD_NOW | RTLD_GLOBAL);
  const struct attn_cudnn_api *api = attn_cudnn_load(&why);
  if (!api) {
    ok(why[0] && strstr(why, "install"), "a missing library is told with what to install");
    skip(why);
    return done_testing();
  }
  attn_cg_init(&properties, api);
  struct attn_cudnn_target target = {
      .properties = attn_cg_node(&properties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)};
  attn_cg_set(&properties, target.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
              CUDNN_TYPE_CHAR, sizeof h200 - 1, h200);
  attn_cg_finalize(&properties, target.properties, "device properties");
  if (ok(!properties.error[0], "cuDNN %s takes a described device", attn_cudnn_version())) {
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
      recognised(api, &target, taken[i]);
    refused_by_cudnn(api, &target);
    compiles(api, &target, taken[1]);
    compiles(api, &target, taken[18]);
  } else {
    diag("%s", properties.error);
  }
  attn_cg_destroy(&properties);
  return done_testing();
}
