/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h - shapes of real models: profiles/models/NAME.model, key=value text with '#' comments.
 */
#ifndef IMPL_MODEL_H
#define IMPL_MODEL_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attn_model {
  char name[48];
  int64_t layers, hidden, ffn, vocab;
  int64_t hq, hkv, d;
  int64_t context; /* tokens that it was trained for */
  int64_t window;  /* tokens a query sees, itself included; 0: all before it */
  double rope_theta;
};

/* Reads models_dir/NAME.model.  On failure ATTN_EINVAL and one line in err. */
int attn_model_read(const char *models_dir, const char *name, struct attn_model *m, char *err,
                    size_t errlen);

#ifdef __cplusplus
}
#endif
#endif
