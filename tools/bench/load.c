/* The load generator: load tcp|udp PORT CONTROL CONNECTIONS SIZE LIMIT

   For each line with a number of seconds on its input it loads 127.0.0.1:PORT so long and answers with a line of JSON;
   at the end of its input it tells the server to stop. A closed loop: each connection sends its next request as soon
   as the answer to the last is complete, and every answer is compared with its request. A udp "connection" is a connected socket, a request one
   datagram, and none is expected to be lost. Before and after, while nothing
   is under way, the server is asked over the control connection for the processor time it has used. Any trouble is a
   line on stderr and exit status 1; SIGALRM ends it after LIMIT seconds. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 10000, MAX_SIZE = 16 << 20, MAX_DATAGRAM = 65507, MAX_SECONDS = 600, MAX_REQUESTS = 8000000, BATCH = 256 };

struct connection {
  int fd;
  char* request; /* a sequence number, then a pattern */
  size_t sent, received;
  uint64_t number, began;
};

struct usage {
  double user, system;
};

static struct connection* connections;
static size_t count, size;
static char* scratch;
static uint32_t* times; /* of answered requests, in ns */
static size_t answered, under_way;
static uint64_t end;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char* format, ...) {
  va_list args;
  va_start(args, format);
  fputs("load: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(1);
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long number(const char* text, long max) {
  char* rest;
  long value = strtol(text, &rest, 10);
  if (*rest || value < 0 || value > max) fail("%s is not a number up to %ld", text, max);
  return value;
}

static int dial(int port, int type) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;
  if (fd < 0 || connect(fd, (struct sockaddr*)&address, sizeof address)) fail("connect: %s", strerror(errno));
  if (type == SOCK_STREAM) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static struct usage server_usage(int control) {
  char line[64];
  size_t have = 0;
  struct usage used;
  if (write(control, "u", 1) != 1) fail("control: %s", strerror(errno));
  do {
    ssize_t got = read(control, line + have, sizeof line - 1 - have);
    if (got <= 0) fail("control: no answer");
    have += (size_t)got;
  } while (line[have - 1] != '\n');
  line[have] = 0;
  if (sscanf(line, "%lf %lf", &used.user, &used.system) != 2) fail("control: answered %s", line);
  return used;
}

static void push(struct connection* c) {
  while (c->sent < size) {
    ssize_t n = send(c->fd, c->request + c->sent, size - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("send: %s", strerror(errno));
    c->sent += (size_t)n;
  }
}

static void begin(struct connection* c, uint64_t at) {
  c->sent = c->received = 0;
  c->began = at;
  c->number++;
  memcpy(c->request, &c->number, sizeof c->number);
  under_way++;
  push(c);
}

static void complete(struct connection* c) {
  uint64_t at = now(), taken = at - c->began;
  times[answered++] = taken > UINT32_MAX ? UINT32_MAX : (uint32_t)taken;
  under_way--;
  if (at < end && answered + under_way < MAX_REQUESTS) begin(c, at);
}

/* Edge-triggered: goes on until the socket has no more, or the answer is complete (then nothing more can be there). */
static void advance(struct connection* c) {
  push(c);
  while (c->received < size) {
    ssize_t n = recv(c->fd, scratch, size - c->received, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("recv: %s", strerror(errno));
    if (!n) fail("the server closed a connection");
    if (memcmp(scratch, c->request + c->received, (size_t)n)) fail("the answer is not the request");
    c->received += (size_t)n;
    if (c->received == size) {
      complete(c);
      return;
    }
  }
}

/* One request after the other on each connection until the time is over and all are answered; the seconds it took. */
static double run(int poll, double seconds) {
  uint64_t began = now();
  answered = 0;
  end = began + (uint64_t)(seconds * 1e9);
  for (size_t i = 0; i < count; i++) begin(&connections[i], now());
  while (under_way) {
    struct epoll_event events[BATCH];
    int n = epoll_wait(poll, events, BATCH, 10000);
    if (n < 0) fail("epoll_wait: %s", strerror(errno));
    if (!n) fail("no answer within 10 s");
    for (int i = 0; i < n; i++) advance(events[i].data.ptr);
  }
  return (double)(now() - began) / 1e9;
}

static int ascending(const void* a, const void* b) {
  uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
  return (x > y) - (x < y);
}

static double quantile(double q) { return times[(size_t)(q * (double)(answered - 1))] / 1e9; }

static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void start(int poll, int port, int type) {
  connections = calloc(count, sizeof *connections);
  scratch = malloc(size);
  times = malloc(MAX_REQUESTS * sizeof *times);
  if (!connections || !scratch || !times || poll < 0) fail("no memory or descriptor");
  for (size_t i = 0; i < count; i++) {
    struct connection* c = &connections[i];
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    *c = (struct connection){.fd = dial(port, type), .request = malloc(size), .number = (uint64_t)i << 40};
    if (!c->request) fail("no memory");
    for (size_t k = 0; k < size; k++) c->request[k] = (char)(k * 131 + i);
    c->sent = c->received = size; /* nothing is under way */
    if (epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
  }
}

static void measure(int poll, int control, double seconds) {
  struct usage before = server_usage(control);
  double own = processor_time(), wall = run(poll, seconds);
  own = processor_time() - own;
  struct usage after = server_usage(control);
  qsort(times, answered, sizeof *times, ascending);
  printf("{\"operations\": %zu, \"wall\": %.6f, \"client\": %.4f, \"user\": %.6f, \"system\": %.6f, ", answered, wall,
         own / wall, after.user - before.user, after.system - before.system);
  printf("\"p50\": %.9f, \"p99\": %.9f, \"p999\": %.9f, \"max\": %.9f}\n", quantile(0.5), quantile(0.99),
         quantile(0.999), quantile(1));
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 7) fail("usage: load tcp|udp PORT CONTROL CONNECTIONS SIZE LIMIT");
  int type = strcmp(argv[1], "udp") ? SOCK_STREAM : SOCK_DGRAM;
  int port = (int)number(argv[2], 65535), control = dial((int)number(argv[3], 65535), SOCK_STREAM);
  count = (size_t)number(argv[4], MAX_CONNECTIONS);
  size = (size_t)number(argv[5], type == SOCK_DGRAM ? MAX_DATAGRAM : MAX_SIZE);
  if (!count || size < sizeof(uint64_t)) fail("at least 1 connection and %zu bytes", sizeof(uint64_t));
  alarm((unsigned)number(argv[6], MAX_SECONDS));
  int poll = epoll_create1(EPOLL_CLOEXEC);
  start(poll, port, type);
  char line[64];
  while (fgets(line, sizeof line, stdin)) {
    double seconds = strtod(line, NULL);
    if (!(seconds > 0 && seconds <= MAX_SECONDS)) fail("%s is not a time", line);
    measure(poll, control, seconds);
  }
  if (write(control, "q", 1) != 1) fail("control: %s", strerror(errno));
  return 0;
}
