/* SPDX-License-Identifier: Apache-2.0
 *
 * decode.c - cuda/decode, host half: what it takes, how the work is cut, and how many blocks fill
 * the GPU.  A pass over some of the keys is cuda/cascade's (cascade.c).
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

#include "impl/cuda/decode/decode.h"
#include "impl/cuda/mask-sides.h"

static const char *refuse_sizes(const struct attn_problem *p)
{
  int64_t lane = 16 / (int64_t)attn_dtype_size(attn_problem_kv_type(p));
  if (p->dtype != ATTN_BF16 && p->dtype != ATTN_F16)
    return "takes bf16 and fp16 only";
  if (p->d > 256 || p->dv > 256)
    return "head dim above 256";
  if (p->d % lane || p->dv % lane)
    return p->kv == ATTN_KV_E4M3 ? "head dim must be a multiple of 16 (16-byte loads of e4m3)"
                                 : "head dim must be a multiple of 8 (16-byte loads)";
  if (p->sq > DECODE_QUERIES)
    return "more than 16 queries a sequence: a prefill kernel's work";
  if (p->sk >= DECODE_LIMIT)
    return "sequence of 2^29 tokens or more";
  double rows = (double)p->b * (double)p->hq * (double)p->sq;
  if (rows > INT32_MAX)
    return "more than 2^31 query rows";
  if (rows * ((double)p->sk / DECODE_MIN_TILE + 1 + DECODE_TOLL) > INT32_MAX)
    return "more than 2^31 tiles of keys";
  return NULL;
}

const char *attn_decode_unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  if (dev->sm < 80)
    return "needs compute capability 8.0";
  if (p->op == ATTN_BWD)
    return "forward only";
  if (p->dropout_p > 0)
    return "dropout: a cache is read at inference";
  const char *reason = refuse_sizes(p);
  if (!reason && !attn_decode_choose(p, dev, DECODE_ALL))
    reason = "the tiles do not fit this device's shared memory";
  return reason;
}

size_t attn_decode_workspace(const struct attn_problem *p, const struct attn_device *dev,
                             enum decode_pass pass)
{
  const struct decode_kernel *k = attn_decode_choose(p, dev, pass);
  size_t parts = 2 * (size_t)(attn_decode_resident(k, dev) * dev->multiprocessors);
  return parts * (size_t)k->rows * (size_t)(p->dv + 1) * sizeof(float);
}

static void plan_mask(const struct attn_problem *p, struct decode_args *a)
{
  struct mask_sides sides = mask_sides_of(p, DECODE_LIMIT);
  a->bottom_right = p->mask == ATTN_MASK_CAUSAL || p->mask == ATTN_MASK_WINDOW;
  a->left = sides.left;
  a->right = sides.right;
}

/* Division by the page, of what is below 2^31. */
static void plan_page(const struct attn_problem *p, struct decode_args *a)
{
  uint64_t page = (uint64_t)p->page;
  while (page > 1ull << a->page_shift)
    a->page_shift++;
  a->page_shift += 31;
  a->page_inverse = (uint32_t)(((1ull << a->page_shift) + page - 1) / page);
}

static void plan_args(const struct attn_problem *p, struct decode_args *a)
{
  double scale = attn_problem_scale(p);
  int32_t group = (int32_t)(p->hq / p->hkv);
  *a = (struct decode_args){
      .total_q = attn_problem_total_q(p),
      .b = (int32_t)p->b,
      .sq = (int32_t)p->sq,
      .sk = (int32_t)p->sk,
      .hq = (int32_t)p->hq,
      .hkv = (int32_t)p->hkv,
      .group = group,
      .d = (int32_t)p->d,
      .dv = (int32_t)p->dv,
      .page = (int32_t)p->page,
      .toll = DECODE_TOLL,
      .options = p->softcap > 0 || p->alibi,
      .alibi = p->alibi,
      .raw_scale = (float)scale,
      .softcap = (float)p->softcap,
      .inv_softcap = p->softcap > 0 ? (float)(1 / p->softcap) : 0,
  };
  if (a->options)
    scale = 1;
  a->scale_log2 = (float)(scale * M_LOG2E);
  a->threshold = (float)(8 / (scale * M_LOG2E));
  plan_mask(p, a);
  if (p->page)
    plan_page(p, a);
}

