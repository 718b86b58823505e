/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of the GPU's lock: two processes share its name exactly if they measure the same card,
 * however each of them counts its devices.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/run/lock.h"
#include "tests/tap.h"

static const struct {
  const char *visible;
  int index;
  const char *card;
} cases[] = {
    {NULL, 0, "0"},
    {NULL, 3, "3"},
    {"", 0, "0"},
    {"1", 0, "1"},
    {"2,0", 0, "2"},
    {"2,0", 1, "0"},
    {"2,0", 2, "2"}, /* no such device: the run says so */
    {"GPU-8f3a,MIG-1/2/0", 0, "GPU-8f3a"},
    {"GPU-8f3a,MIG-1/2/0", 1, "MIG-120"},
    {"../../etc,1", 0, "etc"},
};

int main(void)
{
  char card[64], small[4];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lock_card(cases[i].visible, cases[i].index, card, sizeof card);
    ok(!strcmp(card, cases[i].card), "CUDA_VISIBLE_DEVICES %s, --gpu %d: card %s (%s)",
       cases[i].visible ? cases[i].visible : "unset", cases[i].index, cases[i].card, card);
  }
  lock_card("GPU-8f3a", 0, small, sizeof small);
  ok(!strcmp(small, "GPU"), "a long name is cut to its buffer (%s)", small);
  return done_testing();
}
