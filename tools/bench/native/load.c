/* The load generator: load [options] TRANSPORT ADDRESS, where TRANSPORT is tcp, tls, udp (a port of 127.0.0.1) or unix
   (a path). It opens its connections, says "ready", and then for each line on its input,

       closed SECONDS          each connection sends its next batch as soon as the last is answered,
       fixed SECONDS RATE      requests are due at even distances, RATE a second in all,
       poisson SECONDS RATE    the same with distances drawn from an exponential distribution,
       bursts SECONDS RATE     the same with one for each connection due at the same instant, and then a rest,
       count REQUESTS          a closed loop of so many requests,

   loads the server and answers with a line of JSON. Every answer is compared with its request. In a closed loop a
   request's time runs from its sending; at a rate it runs from the instant at which it was DUE, whether or not a
   connection was free then, so that a server that stalls is charged with all that it kept waiting. Times go into a
   histogram (buckets under 1 % wide), which is printed whole. How late this program itself was is told as well, the median:
   it is in the times.

     --connections N  --size BYTES  --depth N (requests sent in one write, answered before the next batch)
     --churn (connect, one request, close)   --storm (all connect at the same instant, and close when all were answered)
     --http PATH   --ack (of a batch of datagrams only the last is answered)   --pid PID (whose processor time is told)

   Any trouble is a line on stderr and exit status 1; SIGALRM ends it after --limit seconds. */

#define _GNU_SOURCE
#include "histogram.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

enum { MAX_CONNECTIONS = 20000, MAX_SIZE = 16 << 20, MAX_DEPTH = 1024, MAX_SECONDS = 3600, BATCH = 256 };
enum { SOURCE_ADDRESSES = 250 }; /* a port that was used waits for a minute: churn takes many addresses of 127/8 */
static const uint64_t SECOND = 1000000000u, PATIENCE = 10 * 1000000000ull;

struct connection {
  int fd;
#ifdef WITH_TLS
  SSL* tls;
#endif
  char* out;                  /* a batch of requests; an echo's each start with a sequence number */
  size_t sent, received;      /* of the batch, and of its answers */
  size_t to_send, to_receive; /* 0 to receive: not known before the head of an HTTP answer was read */
  uint64_t number, began;
  struct connection* next; /* the next free one */
};

static struct {
  enum { TCP, TLS, UDP, UNIX } transport;
  const char* address;
  size_t connections, size, depth;
  bool churn, storm, ack;
  const char* http;
  long pid;
} options = {.connections = 1, .size = 1024, .depth = 1};

static struct connection* connections;
static struct connection* free_first;
static struct connection* free_last;
static char* scratch;
static size_t scratch_size;
static int poll_fd;
static struct histogram times;
static struct histogram lateness; /* of sendings at a rate for which a connection was free */
static uint64_t answered, under_way, opened;
static uint64_t end;  /* of a closed loop, in time */
static uint64_t left; /* of a closed loop, in requests */
static double rate;   /* a second; 0: a closed loop */
static bool poisson, bursts;
static size_t drawn; /* of the bursts' */
static uint64_t due, next_answer_size;

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
  return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static long number(const char* text, long max) {
  char* rest;
  long value = strtol(text, &rest, 10);
  if (*rest || value < 0 || value > max) fail("%s is not a number up to %ld", text, max);
  return value;
}

/* ---- what a connection's bytes go through */

#ifdef WITH_TLS
static SSL_CTX* context;

static ssize_t tls_result(struct connection* c, int result) {
  if (result > 0) return result;
  int error = SSL_get_error(c->tls, result);
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
  return -1;
}
#endif

