/* SPDX-License-Identifier: Apache-2.0
 *
 * attn.h - the contract between attnbench and anything that computes attention.
 *
 * A problem is one attention computation, as a plain value.  An implementation is a const
 * descriptor that says which problems it takes and enqueues them.  The same descriptor is compiled
 * in (impl/registry.c) or exported by a shared object (struct attn_plugin, symbol "attn_plugin").
 * An implementation imports nothing from the host program.
 *
 * Semantics of every option, to the sign and the off-by-one: reference/SEMANTICS.
 */
#ifndef ATTN_H
#define ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_ABI 4
#define ATTN_MAX_RUNS 64 /* distinct count x sq/sk entries of a ragged batch */

/* ---- status --------------------------------------------------------------------------------- */

enum attn_status {
  ATTN_OK = 0,
  ATTN_EINVAL,       /* malformed argument */
  ATTN_ENOMEM,       /* host, device or SRAM memory exhausted */
  ATTN_EUNSUPPORTED, /* see the implementation's unsupported() for the reason */
  ATTN_EDEVICE,      /* the device or a vendor library reported an error */
};

/* ---- problem -------------------------------------------------------------------------------- */

enum attn_op { ATTN_FWD, ATTN_BWD, ATTN_DECODE, ATTN_APPEND, ATTN_ROPE };
/* ATTN_E4M3 is the type of a cache alone (enum attn_kv): OCP FP8 E4M3, no infinities, NaN 0x7f and
 * 0xff. */
enum attn_dtype { ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_E4M3 };
enum attn_mask { ATTN_MASK_NONE, ATTN_MASK_CAUSAL, ATTN_MASK_CAUSAL_TOPLEFT, ATTN_MASK_WINDOW };
enum attn_kv { ATTN_KV_DTYPE, ATTN_KV_E4M3 }; /* what a paged cache holds: dtype, or e4m3 */
enum attn_layout { ATTN_BSHD, ATTN_BHSD, ATTN_PACKED };

/* count sequences of sq queries on sk keys */
struct attn_run {
  int64_t count, sq, sk;
};

/* op=rope: how positions become angles. In the order of attn_rope_names. */
enum attn_rope_scaling {
  ATTN_ROPE_NONE,
  ATTN_ROPE_LINEAR,
  ATTN_ROPE_NTK,
  ATTN_ROPE_DYNAMIC,
  ATTN_ROPE_YARN,
  ATTN_ROPE_LLAMA3
};

struct attn_rope {
  enum attn_rope_scaling scaling;
  double factor;    /* of the extension; 1 with ATTN_ROPE_NONE */
  double theta;     /* base of the frequencies */
  int64_t trained;  /* positions before the extension; 0 where the scaling has no use for it */
  int64_t rotary;   /* rotated elements of a head, the first ones; even, at most d */
  bool interleaved; /* pairs are (2i, 2i+1), not (i, i + rotary/2) */
  double band_low, band_high; /* YaRN, Llama 3: turns over the trained length; 0 elsewhere */
  bool ramp_by_index;         /* YaRN: between the bands linear in the pair's index, not in turns */
  double attention;           /* YaRN: factor of cosine and sine; else 1 */
};

/* One attention computation.  O = softmax(mask(softcap(scale * Q K^T)) + alibi) V, per head.
 * Uniform batch: nruns == 0, b sequences of sq x sk.  Ragged batch: nruns > 0, b is the sum of the
 * counts, sq and sk are the maxima, and the layout is ATTN_PACKED. */
struct attn_problem {
  enum attn_op op;
  enum attn_dtype dtype;
  int64_t b, hq, hkv, sq, sk, d, dv;
  enum attn_mask mask;
  int64_t window_left, window_right; /* ATTN_MASK_WINDOW; -1 is unlimited */
  double softcap;                    /* 0: none */
  bool alibi;
  double dropout_p; /* 0: none */
  uint64_t dropout_seed;
  double scale; /* 0: 1/sqrt(d) */
  int64_t page; /* tokens per KV page (any number above 0); 0: contiguous */
  enum attn_kv kv;
  int64_t prefix; /* tokens at the start of all sequences whose pages are the same; 0: none */
  enum attn_layout layout;
  bool deterministic; /* same bits run to run wanted */
  int nruns;
  struct attn_run runs[ATTN_MAX_RUNS];
  struct attn_rope rope; /* all zero but with op=rope */
};

#define ATTN_PROBLEM_TEXT 4096 /* size of the buffer that always holds a printed problem */