/* What a pass over some of the keys has in other ways. */
static void plan_pass(const struct attn_problem *p, enum decode_pass pass, struct decode_args *a)
{
  if (pass == DECODE_REST)
    a->skip = (int32_t)p->prefix;
  if (pass != DECODE_PREFIX)
    return;
  a->stash = true;
  a->fold = p->nruns ? DECODE_LIMIT : a->sq;
  a->folded = a->b;
  a->b = 1;
  a->sq = (int32_t)a->total_q;
  a->sk = (int32_t)p->prefix;
}

/* As many blocks as are resident together, for they wait for each other. */
static int plan_grid(struct decode_plan *q, const struct attn_device *dev)
{
  const struct decode_kernel *k = q->kernel;
  int fit = 0, most = (int)attn_decode_resident(k, dev);
  if (cudaFuncSetAttribute(k->func, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)k->smem) ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, k->func, k->threads, k->smem) || !fit)
    return ATTN_EDEVICE;
  q->blocks = (unsigned)(dev->multiprocessors * (fit < most ? fit : most));
  return ATTN_OK;
}

/* Tiles that queries of a sequence see, if its lengths are the problem's. */
static int32_t tiles_seen(const struct decode_args *a, int32_t tile)
{
  int32_t diagonal = a->bottom_right ? a->sk - a->sq : 0;
  int32_t lo = diagonal - a->left, hi = a->sq + diagonal + a->right;
  lo = lo > a->skip ? lo : a->skip;
  hi = hi < a->sk ? hi : a->sk;
  return hi > lo ? (hi + tile - 1) / tile - lo / tile : 1;
}

/* Have nine tenths of the blocks something to do? */
static bool busy(int64_t n, int64_t blocks)
{
  return 10 * n >= 9 * blocks;
}

/* Slices, at most so many, that end where sets of heads do, or of which as many make each set:
 * then no block has more than one part of a head, or none. */
static int32_t whole_slices(int32_t sets, int32_t most, int32_t length)
{
  int32_t n = sets < most ? most / sets : most;
  while ((sets < most ? length : sets) % n)
    n--;
  return sets < most ? sets * n : n;
}

/* As many heads side by side, of which all sequences have a multiple, as leave few blocks without a
 * gang. Where all have equal lengths, as far as the host knows, slices that fit their heads matter
 * more than a few blocks. */
static int32_t plan_gang(const struct attn_problem *p, struct decode_plan *q, int32_t tiles)
{
  struct decode_args *a = &q->args;
  bool ragged = p->nruns && !a->fold;
  int32_t blocks = (int32_t)q->blocks, heads = ragged ? (int32_t)p->hkv : a->heads;
  for (int32_t n = DECODE_GANG; n > 0; n--) {
    if (heads % n || n > blocks)
      continue;
    int32_t slices = ragged ? 0 : whole_slices(a->b * (heads / n), blocks / n, tiles);
    if (busy((int64_t)slices * n, blocks)) {
      a->gang = n;
      a->toll = 0;
      return slices;
    }
    if (!a->gang && blocks % n * 50 <= blocks)
      a->gang = n;
  }
  return blocks / a->gang;
}

/* With equal lengths the cut is the host's, so long as those in device memory are the problem's. */
static void plan_cut(const struct attn_problem *p, struct decode_plan *q)
{
  struct decode_args *a = &q->args;
  int32_t tiles = tiles_seen(a, q->kernel->tile), slices = plan_gang(p, q, tiles);
  q->blocks = (unsigned)(slices * a->gang);
  if (!a->fold && p->nruns)
    return;
  a->each = a->heads / a->gang * (a->toll + tiles);
  int32_t total = a->b * a->each;
  slices = slices < total ? slices : total;
  a->cut = (struct decode_cut){slices, total / slices, total % slices};
}

/* Done when this returns, whichever streams the runs will be on. */
static int zero(void *data, size_t bytes)
{
  cudaStream_t stream;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))
    return ATTN_EDEVICE;
  int status = cudaMemsetAsync(data, 0, bytes, stream) ? ATTN_EDEVICE : ATTN_OK;
  if (cudaStreamSynchronize(stream))
    status = ATTN_EDEVICE;
  cudaStreamDestroy(stream);
  return status;
}

void attn_decode_finish(struct decode_plan *q)
{
  cudaFree(q->args.arrived);
}

/* Counters start at 0 and each run leaves them so: they belong to the plan, of which one run at a
 * time can be under way. */
