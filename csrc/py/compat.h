// What differs between the CPython versions we support: the only file that looks at PY_VERSION_HEX.
// Everything else asks the functions and constants here.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstring>

#if PY_VERSION_HEX < 0x030B0000
#error "uvpy needs CPython 3.11 or newer"
#endif

namespace uvpy::py {

// Server._attach and _detach take the transport since 3.13; before, nothing.
inline constexpr bool kServerKnowsTransports = PY_VERSION_HEX >= 0x030D0000;
// call_soon_threadsafe gives a handle whose cancel() waits for a running callback since 3.14.
inline constexpr bool kThreadSafeHandles = PY_VERSION_HEX >= 0x030E0000;
// _add_reader and _add_writer, what transports use, take a context since 3.15; the public ones never.
inline constexpr bool kReadersTakeContext = PY_VERSION_HEX >= 0x030F0000;
// An empty datagram is sent, and each one's header counts as this many bytes of the write buffer, since 3.13.
inline constexpr bool kSendsEmptyDatagrams = PY_VERSION_HEX >= 0x030D0000;
inline constexpr std::size_t kDatagramHeader = PY_VERSION_HEX >= 0x030D0000 ? 8 : 0;
// writelines() joins its chunks and calls write() up to 3.11, and takes them one by one since.
inline constexpr bool kWritelinesJoins = PY_VERSION_HEX < 0x030C0000;
// It leaves out what is false (gh-155888, also in the later releases of 3.14), be it no data at all.
inline constexpr bool kWritelinesSkips = PY_VERSION_HEX >= 0x030E0000;
// What write() of a socket's transport says of data that is none.
inline constexpr const char* kNotData = PY_VERSION_HEX >= 0x030E0000
                                            ? "data argument must be a bytes, bytearray, or memoryview object, not %R"
                                            : "data argument must be a bytes-like object, not %R";
// asyncio waits for a child in a thread by default up to 3.11, and by a pidfd since: the texts in its log differ.
inline constexpr bool kChildrenByThread = PY_VERSION_HEX < 0x030C0000;
// The interpreters before 3.12 run the body of a function without asking for its vectorcall.
inline constexpr bool kRunsBodiesOfFunctions = PY_VERSION_HEX < 0x030C0000;
// BaseEventLoop.create_task's parameters, as inspect.signature() shows them.
inline constexpr const char* kCreateTaskDoc =
    PY_VERSION_HEX >= 0x030E0000 ? "create_task($self, coro, **kwargs)\n--\n\nSchedule a coroutine as an asyncio.Task, "
                                   "or what the factory makes."
                                 : "create_task($self, coro, *, name=None, context=None)\n--\n\n"
                                   "Schedule a coroutine as an asyncio.Task, or what the factory makes.";
// The newest CPython this source has been tested on; a newer one gets a warning at import.
inline constexpr int kNewestTestedMinor = 15;

// The exception being handled, taken out of the thread state: a new reference, or null.
inline PyObject* take_raised() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) {
    return nullptr;
  }
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) {
    PyException_SetTraceback(value, traceback);
    Py_DECREF(traceback);
  }
  Py_DECREF(type);
  return value;
#endif
}

// Puts an exception taken by take_raised() back; steals the reference.
inline void put_raised(PyObject* exc) {
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(exc);
#else
  PyObject* type = Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exc)));
  PyErr_Restore(type, exc, PyException_GetTraceback(exc));
#endif
}

// What C code, and the interpreter from 3.12 on, does for a call of a Python function. Gives what it did before.
inline vectorcallfunc set_vectorcall(PyObject* function, vectorcallfunc call) {
  vectorcallfunc before = reinterpret_cast<PyFunctionObject*>(function)->vectorcall;
#if PY_VERSION_HEX >= 0x030C0000
  PyFunction_SetVectorcall(reinterpret_cast<PyFunctionObject*>(function), call);
#else
  reinterpret_cast<PyFunctionObject*>(function)->vectorcall = call;
#endif
  return before;
}

// What a weak reference refers to, a new reference; null, without an error, where it lives no more.
inline PyObject* referent_of(PyObject* weak_reference) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  PyWeakref_GetRef(weak_reference, &found);
  return found;
#else
  PyObject* found = PyWeakref_GetObject(weak_reference);
  return found == Py_None ? nullptr : Py_NewRef(found);
#endif
}

// Whether a weak reference is one to `object`, which lives.
inline bool refers_to(PyObject* weak_reference, PyObject* object) {
  PyObject* found = referent_of(weak_reference);
  Py_XDECREF(found);
  return found == object;
}

// Whether a reference count of one means that nobody else has the object. Not without a GIL.
#ifdef Py_GIL_DISABLED
inline constexpr bool kSoleOwnerIsTold = false;
#else
inline constexpr bool kSoleOwnerIsTold = true;
#endif

// Gives a bytes object that is the caller's alone another length, for which it has room, after its content was changed: as
// when just made, its hash is not known.
inline void resize_bytes(PyObject* bytes, Py_ssize_t size) {
  auto* object = reinterpret_cast<PyBytesObject*>(bytes);
  Py_SET_SIZE(object, size);
  object->ob_sval[size] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  object->ob_shash = -1;
#pragma GCC diagnostic pop
}

inline bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace uvpy::py
