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
#define CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#endif
#endif
#ifndef CLONES
#define CLONES
#endif

#endif
