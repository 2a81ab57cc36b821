/* CPython's share of an echo: data_received() called as a transport calls it, on a protocol that calls write() of a C
   method that does nothing. A library for ctypes.PyDLL. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject* quiet_write(void);
int receive(PyObject* protocol, PyObject* name, PyObject* data, int times);
int receive_after_waiting(PyObject* protocol, PyObject* name, PyObject* data, int times);

static PyObject* write_nothing(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  (void)self, (void)args, (void)count, (void)names;
  Py_RETURN_NONE;
}

static PyMethodDef method = {"write", (PyCFunction)(void (*)(void))write_nothing, METH_FASTCALL | METH_KEYWORDS, NULL};

/* Bound, as a transport's is. */
PyObject* quiet_write(void) { return PyCFunction_New(&method, Py_None); }

static int call(PyObject* protocol, PyObject* name, PyObject* data) {
  PyObject* arguments[] = {NULL, protocol, data};
  PyObject* result = PyObject_VectorcallMethod(name, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
  if (!result) return -1;
  Py_DECREF(result);
  return 0;
}

int receive(PyObject* protocol, PyObject* name, PyObject* data, int times) {
  for (int i = 0; i < times; i++)
    if (call(protocol, name, data)) return -1;
  return 0;
}

/* With what else CPython does for a request whatever loop there is: the GIL is given up for the wait, signals are looked
   for, a context is entered, and the bytes become an object. */
int receive_after_waiting(PyObject* protocol, PyObject* name, PyObject* data, int times) {
  PyObject* context = PyContext_CopyCurrent();
  int failed = !context;
  for (int i = 0; i < times && !failed; i++) {
    PyEval_RestoreThread(PyEval_SaveThread());
    PyObject* bytes = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data));
    failed = PyErr_CheckSignals() || !bytes || PyContext_Enter(context) || call(protocol, name, bytes) ||
             PyContext_Exit(context);
    Py_XDECREF(bytes);
  }
  Py_XDECREF(context);
  return failed ? -1 : 0;
}
