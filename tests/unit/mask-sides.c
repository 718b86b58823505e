/* SPDX-License-Identifier: Apache-2.0
 *
 * mask-sides: what kernels are told of a mask shows each query the keys that attn_problem_visible()
 * shows it, whatever the lengths; a side that is longer than any sequence is cut to the limit.
 */
#include "config.h"

#include "impl/cuda/mask-sides.h"
#include "tests/tap.h"

#define LIMIT 1000

/* Queries whose keys differ. */
static int differ(const char *mask, int64_t sq, int64_t sk)
{
  char text[128], err[256];
  struct attn_problem p;
  int n = 0;
  snprintf(text, sizeof text, "op=fwd sq=%d sk=%d d=8 mask=%s", (int)sq, (int)sk, mask);
  if (attn_problem_parse(text, &p, err, sizeof err))
    return diag("%s", err), -1;
  struct mask_sides s = mask_sides_of(&p, LIMIT);
  int64_t shift = p.mask == ATTN_MASK_CAUSAL_TOPLEFT ? 0 : sk - sq;
  for (int64_t i = 0; i < sq; i++) {
    int64_t lo, hi, from = i + shift - s.left, to = i + shift + s.right + 1;
    attn_problem_visible(&p, sq, sk, i, &lo, &hi);
    from = from > 0 ? from : 0;
    to = to < sk ? to : sk;
    n += lo < hi || from < to ? lo != from || hi != to : 0;
  }
  return n;
}

int main(void)
{
  static const char *const masks[] = {"none",        "causal",       "causal-topleft",
                                      "window:3:0",  "window:0:5",   "window:-1:2",
                                      "window:7:-1", "window:-1:-1", "window:5000:5000"};
  static const int lengths[][2] = {{1, 1}, {9, 9}, {5, 21}, {21, 5}, {1, 40}, {40, 1}};
  for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
    int bad = 0;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
      bad += differ(masks[m], lengths[l][0], lengths[l][1]) != 0;
    ok(bad == 0, "mask=%s: the keys are those of the problem", masks[m]);
  }
  struct attn_problem far = {
      .mask = ATTN_MASK_WINDOW, .window_left = LIMIT + 1, .window_right = -1};
  struct mask_sides s = mask_sides_of(&far, LIMIT);
  ok(s.left == LIMIT && s.right == LIMIT, "no side is longer than the limit");
  return done_testing();
}
