/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument-io-model.c - the two-level machine's own counters: exact, every load and store of a
 * tile between HBM and SRAM.  The machine has no cache, so nothing is left behind as residue.
 */
#include "config.h"

#include "harness/device/instrument.h"

#include "impl/cpu/machine.h"

#include <math.h>
#include <stdio.h>

static const char *io_denied(struct device *dev)
{
  return dev->info.kind == ATTN_CPU ? NULL : "io-model counts on the cpu device alone";
}

static int count_one(struct attn_machine *m, struct counted *c)
{
  struct counters *out = &c->counters;
  uint64_t read, written;
  size_t peak;
  *out = counters_unknown();
  snprintf(out->reason, sizeof out->reason, "the launch failed");
  attn_machine_reset(m);
  int status = c->launch(c->ctx, m);
  if (status)
    return status;
  attn_machine_totals(m, &read, &written, &peak);
  if (!read && !written) {
    snprintf(out->reason, sizeof out->reason,
             "it makes no counted loads and stores (attn_machine)");
    return ATTN_OK;
  }
  out->source = "io-model";
  out->reason[0] = 0;
  out->dram_read_bytes = (double)read;
  out->dram_write_bytes = (double)written;
  out->residue_bytes = 0;
  out->sram_peak_bytes = (double)peak;
  return ATTN_OK;
}

static int io_count(struct device *dev, struct counted *c, int n)
{
  int status = ATTN_OK;
  for (int i = 0; i < n && !status; i++)
    status = count_one(dev->ops->stream(dev), &c[i]);
  return status;
}

/* The machine runs no kernels. */
static int io_kernels(struct device *dev, device_launch launch, void *ctx, struct kernel_info *k,
                      int max, int *n)
{
  *n = 0;
  return ATTN_OK;
}

static void io_close(struct device *dev)
{
}

const struct instrument_ops instrument_io_model = {"io-model", io_denied, io_count, io_kernels,
                                                   io_close};
