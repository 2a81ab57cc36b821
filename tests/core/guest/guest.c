/* A guest on uvpy's loop, as another extension may be written: one type, Handle(capsule, kind, callback, fd=-1), over a
 * libuv handle of its own. Built by tests/core/test_guest.py with setuptools; keeps the rules of uvpy.h, but where a test
 * asks it not to (`careless`).
 * SPDX-License-Identifier: MIT
 */
#define PY_SSIZE_T_CLEAN
#include "uvpy.h" /* Python.h is in it, and wants to be the first */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What must live until the handle is closed, which may be longer than the Python object. */
typedef struct {
  const uvpy_guest* host;
  PyObject* capsule;
  PyObject* callback;
  int careless;
  unsigned refused;
  char buffer[256];
  void* mark; /* what data is to point to: loop.close() must leave it */
  uv_handle_t* handle;
} Box;

typedef struct {
  PyObject_HEAD Box* box;
  pthread_t thread;
  int in_thread;
  int stop;
} Handle;

static long boxes = 0; /* not yet freed */

static void run(Box* box, const char* format, const char* bytes, Py_ssize_t count) {
  uv_loop_t* loop = box->handle->loop;
  PyObject* result;
  if (box->host->enter(loop) <= 0) {
    ++box->refused;
    return;
  }
  if (box->callback == NULL) {
    return;
  }
  result =
      format == NULL ? PyObject_CallNoArgs(box->callback) : PyObject_CallFunction(box->callback, format, bytes, count);
  if (result == NULL && !box->careless) {
    box->host->report(loop, "Exception in a guest");
  }
  Py_XDECREF(result);
}

static Box* box_of(void* handle) { return (Box*)((uv_handle_t*)handle)->data; }
static void on_timer(uv_timer_t* handle) { run(box_of(handle), NULL, NULL, 0); }
static void on_async(uv_async_t* handle) { run(box_of(handle), NULL, NULL, 0); }
static void on_idle(uv_idle_t* handle) { run(box_of(handle), NULL, NULL, 0); }
static void on_prepare(uv_prepare_t* handle) { run(box_of(handle), NULL, NULL, 0); }
static void on_check(uv_check_t* handle) { run(box_of(handle), NULL, NULL, 0); }
static void on_poll(uv_poll_t* handle, int status, int events) {
  (void)status;
  (void)events;
  run(box_of(handle), NULL, NULL, 0);
}
static void on_alloc(uv_handle_t* handle, size_t wish, uv_buf_t* buffer) {
  (void)wish;
  buffer->base = box_of(handle)->buffer;
  buffer->len = sizeof(box_of(handle)->buffer);
}
static void on_read(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
  if (count < 0) {
    box_of(stream)->host->read_stop(stream);
  }
  if (count != 0) {
    run(box_of(stream), "y#", buffer->base, count < 0 ? 0 : (Py_ssize_t)count);
  }
}

static void on_close(uv_handle_t* handle) {
  Box* box = box_of(handle);
  (void)box->host->enter(handle->loop); /* whatever it says: references may be dropped */
  Py_CLEAR(box->callback);
  free(box->handle);
  Py_CLEAR(box->capsule); /* the loop's memory may go with it: last */
  free(box);
  --boxes;
}

static const struct {
  const char* name;
  uv_handle_type type;
} kinds[] = {{"timer", UV_TIMER}, {"async", UV_ASYNC}, {"idle", UV_IDLE},      {"prepare", UV_PREPARE},
             {"check", UV_CHECK}, {"poll", UV_POLL},   {"pipe", UV_NAMED_PIPE}};

static int init(Box* box, uv_loop_t* loop, uv_handle_type type, int fd) {
  const uvpy_guest* host = box->host;
  switch (type) {
    case UV_TIMER:
      return host->timer_init(loop, (uv_timer_t*)box->handle);
    case UV_ASYNC:
      return host->async_init(loop, (uv_async_t*)box->handle, on_async);
    case UV_IDLE:
      return host->idle_init(loop, (uv_idle_t*)box->handle);
    case UV_PREPARE:
      return host->prepare_init(loop, (uv_prepare_t*)box->handle);
    case UV_CHECK:
      return host->check_init(loop, (uv_check_t*)box->handle);
    case UV_POLL:
      return host->poll_init(loop, (uv_poll_t*)box->handle, fd);
    default:
      return host->pipe_init(loop, (uv_pipe_t*)box->handle, 0);
  }
}

static PyObject* failed(const uvpy_guest* host, int error) {
  return PyErr_Format(PyExc_OSError, "%s", host->err_name(error));
}