/* Parses the canonical problem string ("op=fwd dtype=bf16 b=1 hq=32 ..."), key=value separated by
 * blanks or commas, any order, k suffix = 1024.  On failure returns ATTN_EINVAL and one line in
 * err: what, where, what to do. */
int attn_problem_parse(const char *text, struct attn_problem *p, char *err, size_t errlen);

/* Prints in canonical order, defaults left out; parse(print(p)) == p. */
void attn_problem_print(const struct attn_problem *p, char *buf, size_t len);

/* ATTN_OK, or ATTN_EINVAL and a reason. Every parsed problem is valid. */
int attn_problem_check(const struct attn_problem *p, char *err, size_t errlen);

/* Expands sweeps (sk=512..16k doubles, d=64,128 lists, tokens=16k, model=NAME read from
 * models_dir) and calls emit once per problem, leftmost key outermost. */
int attn_problem_sweep(const char *text, const char *models_dir,
                       int (*emit)(const struct attn_problem *p, void *ctx), void *ctx, char *err,
                       size_t errlen);

/* Functions of the problem alone. */
double attn_problem_scale(const struct attn_problem *p);        /* the scale in effect */
int64_t attn_problem_total_q(const struct attn_problem *p);     /* query rows, all sequences */
int64_t attn_problem_total_k(const struct attn_problem *p);     /* key rows, all sequences */
double attn_problem_pairs(const struct attn_problem *p);        /* unmasked (query,key), one head */
double attn_problem_flops(const struct attn_problem *p);        /* exact mask count; 2.5x for bwd */
double attn_problem_flops_halved(const struct attn_problem *p); /* the causal = 1/2 convention */
double attn_problem_compulsory_read(const struct attn_problem *p);  /* bytes */
double attn_problem_compulsory_write(const struct attn_problem *p); /* bytes */
/* Half-open range of keys that query i of a sequence of sq x sk sees; empty if lo >= hi. */
void attn_problem_visible(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i,
                          int64_t *lo, int64_t *hi);
/* sequence s of the batch, 0 <= s < b: its lengths */
void attn_problem_seq(const struct attn_problem *p, int64_t s, int64_t *sq, int64_t *sk);
/* Pages that hold sk keys; 0 without paging. */
int64_t attn_problem_pages(const struct attn_problem *p, int64_t sk);

/* The type of the elements of k and v. */
enum attn_dtype attn_problem_kv_type(const struct attn_problem *p);

size_t attn_dtype_size(enum attn_dtype t);
const char *attn_op_name(enum attn_op op);
const char *attn_dtype_name(enum attn_dtype t);
const char *attn_rope_name(enum attn_rope_scaling s);

/* ---- tensors -------------------------------------------------------------------------------- */

/* Element (b, s, h, i) of a tensor is data[b*sb + s*ss + h*sh + i]: strides in elements, the head
 * dimension is contiguous.  Packed (ragged) tensors have sb == 0 and sequence n starts at row
 * cu_seqlens[n]. */
struct attn_tensor {
  void *data;
  int64_t sb, ss, sh;
};

/* A paged KV cache (p->page > 0): k and v are pools of pages, (pages, page, hkv, d|dv), or (pages,
 * hkv, page, d|dv) with layout=bhsd.  Token j of sequence n lies in page block_table[n *
 * block_table_stride + j / page], slot j % page; sb is the stride of pages, ss that of slots, and
 * no pool is packed.  Pages lie in any order.  Only the first ceil(seqlens_k[n] / page) entries of
 * a row of the table are page numbers, the rest are garbage; slots past the end of a sequence, and
 * pages that no sequence owns, hold NaN and must not reach a result.  With p->prefix all rows of
 * the table begin with the same prefix / page entries.  With p->kv == ATTN_KV_E4M3 the pools hold
 * e4m3, and element x of head h means x * k_scale[h], or x * v_scale[h]. */

/* All pointers are device pointers (host pointers on the cpu device).
 *   q, o, dout, dq   (b, sq, hq, d|dv)        k, dk   (b, sk, hkv, d)       v, dv (b, sk, hkv, dv)
 *   lse  float, natural log, (b, hq, sq) dense, ragged (hq, total_q); -inf for an empty row.
 * Forward writes o and lse; backward reads q,k,v,o,lse,dout and writes dq,dk,dv.
 *
 * op=rope (rotate, and append to the cache): k_new (b, sq, hkv, d) and v_new (b, sq, hkv, dv) are
 * the keys and values of sq new tokens, whose positions are sk-sq .. sk-1; k and v are the cache
 * with room for sk tokens. Writes the rotated q to o (b, sq, hq, d), the rotated k_new and v_new
 * itself to the tokens sk-sq .. sk-1 of k and v, and leaves every other byte of k and v as it was;
 * lse is NULL. Packed: k_new and v_new lie like q, by cu_seqlens_q. */
