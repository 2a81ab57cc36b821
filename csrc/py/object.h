// Object<T>: puts a C++ class in a Python object. The header stays outside the class: a class that derives from
// PyObject and is placement-new'ed loses its header stores to the optimiser. So the box constructs and destroys the
// nested `state` only, once for all types and in the one right order.
//
// A class T says what its objects have: kWeakrefs, kDict, and kBaseWords, the number of words that the fields of its
// Python base (asyncio's transports have slots) take between the header and us. It has visit(visitproc, void*) and
// clear() for the garbage collector, and finalize() when kFinalizer is true.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>
#include <new>

#include "py/pool.h"

namespace uvpy::py {

template <std::size_t N>
struct BaseWords {
  PyObject* words[N];
};
template <>
struct BaseWords<0> {};

template <class T>
struct Object {
  PyObject ob_base;
  [[no_unique_address]] BaseWords<T::kBaseWords> base;
  PyObject* weakrefs;
  PyObject* dict;
  T state;
};

template <class T>
T* state_of(PyObject* self) {
  return &reinterpret_cast<Object<T>*>(self)->state;
}

// The Python object around a state: a borrowed pointer.
template <class T>
PyObject* object_of(const T* state) {
  auto at = reinterpret_cast<std::size_t>(state) - offsetof(Object<T>, state);
  return reinterpret_cast<PyObject*>(at);
}

template <class T>
inline constexpr bool kIsPooled = requires { T::kPooled; };

// A new object of a type made by make_type<T>, its state constructed without arguments; null with MemoryError set.
// The constructor must not touch Python: the collector knows the object already, unless it is made untracked.
template <class T, bool kTracked = true>
PyObject* create(PyTypeObject* type) {
  if constexpr (kIsPooled<T>) {
    if (void* block = Pool<T>::take(); block != nullptr) [[likely]] {
      auto* box = static_cast<Object<T>*>(block);
      PyObject* self = PyObject_Init(&box->ob_base, type);
      box->weakrefs = nullptr;
      box->dict = nullptr;
      new (&box->state) T();
      if constexpr (kTracked) {
        PyObject_GC_Track(self);
      }
      return self;
    }
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self != nullptr) {
    new (&reinterpret_cast<Object<T>*>(self)->state) T();
    if constexpr (!kTracked) {
      PyObject_GC_UnTrack(self);
    }
  }
  return self;
}

template <class T>
struct Slots {
  static void dealloc(PyObject* self) {
    if constexpr (T::kFinalizer) {
      if (PyObject_CallFinalizerFromDealloc(self) < 0) {
        return;  // the finalizer gave the object a new life
      }
    }
    PyObject_GC_UnTrack(self);
    // A long chain of objects, each the last owner of the next, must not use up the stack.
    Py_TRASHCAN_BEGIN(self, dealloc);
    destroy(self);
    Py_TRASHCAN_END
  }

  static void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    auto* box = reinterpret_cast<Object<T>*>(self);
    if (T::kWeakrefs && box->weakrefs != nullptr) {
      PyObject_ClearWeakRefs(self);
    }
    box->state.~T();
    if constexpr (T::kDict) {
      Py_CLEAR(box->dict);
    }
    if constexpr (T::kBaseWords > 0) {
      for (PyObject*& word : box->base.words) {
        Py_CLEAR(word);
      }
    }
    bool is_kept = false;
    if constexpr (kIsPooled<T>) {
      // Not what a class made in Python derives: such objects have more in front.
      static_assert(!T::kFinalizer && T::kBaseWords == 0);
      is_kept = (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 && Pool<T>::give(self);
    }
    if (!is_kept) {
      type->tp_free(self);
    }
    Py_DECREF(type);
  }

  static int traverse(PyObject* self, visitproc visit, void* arg) {
    auto* box = reinterpret_cast<Object<T>*>(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(box->dict);
    if constexpr (T::kBaseWords > 0) {
      for (PyObject* word : box->base.words) {
        Py_VISIT(word);
      }
    }
    return box->state.visit(visit, arg);
  }

  static int clear(PyObject* self) {
    auto* box = reinterpret_cast<Object<T>*>(self);
    Py_CLEAR(box->dict);
    box->state.clear();
    return 0;
  }

  static void finalize(PyObject* self) {
    if constexpr (T::kFinalizer) {
      state_of<T>(self)->finalize();
    }
  }
};

}  // namespace uvpy::py
