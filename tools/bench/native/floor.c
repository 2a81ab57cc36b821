/* The floor: the same work in C on libuv, as `floor echo` (TCP on a port of 127.0.0.1), `floor unix PATH`,
   `floor convoy FILE THREADS`, which is the echo beside threads that compute and count in that file, or `floor new_loop`,
   which answers lines of seconds as measured.py's micro cases do. `floor version` says libuv's. */

#define _GNU_SOURCE
#include "gil.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

enum { READ_SIZE = 256 * 1024 };

static char read_buffer[READ_SIZE];

static void check(int status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "floor: %s: %s\n", what, uv_strerror(status));
  exit(1);
}

/* ---- beside threads that compute: one lock for all, kept by the loop except while it polls */

enum { LOOP_WAITS_NS = 100000, THREAD_WAITS_NS = 5000000, STEPS = 100 };

static struct gil gil;
static bool shared, given; /* whether there is a lock, and whether the loop has given it up */

/* The loop's thread has its time-outs and its turns as soon as the kernel can give them. */
static void hurry(void) {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice, deadline, period;
  } wanted = {.size = sizeof wanted, .nice = getpriority(PRIO_PROCESS, 0), .slice = 100000};
  prctl(PR_SET_TIMERSLACK, 1);
  syscall(SYS_sched_setattr, 0, &wanted, 0); /* before Linux 6.12 without effect */
}

static void on_prepare(uv_prepare_t* handle) {
  given = true;
  gil_drop(&gil, handle->loop);
}

static void take(uv_loop_t* loop) {
  if (!given) return;
  gil_take(&gil, loop, LOOP_WAITS_NS);
  given = false;
}

static void on_check(uv_check_t* handle) { take(handle->loop); }

__attribute__((noreturn)) static void* compute(void* counter) {
  volatile uint64_t* count = counter;
  gil_take(&gil, counter, THREAD_WAITS_NS);
  for (;;) {
    for (volatile int step = 0; step < STEPS; step++) continue; /* about a tenth of a microsecond */
    (*count)++;
    if (atomic_load_explicit(&gil.asked, memory_order_relaxed)) {
      gil_drop(&gil, counter);
      gil_take(&gil, counter, THREAD_WAITS_NS);
    }
  }
}

static void beside(uv_loop_t* loop, const char* path, int threads) {
  static uv_prepare_t prepare;
  static uv_check_t check_handle;
  int file = open(path, O_RDWR);
  uint64_t* counters = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counters == MAP_FAILED) {
    perror(path);
    exit(1);
  }
  gil_init(&gil);
  gil_take(&gil, loop, LOOP_WAITS_NS);
  shared = true;
  check(uv_prepare_init(loop, &prepare), "uv_prepare_init");
  check(uv_prepare_start(&prepare, on_prepare), "uv_prepare_start");
  check(uv_check_init(loop, &check_handle), "uv_check_init");
  check(uv_check_start(&check_handle, on_check), "uv_check_start");
  for (int i = 0; i < threads; i++) {
    pthread_t thread;
    check(-pthread_create(&thread, NULL, compute, counters + i), "pthread_create");
  }
  hurry();
}

/* ---- echo: a read goes back with one system call where the kernel takes it whole */

struct rest {
  uv_write_t request;
  char data[];
};

static void on_closed(uv_handle_t* handle) { free(handle); }

static void on_written(uv_write_t* request, int status) {
  (void)status; /* a broken connection is seen by its reads */
  if (shared) take(request->handle->loop);
  free(request);
}

static void on_alloc(uv_handle_t* handle, size_t suggested, uv_buf_t* buffer) {
  (void)suggested;
  if (shared) take(handle->loop);
  *buffer = uv_buf_init(read_buffer, READ_SIZE);
}

