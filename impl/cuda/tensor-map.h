/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor-map.h - tensor maps for TMA: (batch, head, row, column) in boxes of [rows][64 columns] of
 * 16-bit numbers, 128-byte swizzle, zeros outside.
 */
#ifndef IMPL_CUDA_TENSOR_MAP_H
#define IMPL_CUDA_TENSOR_MAP_H

#include <cuda.h>

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The shape that a map covers. */
struct attn_map_shape {
  enum attn_dtype dtype; /* bf16 or fp16 */
  int64_t width, heads;
  int64_t rows;  /* of a sequence; packed: of the longest */
  int64_t batch; /* packed: rows of the whole tensor */
  bool packed;
};

/* 16-byte rows at 16-byte addresses? */
bool attn_map_aligned(const struct attn_tensor *t);

/* Packed: every sequence is seen as rows [max - length, max), which end at the last coordinate, so
 * that the rows after its end lie outside the map and read as zero: base - max rows + (max - length
 * + r) + end.  Returns ATTN_OK or ATTN_EDEVICE. */
int attn_map_encode(CUtensorMap *map, const struct attn_tensor *t, const struct attn_map_shape *s,
                    int box_rows);

/* A pool of pages: (page, end, head, row, column).  The rows before the end of the keys of a box
 * are those before the last of the page, so that the keys after that end lie outside the map and
 * read as zero: base - page rows + row + end. */
int attn_map_encode_pages(CUtensorMap *map, const struct attn_tensor *t, enum attn_dtype dtype,
                          int64_t width, int64_t heads, int64_t page, int box_rows);

#ifdef __cplusplus
}
#endif
#endif
