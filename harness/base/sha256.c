/* SPDX-License-Identifier: Apache-2.0
 *
 * sha256.c - SHA-256 (FIPS 180-4) of a short message.  The round constants are the fractions of the
 * cube roots of the first 64 primes, the initial state those of the square roots of the first 8:
 * computed, in exact integer arithmetic, rather than listed.
 */
#include "config.h"

#include "harness/base/sha256.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* First 32 bits of the fraction of p^(1/power), power 2 or 3: the largest r with r^power <= p *
 * 2^(32 power), its low word. */
static uint32_t root_fraction(uint32_t p, int power)
{
  uint64_t r = 0;
  for (int bit = 36; bit >= 0; bit--) {
    uint64_t t = r | (uint64_t)1 << bit;
    unsigned __int128 lhs = (unsigned __int128)t * t;
    unsigned __int128 rhs = (unsigned __int128)p << 64;
    /* t^3 <= p 2^96 exactly when t^2 <= floor(p 2^96 / t) */
    if (power == 3)
      rhs = ((unsigned __int128)p << 96) / t;
    if (lhs <= rhs)
      r = t;
  }
  return (uint32_t)r;
}

static uint32_t prime(int n)
{
  uint32_t p = 2;
  for (;; p++) {
    uint32_t d = 2;
    while (d * d <= p && p % d)
      d++;
    if (d * d > p && n-- == 0)
      return p;
  }
}

static uint32_t rotr(uint32_t x, int n)
{
  return x >> n | x << (32 - n);
}

static void block(uint32_t h[8], const uint32_t k[64], const unsigned char *p)
{
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++, p += 4)
    w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) +
           (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
  }
  memcpy(s, h, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t e = s[4], a = s[0];
    uint32_t t1 =
        s[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
    uint32_t t2 =
        (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++)
    h[i] += s[i];
}

void sha256_hex(const void *data, size_t bytes, char hex[65])
{
  uint32_t h[8], k[64];
  unsigned char tail[128] = {0};
  size_t whole = bytes / 64 * 64, rest = bytes - whole, end = rest < 56 ? 64 : 128;
  for (int i = 0; i < 64; i++)
    k[i] = root_fraction(prime(i), 3);
  for (int i = 0; i < 8; i++)
    h[i] = root_fraction(prime(i), 2);
  for (size_t at = 0; at < whole; at += 64)
    block(h, k, (const unsigned char *)data + at);
  memcpy(tail, (const unsigned char *)data + whole, rest);
  tail[rest] = 0x80;
  for (int i = 0; i < 8; i++)
    tail[end - 1 - i] = (unsigned char)((uint64_t)bytes * 8 >> 8 * i);
  for (size_t at = 0; at < end; at += 64)
    block(h, k, tail + at);
  for (int i = 0; i < 8; i++)
    snprintf(hex + 8 * i, 9, "%08x", h[i]);
}
