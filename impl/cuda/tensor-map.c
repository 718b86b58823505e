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

int attn_map_encode(CUtensorMap *map, const struct attn_tensor *t, const struct attn_map_shape *s,
                    int box_rows)
{
  encode_fn *fn = encoder();
  int64_t sb = s->packed ? t->ss : t->sb;
  char *base = (char *)t->data - (s->packed ? s->rows * t->ss * 2 : 0);
  cuuint64_t dims[4] = {s->width, at_least_one(s->rows), s->heads,
                        s->packed ? s->batch + 1 : at_least_one(s->batch)};
  cuuint64_t strides[3] = {t->ss * 2, t->sh ? t->sh * 2 : 16, sb ? sb * 2 : 16};
  cuuint32_t box[4] = {64, box_rows, 1, 1}, step[4] = {1, 1, 1, 1};
  CUtensorMapDataType type =
      s->dtype == ATTN_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if (!fn)
    return ATTN_EDEVICE;
  return fn(map, type, 4, base, dims, strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
             ? ATTN_OK
             : ATTN_EDEVICE;
}
