/* CPython's share of an echo: data_received() called as a transport calls it, on a protocol that calls write() of a C
   method that does nothing. A library for ctypes.PyDLL. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject* quiet_write(void);
int receive(PyObject* protocol, PyObject* name, PyObject* data, int times);

static PyObject* write_nothing(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  (void)self, (void)args, (void)count, (void)names;
  Py_RETURN_NONE;
}

static PyMethodDef method = {"write", (PyCFunction)(void (*)(void))write_nothing, METH_FASTCALL | METH_KEYWORDS, NULL};

/* Bound, as a transport's is. */
PyObject* quiet_write(void) { return PyCFunction_New(&method, Py_None); }

int receive(PyObject* protocol, PyObject* name, PyObject* data, int times) {
  for (int i = 0; i < times; i++) {
    PyObject* arguments[] = {NULL, protocol, data};
    PyObject* result = PyObject_VectorcallMethod(name, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (!result) return -1;
    Py_DECREF(result);
  }
  return 0;
}
