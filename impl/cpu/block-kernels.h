/* SPDX-License-Identifier: Apache-2.0
 *
 * block-kernels.h - bodies of the tile arithmetic; block.c includes this file once for each
 * instruction set, with LANES floats to a vector and NAME() to tell the copies apart.
 */

typedef float NAME(vf) __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t NAME(vi) __attribute__((vector_size(4 * LANES), may_alias));
#define vf NAME(vf)
#define vi NAME(vi)

/* ---- elementary ----------------------------------------------------------------------------- */

static inline vf NAME(splat)(float x)
{
  return x - (vf){0};
}

static inline vf NAME(select)(vi mask, vf yes, vf no)
{
  return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

static inline vf NAME(load)(const float *p)
{
  return *(const vf *)p;
}

static inline void NAME(put)(float *p, vf x)
{
  *(vf *)p = x;
}

/* e^x within 1.1 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, the Taylor series of e^r to r^7
 * (truncation 5e-9), and two exact powers of two, so that subnormal results are rounded once.  e^0
 * is 1, e^-inf is 0, NaN stays NaN. */
static inline vf NAME(exp)(vf x)
{
  const float magic = 0x1.8p23f; /* adding it rounds to an integer */
  x = NAME(select)(x < -105, NAME(splat)(-105), x);
  x = NAME(select)(x > 90, NAME(splat)(90), x);
  vf t = x * 0x1.715476p0f + magic;
  vi n = (vi)t - (vi)NAME(splat)(magic);
  t -= magic;
  vf r = x - t * 0x1.62e4p-1f; /* exact: the upper bits of ln 2 */
  r -= t * 0x1.7f7d1cp-20f;
  vf z = r * r;
  vf q = (r * (1 / 5040.0f) + 1 / 720.0f) * z + (r * (1 / 120.0f) + 1 / 24.0f);
  q = q * z + (r * (1 / 6.0f) + 0.5f);
  q = q * z + r;
  q = q + 1;
  vi half = n >> 1;
  return q * (vf)((half + 127) << 23) * (vf)((n - half + 127) << 23);
}

/* tanh x within 3 ulp: Lambert's continued fraction up to |x| = 1, beyond it 1 - 2/(e^2|x| + 1). */
static inline vf NAME(tanh)(vf x)
{
  vi sign = (vi)x & INT32_MIN;
  vf a = (vf)((vi)x & INT32_MAX), z = x * x;
  vf above = ((z + 378) * z + 17325) * z + 135135;
  vf below = ((28 * z + 3150) * z + 62370) * z + 135135;
  vf far = 1 - 2 / (NAME(exp)(2 * a) + 1);
  return NAME(select)(a < 1, x * (above / below), (vf)((vi)far | sign));
}

/* ---- storage formats ------------------------------------------------------------------------ */

static void NAME(widen_bf16)(const uint16_t *from, float *to, int64_t n)
{
  for (int64_t i = 0; i < n; i++)
    to[i] = attn_from_bf16(from[i]);
}

/* As convert.h does it, with masks for branches so that it vectorizes. */
static void NAME(widen_f16)(const uint16_t *from, float *to, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    uint32_t mag = (uint32_t)(from[i] & 0x7fff) << 13, sign = (uint32_t)(from[i] & 0x8000) << 16;
    uint32_t subnormal = attn_bits(attn_float(mag + (113 << 23)) - 0x1p-14f);
    uint32_t tiny = -(uint32_t)(mag < 1 << 23), huge = -(uint32_t)(mag >= 31 << 23);
    uint32_t finite = (tiny & subnormal) | (~tiny & (mag + (112 << 23)));
    to[i] = attn_float(sign | (huge & (mag | 0x7f800000)) | (~huge & finite));
  }
}

