/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors-flip.c - new inputs for every timed run, at the price of one pass over one operand.
 *
 * Standard normal numbers with random signs are standard normal numbers, exactly, in any type; so
 * flipping the signs of q (of dout in backward, where o and lse depend on q) makes inputs that no
 * run has seen, without drawing and uploading.  The host's copy follows when it is needed.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/run/tensors.h"

#define PROBES 16 /* elements of each input */

static enum operand flipped(const struct tensors *t)
{
  return t->p->op == ATTN_BWD ? OP_DOUT : OP_Q;
}

static size_t elements(const struct tensors *t, enum operand op)
{
  return t->bytes[op] / attn_dtype_size(operand_type(t->p, op));
}

int tensors_flip(struct tensors *t, uint64_t key)
{
  struct device *dev = t->arena->dev;
  enum operand op = flipped(t);
  size_t n = elements(t, op), words = (n + 63) / 64;
  if (!t->signs && !(t->signs = calloc(words + 1, sizeof *t->signs)))
    return ATTN_ENOMEM;
  for (size_t w = 0; w < words; w++)
    t->signs[w] ^= rng_at(key, w);
  t->digested[op] = false;
  return dev->ops->flip(dev, t->buffer[op]->data, attn_dtype_size(t->p->dtype), n, key);
}

void tensors_settle(struct tensors *t)
{
  enum operand op = flipped(t);
  size_t width = attn_dtype_size(t->p->dtype), n = elements(t, op);
  unsigned char *sign = (unsigned char *)t->host[op] + width - 1;
  for (size_t i = 0; t->signs && i < n; i++)
    sign[i * width] ^= (unsigned char)((t->signs[i / 64] >> (i % 64) & 1) << 7);
  free(t->signs);
  t->signs = NULL;
}

int tensors_restore(struct tensors *t)
{
  struct device *dev = t->arena->dev;
  int status = ATTN_OK;
  tensors_settle(t);
  for (int op = 0; op < OPERANDS && !status; op++)
    if (tensors_is_input(t, op))
      status = dev->ops->upload(dev, t->buffer[op]->data, t->host[op], t->bytes[op]);
  if (!status)
    status = tensors_digest_inputs(t);
  if (!status && t->p->kv)
    status = tensors_scales_upload(t);
  return status || !t->p->page ? status : tensors_pages_upload(t);
}

/* Whether element i of an input is on the device what it is on the host, pending signs and all. */
static int probe(struct tensors *t, enum operand op, size_t i)
{
  struct device *dev = t->arena->dev;
  size_t width = t->bytes[op] / elements(t, op);
  unsigned char got[8], want[8];
  if (dev->ops->download(dev, got, (char *)t->buffer[op]->data + i * width, width))
    return -1;
  memcpy(want, (char *)t->host[op] + i * width, width);
  if (op == flipped(t) && t->signs)
    want[width - 1] ^= (unsigned char)((t->signs[i / 64] >> (i % 64) & 1) << 7);
  return memcmp(got, want, width) == 0;
}

int tensors_probe(struct tensors *t, uint64_t seed)
{
  int same = 1;
  for (int op = 0; op < OPERANDS; op++) {
    if (!tensors_is_input(t, op))
      continue;
    for (uint64_t k = 0; k < PROBES && same == 1; k++)
      same = probe(t, op, rng_at(seed, (uint64_t)op * PROBES + k) % elements(t, op));
  }
  return same;
}
