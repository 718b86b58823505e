/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c - one run a GPU at a time.  The kernel drops the lock of whoever dies.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "harness/run/lock.h"
#include "harness/run/run.h"

void lock_card(const char *visible, int index, char *card, size_t len)
{
  size_t n = 0;
  for (int i = 0; visible && i < index; i++) {
    const char *comma = strchr(visible, ',');
    visible = comma ? comma + 1 : NULL;
  }
  for (; visible && *visible && *visible != ','; visible++) {
    if (n + 1 < len && (isalnum((unsigned char)*visible) || *visible == '-'))
      card[n++] = *visible;
  }
  if (n)
    card[n] = 0;
  else
    snprintf(card, len, "%d", index);
}

int lock_device(const struct run_options *o, char *err, size_t errlen)
{
  char card[64], path[96];
  if (strcmp(o->device->name, "cuda"))
    return -1;
  lock_card(getenv("CUDA_VISIBLE_DEVICES"), o->device_options.index, card, sizeof card);
  snprintf(path, sizeof path, "/tmp/attnbench-gpu%s.lock", card);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) /* another user's: reading is enough for a lock */
    fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
    snprintf(err, errlen,
             "GPU %d is being measured by another attnbench (lock %s): wait for it, or "
             "choose another with --gpu",
             o->device_options.index, path);
    close(fd);
    return -2;
  }
  return fd;
}
