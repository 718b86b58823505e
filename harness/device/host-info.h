/* SPDX-License-Identifier: Apache-2.0
 *
 * host-info.h - what the machine under us says of itself: processor, memory, cache.
 */
#ifndef HARNESS_HOST_INFO_H
#define HARNESS_HOST_INFO_H

#include <stddef.h>

/* Model name of the processor. */
void host_cpu_name(char *name, size_t len);
/* Processors that this process may run on. */
int host_cores(void);
/* Physical memory, or what the control group allows if that is less. */
size_t host_memory_total(void);
/* Memory that can be had without swapping, within the control group. */
size_t host_memory_available(void);
/* Address space that this process may still take (ulimit -v); SIZE_MAX: as much as it wants. */
size_t host_address_room(void);
/* Last-level cache; 32 MiB where the system does not say. */
size_t host_llc_bytes(void);

#endif