static void on_read(uv_stream_t* stream, ssize_t got, const uv_buf_t* buffer) {
  if (got < 0) {
    if (!uv_is_closing((uv_handle_t*)stream)) uv_close((uv_handle_t*)stream, on_closed);
    return;
  }
  if (!got) return;
  uv_buf_t all = uv_buf_init(buffer->base, (unsigned)got);
  int sent = uv_try_write(stream, &all, 1);
  size_t done = sent > 0 ? (size_t)sent : 0;
  if (done == (size_t)got) return;
  size_t left = (size_t)got - done;
  struct rest* rest = malloc(sizeof *rest + left);
  if (!rest) abort();
  memcpy(rest->data, buffer->base + done, left);
  uv_buf_t out = uv_buf_init(rest->data, (unsigned)left);
  if (uv_write(&rest->request, stream, &out, 1, on_written)) free(rest);
}

static void on_connection(uv_stream_t* server, int status) {
  if (shared) take(server->loop);
  check(status, "listen");
  union {
    uv_tcp_t tcp;
    uv_pipe_t pipe;
  }* client = malloc(sizeof *client);
  if (!client) abort();
  if (server->type == UV_TCP) {
    check(uv_tcp_init(server->loop, &client->tcp), "uv_tcp_init");
    uv_tcp_nodelay(&client->tcp, 1);
  } else
    check(uv_pipe_init(server->loop, &client->pipe, 0), "uv_pipe_init");
  check(uv_accept(server, (uv_stream_t*)client), "uv_accept");
  check(uv_read_start((uv_stream_t*)client, on_alloc, on_read), "uv_read_start");
}

static void serve(uv_stream_t* server, const char* path) {
  check(uv_listen(server, 4096, on_connection), "uv_listen");
  if (path)
    printf("{\"loop\": \"C\", \"address\": \"%s\"}\n", path);
  else {
    struct sockaddr_in address;
    int length = sizeof address;
    check(uv_tcp_getsockname((uv_tcp_t*)server, (struct sockaddr*)&address, &length), "uv_tcp_getsockname");
    printf("{\"loop\": \"C\", \"address\": \"%d\"}\n", ntohs(address.sin_port));
  }
  fflush(stdout);
  uv_run(server->loop, UV_RUN_DEFAULT);
}

static void echo(uv_loop_t* loop, const char* path) {
  uv_tcp_t tcp;
  uv_pipe_t pipe;
  if (path) {
    check(uv_pipe_init(loop, &pipe, 0), "uv_pipe_init");
    check(uv_pipe_bind(&pipe, path), "uv_pipe_bind");
    serve((uv_stream_t*)&pipe, path);
  } else {
    struct sockaddr_in address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    check(uv_tcp_init(loop, &tcp), "uv_tcp_init");
    check(uv_tcp_bind(&tcp, (struct sockaddr*)&address, 0), "uv_tcp_bind");
    serve((uv_stream_t*)&tcp, NULL);
  }
}

/* ---- loops made and closed */

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void new_loop(double time) {
  double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), end = cpu + time, now;
  struct rusage before, after;
  unsigned long done = 0;
  getrusage(RUSAGE_SELF, &before);
  do {
    uv_loop_t loop;
    check(uv_loop_init(&loop), "uv_loop_init");
    check(uv_loop_close(&loop), "uv_loop_close");
    done++;
  } while ((now = seconds(CLOCK_PROCESS_CPUTIME_ID)) < end);
  getrusage(RUSAGE_SELF, &after);
  double user = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6;
  double system = (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                  (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
  printf("{\"operations\": %lu, \"wall\": %.9f, \"cpu\": %.9f, \"user\": %.6f, \"system\": %.6f}\n", done,
         seconds(CLOCK_MONOTONIC) - wall, now - cpu, user, system);
  fflush(stdout);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (!strcmp(what, "version"))
    printf("C on libuv %s\n", uv_version_string());
  else if (!strcmp(what, "echo"))
    echo(uv_default_loop(), NULL);
  else if (!strcmp(what, "unix") && argc > 2)
    echo(uv_default_loop(), argv[2]);
  else if (!strcmp(what, "convoy") && argc > 3) {
    beside(uv_default_loop(), argv[2], atoi(argv[3]));
    echo(uv_default_loop(), NULL);
  } else if (!strcmp(what, "new_loop")) {
    char line[64];
    puts("{\"loop\": \"C\"}");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) new_loop(atof(line));
  } else
    return fputs("usage: floor version|echo|unix PATH|convoy FILE THREADS|new_loop\n", stderr), 2;
  return 0;
}
