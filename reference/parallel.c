/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.c - a loop over all cores.
 */
#include "config.h"

#include <pthread.h>
#include <unistd.h>

#include "reference/internal.h"

struct crew {
  pthread_mutex_t lock;
  int64_t next, n;
  int status;
  int (*body)(int64_t i, void *ctx);
  void *ctx;
};

static void *crew_work(void *arg)
{
  struct crew *c = arg;
  pthread_mutex_lock(&c->lock);
  while (c->next < c->n && c->status == ATTN_OK) {
    int64_t i = c->next++;
    pthread_mutex_unlock(&c->lock);
    int status = c->body(i, c->ctx);
    pthread_mutex_lock(&c->lock);
    if (status && !c->status)
      c->status = status;
  }
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

int ref_parallel(int64_t n, int (*body)(int64_t i, void *ctx), void *ctx)
{
  struct crew c = {PTHREAD_MUTEX_INITIALIZER, 0, n, ATTN_OK, body, ctx};
  pthread_t threads[64];
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int started = 0;

  while (started < 63 && started + 1 < cores && started + 1 < n &&
         pthread_create(&threads[started], NULL, crew_work, &c) == 0)
    started++;
  crew_work(&c);
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  pthread_mutex_destroy(&c.lock);
  return c.status;
}
