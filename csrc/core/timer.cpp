// Timers. Called by the loop; cancel() comes from users. Nothing here looks at a clock.
// SPDX-License-Identifier: MIT
#include "core/timer.h"

#include "core/loop.h"
#include "py/call.h"
#include "py/method.h"
#include "py/mutant.h"
#include "py/type.h"

namespace uvpy::core {

PyObject* Timer::cancel_timer() {
  if (is_cancelled()) {
    Py_RETURN_NONE;
  }
  if constexpr (py::mutant("timer-cancel-lost")) {
    Py_RETURN_NONE;
  }
  if (!mark_cancelled()) {
    return nullptr;
  }
  // The queue's reference goes last: what it frees may run code.
  py::Ref<> out = loop().timers().remove(this);
  show();  // it has an owner
  Py_RETURN_NONE;
}

PyObject* Timer::when() { return given_ ? Py_NewRef(given_.get()) : PyFloat_FromDouble(when_); }
PyObject* Timer::get_scheduled() { return PyBool_FromLong(place_ != kNowhere ? 1 : 0); }
PyObject* Timer::get_timer_class() { return Py_NewRef(loop().state().asyncio_timer_handle); }

int Timer::visit_in_queue(visitproc visit, void* arg) {
  if (!is_hidden() || Py_REFCNT(object()) > 1) {
    // One that is shared and not tracked yet (TimerQueue::track_shared) keeps alive what it holds.
    Py_VISIT(object());
    return 0;
  }
  return py::Slots<Timer>::traverse(object(), visit, arg);
}

int Timer::visit(visitproc visit, void* arg) {
  Py_VISIT(given_.get());
  return Handle::visit(visit, arg);
}

void Timer::clear() {
  given_.reset();
  Handle::clear();
}

// ---- tables

namespace {

static_assert(offsetof(py::Object<Handle>, state) == offsetof(py::Object<Timer>, state));

// Comparing, by the interpreter's own asyncio.TimerHandle: its functions work on ours by duck typing.
PyObject* compare(PyObject* self, PyObject* other, int op) {
  const ModuleState& state = py::state_of<Timer>(self)->loop().state();
  static constexpr const char* kNames[] = {"__lt__", "__le__", "__eq__", nullptr, "__gt__", "__ge__"};
  if (op == Py_NE) {
    py::Ref<> equal = py::steal(compare(self, other, Py_EQ));
    if (!equal || equal.get() == Py_NotImplemented) {
      return equal.release();
    }
    const int truth = PyObject_IsTrue(equal.get());
    return truth < 0 ? nullptr : PyBool_FromLong(truth == 0 ? 1 : 0);
  }
  py::Ref<> function = py::steal(PyObject_GetAttrString(state.asyncio_timer_handle, kNames[op]));
  return function ? py::call(function.get(), self, other).release() : nullptr;
}

Py_hash_t hash(PyObject* self) {
  py::Ref<> when = py::steal(py::state_of<Timer>(self)->when());
  return when ? PyObject_Hash(when.get()) : -1;
}

PyGetSetDef attributes[] = {
    py::getter<&Timer::get_timer_class>("__class__", "asyncio.TimerHandle, so that isinstance() holds."),
    py::getter<&Timer::when>("_when", "The deadline in seconds of loop.time()."),
    py::getter<&Timer::get_scheduled>("_scheduled", "Whether it waits for its deadline."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* repr_info(PyObject* self, PyObject*) {
  const ModuleState& state = py::state_of<Timer>(self)->loop().state();
  return py::call_method(state.asyncio_timer_handle, state.names._repr_info, self).release();
}

PyMethodDef methods[] = {
    py::method<&Timer::cancel_timer>("cancel", "Cancel the timer. Calling it again, or after the run, does nothing."),
    py::method<&Timer::when>("when", "The deadline in seconds of loop.time(), as it was given to call_at()."),
    {"_repr_info", &repr_info, METH_NOARGS, "The parts of the repr."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_timer_type(PyObject* module, PyTypeObject* handle_type) {
  const PyType_Slot more[] = {
      {Py_tp_richcompare, reinterpret_cast<void*>(&compare)},
      {Py_tp_hash, reinterpret_cast<void*>(&hash)},
      {Py_tp_getset, attributes},
      {Py_tp_methods, methods},
  };
  return py::make_type<Timer>(module, {"uvpy._core.Timer", "A timer of a uvpy loop; see asyncio.TimerHandle.", more,
                                       py::kClosedType, reinterpret_cast<PyObject*>(handle_type)});
}

}  // namespace uvpy::core