int attn_decode_prepare(const struct attn_problem *p, const struct attn_device *dev,
                        enum decode_pass pass, struct decode_plan *q)
{
  struct decode_args *a = &q->args;
  q->kernel = attn_decode_choose(p, dev, pass);
  plan_args(p, a);
  plan_pass(p, pass, a);
  a->heads = a->hkv * ((a->sq * a->group + q->kernel->rows - 1) / q->kernel->rows);
  a->once = a->heads == a->hkv && (!p->prefix || pass != DECODE_ALL);
  int status = plan_grid(q, dev);
  if (status)
    return status;
  plan_cut(p, q);
  size_t bytes = (size_t)a->b * (size_t)a->heads * sizeof(int32_t);
  if (cudaMalloc((void **)&a->arrived, bytes))
    return ATTN_ENOMEM;
  return zero(a->arrived, bytes);
}

/* 16-byte loads want every row of every head on a 16-byte boundary. */
static bool aligned(const struct attn_tensor *t, enum attn_dtype type)
{
  int64_t n = 16 / (int64_t)attn_dtype_size(type);
  return (uintptr_t)t->data % 16 == 0 && t->sb % n == 0 && t->ss % n == 0 && t->sh % n == 0;
}

static void bind(const struct attn_args *args, struct decode_args *a)
{
  a->q = args->q;
  a->k = args->k;
  a->v = args->v;
  a->o = args->o;
  a->lse = args->lse;
  a->block_table = args->block_table;
  a->table_stride = args->block_table_stride;
  a->k_scale = args->k_scale;
  a->v_scale = args->v_scale;
  a->partial = args->workspace;
  if (a->fold) {
    a->fold_q = args->cu_seqlens_q;
    a->fold_k = args->seqlens_k;
    return;
  }
  a->cu_seqlens_q = args->cu_seqlens_q;
  a->cu_seqlens_k = args->cu_seqlens_k;
  a->seqlens_k = args->seqlens_k;
}

int attn_decode_run(const struct decode_plan *q, const struct attn_args *args, float *prefix,
                    void *stream)
{
  struct decode_args a = q->args;
  enum attn_dtype type = q->kernel->dtype, kv = q->kernel->kv == ATTN_KV_E4M3 ? ATTN_E4M3 : type;
  if (!aligned(&args->q, type) || !aligned(&args->k, kv) || !aligned(&args->v, kv) ||
      !aligned(&args->o, type))
    return ATTN_EINVAL;
  bind(args, &a);
  if (a.stash || a.skip)
    a.prefix = prefix;
  void *params[] = {&a};
  unsigned gang = (unsigned)a.gang;
  return cudaLaunchCooperativeKernel(q->kernel->func, (dim3){gang, q->blocks / gang, 1},
                                     (dim3){(unsigned)q->kernel->threads, 1, 1}, params,
                                     q->kernel->smem, stream)
             ? ATTN_EDEVICE
             : ATTN_OK;
}

int64_t attn_decode_reads(const struct attn_problem *p, const struct attn_device *dev,
                          enum decode_pass pass)
{
  int64_t rows = attn_decode_choose(p, dev, pass)->rows;
  return (attn_decode_rows(p, pass) + rows - 1) / rows;
}

/* ---- cuda/decode ----------------------------------------------------------------------------- */

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return attn_decode_workspace(p, dev, DECODE_ALL);
}

static void finish(void *plan)
{
  attn_decode_finish(plan);
  free(plan);
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct decode_plan *q = calloc(1, sizeof *q);
  if (!q)
    return ATTN_ENOMEM;
  int status = attn_decode_prepare(p, dev, DECODE_ALL, q);
  if (status)
    finish(q);
  else
    *plan = q;
  return status;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  return attn_decode_run(plan, args, NULL, stream);
}

/* K and V once for each tile of packed queries. */
static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  double size = (double)attn_dtype_size(p->dtype), read = attn_problem_compulsory_read(p);
  double q = (double)attn_problem_total_q(p) * (double)(p->hq * p->d) * size;
  int64_t tiles = attn_decode_reads(p, dev, DECODE_ALL);
  t->read_bytes = read + (double)(tiles - 1) * (read > q ? read - q : 0);
  t->write_bytes = attn_problem_compulsory_write(p);
}

const struct attn_impl attn_cuda_decode = {
    .abi = ATTN_ABI,
    .name = "cuda/decode",
    .device = ATTN_CUDA,
    .summary = "few queries on a long cache, contiguous or paged: packed heads, one split line",
    .provenance = "attnbench; after Flash-Decoding (Dao et al. 2023) and stream-K (Osama et al. "
                  "2023)",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_STORAGE, .accum_truncates = true},
    .unsupported = attn_decode_unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
    .variant = attn_decode_variant,
};
