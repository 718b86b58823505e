/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn.h - the descriptor of peer/cudnn.
 */
#ifndef IMPL_PEER_CUDNN_H
#define IMPL_PEER_CUDNN_H

#include "impl/attn.h"

extern const struct attn_impl attn_peer_cudnn;

#endif