static ssize_t put(struct connection* c, const char* data, size_t length) {
#ifdef WITH_TLS
  if (c->tls) return tls_result(c, SSL_write(c->tls, data, (int)length));
#endif
  return send(c->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t take(struct connection* c, char* data, size_t length) {
#ifdef WITH_TLS
  if (c->tls) return tls_result(c, SSL_read(c->tls, data, (int)length));
#endif
  return recv(c->fd, data, length, MSG_DONTWAIT);
}

static int dial(void) {
  int type = options.transport == UDP ? SOCK_DGRAM : SOCK_STREAM, on = 1;
  int fd = socket(options.transport == UNIX ? AF_UNIX : AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) fail("socket: %s", strerror(errno));
  int result;
  if (options.transport == UNIX) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (strlen(options.address) >= sizeof name.sun_path) fail("the path is too long");
    strcpy(name.sun_path, options.address);
    while ((result = connect(fd, (struct sockaddr*)&name, sizeof name)) && errno == EAGAIN) usleep(1000); /* backlog */
  } else {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(options.address, 65535))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (options.churn && options.transport != UDP) {
      struct sockaddr_in from = {.sin_family = AF_INET};
      from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(opened % SOURCE_ADDRESSES));
      setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
      if (bind(fd, (struct sockaddr*)&from, sizeof from)) fail("bind: %s", strerror(errno));
    }
    if (type == SOCK_STREAM) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    result = connect(fd, (struct sockaddr*)&to, sizeof to);
  }
  if (result && errno != EINPROGRESS) fail("connect: %s", strerror(errno));
  opened++;
  return fd;
}

static void connection_open(struct connection* c) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
  c->fd = dial();
#ifdef WITH_TLS
  if (options.transport == TLS) {
    c->tls = SSL_new(context);
    if (!c->tls || !SSL_set_fd(c->tls, c->fd)) fail("TLS: no connection could be made");
    SSL_set_connect_state(c->tls);
  }
#endif
  if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
}

static void connection_close(struct connection* c) {
#ifdef WITH_TLS
  if (c->tls) SSL_free(c->tls);
  c->tls = NULL;
#endif
  close(c->fd);
  c->fd = -1;
}

/* ---- a batch of requests, and its answers */

static void push(struct connection* c) {
  while (c->sent < c->to_send) {
    /* A datagram is a request; over a stream a batch goes out in one call. */
    size_t length = options.transport == UDP ? options.size : c->to_send - c->sent;
    ssize_t n = put(c, c->out + c->sent, length);
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
    if (n < 0) fail("send: %s", strerror(errno));
    c->sent += (size_t)n;
  }
}

static void begin(struct connection* c, uint64_t at) {
  if (options.churn) connection_open(c);
  c->sent = c->received = 0;
  c->began = at;
  c->to_receive = next_answer_size;
  under_way += options.depth;
  if (!options.http)
    for (size_t i = 0; i < options.depth; i++) {
      c->number++;
      memcpy(c->out + i * options.size, &c->number, sizeof c->number);
    }
  push(c);
}

static void set_free(struct connection* c) {
  c->next = NULL;
  if (free_last)
    free_last->next = c;
  else
    free_first = c;
  free_last = c;
}

static double chance(void) { /* in (0, 1]; the same ones in every run */
  static uint64_t state = 0x9e3779b97f4a7c15u;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)((state >> 11) + 1) / 9007199254740992.0;
}

static void draw_next_due(void) {
  double gap = 1e9 * (double)options.depth / rate;
  if (bursts) gap *= drawn++ % options.connections ? 0 : (double)options.connections;
  due += (uint64_t)(poisson ? -log(chance()) * gap : gap);
}

static void complete(struct connection* c) {
  uint64_t at = now();
  histogram_add(&times, at - c->began, options.depth);
  answered += options.depth;
  under_way -= options.depth;
  if (options.http) next_answer_size = c->to_receive;
  if (options.churn) connection_close(c);
  if (rate > 0)
    set_free(c); /* what is due is given out by run_at_rate() */
  else if (options.storm)
    return;
  else if (left > 0) {
    left -= left > options.depth ? options.depth : left;
    begin(c, at);
  } else if (at < end)
    begin(c, at);
}

