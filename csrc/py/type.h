// make_type<T>: a heap type for a boxed class. What every type has (dealloc, traverse, clear, finalizer, the places of
// the weak reference list and the dict) comes from T; a type file gives the rest. A T with kVectorcall has its
// vectorcallfunc as its first member.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>

#include "py/object.h"

namespace uvpy::py {

// Users neither make instances nor change the type.
inline constexpr unsigned long kClosedType = Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE;

struct TypeParts {
  const char* name;
  const char* doc;
  std::span<const PyType_Slot> more;
  unsigned long flags = kClosedType;
  PyObject* base = nullptr;  // borrowed; a type whose objects begin as ours do
};

// Null with an exception set.
template <class T>
PyTypeObject* make_type(PyObject* module, const TypeParts& parts) {
  static PyMemberDef weakrefs[] = {
      {"__weaklistoffset__", T_PYSSIZET, offsetof(Object<T>, weakrefs), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr},
  };
  static PyMemberDef weakrefs_and_dict[] = {
      {"__weaklistoffset__", T_PYSSIZET, offsetof(Object<T>, weakrefs), READONLY, nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(Object<T>, dict), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr},
  };
  static PyMemberDef weakrefs_and_vectorcall[] = {
      {"__weaklistoffset__", T_PYSSIZET, offsetof(Object<T>, weakrefs), READONLY, nullptr},
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Object<T>, state), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr},
  };
  static_assert(T::kWeakrefs || !T::kDict);
  constexpr std::size_t kRoom = 24;
  PyType_Slot slots[kRoom];
  std::size_t count = 0;
  slots[count++] = {Py_tp_doc, const_cast<char*>(parts.doc)};
  slots[count++] = {Py_tp_dealloc, reinterpret_cast<void*>(&Slots<T>::dealloc)};
  slots[count++] = {Py_tp_traverse, reinterpret_cast<void*>(&Slots<T>::traverse)};
  slots[count++] = {Py_tp_clear, reinterpret_cast<void*>(&Slots<T>::clear)};
  if constexpr (T::kFinalizer) {
    slots[count++] = {Py_tp_finalize, reinterpret_cast<void*>(&Slots<T>::finalize)};
  }
  if constexpr (requires { T::kVectorcall; }) {
    static_assert(T::kWeakrefs && !T::kDict);
    slots[count++] = {Py_tp_members, weakrefs_and_vectorcall};
  } else if constexpr (T::kDict) {
    slots[count++] = {Py_tp_members, weakrefs_and_dict};
  } else if constexpr (T::kWeakrefs) {
    slots[count++] = {Py_tp_members, weakrefs};
  }
  assert(count + parts.more.size() < kRoom);
  std::copy(parts.more.begin(), parts.more.end(), slots + count);
  count += parts.more.size();
  slots[count] = {0, nullptr};
  PyType_Spec spec = {parts.name, sizeof(Object<T>), 0,
                      static_cast<unsigned>(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | parts.flags), slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, parts.base));
}

}  // namespace uvpy::py
