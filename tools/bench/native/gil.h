/* A lock between threads by the protocol of CPython's GIL: who waits for longer than its interval asks the holder to let
   go; the holder looks often whether it was asked, and having let go on request waits until another has had the lock. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct gil {
  pthread_mutex_t mutex, switch_mutex;
  pthread_cond_t free, switched;
  bool locked;
  const void* last_holder;
  unsigned long switches;
  atomic_bool asked;
};

static void gil_init(struct gil* gil) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  *gil = (struct gil){.mutex = PTHREAD_MUTEX_INITIALIZER, .switch_mutex = PTHREAD_MUTEX_INITIALIZER};
  pthread_cond_init(&gil->free, &attributes);
  pthread_cond_init(&gil->switched, &attributes);
}

static void gil_take(struct gil* gil, const void* me, long interval_ns) {
  pthread_mutex_lock(&gil->mutex);
  while (gil->locked) {
    struct timespec until;
    unsigned long before = gil->switches;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += interval_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&gil->free, &gil->mutex, &until) && gil->locked && gil->switches == before)
      atomic_store(&gil->asked, true);
  }
  pthread_mutex_lock(&gil->switch_mutex);
  gil->locked = true;
  if (gil->last_holder != me) {
    gil->last_holder = me;
    gil->switches++;
  }
  pthread_cond_signal(&gil->switched);
  pthread_mutex_unlock(&gil->switch_mutex);
  atomic_store(&gil->asked, false);
  pthread_mutex_unlock(&gil->mutex);
}

static void gil_drop(struct gil* gil, const void* me) {
  pthread_mutex_lock(&gil->mutex);
  gil->locked = false;
  pthread_cond_signal(&gil->free);
  pthread_mutex_unlock(&gil->mutex);
  if (!atomic_load(&gil->asked)) return;
  pthread_mutex_lock(&gil->switch_mutex);
  if (gil->last_holder == me) {
    atomic_store(&gil->asked, false);
    pthread_cond_wait(&gil->switched, &gil->switch_mutex);
  }
  pthread_mutex_unlock(&gil->switch_mutex);
}
