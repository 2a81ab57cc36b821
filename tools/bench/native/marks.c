/* What Python cannot say to callgrind itself: from here on count, and: up to here. Outside of valgrind both do nothing. */

#include <valgrind/callgrind.h>

void counting_begins(void);
void counting_ends(void);

void counting_begins(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

void counting_ends(void) {
  CALLGRIND_DUMP_STATS;
  CALLGRIND_STOP_INSTRUMENTATION;
}
