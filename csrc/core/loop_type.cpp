// The Python face of Loop: construction, attributes that BaseEventLoop's code reads and writes in the instance, tables.
// SPDX-License-Identifier: MIT
#include <cstring>

#include "core/loop.h"
#include "py/call.h"
#include "py/method.h"
#include "py/type.h"

namespace uvpy::core {

// ---- small methods

PyObject* Loop::is_running_method() { return PyBool_FromLong(running_ ? 1 : 0); }
PyObject* Loop::is_closed_method() { return PyBool_FromLong(closed_ ? 1 : 0); }
PyObject* Loop::get_debug() { return PyBool_FromLong(debug_ ? 1 : 0); }

PyObject* Loop::core_stats() {
  return Py_BuildValue("{sKsKsKsKsKsKsKsK}", "turns", turns_, "polls", polls_, "polls_skipped", polls_skipped_,
                       "gil_released", gil_.given_count(), "gil_contended", gil_.contended_count(), "gil_wait_ns",
                       gil_.waited_ns(), "datagram_calls", datagram_calls_, "datagrams_sent", datagrams_sent_);
}

PyObject* Loop::set_gil_policy(PyObject* name) {
  if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "adaptive") == 0) {
    gil_.set_policy(Gil::Policy::adaptive);
  } else if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "plain") == 0) {
    gil_.set_policy(Gil::Policy::plain);
  } else {
    PyErr_Format(PyExc_ValueError, "gil must be 'adaptive' or 'plain', not %R", name);
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Loop::get_gil_policy() {
  return PyUnicode_FromString(gil_.policy() == Gil::Policy::adaptive ? "adaptive" : "plain");
}

// ---- attributes

namespace {

// A truth value for a flag; false with an exception set, also when the attribute is deleted.
bool flag_of(PyObject* value, bool* flag) {
  if (value == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "cannot delete an attribute of the loop");
    return false;
  }
  const int truth = PyObject_IsTrue(value);
  *flag = truth > 0;
  return truth >= 0;
}

}  // namespace

PyObject* Loop::get_closed() { return PyBool_FromLong(closed_ ? 1 : 0); }

int Loop::set_closed(PyObject* value) {
  bool flag = false;
  if (!flag_of(value, &flag)) {
    return -1;
  }
  // BaseEventLoop.__init__ says False; a loop that has been shut down stays closed.
  closed_ = flag || !uv_open_;
  return 0;
}

int Loop::set_debug_flag(PyObject* value) { return flag_of(value, &debug_) ? 0 : -1; }
PyObject* Loop::get_stopping() { return PyBool_FromLong(stopping_ ? 1 : 0); }
int Loop::set_stopping(PyObject* value) { return flag_of(value, &stopping_) ? 0 : -1; }

PyObject* Loop::get_thread_id() {
  if (!running_) {
    Py_RETURN_NONE;
  }
  return PyLong_FromUnsignedLong(thread_id_);
}

int Loop::set_thread_id(PyObject* value) {
  if (value == nullptr || value == Py_None) {
    running_ = false;
    thread_id_ = 0;
    return 0;
  }
  const unsigned long ident = PyLong_AsUnsignedLong(value);
  if (PyErr_Occurred() != nullptr) {
    return -1;
  }
  thread_id_ = ident;
  running_ = true;
  return 0;
}

PyObject* Loop::get_current_handle() { return Py_NewRef(current_handle_ ? current_handle_.get() : Py_None); }

int Loop::set_current_handle_attr(PyObject* value) {
  current_handle_ = py::borrow(value == Py_None ? nullptr : value);
  return 0;
}

PyObject* Loop::get_task_factory() { return Py_NewRef(task_factory_ ? task_factory_.get() : Py_None); }

int Loop::set_task_factory(PyObject* value) {
  task_factory_ = py::borrow(value == Py_None ? nullptr : value);
  return 0;
}

PyObject* Loop::get_ready() {
  // Appending allocates nothing that the collector knows; making the list may collect, and so change the ring.
  py::Ref<> list = py::steal(PyList_New(0));
  for (std::size_t i = 0; list && i < ready_.size(); ++i) {
    if (PyList_Append(list.get(), ready_.at(i)) < 0) {
      return nullptr;
    }
  }
  return list.release();
}

PyObject* Loop::get_scheduled() { return timers_.list(); }

int Loop::ignore(PyObject*) {
  return 0;  // BaseEventLoop.__init__ puts an empty queue here, which ours stands for
}

PyObject* Loop::get_gather_writes() { return PyBool_FromLong(gather_writes_ ? 1 : 0); }

