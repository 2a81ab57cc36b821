/* The libuv loop of uvpy for other extensions, called guests here: what a guest may call, and the rules that it keeps.
 * Plain C, also for C++. Include it first of all, as one does Python.h, which is in it. uv.h must be found, but libuv must
 * NOT be linked: uvpy may carry a libuv of its own that nobody else can see, so everything is called through the table
 * below.
 *
 *     loop = asyncio.get_running_loop()
 *     capsule = uvpy.libuv_loop_ptr(loop)          # hand this to the extension
 *     include_dirs = [uvpy.get_include()]          # in setup.py
 *
 *     uv_loop_t* loop;
 *     const uvpy_guest* host = uvpy_guest_from(capsule, &loop);    // NULL with an exception set
 *     uv_timer_t* timer = malloc(host->handle_size(UV_TIMER));     // not sizeof: see SIZES
 *     host->timer_init(loop, timer);
 *     host->timer_start(timer, on_timer, 20, 0);
 *
 *     static void on_timer(uv_timer_t* timer) {
 *       if (host->enter(timer->loop) <= 0) return;                 // the GIL is held from here on
 *       PyObject* result = PyObject_CallNoArgs(callback);
 *       if (result == NULL) host->report(timer->loop, "Exception in a timer of mine");
 *       Py_XDECREF(result);
 *     }
 *
 * GIL. The loop gives the GIL up while it waits, and the first callback after that may be yours. So a callback that does
 * anything with Python begins with enter(), never with PyGILState_Ensure(), and does not give the GIL back at its end.
 * Between the two it may do what any Python code may (with Py_BEGIN_ALLOW_THREADS around what blocks). A callback that
 * touches no Python at all may do without. `alloc_cb`s are callbacks, too.
 *
 * WHEN. Callbacks run in the loop's poll. What they schedule by call_soon() runs behind what was scheduled before, as from
 * any callback. To take your place in asyncio's order, do not call the program's code from the callback but schedule
 * it: loop.call_soon(callback). Which is also what remains where enter() says 0: a run that is ending (somebody raised
 * KeyboardInterrupt) calls no more code, and what you schedule waits for the next run.
 *
 * ERRORS. A libuv callback has no caller. Give the Python exception that is set to report(): it goes to
 * loop.call_exception_handler(), and KeyboardInterrupt and SystemExit end the run and come out of it. Never return from
 * a callback with an exception set; never throw a C++ exception through one.
 *
 * THREADS. The table is for the thread that runs the loop, and for any thread that holds the GIL while nobody does. Only
 * async_send(), with or without the GIL, is for every thread at any time (not for C signal handlers: it takes a lock), also
 * when the loop has been closed, as long as the memory of the handle and the capsule are there. Others are told UV_EPERM,
 * and nothing has happened. (In Python: loop.call_soon_threadsafe().)
 *
 * CLOSING. Handles are yours: memory, `data`, and closing them. The memory must stay until the close callback has come.
 * loop.close() closes what you have left open, with a ResourceWarning, without a callback and without a look at `data`;
 * is_open() says 0 from then on, and every function of the table refuses with UV_ECANCELED. close() can be called all
 * the same, once for each handle: its callback always comes; at once, from within close(), where loop.close() has closed
 * the handle already. So an object that calls close() when it is dropped, and frees the memory in the callback, is right
 * in every case. A close callback, and those that come with UV_ECANCELED before it, may come while the loop is closed:
 * enter() says 0 there, and the GIL is held: dropping references is all right, calling the program's code is not.
 *
 * LIFETIME. The capsule keeps the loop object alive, and with it the memory of the uv_loop_t: keep the capsule until your
 * last handle is closed. An asyncio program closes its loop at the end of asyncio.run(), whatever you keep.
 *
 * FORK. A forked child has no part in its parent's loop: is_open() says 0, functions refuse with UV_ECANCELED, and
 * close() calls its callback at once and touches nothing. Ask for the capsule of a loop that the child has made.
 *
 * SIZES. Handles and requests differ in size between versions of libuv. handle_size() and req_size() give those of the
 * libuv that runs; a struct of your own uv.h will do only where UVPY_FITS(host, UV_TIMER, uv_timer_t) says so. The fields
 * `data`, `loop` and `type` are where your uv.h says in all of libuv 1.
 *
 * WHAT IS MISSING, and why. uv_run, uv_stop, uv_loop_close, uv_walk: the loop is ours. uv_signal and uv_spawn take signals
 * away from Python. uv_queue_work, uv_fs_*, uv_getaddrinfo: they would hold loop.close() up; use loop.run_in_executor().
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef UVPY_H
#define UVPY_H

#include <Python.h>
#include <uv.h>

#if UV_VERSION_MAJOR != 1
#error "uvpy.h is for libuv 1"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define UVPY_CAPSULE_NAME "uvpy.uv_loop_t"
/* Another number: another table. A newer uvpy of the same number adds entries at the end. */
#define UVPY_GUEST_ABI 1U

