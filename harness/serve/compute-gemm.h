/* SPDX-License-Identifier: Apache-2.0
 *
 * compute-gemm.h - the product of a few rows with one panel of weights, for compute-cpu.c.
 */
#ifndef HARNESS_SERVE_COMPUTE_GEMM_H
#define HARNESS_SERVE_COMPUTE_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#define GEMM_ROWS 6     /* of x at once */
#define GEMM_COLUMNS 16 /* of a panel */

/* y (rows, columns <= GEMM_COLUMNS) = x (rows, in) w^T, w a panel (in, GEMM_COLUMNS); row r of x is
 * at x + r * in, of y at y + r * ldy. rows is any number. */
void gemm_panel(float *y, int64_t ldy, const float *x, const float *w, int64_t rows,
                int64_t columns, int64_t in, bool add);

#endif
