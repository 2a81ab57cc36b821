// Finding the variables of a Context.
// SPDX-License-Identifier: MIT
#include "py/context.h"

#include "py/compat.h"
#include "py/ref.h"

namespace uvpy::py {

namespace {

// Sets a variable in a context that is not entered.
bool set_in(PyObject* context, PyObject* var, PyObject* value) {
  if (PyContext_Enter(context) < 0) {
    return false;
  }
  Ref<> token = steal(PyContextVar_Set(var, value));
  return PyContext_Exit(context) == 0 && token;
}

const void* word_at(const Ref<>& context, std::size_t place) {
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(context.get()) + place);
}

}  // namespace

bool find_variables() {
  variables_at = 0;
  Ref<> var = steal(PyContextVar_New("uvpy", nullptr));
  Ref<> empty = var ? steal(PyContext_New()) : Ref<>();
  Ref<> first = empty ? steal(PyContext_Copy(empty.get())) : Ref<>();
  if (!first || !set_in(first.get(), var.get(), Py_None)) {
    return false;
  }
  Ref<> copy = steal(PyContext_Copy(first.get()));
  Ref<> changed = copy ? steal(PyContext_Copy(first.get())) : Ref<>();
  if (!changed || !set_in(changed.get(), var.get(), Py_True)) {
    return false;
  }
  // A copy has it in common with the original, and nobody else: neither the empty one nor the one that was changed.
  std::size_t found = 0;
  unsigned count = 0;
  for (std::size_t place = sizeof(PyObject);
       place + sizeof(void*) <= static_cast<std::size_t>(PyContext_Type.tp_basicsize); place += sizeof(void*)) {
    const void* word = word_at(first, place);
    if (word != nullptr && word == word_at(copy, place) && word != word_at(empty, place) &&
        word != word_at(changed, place)) {
      found = place;
      ++count;
    }
  }
  if (kSoleOwnerIsTold && count == 1) {
    variables_at = found;
  }
  return true;
}

}  // namespace uvpy::py