int Loop::set_gather_writes(PyObject* value) {
  if (!flag_of(value, &gather_writes_)) {
    return -1;
  }
  if (!gather_writes_ && !gil_.given()) {
    flush_writes();
  }
  return 0;
}

// ---- slots and tables

namespace {

PyObject* loop_new(PyTypeObject* type, PyObject*, PyObject*) {
  // Arguments are __init__'s business: a subclass may take what it likes.
  PyObject* module = PyType_GetModuleByDef(type, module_definition());
  if (module == nullptr) {
    return nullptr;
  }
  py::Ref<> self = py::steal(py::create<Loop>(type));
  if (!self || !py::state_of<Loop>(self.get())->open(state_of_module(module))) {
    return nullptr;
  }
  return self.release();
}

int loop_init(PyObject*, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) > 0 || (kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0)) {
    PyErr_SetString(PyExc_TypeError, "uvpy._core.Loop takes no arguments");
    return -1;
  }
  return 0;
}

int loop_setattro(PyObject* self, PyObject* name, PyObject* value) {
  // The fast paths must know when somebody replaces a method on the instance; asking here costs them nothing.
  const int result = PyObject_GenericSetAttr(self, name, value);
  if (result == 0) {
    py::state_of<Loop>(self)->noticed(name, value != nullptr);
  }
  return result;
}

