/* Times in nanoseconds, counted in buckets that are never wider than 1/128 of what they hold. */

#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { HISTOGRAM_FINE = 7, HISTOGRAM_BUCKETS = (64 - HISTOGRAM_FINE + 1) << HISTOGRAM_FINE };

struct histogram {
  uint64_t counts[HISTOGRAM_BUCKETS];
};

static inline void histogram_clear(struct histogram* h) { memset(h, 0, sizeof *h); }

/* Below 2^8 each value has a bucket; above, each power of two has 2^7. */
static inline size_t histogram_bucket(uint64_t value) {
  int shift = 63 - __builtin_clzll(value | 1) - HISTOGRAM_FINE;
  if (shift <= 0) return (size_t)value;
  return ((size_t)shift << HISTOGRAM_FINE) + (size_t)(value >> shift);
}

/* The middle of what a bucket holds. */
static inline uint64_t histogram_value(size_t bucket) {
  if (bucket < 2u << HISTOGRAM_FINE) return bucket;
  unsigned shift = (unsigned)(bucket >> HISTOGRAM_FINE) - 1;
  uint64_t low = (uint64_t)(bucket - ((size_t)shift << HISTOGRAM_FINE)) << shift;
  return low + ((uint64_t)1 << shift) / 2;
}

static inline void histogram_add(struct histogram* h, uint64_t value, uint64_t count) {
  h->counts[histogram_bucket(value)] += count;
}

/* The least value that at least so much of all, a share of 1, does not exceed; 0 where there is none. */
static inline uint64_t histogram_at(const struct histogram* h, double share) {
  uint64_t all = 0, sum = 0;
  size_t i = 0;
  for (size_t k = 0; k < HISTOGRAM_BUCKETS; k++) all += h->counts[k];
  if (!all) return 0;
  while ((sum += h->counts[i]) < (uint64_t)(share * (double)all + 0.999999)) i++;
  return histogram_value(i);
}

/* [[value, count], ...], rising. */
static inline void histogram_print(const struct histogram* h, FILE* out) {
  const char* between = "";
  fputc('[', out);
  for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
    if (h->counts[i]) {
      fprintf(out, "%s[%llu, %llu]", between, (unsigned long long)histogram_value(i), (unsigned long long)h->counts[i]);
      between = ", ";
    }
  fputc(']', out);
}