/* An HTTP answer's length, from its head; later ones must be as long (dates are, and the body is the same). */
static void learn_size(struct connection* c, size_t have) {
  scratch[have] = 0;
  char* body = strstr(scratch, "\r\n\r\n");
  if (!body) fail("the first answer came without its whole head");
  char* length = strcasestr(scratch, "content-length:");
  if (!length || length > body) fail("an HTTP answer without a Content-Length");
  c->to_receive = ((size_t)(body + 4 - scratch) + (size_t)atol(length + 15)) * options.depth;
}

static void check_answer(struct connection* c, const char* data, size_t length) {
  if (options.http) {
    if (!c->received && (length < 12 || memcmp(data, "HTTP/1.1 200", 12))) fail("answered %.*s", (int)length, data);
    return;
  }
  /* Where only the last of a batch is answered, the answer is that one. */
  const char* expected = c->out + (options.ack ? c->to_send - options.size : 0) + c->received;
  if (c->received + length > c->to_receive || memcmp(data, expected, length)) fail("the answer is not the request");
}

/* Edge-triggered: goes on until the socket has no more, or all is answered (then nothing more can be there). */
static void advance(struct connection* c) {
  if (c->fd < 0) return; /* closed by an event before this one */
  push(c);
  while (c->received < c->to_receive || !c->to_receive) {
    size_t room = c->to_receive ? c->to_receive - c->received : scratch_size;
    ssize_t n = take(c, scratch, room > scratch_size ? scratch_size : room);
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
#ifdef WITH_TLS
      if (c->tls) push(c); /* the handshake may have ended in that read */
#endif
      return;
    }
    if (n < 0) fail("recv: %s", strerror(errno));
    if (!n) fail("the server closed a connection");
    if (!c->to_receive) learn_size(c, (size_t)n);
    check_answer(c, scratch, (size_t)n);
    c->received += (size_t)n;
    if (c->received == c->to_receive) {
      complete(c);
      return;
    }
  }
}

static void wait_for_events(uint64_t until) {
  struct epoll_event events[BATCH];
  struct timespec timeout = {.tv_sec = (time_t)(PATIENCE / SECOND)};
  if (until) {
    uint64_t at = now(), rest = until > at ? until - at : 0;
    timeout = (struct timespec){.tv_sec = (time_t)(rest / SECOND), .tv_nsec = (long)(rest % SECOND)};
  }
  int n = epoll_pwait2(poll_fd, events, BATCH, &timeout, NULL);
  if (n < 0) fail("epoll_pwait2: %s", strerror(errno));
  if (!n && !until) fail("no answer within %d s", (int)(PATIENCE / SECOND));
  for (int i = 0; i < n; i++) advance(events[i].data.ptr);
}

static void run_closed(void) {
  do {
    for (size_t i = 0; i < options.connections && (now() < end || left); i++) {
      if (left) left -= left > options.depth ? options.depth : left;
      begin(&connections[i], now());
    }
    while (under_way) wait_for_events(0);
  } while (options.storm && now() < end);
}

/* What fell due until the end is sent, in order, as connections become free. A server that cannot keep up gets as long
   again to work off what waits; what has not even been sent then counts as unanswered, with the time it has waited. */
static uint64_t run_at_rate(uint64_t began, double seconds, uint64_t* given) {
  uint64_t stop = began + (uint64_t)(seconds * 1e9), last = stop + (stop - began), unanswered = 0;
  free_first = free_last = NULL;
  for (size_t i = 0; i < options.connections; i++) set_free(&connections[i]);
  due = began;
  drawn = 0;
  draw_next_due();
  for (bool waits = true; due < stop || under_way;) {
    uint64_t at = now();
    if (waits && due < stop && due <= at) histogram_add(&lateness, at - due, 1);
    while (due < stop && due <= at && free_first) {
      struct connection* c = free_first;
      if (!(free_first = c->next)) free_last = NULL;
      begin(c, due);
      *given += options.depth;
      draw_next_due();
    }
    if (at > last)
      for (; due < stop; draw_next_due()) {
        histogram_add(&times, at - due, options.depth);
        unanswered += options.depth;
        *given += options.depth;
      }
    waits = due < stop && free_first;
    wait_for_events(waits ? due : 0);
  }
  return unanswered;
}