static void NAME(narrow_f16)(const float *from, uint16_t *to, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    uint32_t u = attn_bits(from[i]), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    uint32_t subnormal = attn_bits(attn_float(mag) + 0.5f) - 0x3f000000;
    uint32_t normal = (mag - (112 << 23) + 0xfff + (mag >> 13 & 1)) >> 13;
    uint32_t tiny = -(uint32_t)(mag < 113 << 23), huge = -(uint32_t)(mag >= 0x477ff000);
    uint32_t nan = -(uint32_t)(mag > 0x7f800000), finite = (tiny & subnormal) | (~tiny & normal);
    uint32_t special = 0x7c00 | (nan & (0x200 | (mag >> 13 & 0x3ff)));
    to[i] = (uint16_t)(sign | (huge & special) | (~huge & finite));
  }
}

static void NAME(narrow_bf16)(const float *from, uint16_t *to, int64_t n)
{
  for (int64_t i = 0; i < n; i++)
    to[i] = attn_to_bf16(from[i]);
}

/* Likewise. */
static void NAME(widen_e4m3)(const uint8_t *from, float *to, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    uint32_t mag = (uint32_t)(from[i] & 0x7f) << 20, sign = (uint32_t)(from[i] & 0x80) << 24;
    uint32_t subnormal = attn_bits(attn_float(mag + (121 << 23)) - 0x1p-6f);
    uint32_t tiny = -(uint32_t)(mag < 1 << 23), nan = -(uint32_t)(mag == 0x7f << 20);
    uint32_t finite = (tiny & subnormal) | (~tiny & (mag + (120 << 23)));
    to[i] = attn_float(sign | (nan & 0x7fc00000) | (~nan & finite));
  }
}

static void NAME(narrow_e4m3)(const float *from, uint8_t *to, int64_t n)
{
  for (int64_t i = 0; i < n; i++)
    to[i] = attn_to_e4m3(from[i]);
}

static void NAME(widen)(enum attn_dtype t, const void *from, float *to, int64_t n)
{
  if (t == ATTN_F32)
    memcpy(to, from, (size_t)n * sizeof *to);
  else if (t == ATTN_BF16)
    NAME(widen_bf16)(from, to, n);
  else if (t == ATTN_E4M3)
    NAME(widen_e4m3)(from, to, n);
  else
    NAME(widen_f16)(from, to, n);
}

static void NAME(narrow)(enum attn_dtype t, const float *from, void *to, int64_t n)
{
  if (t == ATTN_F32)
    memcpy(to, from, (size_t)n * sizeof *from);
  else if (t == ATTN_BF16)
    NAME(narrow_bf16)(from, to, n);
  else if (t == ATTN_E4M3)
    NAME(narrow_e4m3)(from, to, n);
  else
    NAME(narrow_f16)(from, to, n);
}

/* ---- matrices ------------------------------------------------------------------------------- */

/* Eight floats a stride apart, n of them there and the rest 0. */
__attribute__((always_inline)) static inline void NAME(gather)(const float *from, int64_t stride,
                                                               const int n, float *to)
{
  float lane[8] = {0};
#pragma GCC unroll 8
  for (int i = 0; i < n; i++)
    lane[i] = from[i * stride];
  memcpy(to, lane, sizeof lane);
}

static void NAME(transpose)(const float *from, int64_t ld_from, int64_t rows, int64_t cols,
                            float *to, int64_t ld_to)
{
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8)
    for (int64_t c = 0; c < cols; c++)
      NAME(gather)(from + r * ld_from + c, ld_from, 8, to + c * ld_to + r);
  for (int64_t c = 0; r < rows && c < cols; c++)
    NAME(gather)(from + r * ld_from + c, ld_from, (int)(rows - r), to + c * ld_to + r);
}

