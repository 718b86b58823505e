/* SPDX-License-Identifier: Apache-2.0
 *
 * fit.c - powers: the slope of log y over log x.
 */
#include "config.h"

#include <math.h>

#include "reports/figure.h"

double fit_power(const double *x, const double *y, int n)
{
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  int used = 0;
  for (int i = 0; i < n; i++) {
    if (!(x[i] > 0) || !(y[i] > 0) || !isfinite(y[i]))
      continue;
    double lx = log(x[i]), ly = log(y[i]);
    sx += lx;
    sy += ly;
    sxx += lx * lx;
    sxy += lx * ly;
    used++;
  }
  double spread = used * sxx - sx * sx;
  return used >= 2 && spread > 1e-9 ? (used * sxy - sx * sy) / spread : NAN;
}

/* The k-th largest of x whose y is known, or 0. */
static double kth_largest(const double *x, const double *y, int n, int k)
{
  for (int i = 0; i < n; i++) {
    int larger = 0;
    for (int j = 0; j < n; j++)
      larger += isfinite(y[j]) && x[j] > x[i];
    if (isfinite(y[i]) && larger == k - 1)
      return x[i];
  }
  return 0;
}

double fit_exponent(const double *x, const double *y, int n)
{
  double third = kth_largest(x, y, n, 3), from = fmin(kth_largest(x, y, n, 1) / 8, third);
  double tail[FIT_POINTS];
  if (third <= 0 || n > FIT_POINTS)
    return NAN;
  for (int i = 0; i < n; i++)
    tail[i] = x[i] >= from ? y[i] : NAN;
  return fit_power(x, tail, n);
}