/* ---- processor time */

static double processor_time(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t)) fail("clock_gettime: %s", strerror(errno));
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct usage {
  double sum;                 /* exact */
  unsigned long user, system; /* ticks: for the share of each */
};

static struct usage server_usage(void) {
  struct usage used = {0};
  char path[64], text[1024];
  clockid_t clock;
  if (!options.pid) return used;
  if (clock_getcpuclockid((pid_t)options.pid, &clock)) fail("the server has ended");
  used.sum = processor_time(clock);
  snprintf(path, sizeof path, "/proc/%ld/stat", options.pid);
  FILE* file = fopen(path, "r");
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[length] = 0;
  char* rest = strrchr(text, ')');
  if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &used.user, &used.system) != 2)
    fail("%s cannot be read", path);
  return used;
}

/* ---- the conversation with whoever started this */

static void measure(double seconds, uint64_t requests) {
  uint64_t given = 0, unanswered = 0;
  struct usage before = server_usage();
  double own = processor_time(CLOCK_PROCESS_CPUTIME_ID);
  struct rusage slept_before, slept;
  getrusage(RUSAGE_SELF, &slept_before);
  histogram_clear(&times);
  histogram_clear(&lateness);
  answered = 0;
  uint64_t began = now();
  end = began + (uint64_t)(seconds * 1e9);
  left = requests;
  if (rate > 0)
    unanswered = run_at_rate(began, seconds, &given);
  else
    run_closed();
  double wall = (double)(now() - began) / 1e9;
  own = processor_time(CLOCK_PROCESS_CPUTIME_ID) - own;
  getrusage(RUSAGE_SELF, &slept);
  struct usage after = server_usage();
  printf("{\"operations\": %llu, \"wall\": %.6f, \"client\": %.4f, \"cpu\": %.9f, ", (unsigned long long)answered, wall,
         own / wall, after.sum - before.sum);
  /* It gives its core up by itself only where nothing has come: so often it had to be woken. */
  printf("\"wakeups\": %ld, ", slept.ru_nvcsw - slept_before.ru_nvcsw);
  printf("\"user_ticks\": %lu, \"system_ticks\": %lu, ", after.user - before.user, after.system - before.system);
  if (rate > 0) {
    printf("\"due\": %llu, \"unanswered\": %llu, ", (unsigned long long)given, (unsigned long long)unanswered);
    printf("\"late\": %.9f, ", (double)histogram_at(&lateness, 0.5) / 1e9);
  }
  fputs("\"histogram\": ", stdout);
  histogram_print(&times, stdout);
  puts("}");
  fflush(stdout);
}

static void obey(const char* line) {
  char mode[16] = "";
  double first = 0, second = 0;
  int found = sscanf(line, "%15s %lf %lf", mode, &first, &second);
  bool closed = !strcmp(mode, "closed"), counted = !strcmp(mode, "count");
  poisson = !strcmp(mode, "poisson");
  bursts = !strcmp(mode, "bursts");
  if (!closed && !counted && !poisson && !bursts && strcmp(mode, "fixed")) fail("cannot do %s", line);
  bool at_rate = !closed && !counted;
  if (found < (at_rate ? 3 : 2) || !(first > 0) || (at_rate && !(second > 0))) fail("cannot do %s", line);
  if (!counted && first > MAX_SECONDS) fail("%g s are too many", first);
  rate = at_rate ? second : 0;
  measure(counted ? 0 : first, counted ? (uint64_t)first : 0);
}

