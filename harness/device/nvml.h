/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h - clocks, power, temperature and throttling from the driver's management library, loaded
 * at run time: where it is missing, everything is unknown and nothing fails.
 */
#ifndef HARNESS_NVML_H
#define HARNESS_NVML_H

#include "harness/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "580.159.04", or "" */
void nvml_driver_version(char *text, size_t len);
/* NULL if NVML answers, or why not. */
const char *nvml_absent(void);

/* Starting NVML takes a good part of a second on some hosts; it counts its users, so one that stays
 * makes the others cheap. */
bool nvml_hold(void);
void nvml_drop(bool held);

struct nvml_poll;
/* Polls the GPU at a PCI address every 10 ms from a thread of its own. NULL: no NVML. */
struct nvml_poll *nvml_poll_start(const char *pci);
/* Ends it. Clocks and power are means of the polls, temperature the highest, throttle bits the OR.
 * Takes NULL: everything unknown. */
void nvml_poll_stop(struct nvml_poll *p, struct device_state *out);

#ifdef __cplusplus
}
#endif
#endif
