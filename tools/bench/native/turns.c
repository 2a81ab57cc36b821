/* The floor of a turn that has to look at descriptors: one epoll_wait that does not block, then the callback that was
   scheduled, in a copy of the context in which it was, by CPython's own functions. No handle to cancel, no timers, nothing
   that stops it but that nothing is scheduled. Loaded by cases/scheduling.py with ctypes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sys/epoll.h>

enum { ROOM = 256 };

static PyObject* next_callback;
static PyObject* next_context;

static PyObject* call_soon(PyObject* self, PyObject* callback) {
  (void)self;
  PyObject* context = PyContext_CopyCurrent();
  if (!context) return NULL;
  next_context = context;
  next_callback = Py_NewRef(callback);
  Py_RETURN_NONE;
}

static PyMethodDef call_soon_row = {"call_soon", call_soon, METH_O, "Schedules the one callback of the next turn."};

PyObject* make_call_soon(void) { return PyCFunction_New(&call_soon_row, NULL); }

/* Turns until nothing is scheduled. */
PyObject* run_turns(int set) {
  struct epoll_event events[ROOM];
  while (next_callback) {
    if (epoll_wait(set, events, ROOM, 0) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *callback = next_callback, *context = next_context;
    next_callback = next_context = NULL;
    PyObject* result = PyContext_Enter(context) < 0 ? NULL : PyObject_CallNoArgs(callback);
    if (result) PyContext_Exit(context);
    Py_DECREF(context);
    Py_DECREF(callback);
    if (!result) return NULL;
    Py_DECREF(result);
  }
  Py_RETURN_NONE;
}