static void make_connections(void) {
  connections = calloc(options.connections, sizeof *connections);
  size_t answer = options.http ? 0 : options.size * (options.ack ? 1 : options.depth);
  scratch_size = answer > (1 << 18) ? answer : 1 << 18;
  scratch = malloc(scratch_size + 1);
  char head[512];
  if (options.http)
    options.size = (size_t)snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n%s\r\n",
                                    options.http, options.churn ? "Connection: close\r\n" : "");
  if (!connections || !scratch) fail("no memory");
  next_answer_size = answer;
  for (size_t i = 0; i < options.connections; i++) {
    struct connection* c = &connections[i];
    *c = (struct connection){.fd = -1, .number = (uint64_t)i << 40, .to_send = options.size * options.depth};
    c->out = malloc(c->to_send);
    if (!c->out) fail("no memory");
    for (size_t k = 0; k < c->to_send; k++) c->out[k] = options.http ? head[k % options.size] : (char)(k * 131 + i);
    if (options.churn) continue;
    /* One request on each before anything is measured, so that it has been accepted; one by one, so that the
       listener's queue does not overflow. */
    connection_open(c);
    rate = left = end = 0;
    begin(c, now());
    while (under_way) wait_for_events(0);
  }
}

static void parse(int argc, char** argv) {
  static const struct option known[] = {{"connections", required_argument, NULL, 'c'},
                                        {"size", required_argument, NULL, 's'},
                                        {"depth", required_argument, NULL, 'd'},
                                        {"limit", required_argument, NULL, 'l'},
                                        {"pid", required_argument, NULL, 'p'},
                                        {"http", required_argument, NULL, 'h'},
                                        {"churn", no_argument, NULL, 'u'},
                                        {"storm", no_argument, NULL, 't'},
                                        {"ack", no_argument, NULL, 'a'},
                                        {0}};
  for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (option) {
      case 'c':
        options.connections = (size_t)number(optarg, MAX_CONNECTIONS);
        break;
      case 's':
        options.size = (size_t)number(optarg, MAX_SIZE);
        break;
      case 'd':
        options.depth = (size_t)number(optarg, MAX_DEPTH);
        break;
      case 'l':
        alarm((unsigned)number(optarg, MAX_SECONDS));
        break;
      case 'p':
        options.pid = number(optarg, INT32_MAX);
        break;
      case 'h':
        options.http = optarg;
        break;
      case 'u':
        options.churn = true;
        break;
      case 't':
        options.churn = options.storm = true;
        break;
      case 'a':
        options.ack = true;
        break;
      default:
        fail("see the head of load.c");
    }
  if (argc - optind != 2) fail("usage: load [options] tcp|tls|udp|unix ADDRESS");
  static const char* const names[] = {"tcp", "tls", "udp", "unix"};
  int transport = 0;
  while (transport < 4 && strcmp(argv[optind], names[transport])) transport++;
  if (transport == 4) fail("no transport %s", argv[optind]);
  options.transport = transport;
  options.address = argv[optind + 1];
  if (!options.connections || !options.depth || options.size < sizeof(uint64_t))
    fail("at least 1 connection, a depth of 1 and %zu bytes", sizeof(uint64_t));
  if (transport == UDP && options.size > 65507) fail("a datagram holds 65507 bytes");
}

int main(int argc, char** argv) {
  parse(argc, argv);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  prctl(PR_SET_TIMERSLACK, 1); /* sends at the instant that is due, not up to 50 us later */
  if (options.transport == TLS) {
#ifdef WITH_TLS
    context = SSL_CTX_new(TLS_client_method());
    if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION)) fail("TLS: no context could be made");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
#else
    fail("compiled without TLS: OpenSSL's headers are missing");
#endif
  }
  poll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (poll_fd < 0) fail("epoll_create1: %s", strerror(errno));
  make_connections();
  puts("{\"ready\": true}");
  fflush(stdout);
  char line[128];
  while (fgets(line, sizeof line, stdin)) obey(line);
  return 0;
}