/* rows x vecs vectors of c in registers; rows and vecs are constants in every caller. */
__attribute__((always_inline)) static inline void
NAME(cell)(const int rows, const int vecs, int64_t k, struct attn_operand a, const float *b,
           int64_t ldb, float *c, int64_t ldc, const float *keep, bool each_row)
{
  vf sum[4][3];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
    for (int v = 0; v < vecs; v++) {
      sum[r][v] = (vf){0};
      if (keep)
        sum[r][v] = NAME(load)(c + r * ldc + v * LANES) * keep[each_row ? r : 0];
    }
  for (int64_t kk = 0; kk < k; kk++) {
    vf row[3];
#pragma GCC unroll 3
    for (int v = 0; v < vecs; v++)
      row[v] = NAME(load)(b + kk * ldb + v * LANES);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      vf x = NAME(splat)(a.data[r * a.row + kk * a.col]);
#pragma GCC unroll 3
      for (int v = 0; v < vecs; v++)
        sum[r][v] += x * row[v];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
    for (int v = 0; v < vecs; v++)
      NAME(put)(c + r * ldc + v * LANES, sum[r][v]);
}

/* A panel of vecs vectors of c, four rows at a time. */
__attribute__((always_inline)) static inline void NAME(panel)(const int vecs, int64_t m, int64_t k,
                                                              struct attn_operand a, const float *b,
                                                              int64_t ldb, float *c, int64_t ldc,
                                                              const float *keep, bool each_row)
{
  for (int64_t i = 0; i < m; i += 4) {
    struct attn_operand at = {a.data + i * a.row, a.row, a.col};
    NAME(cell)
    (4, vecs, k, at, b, ldb, c + i * ldc, ldc, keep && each_row ? keep + i : keep, each_row);
  }
}

/* Panels of three vectors, and the last four vectors as two and two. */
static void NAME(product)(int64_t m, int64_t n, int64_t k, struct attn_operand a, const float *b,
                          int64_t ldb, float *c, int64_t ldc, const float *keep, bool each_row)
{
  int64_t left = (n + 7) / 8 * (8 / LANES);
  while (left > 0) {
    int vecs = left == 4 ? 2 : left < 3 ? (int)left : 3;
    if (vecs == 3)
      NAME(panel)(3, m, k, a, b, ldb, c, ldc, keep, each_row);
    else if (vecs == 2)
      NAME(panel)(2, m, k, a, b, ldb, c, ldc, keep, each_row);
    else
      NAME(panel)(1, m, k, a, b, ldb, c, ldc, keep, each_row);
    b += vecs * LANES;
    c += vecs * LANES;
    left -= vecs;
  }
}

/* ---- scores --------------------------------------------------------------------------------- */

static void NAME(softcap)(float *s, int64_t ld, int64_t ni, int64_t nj, float scale, float cap,
                          float *g)
{
  for (int64_t j = 0; j < nj; j++)
    for (int64_t i = 0; i < ni; i += LANES) {
      float *at = s + j * ld + i;
      vf t = NAME(tanh)(NAME(load)(at) * (scale / cap));
      NAME(put)(at, cap * t);
      if (g)
        NAME(put)(g + j * ld + i, (1 - t) * (1 + t));
    }
}

static void NAME(bias)(float *s, int64_t ld, int64_t ni, int64_t nj, const struct attn_score *how)
{
  int32_t lane[LANES];
  for (int32_t i = 0; i < LANES; i++)
    lane[i] = i + how->i0 + how->shift - how->j0;
  vi diagonal;
  memcpy(&diagonal, lane, sizeof diagonal);
  for (int32_t j = 0; j < nj; j++)
    for (int32_t i = 0; i < ni; i += LANES) {
      float *at = s + j * ld + i;
      vi away = diagonal + (i - j);
      vi sign = away >> 31;
      vf distance = __builtin_convertvector((away ^ sign) - sign, vf);
      NAME(put)(at, NAME(load)(at) - how->slope * distance);
    }
}

static void NAME(mask)(float *s, int64_t ld, int64_t ni, int64_t nj, const struct attn_score *how)
{
  for (int32_t j = 0; j < nj; j++)
    for (int64_t i = 0; i < ni; i += LANES) {
      float *at = s + j * ld + i;
      vi lo = *(const vi *)(how->lo + i), hi = *(const vi *)(how->hi + i),
         key = how->j0 + j - (vi){0};
      NAME(put)(at, NAME(select)((key >= lo) & (key < hi), NAME(load)(at), NAME(splat)(-INFINITY)));
    }
}

static void NAME(scale)(float *x, int64_t ld, int64_t rows, int64_t cols, float factor)
{
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c += LANES)
      NAME(put)(x + r * ld + c, NAME(load)(x + r * ld + c) * factor);
}

