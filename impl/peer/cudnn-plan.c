/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-plan.c - asks cuDNN's heuristics for an engine and compiles it.
 *
 * The first count of results is of candidates; only fetching them sorts out those that take the
 * graph, so the second count is what matters. The first of them is the one that NVIDIA recommends
 * and that other users of cuDNN run.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/peer/cudnn-plan.h"

static void set_target(struct attn_cg *g, cudnnBackendDescriptor_t d,
                       const struct attn_cudnn_target *target,
                       cudnnBackendAttributeName_t properties)
{
  if (target->properties)
    attn_cg_set(g, d, properties, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
}

static cudnnBackendDescriptor_t operation_graph(struct attn_cg *g,
                                                const struct attn_cudnn_target *target)
{
  cudnnBackendDescriptor_t d = attn_cg_node(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target->handle)
    attn_cg_set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
  attn_cg_set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->nops, g->ops);
  attn_cg_finalize(g, d, "operation graph");
  return d;
}

static cudnnBackendDescriptor_t heuristics(struct attn_cg *g, cudnnBackendDescriptor_t graph,
                                           const struct attn_cudnn_target *target)
{
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnBackendDescriptor_t d = attn_cg_node(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  attn_cg_set(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &graph);
  attn_cg_set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  set_target(g, d, target, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  attn_cg_finalize(g, d, "engine heuristics");
  return d;
}

/* Fills configs with those that take the graph; returns their number. */
static int64_t viable(struct attn_cg *g, cudnnBackendDescriptor_t heur,
                      cudnnBackendDescriptor_t configs[ATTN_CUDNN_ENGINES])
{
  int64_t candidates = 0, n = 0;
  if (g->error[0])
    return 0;
  attn_cg_ok(g,
             g->api->get(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                         &candidates, NULL),
             "count engines");
  if (candidates > ATTN_CUDNN_ENGINES)
    candidates = ATTN_CUDNN_ENGINES;
  for (int64_t i = 0; i < candidates; i++)
    configs[i] = attn_cg_node(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (candidates > 0 && !g->error[0])
    attn_cg_ok(g,
               g->api->get(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                           candidates, &n, configs),
               "fetch engines");
  return g->error[0] ? 0 : n;
}

/* Compiles config; NULL, with the failure noted, if it will not. */
static cudnnBackendDescriptor_t compile(struct attn_cg *g, cudnnBackendDescriptor_t config,
                                        const struct attn_cudnn_target *target)
{
  cudnnBackendDescriptor_t d = NULL;
  if (!attn_cg_ok(g, g->api->create_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d),
                  "create plan"))
    return NULL;
  if (target->handle)
    attn_cg_set(g, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
  set_target(g, d, target, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  attn_cg_set(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &config);
  attn_cg_finalize(g, d, "compile");
  if (g->error[0]) {
    g->api->destroy_descriptor(d);
    return NULL;
  }
  return d;
}

/* Each engine's refusal begins a traceback in the last error's text; the first one will do. */
static void tell_refusal(const struct attn_cg *g, char *reason, size_t reason_len)
{
  char text[1024] = "";
  g->api->last_error(text, sizeof text);
  char *why = strstr(text, "Reason: ");
  if (why) {
    why += strlen("Reason: ");
    why[strcspn(why, "\n")] = 0;
    snprintf(reason, reason_len, "cuDNN %s has no engine: %s", attn_cudnn_version(), why);
  } else {
    snprintf(reason, reason_len, "cuDNN %s has no engine for this problem", attn_cudnn_version());
  }
}

int attn_cudnn_engines(struct attn_cg *g, const struct attn_cudnn_target *target,
                       cudnnBackendDescriptor_t configs[ATTN_CUDNN_ENGINES], int64_t *n,
                       char *reason, size_t reason_len)
{
  cudnnBackendDescriptor_t heur = heuristics(g, operation_graph(g, target), target);
  *n = viable(g, heur, configs);
  if (g->error[0]) {
    snprintf(reason, reason_len, "%s", g->error);
    return ATTN_EDEVICE;
  }
  if (*n == 0) {
    tell_refusal(g, reason, reason_len);
    return ATTN_EUNSUPPORTED;
  }
  return ATTN_OK;
}

int attn_cudnn_plan(struct attn_cg *g, const struct attn_cudnn_target *target,
                    cudnnBackendDescriptor_t *plan, char *reason, size_t reason_len)
{
  cudnnBackendDescriptor_t configs[ATTN_CUDNN_ENGINES];
  int64_t n;
  int rc = attn_cudnn_engines(g, target, configs, &n, reason, reason_len);
  *plan = NULL;
  if (rc)
    return rc;
  for (int64_t i = 0; i < n && !*plan; i++) {
    g->error[0] = 0;
    *plan = compile(g, configs[i], target);
  }
  if (*plan)
    return ATTN_OK;
  snprintf(reason, reason_len, "%s", g->error);
  return ATTN_EDEVICE;
}