typedef struct uvpy_guest {
  /* What may be looked at before anything else, and never moves. */
  size_t size;         /* bytes of this table that the uvpy has that runs */
  unsigned abi;        /* its UVPY_GUEST_ABI */
  unsigned uv_version; /* uv_version() of its libuv: to be compared with UV_VERSION_HEX */

  /* 1 when handles can be made and started; 0 when the loop is closed or belongs to the process that forked this one. */
  int (*is_open)(const uv_loop_t* loop);
  /* First in each callback. Takes the GIL. 1: go on. 0: the GIL is held, but do not run the program's code: the run is
   * ending, or the loop is. UV_EPERM: this is not the loop's thread, and you do not have the GIL. */
  int (*enter)(uv_loop_t* loop);
  /* Ends the Python exception that is set, see ERRORS; `message`, or NULL, is for the exception handler. */
  void (*report)(uv_loop_t* loop, const char* message);

  size_t (*handle_size)(uv_handle_type type);
  size_t (*req_size)(uv_req_type type);
  const char* (*strerror)(int error);
  const char* (*err_name)(int error);
  uint64_t (*hrtime)(void);
  uint64_t (*now)(const uv_loop_t* loop);
  void (*update_time)(uv_loop_t* loop);

  /* 0, or UV_EPERM in another thread: nothing has happened then, and the callback does not come. Of a handle that you are
   * closing already nothing comes of it. */
  int (*close)(uv_handle_t* handle, uv_close_cb on_close);
  int (*is_active)(const uv_handle_t* handle);
  int (*is_closing)(const uv_handle_t* handle);
  int (*get_fd)(const uv_handle_t* handle, uv_os_fd_t* fd);

  /* Counted from the call, not from the time that the loop last looked at the clock, as libuv itself does. */
  int (*timer_init)(uv_loop_t* loop, uv_timer_t* timer);
  int (*timer_start)(uv_timer_t* timer, uv_timer_cb on_timer, uint64_t timeout, uint64_t repeat);
  int (*timer_stop)(uv_timer_t* timer);
  int (*timer_again)(uv_timer_t* timer);

  int (*async_init)(uv_loop_t* loop, uv_async_t* async, uv_async_cb on_async);
  int (*async_send)(uv_async_t* async); /* from any thread */

  int (*idle_init)(uv_loop_t* loop, uv_idle_t* idle);
  int (*idle_start)(uv_idle_t* idle, uv_idle_cb on_idle);
  int (*idle_stop)(uv_idle_t* idle);
  int (*prepare_init)(uv_loop_t* loop, uv_prepare_t* prepare);
  int (*prepare_start)(uv_prepare_t* prepare, uv_prepare_cb on_prepare);
  int (*prepare_stop)(uv_prepare_t* prepare);
  int (*check_init)(uv_loop_t* loop, uv_check_t* check);
  int (*check_start)(uv_check_t* check, uv_check_cb on_check);
  int (*check_stop)(uv_check_t* check);

  /* A descriptor that libuv watches must not be closed before poll_stop() or close(): libuv would end the process. */
  int (*poll_init)(uv_loop_t* loop, uv_poll_t* poll, int fd);
  int (*poll_start)(uv_poll_t* poll, int events, uv_poll_cb on_poll);
  int (*poll_stop)(uv_poll_t* poll);

  /* Streams: *_open takes the descriptor over. */
  int (*tcp_init)(uv_loop_t* loop, uv_tcp_t* tcp);
  int (*tcp_open)(uv_tcp_t* tcp, uv_os_sock_t sock);
  int (*tcp_connect)(uv_connect_t* request, uv_tcp_t* tcp, const struct sockaddr* address, uv_connect_cb on_connect);
  int (*tcp_nodelay)(uv_tcp_t* tcp, int enable);
  int (*pipe_init)(uv_loop_t* loop, uv_pipe_t* pipe, int ipc);
  int (*pipe_open)(uv_pipe_t* pipe, uv_file fd); /* a regular file or /dev/null would end the process */
  int (*read_start)(uv_stream_t* stream, uv_alloc_cb on_alloc, uv_read_cb on_read);
  int (*read_stop)(uv_stream_t* stream);
  int (*write)(uv_write_t* request, uv_stream_t* stream, const uv_buf_t buffers[], unsigned count,
               uv_write_cb on_write);
  int (*try_write)(uv_stream_t* stream, const uv_buf_t buffers[], unsigned count);
  int (*shutdown)(uv_shutdown_t* request, uv_stream_t* stream, uv_shutdown_cb on_shutdown);
  size_t (*stream_write_queue_size)(const uv_stream_t* stream);

  int (*udp_init)(uv_loop_t* loop, uv_udp_t* udp);
  int (*udp_open)(uv_udp_t* udp, uv_os_sock_t sock);
  int (*udp_send)(uv_udp_send_t* request, uv_udp_t* udp, const uv_buf_t buffers[], unsigned count,
                  const struct sockaddr* address, uv_udp_send_cb on_send);
  int (*udp_try_send)(uv_udp_t* udp, const uv_buf_t buffers[], unsigned count, const struct sockaddr* address);
  int (*udp_recv_start)(uv_udp_t* udp, uv_alloc_cb on_alloc, uv_udp_recv_cb on_receive);
  int (*udp_recv_stop)(uv_udp_t* udp);

  int (*fs_event_init)(uv_loop_t* loop, uv_fs_event_t* event);
  int (*fs_event_start)(uv_fs_event_t* event, uv_fs_event_cb on_event, const char* path, unsigned flags);
  int (*fs_event_stop)(uv_fs_event_t* event);
} uvpy_guest;

/* Whether a struct of this uv.h is large enough for the libuv that runs. */
#define UVPY_FITS(host, handle_type, c_type) ((host)->handle_size(handle_type) <= sizeof(c_type))

/* The table and the loop of what uvpy.libuv_loop_ptr() has given: borrowed from the capsule. NULL with an exception set for
 * another object, and with ImportError for a uvpy that has not all of the table that this header describes. */
static inline const uvpy_guest* uvpy_guest_from(PyObject* capsule, uv_loop_t** loop) {
  const uvpy_guest* host;
  *loop = (uv_loop_t*)PyCapsule_GetPointer(capsule, UVPY_CAPSULE_NAME);
  if (*loop == NULL) {
    return NULL;
  }
  host = (const uvpy_guest*)PyCapsule_GetContext(capsule);
  if (host == NULL || host->abi != UVPY_GUEST_ABI || host->size < sizeof(uvpy_guest) ||
      host->uv_version >> 16 != UV_VERSION_MAJOR) {
    PyErr_SetString(PyExc_ImportError, "the extension was built for another uvpy than the one that runs");
    return NULL;
  }
  return host;
}

#ifdef __cplusplus
}
#endif

#endif /* UVPY_H */