static void NAME(score)(float *s, int64_t ld, int64_t ni, int64_t nj, const struct attn_score *how,
                        float *g)
{
  if (how->softcap > 0)
    NAME(softcap)(s, ld, ni, nj, how->scale, how->softcap, g);
  else
    NAME(scale)(s, ld, nj, ni, how->scale);
  if (how->slope > 0)
    NAME(bias)(s, ld, ni, nj, how);
  if (how->lo)
    NAME(mask)(s, ld, ni, nj, how);
}

/* ---- softmax -------------------------------------------------------------------------------- */

/* What to subtract before the exponential: the maximum, or 0 where nothing is visible yet. */
static inline vf NAME(finite)(vf m)
{
  return NAME(select)(m == -INFINITY, (vf){0}, m);
}

static void NAME(online)(float *s, int64_t ld, int64_t ni, int64_t nj, float *m, float *l,
                         float *alpha)
{
  for (int64_t i = 0; i < ni; i += LANES) {
    vf old = NAME(load)(m + i), top = old, sum = {0};
    for (int64_t j = 0; j < nj; j++) {
      vf x = NAME(load)(s + j * ld + i);
      top = NAME(select)(x > top, x, top);
    }
    vf shift = NAME(finite)(top), rescale = NAME(exp)(old - shift);
    for (int64_t j = 0; j < nj; j++) {
      float *at = s + j * ld + i;
      vf e = NAME(exp)(NAME(load)(at) - shift);
      sum += e;
      NAME(put)(at, e);
    }
    NAME(put)(m + i, top);
    NAME(put)(l + i, NAME(load)(l + i) * rescale + sum);
    NAME(put)(alpha + i, rescale);
  }
}

static void NAME(exponential)(float *s, int64_t ld, int64_t ni, int64_t nj, const float *shift)
{
  for (int64_t i = 0; i < ni; i += LANES) {
    vf x = NAME(finite)(NAME(load)(shift + i));
    for (int64_t j = 0; j < nj; j++)
      NAME(put)(s + j * ld + i, NAME(exp)(NAME(load)(s + j * ld + i) - x));
  }
}

static void NAME(normalize)(float *s, int64_t ld, int64_t ni, int64_t nj, const float *l)
{
  for (int64_t i = 0; i < ni; i += LANES) {
    vf sum = NAME(load)(l + i);
    vi empty = sum == 0;
    for (int64_t j = 0; j < nj; j++) {
      float *at = s + j * ld + i;
      NAME(put)(at, NAME(select)(empty, (vf){0}, NAME(load)(at) / sum));
    }
  }
}

/* ---- dropout -------------------------------------------------------------------------------- */

/* One row of eight query lanes of the tile; word holds the slice in its bits from shift on. */
static inline void NAME(drop)(float *s, const uint32_t *word, int shift,
                              const struct attn_keep *keep)
{
  for (int i = 0; i < 8; i++) {
    uint32_t kept = -(uint32_t)((word[i] >> shift & 0xffff) >= keep->threshold);
    s[i] = attn_float(kept & attn_bits(s[i] * keep->scale));
  }
}

/* Eight query rows and their partners eight further on, keys j and j + 8: one call of the generator
 * for four elements. i and j are of the problem, multiples of 16 plus at most 7 for j. */
