/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.h - what a machine could do with a problem at best: pure arithmetic on the problem and on
 * the machine's ceilings, whatever the implementation. Unknown is NaN.
 */
#ifndef HARNESS_LIMITS_H
#define HARNESS_LIMITS_H

#include "harness/device/device.h"

/* A machine as the model sees it. */
struct machine_limits {
  char name[128];
  char basis[96]; /* where the ceilings come from */
  enum attn_device_kind kind;
  int sm, multiprocessors;
  double clock_hz;      /* of the multiprocessors */
  double matmul_tflops; /* 16-bit operands on cuda, fp32 on the cpu device */
  double read_gbps, copy_gbps;
  double exp_per_clock; /* results a clock and multiprocessor */
};

/* Results of ex2 a clock and multiprocessor: 16 at every compute capability from 8.0 to 9.0 and at
 * 10.0 and 12.0 (CUDA C++ Programming Guide, throughput of native arithmetic instructions). */
double explain_exp_per_clock(int sm);

/* Bytes of shared memory that a multiprocessor reads or writes in a clock: 32 banks of 4, at every
 * compute capability from 8.0 on. */
double explain_shared_per_clock(int sm);

struct work {
  double flops;                   /* of products of matrices */
  double exps;                    /* exponentials, and with softcap hyperbolic tangents */
  double read_bytes, write_bytes; /* compulsory */
};

struct work explain_work(const struct attn_problem *p);

enum limit { LIMIT_MATMUL, LIMIT_EXP, LIMIT_MEMORY, LIMIT_SHARED, LIMITS };

struct bound {
  double s[LIMITS]; /* seconds, if nothing else took any; NaN: not known, or none of it */
  int by;           /* the largest; -1: one of them is not known */
};

const char *explain_limit_name(enum limit l);
struct bound explain_bound(const struct attn_problem *p, const struct machine_limits *m);

/* A variant's tiles on a problem: steps (a tile of queries on a tile of keys of which it sees any),
 * tiles that stay, and the bytes of shared memory of all; 0 and NaN: not known. */
struct tiling {
  double steps, tiles, shared_bytes;
};
struct tiling explain_tiling(const struct attn_problem *p, const struct attn_variant *v);
/* The same with the variant's shared memory among the limits, which it has no say in without. */
struct bound explain_bound_of(const struct attn_problem *p, const struct machine_limits *m,
                              const struct attn_variant *v);

/* ---- occupancy ------------------------------------------------------------------------------- */

enum occupancy_limit { BY_THREADS, BY_BLOCKS, BY_REGISTERS, BY_SHARED };

struct occupancy {
  int blocks; /* of one kernel that a multiprocessor holds at once; 0: it cannot run */
  enum occupancy_limit by;
  double warps; /* resident, as a part of the most */
  double waves; /* of the whole grid on so many multiprocessors */
};

const char *explain_occupancy_limit_name(enum occupancy_limit by);
/* Bytes of shared memory that a block may use; 0: not known. */
size_t explain_sram(int sm);
/* -1: the resources of the compute capability are not known, or the launch is not. */
int explain_occupancy(int sm, int multiprocessors, double grid_blocks, int threads, int registers,
                      int shared_bytes, struct occupancy *o);

#endif
