/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of CUPTI's host side, for every kind of chip and without a GPU: the counters have names that
 * the chip knows (making their config image proves it); the bytes take exactly one pass, so that
 * they are one launch's, never put together from several; a chip that does not exist gives a reason
 * and no passes.
 */
#include "config.h"

#include "harness/device/instrument.h"
#include "tests/tap.h"

#define MOST 16

static bool has(const char **metrics, int n, const char *name)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(metrics[i], name))
      return true;
  return false;
}

static void check_chip(const char *chip, const char *dram_read, const char *dram_write)
{
  const char *metrics[MOST];
  char err[200] = "";
  int n = 0, passes = instrument_cupti_passes(chip, metrics, MOST, &n, err, sizeof err);
  if (!ok(passes == 1, "%s: the bytes take one pass", chip))
    diag("%d passes, %s", passes, err);
  for (int i = 0; i < n; i++)
    diag("%s %s", chip, metrics[i]);
  ok(has(metrics, n, dram_read) && has(metrics, n, dram_write), "%s: DRAM bytes by its names",
     chip);
  ok(has(metrics, n, "lts__t_sectors_srcunit_tex.sum"), "%s: sectors between L2 and SMs", chip);
  ok(has(metrics, n, "sm__cycles_elapsed.max"), "%s: cycles", chip);
  ok(has(metrics, n, "sm__ops_path_tensor_src_bf16_dst_fp32.sum"), "%s: bf16 tensor operations",
     chip);
  ok(has(metrics, n, "sm__ops_path_tensor_src_fp16_dst_fp32.sum") ||
         has(metrics, n, "sm__ops_path_tensor_src_fp16.sum"),
     "%s: fp16 tensor operations", chip);
}

int main(void)
{
  const char *metrics[MOST];
  char err[200] = "";
  int n;
#ifndef HAVE_CUPTI
  skip_all("built without CUPTI");
#endif
  check_chip("GA100", "dram__bytes_read.sum", "dram__bytes_write.sum");
  check_chip("AD102", "dram__bytes_read.sum", "dram__bytes_write.sum");
  check_chip("GH100", "dram__bytes_read.sum", "dram__bytes_write.sum");
  check_chip("GB100", "dram__bytes_read.sum", "dram__bytes_write.sum");
  check_chip("GB202", "dram__bytes_op_read.sum", "dram__bytes_op_write.sum");
  ok(instrument_cupti_passes("XY999", metrics, MOST, &n, err, sizeof err) == 0 && n == 0,
     "a chip that does not exist has no counters");
  ok(strstr(err, "XY999") != NULL, "and is named in the reason");
  diag("%s", err);
  return done_testing();
}