static void NAME(drop_quads)(float *s, int64_t ld, int64_t ni, int64_t nj, int64_t i, int64_t j,
                             const struct attn_keep *keep)
{
  uint32_t word[2][8];
  for (int r = 0; r < 8; r++) {
    uint32_t x0 = (attn_dropout_coordinate(i) + (uint32_t)r) ^ keep->high;
    uint32_t x1 = attn_dropout_coordinate(j);
    attn_philox(keep->key, &x0, &x1);
    word[0][r] = x0;
    word[1][r] = x1;
  }
  for (int half_i = 0; half_i < 2; half_i++)
    for (int half_j = 0; half_j < 2; half_j++) {
      int64_t ti = i + 8 * half_i - keep->i0, tj = j + 8 * half_j - keep->j0;
      if (ti >= 0 && ti < ni && tj >= 0 && tj < nj)
        NAME(drop)(s + tj * ld + ti, word[half_i], 16 * half_j, keep);
    }
}

static void NAME(dropout)(float *s, int64_t ld, int64_t ni, int64_t nj,
                          const struct attn_keep *keep)
{
  for (int64_t j16 = keep->j0 & ~15; j16 < keep->j0 + nj; j16 += 16)
    for (int64_t j = j16; j < j16 + 8; j++)
      for (int64_t i = keep->i0 & ~15; i < keep->i0 + ni; i += 16)
        NAME(drop_quads)(s, ld, ni, nj, i, j, keep);
}

/* ---- gradients and rows --------------------------------------------------------------------- */

static void NAME(gradient)(const float *p, float *dp, const float *g, int64_t ld, int64_t ni,
                           int64_t nj, const float *delta)
{
  for (int64_t j = 0; j < nj; j++)
    for (int64_t i = 0; i < ni; i += LANES) {
      int64_t at = j * ld + i;
      vf w = NAME(load)(p + at), x = w * (NAME(load)(dp + at) - NAME(load)(delta + i));
      if (g)
        x *= NAME(load)(g + at);
      NAME(put)(dp + at, NAME(select)(w == 0, (vf){0}, x));
    }
}

static void NAME(add)(float *x, const float *y, int64_t ld, int64_t rows, int64_t cols)
{
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c += LANES)
      NAME(put)(x + r * ld + c, NAME(load)(x + r * ld + c) + NAME(load)(y + r * ld + c));
}

static void NAME(divide)(float *x, int64_t ld, int64_t rows, int64_t cols, const float *l)
{
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c += LANES) {
      float *at = x + r * ld + c;
      vf quotient = NAME(load)(at) / l[r];
      NAME(put)(at, NAME(select)(NAME(splat)(l[r]) == 0, (vf){0}, quotient));
    }
}

static void NAME(dot)(const float *x, const float *y, int64_t ld, int64_t rows, int64_t cols,
                      float *out)
{
  for (int64_t r = 0; r < rows; r++) {
    float sum[LANES] = {0}, total = 0;
    vf part = {0};
    for (int64_t c = 0; c < cols; c += LANES)
      part += NAME(load)(x + r * ld + c) * NAME(load)(y + r * ld + c);
    memcpy(sum, &part, sizeof sum);
    for (int i = 0; i < LANES; i++)
      total += sum[i];
    out[r] = total;
  }
}

static const struct attn_block NAME(block) = {
    .name = ISA,
    .widen = NAME(widen),
    .narrow = NAME(narrow),
    .transpose = NAME(transpose),
    .product = NAME(product),
    .score = NAME(score),
    .online = NAME(online),
    .exponential = NAME(exponential),
    .normalize = NAME(normalize),
    .dropout = NAME(dropout),
    .gradient = NAME(gradient),
    .scale = NAME(scale),
    .add = NAME(add),
    .divide = NAME(divide),
    .dot = NAME(dot),
};

#undef vf
#undef vi