struct attn_args {
  struct attn_tensor q, k, v, o, dout, dq, dk, dv, k_new, v_new;
  float *lse;
  const int32_t *cu_seqlens_q, *cu_seqlens_k; /* b+1 entries on the device; NULL when uniform */
  void *workspace;                            /* at least workspace() bytes, 1024-byte aligned */
  size_t workspace_bytes;
  /* A paged cache only, else NULL; cu_seqlens_k is NULL then. */
  const int32_t *block_table;     /* (b, block_table_stride) */
  int64_t block_table_stride;     /* at least the pages of the longest sequence */
  const int32_t *seqlens_k;       /* (b), tokens in the cache, the new ones included */
  const float *k_scale, *v_scale; /* (hkv), above 0; an e4m3 cache only, else NULL */
};

/* ---- device --------------------------------------------------------------------------------- */

enum attn_device_kind { ATTN_CPU, ATTN_CUDA };

struct attn_device {
  enum attn_device_kind kind;
  int index;
  char name[128];
  int sm;              /* CUDA compute capability * 10 (90 = Hopper); 0 on the cpu device */
  int multiprocessors; /* SMs, or host cores */
  size_t memory_bytes; /* total HBM; host memory on the cpu device */
  size_t sram_bytes;   /* shared memory a block may use; M of the two-level machine */
  size_t l2_bytes;
  /* The name of the variant that a problem should get from an implementation, or NULL: its own
   * choice. A NULL function: always that. The host program's: what was measured on this device. */
  const char *(*wanted)(const struct attn_device *dev, const char *impl,
                        const struct attn_problem *p);
  const void *wanted_from;
};

static inline const char *attn_wanted(const struct attn_device *dev, const char *impl,
                                      const struct attn_problem *p)
{
  return dev->wanted ? dev->wanted(dev, impl, p) : NULL;
}

/* ---- the two-level-memory machine (device cpu) ----------------------------------------------- */

/* One core of the machine: a worker thread with a private SRAM of sram_bytes. Implementations for
 * the cpu device receive a struct attn_machine * as their stream and touch HBM (the tensors and
 * the workspace) only through counted loads and stores; impl/cpu/machine.h has them by name. */
struct attn_machine;

struct attn_core {
  const struct attn_machine *machine;
  float *sram;
  size_t sram_bytes, sram_used, sram_peak;
  uint64_t hbm_read_bytes, hbm_write_bytes;
};

struct attn_machine {
  size_t sram_bytes;
  int ncores;
  /* Calls body(core, i, ctx) for 0 <= i < n on all cores, each call with an empty SRAM; returns the
   * first non-zero status. Not to be nested. */
  int (*parallel)(struct attn_machine *m, int64_t n,
                  int (*body)(struct attn_core *core, int64_t i, void *ctx), void *ctx);
  /* A tile of so many floats in SRAM, 32-byte aligned. Lives until the body returns. NULL if what
   * is left cannot hold it; then every later call in this body fails too. */
  float *(*alloc)(struct attn_core *core, size_t floats);
  /* Copies a rows x cols tile from HBM (elements of type t, rows stride elements apart) to SRAM
   * (fp32, rows ld floats apart), zeroing the columns up to the next multiple of 8 within ld. */
  void (*load)(struct attn_core *core, float *tile, int64_t ld, enum attn_dtype t, const void *hbm,
               int64_t stride, int64_t rows, int64_t cols);
  /* And back, rounding to t. */
  void (*store)(struct attn_core *core, const float *tile, int64_t ld, enum attn_dtype t, void *hbm,
                int64_t stride, int64_t rows, int64_t cols);
};

/* ---- implementation ------------------------------------------------------------------------- */

/* Bytes that an algorithm means to move between HBM and the chip. */
struct attn_traffic {
  double read_bytes, write_bytes;
};

