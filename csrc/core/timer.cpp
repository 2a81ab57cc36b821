// Timers and their heap. Called by the loop; cancel() comes from users. Nothing here looks at a clock.
// SPDX-License-Identifier: MIT
#include "core/timer.h"

#include <algorithm>

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
  py::Ref<> alive = py::borrow(object());
  if constexpr (py::mutant("timer-cancel-lost")) {
    Py_RETURN_NONE;
  }
  if (!mark_cancelled()) {
    return nullptr;
  }
  // The heap's reference goes last: what it frees may run code.
  py::Ref<> out = loop().timers().remove(this);
  Py_RETURN_NONE;
}

PyObject* Timer::when() { return given_ ? Py_NewRef(given_.get()) : PyFloat_FromDouble(when_); }
PyObject* Timer::get_scheduled() { return PyBool_FromLong(place_ != kNotInHeap ? 1 : 0); }
PyObject* Timer::get_timer_class() { return Py_NewRef(loop().state().asyncio_timer_handle); }

int Timer::visit(visitproc visit, void* arg) {
  Py_VISIT(given_.get());
  return Handle::visit(visit, arg);
}

void Timer::clear() {
  given_.reset();
  Handle::clear();
}

// ---- heap

bool TimerHeap::push(py::Ref<>&& timer) {
  if (!heap_.reserve(count_ + 1)) {
    return false;
  }
  auto* state = py::state_of<Timer>(timer.release());
  sift_up(count_++, Entry{state->when_, created_++, state});
  return true;
}

bool TimerHeap::move_due(double end, std::uint64_t mark, ReadyRing& ring) {
  std::size_t stay = 0;
  bool ok = true;
  while (ok && count_ > 0 && heap_[0].when < end) {
    const Entry first = heap_[0];
    if (first.order < mark) {
      ok = ring.push(remove(first.timer));
    } else if (aside_.reserve(stay + 1)) {
      aside_[stay++] = first;
      static_cast<void>(remove(first.timer).release());
    } else {
      ok = false;
    }
  }
  while (stay > 0) {
    --stay;
    sift_up(count_++, aside_[stay]);  // there is room: it has just come from there
  }
  return ok;
}

py::Ref<> TimerHeap::remove(Timer* timer) {
  const std::size_t place = timer->place_;
  if (place == Timer::kNotInHeap) {
    return {};
  }
  timer->place_ = Timer::kNotInHeap;
  const Entry last = heap_[--count_];
  if (place != count_) {
    if (place > 0 && last.before(heap_[(place - 1) / 4])) {
      sift_up(place, last);
    } else {
      sift_down(place, last);
    }
  }
  return py::steal(timer->object());
}

void TimerHeap::clear() {
  while (count_ > 0) {
    // One by one: what a timer frees may make or cancel others.
    const Entry last = heap_[--count_];
    last.timer->place_ = Timer::kNotInHeap;
    py::Ref<> out = py::steal(last.timer->object());
  }
}

int TimerHeap::visit(visitproc visit, void* arg) const {
  for (std::size_t i = 0; i < count_; ++i) {
    Py_VISIT(heap_[i].timer->object());
  }
  return 0;
}

void TimerHeap::sift_up(std::size_t place, const Entry& entry) {
  while (place > 0) {
    const std::size_t parent = (place - 1) / 4;
    if (!entry.before(heap_[parent])) {
      break;
    }
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, entry);
}

void TimerHeap::sift_down(std::size_t place, const Entry& entry) {
  for (;;) {
    const std::size_t first = 4 * place + 1;
    if (first >= count_) {
      break;
    }
    const std::size_t end = std::min(first + 4, count_);
    std::size_t best = first;
    for (std::size_t child = first + 1; child < end; ++child) {
      if (heap_[child].before(heap_[best])) {
        best = child;
      }
    }
    if (!heap_[best].before(entry)) {
      break;
    }
    put(place, heap_[best]);
    place = best;
  }
  put(place, entry);
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