PyGetSetDef attributes[] = {
    py::getset<&Loop::get_closed, &Loop::set_closed>("_closed", "Whether close() was called."),
    py::getset<&Loop::get_debug, &Loop::set_debug_flag>("_debug", "Whether debug mode is on."),
    py::getset<&Loop::get_stopping, &Loop::set_stopping>("_stopping", "Whether stop() was called."),
    py::getset<&Loop::get_thread_id, &Loop::set_thread_id>("_thread_id", "The thread that runs the loop, or None."),
    py::getset<&Loop::get_current_handle, &Loop::set_current_handle_attr>("_current_handle",
                                                                          "In debug mode, what runs now."),
    py::getset<&Loop::get_task_factory, &Loop::set_task_factory>("_task_factory", "As set by set_task_factory()."),
    py::getset<&Loop::get_ready, &Loop::ignore>("_ready", "A list of the handles that are due; a copy."),
    py::getset<&Loop::get_scheduled, &Loop::ignore>("_scheduled", "A list of the waiting timers; a copy."),
    py::getset<&Loop::get_gather_writes, &Loop::set_gather_writes>(
        "gather_writes",
        "Whether, under load, the writes of a turn are gathered and sent by one system call at its end (default "
        "True)."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef methods[] = {
    py::method<&Loop::run_forever>("run_forever", "run_forever($self)\n--\n\nRun until stop() is called."),
    py::method<&Loop::run_once>("_run_once", "Run one iteration."),
    py::method<&Loop::run_forever_setup>("_run_forever_setup", "Become the running loop of this thread."),
    py::method<&Loop::run_forever_cleanup>("_run_forever_cleanup", "Undo _run_forever_setup()."),
    py::method<&Loop::stop>("stop", "stop($self)\n--\n\nStop after the current iteration."),
    py::method<&Loop::shutdown>("_shutdown", "Drop what is scheduled and close everything open; close() calls it."),
    py::method<&Loop::is_running_method>("is_running", "is_running($self)\n--\n\nWhether the loop runs."),
    py::method<&Loop::is_closed_method>("is_closed", "is_closed($self)\n--\n\nWhether the loop was closed."),
    py::method<&Loop::get_debug>("get_debug", "get_debug($self)\n--\n\nWhether debug mode is on."),
    py::method<&Loop::core_stats>("_core_stats", "A dict of counters: turns, polls, GIL."),
    py::method<&Loop::debug_handles>("_debug_handles",
                                     "A list of dicts, one for each thing that is open: see the stub."),
    py::method<&Loop::set_gil_policy>("_set_gil_policy", "'adaptive' or 'plain'."),
    py::method<&Loop::get_gil_policy>("_get_gil_policy", "'adaptive' or 'plain'."),
    py::method<&Loop::time>("time", "time($self)\n--\n\nThe loop's clock, time.monotonic(), in seconds."),
    py::method<&Loop::call_soon>("call_soon",
                                 "call_soon($self, callback, *args, context=None)\n--\n\n"
                                 "Run a callback in the next iteration; gives an asyncio.Handle."),
    py::method<&Loop::call_soon_threadsafe>("call_soon_threadsafe",
                                            "call_soon_threadsafe($self, callback, *args, context=None)\n--\n\n"
                                            "call_soon() for other threads: wakes the loop."),
    py::method<&Loop::call_later>("call_later",
                                  "call_later($self, delay, callback, *args, context=None)\n--\n\n"
                                  "Run a callback after `delay` seconds; gives an asyncio.TimerHandle."),
    py::method<&Loop::call_at>("call_at",
                               "call_at($self, when, callback, *args, context=None)\n--\n\n"
                               "Run a callback at `when`, in seconds of time()."),
    py::method<&Loop::call_soon_private>("_call_soon", "_call_soon(callback, args, context), unchecked."),
    py::method<&Loop::add_callback>("_add_callback", "Queue a handle, ours or asyncio's."),
    py::method<&Loop::add_callback_signalsafe>("_add_callback_signalsafe", "Queue a handle and wake the loop."),
    py::method<&Loop::run_foreign_handle>("_run_foreign_handle", "Run one of asyncio's own handles."),
    py::method<&Loop::write_to_self>("_write_to_self", "Wake the loop if it is parked."),
    py::method<&Loop::create_future>("create_future", "create_future($self)\n--\n\nAn asyncio.Future of this loop."),
    py::method<&Loop::create_task>("create_task", py::kCreateTaskDoc),
    py::method<&Loop::add_reader>("add_reader",
                                  "add_reader($self, fd, callback, *args)\n--\n\n"
                                  "Call back in each iteration in which `fd` is readable."),
    py::method<&Loop::add_writer>("add_writer",
                                  "add_writer($self, fd, callback, *args)\n--\n\n"
                                  "Call back in each iteration in which `fd` is writable."),
    py::keyword_method<&Loop::remove_reader, "remove_reader", "fd">(
        "remove_reader($self, fd)\n--\n\nStop watching; whether there was a reader."),
    py::keyword_method<&Loop::remove_writer, "remove_writer", "fd">(
        "remove_writer($self, fd)\n--\n\nStop watching; whether there was a writer."),
    py::method<&Loop::add_reader_private>("_add_reader", "add_reader() for transports; gives the handle."),
    py::method<&Loop::add_writer_private>("_add_writer", "add_writer() for transports; gives the handle."),
    py::method<&Loop::remove_reader_private>("_remove_reader", "remove_reader() for transports."),
    py::method<&Loop::remove_writer_private>("_remove_writer", "remove_writer() for transports."),
    py::method<&Loop::ensure_fd_no_transport>("_ensure_fd_no_native_transport",
                                              "RuntimeError when `fd` belongs to an open native transport."),
    py::method<&Loop::watched>("_watched", "(events, reader, writer) of a descriptor, or None."),
    py::method<&Loop::wakeup_fd>("_wakeup_fd", "The descriptor for signal.set_wakeup_fd()."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_loop_type(PyObject* module) {
  const PyType_Slot more[] = {
      {Py_tp_new, reinterpret_cast<void*>(&loop_new)},
      {Py_tp_init, reinterpret_cast<void*>(&loop_init)},
      {Py_tp_setattro, reinterpret_cast<void*>(&loop_setattro)},
      {Py_tp_getset, attributes},
      {Py_tp_methods, methods},
  };
  return py::make_type<Loop>(module, {"uvpy._core.Loop", "The native half of uvpy.Loop.", more,
                                      Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE});
}

Loop* loop_of(PyObject* module, PyObject* object) {
  if (PyObject_TypeCheck(object, state_of_module(module)->loop_type) == 0) {
    PyErr_Format(PyExc_TypeError, "a uvpy loop is required, not %.200s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  return py::state_of<Loop>(object);
}

bool remember_hooks(ModuleState* state, PyObject* type) {
  Py_XSETREF(state->own_time, PyObject_GetAttr(type, state->names.time));
  Py_XSETREF(state->own_call_soon, PyObject_GetAttr(type, state->names.call_soon));
  Py_XSETREF(state->own_call_at, PyObject_GetAttr(type, state->names.call_at));
  Py_XSETREF(state->own_call_later, PyObject_GetAttr(type, state->names.call_later));
  const bool ok = state->own_time != nullptr && state->own_call_soon != nullptr && state->own_call_at != nullptr &&
                  state->own_call_later != nullptr;
  if (ok) {
    Py_XSETREF(state->own_ensure_fd_no_transport, PyObject_GetAttr(type, state->names._ensure_fd_no_transport));
    PyErr_Clear();  // only uvpy.Loop has it
  }
  return ok;
}

}  // namespace uvpy::core
