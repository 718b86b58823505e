/* SPDX-License-Identifier: Apache-2.0
 *
 * clones.h - to be included last: optimises this file's loops, and compiles functions marked CLONES
 * for several vector widths, of which the machine's is chosen when the program is loaded.
 */
#ifndef REFERENCE_CLONES_H
#define REFERENCE_CLONES_H

#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("O3")
#if defined __x86_64__ && defined __GLIBC__
/* By what a processor can do: "arch=haswell" is one vendor's, and others got the default. */
#if __GNUC__ >= 12
#define CLONES __attribute__((target_clones("avx512f", "arch=x86-64-v3", "default")))
#else
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#endif
#ifndef CLONES
#define CLONES
#endif

#endif