static PyObject* handle_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *capsule, *callback;
  const char* name;
  int fd = -1, error;
  size_t i;
  uv_loop_t* loop;
  const uvpy_guest* host;
  Handle* self;
  Box* box;
  (void)kwargs;
  if (!PyArg_ParseTuple(args, "OsO|i", &capsule, &name, &callback, &fd)) {
    return NULL;
  }
  host = uvpy_guest_from(capsule, &loop);
  if (host == NULL) {
    return NULL;
  }
  for (i = 0; i < sizeof(kinds) / sizeof(*kinds) - 1 && strcmp(kinds[i].name, name) != 0; ++i) {
  }
  box = calloc(1, sizeof(Box));
  box->host = host;
  box->handle = calloc(1, host->handle_size(kinds[i].type));
  error = init(box, loop, kinds[i].type, fd);
  if (error == 0 && kinds[i].type == UV_NAMED_PIPE) {
    error = host->pipe_open((uv_pipe_t*)box->handle, fd);
  }
  if (error != 0) {
    free(box->handle);
    free(box);
    return failed(host, error);
  }
  ++boxes;
  box->handle->data = box;
  box->mark = box;
  box->capsule = Py_NewRef(capsule);
  box->callback = Py_NewRef(callback);
  self = (Handle*)type->tp_alloc(type, 0);
  self->box = box;
  return (PyObject*)self;
}

static PyObject* handle_close(PyObject* object, PyObject* unused) {
  Handle* self = (Handle*)object;
  (void)unused;
  if (self->box != NULL) {
    const uvpy_guest* host = self->box->host;
    int error = host->close(self->box->handle, on_close);
    if (error != 0) {
      return failed(host, error);
    }
    self->box = NULL;
  }
  Py_RETURN_NONE;
}

static void handle_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(handle_close(object, NULL));
  type->tp_free(object);
  Py_DECREF(type);
}

static PyObject* handle_start(PyObject* object, PyObject* args) {
  Box* box = ((Handle*)object)->box;
  const uvpy_guest* host = box->host;
  unsigned long long timeout = 0, repeat = 0;
  int error;
  if (!PyArg_ParseTuple(args, "|KK", &timeout, &repeat)) {
    return NULL;
  }
  switch (box->handle->type) {
    case UV_TIMER:
      error = host->timer_start((uv_timer_t*)box->handle, on_timer, timeout, repeat);
      break;
    case UV_IDLE:
      error = host->idle_start((uv_idle_t*)box->handle, on_idle);
      break;
    case UV_PREPARE:
      error = host->prepare_start((uv_prepare_t*)box->handle, on_prepare);
      break;
    case UV_CHECK:
      error = host->check_start((uv_check_t*)box->handle, on_check);
      break;
    case UV_POLL:
      error = host->poll_start((uv_poll_t*)box->handle, UV_READABLE, on_poll);
      break;
    default:
      error = host->read_start((uv_stream_t*)box->handle, on_alloc, on_read);
  }
  if (error != 0) {
    return failed(host, error);
  }
  Py_RETURN_NONE;
}

static PyObject* handle_again(PyObject* object, PyObject* unused) {
  Box* box = ((Handle*)object)->box;
  (void)unused;
  return PyLong_FromLong(box->host->timer_again((uv_timer_t*)box->handle));
}

static PyObject* handle_stop(PyObject* object, PyObject* unused) {
  Box* box = ((Handle*)object)->box;
  const uvpy_guest* host = box->host;
  (void)unused;
  return PyLong_FromLong(box->handle->type == UV_TIMER   ? host->timer_stop((uv_timer_t*)box->handle)
                         : box->handle->type == UV_IDLE  ? host->idle_stop((uv_idle_t*)box->handle)
                         : box->handle->type == UV_POLL  ? host->poll_stop((uv_poll_t*)box->handle)
                         : box->handle->type == UV_CHECK ? host->check_stop((uv_check_t*)box->handle)
                                                         : host->prepare_stop((uv_prepare_t*)box->handle));
}

static PyObject* handle_send(PyObject* object, PyObject* unused) {
  Box* box = ((Handle*)object)->box;
  (void)unused;
  return PyLong_FromLong(box->host->async_send((uv_async_t*)box->handle));
}

static PyObject* handle_write(PyObject* object, PyObject* args) {
  Box* box = ((Handle*)object)->box;
  const char* bytes;
  Py_ssize_t count;
  uv_buf_t buffer;
  if (!PyArg_ParseTuple(args, "y#", &bytes, &count)) {
    return NULL;
  }
  buffer.base = (char*)bytes;
  buffer.len = (size_t)count;
  return PyLong_FromLong(box->host->try_write((uv_stream_t*)box->handle, &buffer, 1));
}

