// Rows for method and attribute tables: method<&T::f>("name", "doc") picks the calling convention from the signature
// of the member function, so that no row carries a cast and the work stands in ordinary members.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>

#include "py/args.h"
#include "py/object.h"

namespace uvpy::py {

template <class F>
struct Member;
template <class C>
struct Member<PyObject* (C::*)()> {
  using Class = C;
  static constexpr int kFlags = METH_NOARGS;
  template <class T, auto F>
  static PyObject* call(PyObject* self, PyObject*) {
    return (state_of<T>(self)->*F)();
  }
  template <class T, auto F>
  static PyCFunction pointer() {
    return &call<T, F>;
  }
};
template <class C>
struct Member<PyObject* (C::*)(PyObject*)> {
  using Class = C;
  static constexpr int kFlags = METH_O;
  template <class T, auto F>
  static PyObject* call(PyObject* self, PyObject* arg) {
    return (state_of<T>(self)->*F)(arg);
  }
  template <class T, auto F>
  static PyCFunction pointer() {
    return &call<T, F>;
  }
};
template <class C>
struct Member<PyObject* (C::*)(PyObject* const*, Py_ssize_t, PyObject*)> {
  using Class = C;
  static constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;
  template <class T, auto F>
  static PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
    return (state_of<T>(self)->*F)(args, nargs, kwnames);
  }
  template <class T, auto F>
  static PyCFunction pointer() {
    // CPython's tables hold every convention in one pointer type; the flags say which it is.
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call<T, F>));
  }
};

// The _of forms name the boxed class T, for members that it inherits.
template <class T, auto F>
PyMethodDef method_of(const char* name, const char* doc) {
  using M = Member<decltype(F)>;
  return {name, M::template pointer<T, F>(), M::kFlags, doc};
}
template <auto F>
PyMethodDef method(const char* name, const char* doc) {
  return method_of<typename Member<decltype(F)>::Class, F>(name, doc);
}

// A name as a template argument.
template <std::size_t N>
struct Name {
  char text[N]{};
  constexpr Name(const char (&from)[N]) {  // NOLINT(google-explicit-constructor): a literal is a Name
    for (std::size_t i = 0; i < N; ++i) {
      text[i] = from[i];
    }
  }
};

// A method of one argument that may be given by keyword too, as methods written in Python take it.
template <class T, auto F, Name Method, Name Parameter>
PyObject* call_with_keyword(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {Parameter.text};
  PyObject* given = nullptr;
  if (kwnames == nullptr && nargs == 1) [[likely]] {
    given = args[0];
  } else if (!parse({Method.text, kNames, 1, 1}, args, nargs, kwnames, &given)) {
    return nullptr;
  }
  return (state_of<T>(self)->*F)(given);
}
template <class T, auto F, Name Method, Name Parameter>
PyMethodDef keyword_method_of(const char* doc) {
  return {Method.text,
          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_with_keyword<T, F, Method, Parameter>)),
          METH_FASTCALL | METH_KEYWORDS, doc};
}
template <auto F, Name Method, Name Parameter>
PyMethodDef keyword_method(const char* doc) {
  return keyword_method_of<typename Member<decltype(F)>::Class, F, Method, Parameter>(doc);
}

template <class T, auto F>
PyObject* get_attribute(PyObject* self, void*) {
  return (state_of<T>(self)->*F)();
}
template <class F>
struct Setter;
template <class C>
struct Setter<int (C::*)(PyObject*)> {
  template <auto F>
  static int set(PyObject* self, PyObject* value, void*) {
    return (state_of<C>(self)->*F)(value);
  }
};

template <class T, auto Get>
PyGetSetDef getter_of(const char* name, const char* doc) {
  return {name, &get_attribute<T, Get>, nullptr, doc, nullptr};
}
template <class T, auto Set>
int set_attribute(PyObject* self, PyObject* value, void*) {
  return (state_of<T>(self)->*Set)(value);
}
// The setter's argument is null when the attribute is deleted.
template <class T, auto Get, auto Set>
PyGetSetDef getset_of(const char* name, const char* doc) {
  return {name, &get_attribute<T, Get>, &set_attribute<T, Set>, doc, nullptr};
}
template <auto Get>
PyGetSetDef getter(const char* name, const char* doc) {
  return getter_of<typename Member<decltype(Get)>::Class, Get>(name, doc);
}

// The setter's argument is null when the attribute is deleted.
template <auto Get, auto Set>
PyGetSetDef getset(const char* name, const char* doc) {
  return {name, &get_attribute<typename Member<decltype(Get)>::Class, Get>, &Setter<decltype(Set)>::template set<Set>,
          doc, nullptr};
}

// Two lists of rows, and the empty one that ends a table.
template <class Row, std::size_t A, std::size_t B>
std::array<Row, A + B + 1> table_of(const std::array<Row, A>& first, const std::array<Row, B>& second) {
  std::array<Row, A + B + 1> table{};
  std::copy(first.begin(), first.end(), table.begin());
  std::copy(second.begin(), second.end(), table.begin() + A);
  return table;
}

// A row for a function of the module: (module, args, nargs, kwnames).
template <auto F>
PyMethodDef function(const char* name, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(F)), METH_FASTCALL | METH_KEYWORDS, doc};
}

}  // namespace uvpy::py
