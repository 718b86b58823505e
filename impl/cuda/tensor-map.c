/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor-map.c - see tensor-map.h.  The driver's encoder is found at run time, so that nothing
 * links with libcuda.
 */
#include "config.h"

#include <cuda_runtime_api.h>

#include "impl/cuda/tensor-map.h"

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn *encoder(void)
{
  static encode_fn *encode;
  enum cudaDriverEntryPointQueryResult found;
  void *f = NULL;
  if (!encode && !cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
                                                   cudaEnableDefault, &found))
    encode = (encode_fn *)f;
  return encode;
}

bool attn_map_aligned(const struct attn_tensor *t)
{
  return (uintptr_t)t->data % 16 == 0 && t->sb % 8 == 0 && t->ss % 8 == 0 && t->sh % 8 == 0;
}

static int64_t at_least_one(int64_t n)
{
  return n > 0 ? n : 1;
}

static int encode(CUtensorMap *map, enum attn_dtype dtype, int rank, void *base,
                  const cuuint64_t *dims, const cuuint64_t *strides, int box_rows)
{
  encode_fn *fn = encoder();
  cuuint32_t box[5] = {64, box_rows, 1, 1, 1}, step[5] = {1, 1, 1, 1, 1};
  CUtensorMapDataType type =
      dtype == ATTN_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if (!fn)
    return ATTN_EDEVICE;
  return fn(map, type, rank, base, dims, strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
             ? ATTN_OK
             : ATTN_EDEVICE;
}

/* Bytes of a stride; a dimension of one needs a multiple of 16, too. */
static cuuint64_t stride_bytes(int64_t elements)
{
  return elements ? elements * 2 : 16;
}

int attn_map_encode(CUtensorMap *map, const struct attn_tensor *t, const struct attn_map_shape *s,
                    int box_rows)
{
  int64_t sb = s->packed ? t->ss : t->sb;
  char *base = (char *)t->data - (s->packed ? s->rows * t->ss * 2 : 0);
  cuuint64_t dims[4] = {s->width, at_least_one(s->rows), s->heads,
                        s->packed ? s->batch + 1 : at_least_one(s->batch)};
  cuuint64_t strides[3] = {t->ss * 2, stride_bytes(t->sh), stride_bytes(sb)};
  return encode(map, s->dtype, 4, base, dims, strides, box_rows);
}

int attn_map_encode_pages(CUtensorMap *map, const struct attn_tensor *t, enum attn_dtype dtype,
                          int64_t width, int64_t heads, int64_t page, int box_rows)
{
  cuuint64_t dims[5] = {width, page, heads, page + 1, INT32_MAX};
  cuuint64_t strides[4] = {t->ss * 2, stride_bytes(t->sh), t->ss * 2, stride_bytes(t->sb)};
  return encode(map, dtype, 5, (char *)t->data - page * t->ss * 2, dims, strides, box_rows);
}
