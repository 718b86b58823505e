/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-graph.c - other figures for small kernels: runs back to back in one CUDA graph, where no
 * launch by the host lies between them and the ends of the event pair are shared by all; and the
 * same row launched one by one.  The cache is as the run before left it.
 */
#include "config.h"

#include "harness/device/device-cuda.h"

#include "harness/gate/stats.h"

#include <math.h>

#define REPEATS 15
#define UNCOUNTED 2 /* the first launches upload the graph */
#define GATE_TIMEOUT_NS 1000000000u

/* Anything that may not be captured (a call that waits, another stream) makes no graph, which is no
 * error of the device. */
static cudaGraphExec_t capture(cudaStream_t stream, device_launch launch, void *ctx)
{
  cudaGraph_t graph = NULL;
  cudaGraphExec_t exec = NULL;
  int status = ATTN_OK;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))
    return NULL;
  for (int i = 0; i < DEVICE_ROW && !status; i++)
    status = launch(ctx, stream);
  cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (!status && !ended && graph && cudaGraphInstantiateWithFlags(&exec, graph, 0))
    exec = NULL;
  if (graph)
    cudaGraphDestroy(graph);
  cudaGetLastError(); /* what was refused is not remembered */
  return exec;
}

/* What lies between the events: the graph, or without one the launches. */
static cudaError_t enqueue(struct cuda *c, cudaGraphExec_t exec, device_launch launch, void *ctx)
{
  if (exec)
    return cudaGraphLaunch(exec, c->stream);
  for (int i = 0; i < DEVICE_ROW; i++)
    if (launch(ctx, c->stream))
      return cudaErrorUnknown;
  return cudaSuccess;
}

/* The event pair around one row, held back until all is queued. */
static int pair(struct device *dev, cudaGraphExec_t exec, device_launch launch, void *ctx,
                double *seconds)
{
  struct cuda *c = dev->self;
  float ms = 0;
  *c->gate = (struct cuda_gate){0, 0};
  CUDA_TRY(dev, cuda_kernel_gate(c->gate, GATE_TIMEOUT_NS, c->stream));
  cudaError_t e = cudaEventRecord(c->start, c->stream);
  e = e ? e : enqueue(c, exec, launch, ctx);
  e = e ? e : cudaEventRecord(c->stop, c->stream);
  __atomic_store_n(&c->gate->open, 1, __ATOMIC_SEQ_CST);
  CUDA_TRY(dev, e);
  int status = cuda_sync(dev);
  if (status)
    return status;
  CUDA_TRY(dev, cudaEventElapsedTime(&ms, c->start, c->stop));
  *seconds = 1e-3 * ms;
  return ATTN_OK;
}

/* Seconds of one run of the row. */
static int row(struct device *dev, cudaGraphExec_t exec, device_launch launch, void *ctx,
               double *seconds)
{
  struct cuda *c = dev->self;
  double pairs[REPEATS], ignored;
  int status = ATTN_OK;
  for (int i = -UNCOUNTED; i < REPEATS && !status; i++)
    status = pair(dev, exec, launch, ctx, i < 0 ? &ignored : &pairs[i]);
  if (!status)
    *seconds =
        (stats_median(pairs, REPEATS) - (isfinite(c->empty_s) ? c->empty_s : 0)) / DEVICE_ROW;
  return status;
}

int cuda_graph(struct device *dev, device_launch launch, void *ctx, double *graph_s, double *row_s)
{
  struct cuda *c = dev->self;
  *graph_s = *row_s = NAN;
  int status = cuda_sync(dev);
  cudaGraphExec_t exec = status ? NULL : capture(c->stream, launch, ctx);
  if (!exec)
    return status;
  status = row(dev, exec, launch, ctx, graph_s);
  cudaGraphExecDestroy(exec);
  return status ? status : row(dev, NULL, launch, ctx, row_s);
}
