/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of the arena, on the host device: buffers are aligned and start as NaN to the last byte;
 * one byte written outside is found and named with its side; bytes in use return to zero and the
 * peak is the largest sum that was ever live; what cannot be had is refused with both sizes.
 */
#include "config.h"

#include "harness/device/arena.h"
#include "tests/tap.h"

#include <math.h>

static struct device dev;
static char err[256];

static void test_contents(struct arena *a)
{
  static const size_t sizes[] = {1, 4, 1023, 1024, 4097};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct arena_buffer *b;
    ok(arena_alloc(a, "x", sizes[i], &b) == ATTN_OK, "%zu bytes are given", sizes[i]);
    ok((uintptr_t)b->data % 1024 == 0, "%zu bytes start 1024-byte aligned", sizes[i]);
    const uint32_t poison = ARENA_POISON;
    const unsigned char *got = b->data, *want = (const void *)&poison;
    size_t same = 0;
    while (same < sizes[i] && got[same] == want[same % 4])
      same++;
    ok(same == sizes[i], "every byte of %zu is poison", sizes[i]);
    ok(arena_check_guards(a, err, sizeof err) == ATTN_OK, "guards of %zu bytes are whole",
       sizes[i]);
    memset(b->data, 0, sizes[i]);
    ok(arena_check_guards(a, err, sizeof err) == ATTN_OK, "all %zu bytes are ours", sizes[i]);
    arena_free(a, b);
  }
  float f;
  const uint32_t poison = ARENA_POISON;
  memcpy(&f, &poison, 4);
  ok(isnan(f), "poison is NaN as fp32");
  ok((poison >> 16 & 0x7f80) == 0x7f80 && (poison >> 16 & 0x7f), "its upper half is NaN as bf16");
  ok((poison >> 16 & 0x7c00) == 0x7c00 && (poison >> 16 & 0x3ff), "its upper half is NaN as fp16");
}

/* Writes one byte at an offset from the payload and wants the guard check to say so. */
static void overrun(struct arena *a, size_t bytes, long offset, const char *want)
{
  struct arena_buffer *good, *b;
  ok(!arena_alloc(a, "good", 64, &good) && !arena_alloc(a, "victim", bytes, &b), "two buffers");
  unsigned char *byte = (unsigned char *)b->data + offset, was = *byte;
  *byte ^= 1;
  ok(arena_check_guards(a, err, sizeof err) == ATTN_EDEVICE, "one bit at %ld of %zu is found",
     offset, bytes);
  is_str(err, want, "buffer, distance and side are named");
  *byte = was;
  ok(arena_check_guards(a, err, sizeof err) == ATTN_OK, "and restored it is whole again");
  arena_free(a, b);
  arena_free(a, good);
}

static void test_counts(void)
{
  struct arena a;
  struct arena_buffer *x, *y, *z;
  arena_init(&a, &dev);
  ok(a.in_use == 0 && a.peak == 0, "an empty arena holds nothing");
  ok(!arena_alloc(&a, "x", 1000, &x) && !arena_alloc(&a, "y", 500, &y), "1000 and 500 bytes");
  ok(a.in_use == 1500 && a.peak == 1500, "1500 in use, guards not counted");
  arena_free(&a, x);
  ok(a.in_use == 500 && a.peak == 1500, "500 in use after a free, the peak stays");
  ok(!arena_alloc(&a, "z", 600, &z), "600 bytes more");
  ok(a.in_use == 1100 && a.peak == 1500, "1100 in use, the peak is still 1500");
  arena_destroy(&a);
  ok(a.in_use == 0 && !a.buffers, "nothing in use after destroy");
}

static void test_refusal(void)
{
  struct arena a;
  struct arena_buffer *b;
  arena_init(&a, &dev);
  ok(arena_alloc(&a, "scores", (size_t)1 << 50, &b) == ATTN_ENOMEM && !b, "a PiB is refused");
  ok(strstr(dev.error, "scores") && strstr(dev.error, "1048576.000 GiB") &&
         strstr(dev.error, "available"),
     "by name, with what was asked for and what is there");
  diag("%s", dev.error);
  ok(arena_alloc(&a, "scores", SIZE_MAX - 1, &b) == ATTN_EINVAL,
     "a size that overflows is refused");
  ok(a.in_use == 0 && a.peak == 0 && !a.buffers, "and nothing is counted");
  arena_destroy(&a);
}

int main(void)
{
  struct arena a;
  struct device_options o = {.cores = 1};
  if (!ok(device_host.open(&dev, &o) == ATTN_OK, "the cpu device opens"))
    return done_testing();
  arena_init(&a, &dev);
  test_contents(&a);
  overrun(&a, 100, 100, "buffer victim: byte 1 past its end was overwritten");
  overrun(&a, 101, 101, "buffer victim: byte 1 past its end was overwritten");
  overrun(&a, 103, 103 + 1023, "buffer victim: byte 1024 past its end was overwritten");
  overrun(&a, 100, -1, "buffer victim: byte 1 before its start was overwritten");
  overrun(&a, 100, -1024, "buffer victim: byte 1024 before its start was overwritten");
  arena_destroy(&a);
  test_counts();
  test_refusal();
  device_host.close(&dev);
  return done_testing();
}
