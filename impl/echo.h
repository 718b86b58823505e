/* SPDX-License-Identifier: Apache-2.0
 *
 * echo.h - what somebody gave, inside a line of ours: on one line, printable and not longer than a
 * reader needs to recognise it.
 */
#ifndef IMPL_ECHO_H
#define IMPL_ECHO_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_ECHO_HEAD 100 /* bytes of a long text that are shown, */
#define ATTN_ECHO_TAIL 40  /* and of its end */

struct attn_echo {
  char text[4 * (ATTN_ECHO_HEAD + ATTN_ECHO_TAIL) + 8];
};

/* Length of the printable UTF-8 character at s, n bytes at most; 0: none that may be shown. */
static inline size_t attn_printable(const char *s, size_t n)
{
  const unsigned char *u = (const unsigned char *)s;
  size_t len = u[0] < 0x80 ? 1 : u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
  if (len == 1)
    return u[0] >= ' ' && u[0] != 0x7f;
  if (u[0] < 0xc2 || u[0] > 0xf4 || len > n || (u[0] == 0xc2 && u[1] < 0xa0))
    return 0;
  if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) ||
      (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f))
    return 0; /* too long, a surrogate, or beyond the last */
  for (size_t i = 1; i < len; i++)
    if (u[i] >> 6 != 2)
      return 0;
  return len;
}

/* Appends n bytes of s to out, room bytes at most with the terminator; returns the new end. */
static inline size_t attn_escape(char *out, size_t at, size_t room, const char *s, size_t n)
{
  for (size_t i = 0; i < n && at + 5 < room;) {
    size_t len = attn_printable(s + i, n - i);
    if (len)
      memcpy(out + at, s + i, len);
    else
      snprintf(out + at, 5, "\\x%02x", (unsigned char)s[i]);
    at += len ? len : 4;
    i += len ? len : 1;
  }
  out[at] = 0;
  return at;
}

static inline const char *attn_echo(struct attn_echo *e, const char *s, size_t n)
{
  const size_t all = ATTN_ECHO_HEAD + ATTN_ECHO_TAIL;
  size_t at = attn_escape(e->text, 0, sizeof e->text, s, n > all ? ATTN_ECHO_HEAD : n);
  if (n > all) {
    at = attn_escape(e->text, at, sizeof e->text, "...", 3);
    attn_escape(e->text, at, sizeof e->text, s + n - ATTN_ECHO_TAIL, ATTN_ECHO_TAIL);
  }
  return e->text;
}

static inline const char *attn_echos(struct attn_echo *e, const char *s)
{
  return attn_echo(e, s, strlen(s));
}

/* Until the end of the enclosing block. */
#define ATTN_ECHO(s, n) attn_echo(&(struct attn_echo){{0}}, s, n)
#define ATTN_ECHOS(s) attn_echos(&(struct attn_echo){{0}}, s)

#ifdef __cplusplus
}
#endif
#endif
