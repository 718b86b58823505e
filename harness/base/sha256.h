/* SPDX-License-Identifier: Apache-2.0
 *
 * sha256.h - SHA-256 (FIPS 180-4), for names that must not be reversible, such as a GPU's UUID.
 */
#ifndef HARNESS_SHA256_H
#define HARNESS_SHA256_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 64 lower-case hexadecimal digits and a terminating zero. */
void sha256_hex(const void *data, size_t bytes, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