/* A thread that Python does not know: sends for ever, or once. */
static void* sender(void* argument) {
  Handle* self = argument;
  do {
    self->box->host->async_send((uv_async_t*)self->box->handle);
  } while (!__atomic_load_n(&self->stop, __ATOMIC_SEQ_CST));
  return NULL;
}

static PyObject* handle_begin_sending(PyObject* object, PyObject* once) {
  Handle* self = (Handle*)object;
  self->stop = PyObject_IsTrue(once);
  self->in_thread = 1;
  pthread_create(&self->thread, NULL, sender, self);
  Py_RETURN_NONE;
}

static PyObject* handle_end_sending(PyObject* object, PyObject* unused) {
  Handle* self = (Handle*)object;
  (void)unused;
  __atomic_store_n(&self->stop, 1, __ATOMIC_SEQ_CST);
  if (self->in_thread) {
    self->in_thread = 0;
    Py_BEGIN_ALLOW_THREADS pthread_join(self->thread, NULL);
    Py_END_ALLOW_THREADS
  }
  Py_RETURN_NONE;
}

static PyObject* handle_get(PyObject* object, void* which) {
  Box* box = ((Handle*)object)->box;
  if (which == NULL) {
    return PyLong_FromUnsignedLong(box->refused);
  }
  if (*(const char*)which == 'o') {
    return PyBool_FromLong(box->host->is_open(box->handle->loop));
  }
  if (*(const char*)which == 'c') {
    return PyBool_FromLong(box->host->is_closing(box->handle));
  }
  return PyBool_FromLong(box->handle->data == box && box->mark == box);
}

static int handle_set_careless(PyObject* object, PyObject* value, void* unused) {
  (void)unused;
  ((Handle*)object)->box->careless = PyObject_IsTrue(value);
  return 0;
}

static PyMethodDef handle_methods[] = {{"close", handle_close, METH_NOARGS, NULL},
                                       {"start", handle_start, METH_VARARGS, NULL},
                                       {"again", handle_again, METH_NOARGS, NULL},
                                       {"stop", handle_stop, METH_NOARGS, NULL},
                                       {"send", handle_send, METH_NOARGS, NULL},
                                       {"write", handle_write, METH_VARARGS, NULL},
                                       {"begin_sending", handle_begin_sending, METH_O, NULL},
                                       {"end_sending", handle_end_sending, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyGetSetDef handle_attributes[] = {
    {"refused", handle_get, NULL, NULL, NULL},           {"loop_is_open", handle_get, NULL, NULL, "o"},
    {"is_closing", handle_get, NULL, NULL, "c"},         {"data_is_untouched", handle_get, NULL, NULL, "d"},
    {"careless", NULL, handle_set_careless, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot handle_slots[] = {{Py_tp_new, handle_new},
                                     {Py_tp_dealloc, handle_dealloc},
                                     {Py_tp_methods, handle_methods},
                                     {Py_tp_getset, handle_attributes},
                                     {0, NULL}};
static PyType_Spec handle_spec = {"guest.Handle", sizeof(Handle), 0, Py_TPFLAGS_DEFAULT, handle_slots};

/* {"abi", "size", "uv_version", "known_size", "fits"} of the table of a capsule. */
static PyObject* table(PyObject* module, PyObject* capsule) {
  uv_loop_t* loop;
  const uvpy_guest* host = uvpy_guest_from(capsule, &loop);
  (void)module;
  if (host == NULL) {
    return NULL;
  }
  return Py_BuildValue("{sIsnsIsnsnsO}", "abi", host->abi, "size", (Py_ssize_t)host->size, "uv_version",
                       host->uv_version, "known_size", (Py_ssize_t)sizeof(uvpy_guest), "timer_size",
                       (Py_ssize_t)host->handle_size(UV_TIMER), "fits",
                       UVPY_FITS(host, UV_TIMER, uv_timer_t) ? Py_True : Py_False);
}

static PyObject* alive(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return PyLong_FromLong(boxes);
}

static PyMethodDef functions[] = {
    {"table", table, METH_O, NULL}, {"alive", alive, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "guest", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_guest(void) {
  PyObject* module = PyModule_Create(&definition);
  PyObject* type = module == NULL ? NULL : PyType_FromSpec(&handle_spec);
  if (type == NULL || PyModule_AddObject(module, "Handle", type) < 0) {
    Py_XDECREF(module);
    return NULL;
  }
  return module;
}
