/* SPDX-License-Identifier: Apache-2.0
 *
 * The main kernels of cuda/flash-sm90's backward with all lanes of a warp arriving where one does
 * (flash-bwd-sm90.cuh), for racecheck: linked before the library's, which they replace.
 */
#include "config.h"

#define BWD90_LANES 32
#include "impl/cuda/sm90-backward/flash-bwd-sm90-ends.cuh"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-load.cuh"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-options.cuh"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-split-tile.cuh"

/* Each table calls its tiles, and each kernel its parts, by the same names. */
namespace split
{
#include "impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh"
namespace d64
{
#include "impl/cuda/sm90-backward/flash-bwd-sm90-d64.cu"
}
namespace d64_options
{
#include "impl/cuda/sm90-backward/flash-bwd-sm90-d64-options.cu"
}
namespace d128
{
#include "impl/cuda/sm90-backward/flash-bwd-sm90-d128.cu"
}
namespace d128_options
{
#include "impl/cuda/sm90-backward/flash-bwd-sm90-d128-options.cu"
}
} // namespace split
namespace roles
{
#include "impl/cuda/sm90-backward/flash-bwd-sm90-d256.cu"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-d256-twopass.cu"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-d256-options.cu"
} // namespace roles