/* What the arithmetic does to the numbers; the error bound (reference/bound.h) follows from it. */
enum attn_round { ATTN_ROUND_F32, ATTN_ROUND_STORAGE }; /* kept in fp32, or rounded to p->dtype */
struct attn_numerics {
  enum attn_round score; /* scaled scores before exp */
  enum attn_round prob;  /* P as an operand of P V, and P, dS in backward */
  bool sum_of_rounded;   /* the denominator sums rounded P */
  bool normalize_first;  /* P is divided by its sum before P V */
  double exp_rel;        /* relative error of the exponential, 0: 2 ulp of fp32 */
  bool accum_truncates;  /* tensor cores: additions truncate instead of rounding to nearest */
  enum attn_round grad;  /* accumulators of dQ, dK, dV between tiles or heads */
  double tanh_rel;       /* relative error of softcap's tanh, 0: 4 ulp of fp32 */
  double angle_rel;      /* relative error of RoPE's angles, 0: 2^-44, as in fp64 */
  double sincos_abs;     /* absolute error of their sine and cosine, 0: 2 ulp of fp32, 2^-23 */
};

#define ATTN_VARIANT_NAME 40

/* One compiled kernel of an implementation that has several, in numbers; 0 is not known. A step is
 * a tile of queries on a tile of keys; the tile that stays where it is while steps go by is one of
 * queries, in backward one of keys. */
struct attn_variant {
  char name[ATTN_VARIANT_NAME]; /* "128x128-turns": not twice among those of one problem */
  int rows, keys;               /* of a tile */
  bool packed;                  /* rows are queries of all heads on one K/V head */
  int stages;                   /* tiles in flight */
  int threads, smem_bytes;      /* of a block */
  double step_smem_bytes, tile_smem_bytes; /* shared memory read and written for a step, and for a
                                            * tile that stays */
};

/* Options that a kernel may not know of. What its `takes` does not name is refused for it, so that
 * an option added here never reaches a kernel that would ignore it. */
enum {
  ATTN_TAKES_ROPE = 1 << 0,   /* op=rope */
  ATTN_TAKES_FP8_KV = 1 << 1, /* kv=e4m3 */
};

struct attn_impl {
  int abi;          /* ATTN_ABI */
  const char *name; /* device/algorithm[-architecture] */
  enum attn_device_kind device;
  const char *summary;    /* one line */
  const char *provenance; /* who wrote it, the paper or library it follows */
  struct attn_numerics numerics;

  /* NULL, or why not ("head dim 96 needs padding to 128"). Must decide before anything else runs.
   * Asked through attn_unsupported(). */
  const char *(*unsupported)(const struct attn_problem *p, const struct attn_device *dev);
  /* Scratch bytes, for run's args->workspace. */
  size_t (*workspace)(const struct attn_problem *p, const struct attn_device *dev);
  /* Builds whatever depends on the problem alone (plans, handles) into *plan; may be slow. NULL:
   * nothing to prepare, and run receives the problem as its plan. */
  int (*prepare)(const struct attn_problem *p, const struct attn_device *dev, void **plan);
  /* Enqueues one computation on stream (cudaStream_t, or struct attn_machine * on the cpu device).
   * No allocation, no synchronisation, no conversion of inputs. ATTN_EUNSUPPORTED: strides other
   * than those of the problem's layout, where a plan holds for these alone. */
  int (*run)(void *plan, const struct attn_args *args, void *stream);
  void (*finish)(void *plan);
  /* Bytes it means to move; NULL where the algorithm is not known. */
  void (*traffic)(const struct attn_problem *p, const struct attn_device *dev,
                  struct attn_traffic *t);
  unsigned takes;   /* ATTN_TAKES_*: the options above that unsupported() knows */
  const char *twin; /* the implementation whose bits it has on any input, or NULL; verify sees to it
                     * where both run */
  /* The i-th of the variants that take the problem: 0 is the one that it gets, which is what
   * dev->wanted asks for where that is one of them. Without a problem (dev may be NULL then) the
   * i-th of all, whatever takes it. 0, or -1 behind the last. NULL: there is no choice. */
  int (*variant)(const struct attn_problem *p, const struct attn_device *dev, int i,
                 struct attn_variant *v);
};

/* The question to ask of an implementation: NULL, or why it does not take the problem, from its
 * `takes` or else from its unsupported(). */
const char *attn_unsupported(const struct attn_impl *impl, const struct attn_problem *p,
                             const struct attn_device *dev);

/* ---- registry and plugins -------------------------------------------------------------------- */

/* The built-ins, in order of the table, NULL-ended. */
const struct attn_impl *const *attn_builtins(void);

/* What a plugin exports under the symbol "attn_plugin". */
struct attn_plugin {
  int abi; /* ATTN_ABI */
  int count;
  const struct attn_impl *const *impls;
};

#ifdef __cplusplus
}
#endif
#endif
