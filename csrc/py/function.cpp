// Functions that call C++, and what stands for them in a class where the interpreter would run their Python body.
// SPDX-License-Identifier: MIT
#include "py/function.h"

#include "py/compat.h"
#include "py/object.h"
#include "py/ref.h"
#include "py/type.h"

namespace uvpy::py {

namespace {

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

// What a method descriptor leads to, where that may be called without it: most have one of these two conventions.
struct Target {
  PyTypeObject* type = nullptr;  // of self; borrowed from the descriptor
  FastCall fast = nullptr;
  PyCFunction without_arguments = nullptr;
};

Target target_of(PyObject* method) {
  if (!Py_IS_TYPE(method, &PyMethodDescr_Type)) {
    return {};
  }
  const PyMethodDef* def = reinterpret_cast<PyMethodDescrObject*>(method)->d_method;
  PyTypeObject* type = reinterpret_cast<PyDescrObject*>(method)->d_type;
  if (def->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
    return {.type = type, .fast = reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(def->ml_meth))};
  }
  return def->ml_flags == METH_NOARGS ? Target{.type = type, .without_arguments = def->ml_meth} : Target{};
}

// The class that self was of last, and the base that this is known to have. That holds as long as the class's version
// tag does, which no other class gets. Nearly all calls are for objects of one class, a few bases away from ours.
unsigned known_tag = 0;
PyTypeObject* known_base = nullptr;

[[gnu::noinline]] PyObject* call_method(const Target& target, PyObject* method, PyObject* const* args,
                                        std::size_t nargsf, PyObject* kwnames) {
  if (target.type != nullptr && PyObject_TypeCheck(args[0], target.type) != 0) {
    known_tag = Py_TYPE(args[0])->tp_version_tag;
    known_base = target.type;
  }
  return PyObject_Vectorcall(method, args, nargsf, kwnames);
}

// A method with its first argument, which is there, as self; past the descriptor where that can be.
inline PyObject* call_target(const Target& target, PyObject* method, PyObject* const* args, std::size_t nargsf,
                             PyObject* kwnames) {
  const unsigned tag = Py_TYPE(args[0])->tp_version_tag;
  if (tag == known_tag && tag != 0 && target.type == known_base) [[likely]] {
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (target.fast != nullptr) [[likely]] {
      return target.fast(args[0], args + 1, nargs - 1, kwnames);
    }
    if (nargs == 1 && kwnames == nullptr && target.without_arguments != nullptr) {
      return target.without_arguments(args[0], nullptr);
    }
  }
  return call_method(target, method, args, nargsf, kwnames);
}

// What CPython's own functions have, the same for all; known from the first one that is made ours.
vectorcallfunc run_body = nullptr;

// The vectorcall of the functions. Without a self by position it is given by keyword or missing: Python's business.
PyObject* call_function(PyObject* function, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  if (PyVectorcall_NARGS(nargsf) == 0) [[unlikely]] {
    return run_body(function, args, nargsf, kwnames);
  }
  PyObject* cell = PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(function), 0);
  Ref<> method = borrow(PyCell_GET(cell));
  if (!method) {
    PyErr_SetString(PyExc_RuntimeError, "the method behind this function was deleted");
    return nullptr;
  }
  return call_target(target_of(method.get()), method.get(), args, nargsf, kwnames);
}

// What a class has in the place of a function before 3.12: a descriptor that calls the method, gives the function to
// who asks the class for it, and is the function in everything else.
struct StandIn {
  static constexpr bool kWeakrefs = true;  // weakref.WeakMethod refers to what a bound method is made of
  static constexpr bool kDict = false;
  static constexpr bool kFinalizer = false;
  static constexpr std::size_t kBaseWords = 0;
  static constexpr bool kVectorcall = true;

  vectorcallfunc vectorcall = nullptr;  // first, where make_type says that it is
  Ref<> function;
  Ref<> method;
  Target target;

  int visit(visitproc visit, void* arg) {
    Py_VISIT(function.get());
    Py_VISIT(method.get());
    return 0;
  }
  // The collector breaks cycles at the function; who still calls needs the method.
  void clear() {}
};

PyObject* call_stand_in(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  const auto* state = state_of<StandIn>(self);
  if (PyVectorcall_NARGS(nargsf) == 0) [[unlikely]] {
    return run_body(state->function.get(), args, nargsf, kwnames);
  }
  return call_target(state->target, state->method.get(), args, nargsf, kwnames);
}

PyObject* bind(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) {
    return Py_NewRef(state_of<StandIn>(self)->function.get());
  }
  return PyMethod_New(self, object);
}

PyObject* get_attribute_of(PyObject* self, PyObject* name) {
  return PyObject_GetAttr(state_of<StandIn>(self)->function.get(), name);
}

int set_attribute_of(PyObject* self, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(state_of<StandIn>(self)->function.get(), name, value);
}

PyObject* repr(PyObject* self) { return PyObject_Repr(state_of<StandIn>(self)->function.get()); }
Py_hash_t hash(PyObject* self) { return PyObject_Hash(state_of<StandIn>(self)->function.get()); }

PyObject* compare(PyObject* self, PyObject* other, int op) {
  if (op != Py_EQ && op != Py_NE) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const bool same = self == other || state_of<StandIn>(self)->function.get() == other;
  return PyBool_FromLong(same == (op == Py_EQ) ? 1 : 0);
}

}  // namespace

PyObject* native_function(PyTypeObject* stand_in_type, PyObject* function, PyObject* method) {
  PyObject* closure = PyFunction_Check(function) ? PyFunction_GET_CLOSURE(function) : nullptr;
  if (closure == nullptr || PyTuple_GET_SIZE(closure) != 1 || PyCell_GET(PyTuple_GET_ITEM(closure, 0)) != method) {
    PyErr_SetString(PyExc_TypeError, "a function that is a closure over its method alone is required");
    return nullptr;
  }
  vectorcallfunc before = set_vectorcall(function, &call_function);
  if (before != &call_function) {
    run_body = before;
  }
  if (!kRunsBodiesOfFunctions) {
    return Py_NewRef(function);
  }
  Ref<> self = steal(create<StandIn>(stand_in_type));
  if (self) {
    auto* state = state_of<StandIn>(self.get());
    state->vectorcall = &call_stand_in;
    state->function = borrow(function);
    state->method = borrow(method);
    state->target = target_of(method);
  }
  return self.release();
}

PyTypeObject* make_stand_in_type(PyObject* module) {
  const PyType_Slot more[] = {
      {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
      {Py_tp_descr_get, reinterpret_cast<void*>(&bind)},
      {Py_tp_getattro, reinterpret_cast<void*>(&get_attribute_of)},
      {Py_tp_setattro, reinterpret_cast<void*>(&set_attribute_of)},
      {Py_tp_repr, reinterpret_cast<void*>(&repr)},
      {Py_tp_hash, reinterpret_cast<void*>(&hash)},
      {Py_tp_richcompare, reinterpret_cast<void*>(&compare)},
  };
  return make_type<StandIn>(module, {"uvpy._core.function", "A function that calls C++.", more,
                                     kClosedType | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL});
}

}  // namespace uvpy::py
