// Filling and emptying the module state.
// SPDX-License-Identifier: MIT
#include "state.h"

#include "py/compat.h"
#include "py/ref.h"

namespace uvpy {

namespace {

// module.attribute into *place.
bool import_into(PyObject** place, const char* module, const char* attribute) {
  py::Ref<> found = py::steal(PyImport_ImportModule(module));
  if (found && attribute != nullptr) {
    found = py::steal(PyObject_GetAttrString(found.get(), attribute));
  }
  *place = found.release();
  return *place != nullptr;
}

// A reference to the dict of a module, which outlives it.
bool dict_into(PyObject** place, const char* module) {
  py::Ref<> found = py::steal(PyImport_ImportModule(module));
  *place = found ? Py_XNewRef(PyModule_GetDict(found.get())) : nullptr;
  return *place != nullptr;
}

// Whether _format_callback_source has the keyword `debug`.
bool takes_debug(PyObject* function, bool* answer) {
  py::Ref<> defaults = py::steal(PyObject_GetAttrString(function, "__kwdefaults__"));
  if (!defaults) {
    return false;
  }
  *answer = PyDict_Check(defaults.get()) && PyDict_GetItemString(defaults.get(), "debug") != nullptr;
  return true;
}

}  // namespace

bool ModuleState::fill() {
  bool ok = true;
#define UVPY_INTERN(name)                                        \
  names.name = ok ? PyUnicode_InternFromString(#name) : nullptr; \
  ok = names.name != nullptr;
  UVPY_NAMES(UVPY_INTERN)
#undef UVPY_INTERN
#define UVPY_IMPORT(member, module, attribute) ok = ok && import_into(&member, module, attribute);
  UVPY_IMPORTS(UVPY_IMPORT)
#undef UVPY_IMPORT
  if (!ok) {
    return false;
  }
  if (py::kThreadSafeHandles && !import_into(&asyncio_thread_safe_handle, "asyncio.events", "_ThreadSafeHandle")) {
    return false;
  }
  if (!import_into(&base_events, "asyncio.base_events", nullptr) || !dict_into(&futures_dict, "asyncio.futures") ||
      !dict_into(&tasks_dict, "asyncio.tasks") || !takes_debug(format_callback_source, &format_takes_debug)) {
    return false;
  }
  base_create_task = PyObject_GetAttrString(base_event_loop, "create_task");
  base_get_extra_info = PyObject_GetAttr(flow_control_mixin, names.get_extra_info);
  kwnames_loop = PyTuple_Pack(1, names.loop);
  kwnames_context = PyTuple_Pack(1, names.context);
  return base_create_task != nullptr && base_get_extra_info != nullptr && kwnames_loop != nullptr &&
         kwnames_context != nullptr;
}

int ModuleState::visit(visitproc visit, void* arg) const {
#define UVPY_VISIT(member, module, attribute) Py_VISIT(member);
  UVPY_IMPORTS(UVPY_VISIT)
#undef UVPY_VISIT
  Py_VISIT(asyncio_thread_safe_handle);
  Py_VISIT(base_events);
  Py_VISIT(base_create_task);
  Py_VISIT(base_get_extra_info);
  Py_VISIT(futures_dict);
  Py_VISIT(tasks_dict);
  Py_VISIT(own_time);
  Py_VISIT(own_call_soon);
  Py_VISIT(own_call_at);
  Py_VISIT(own_call_later);
  for (PyObject* object : {stream_classes.data_received, stream_classes.stream_reader, stream_classes.getter,
                           stream_classes.feed_data, stream_classes.wakeup_waiter}) {
    Py_VISIT(object);
  }
  Py_VISIT(own_ensure_fd_no_transport);
  Py_VISIT(stand_in_type);
  Py_VISIT(loop_type);
  Py_VISIT(handle_type);
  Py_VISIT(timer_type);
  Py_VISIT(thread_safe_handle_type);
  Py_VISIT(tcp_transport_type);
  Py_VISIT(unix_transport_type);
  Py_VISIT(udp_transport_type);
  Py_VISIT(listener_type);
  Py_VISIT(read_pipe_type);
  Py_VISIT(write_pipe_type);
  Py_VISIT(process_type);
  Py_VISIT(sock_call_type);
  return 0;
}

void ModuleState::clear() {
#define UVPY_CLEAR(name) Py_CLEAR(names.name);
  UVPY_NAMES(UVPY_CLEAR)
#undef UVPY_CLEAR
#define UVPY_CLEAR(member, module, attribute) Py_CLEAR(member);
  UVPY_IMPORTS(UVPY_CLEAR)
#undef UVPY_CLEAR
  Py_CLEAR(asyncio_thread_safe_handle);
  Py_CLEAR(base_events);
  Py_CLEAR(base_create_task);
  Py_CLEAR(base_get_extra_info);
  Py_CLEAR(futures_dict);
  Py_CLEAR(tasks_dict);
  Py_CLEAR(kwnames_loop);
  Py_CLEAR(kwnames_context);
  Py_CLEAR(own_time);
  Py_CLEAR(own_call_soon);
  Py_CLEAR(own_call_at);
  Py_CLEAR(own_call_later);
  stream_classes.known = false;
  Py_CLEAR(stream_classes.data_received);
  Py_CLEAR(stream_classes.stream_reader);
  Py_CLEAR(stream_classes.getter);
  Py_CLEAR(stream_classes.feed_data);
  Py_CLEAR(stream_classes.wakeup_waiter);
  for (PyObject*& code : stream_classes.codes) {
    Py_CLEAR(code);
  }
  Py_CLEAR(own_ensure_fd_no_transport);
  Py_CLEAR(stand_in_type);
  Py_CLEAR(loop_type);
  Py_CLEAR(handle_type);
  Py_CLEAR(timer_type);
  Py_CLEAR(thread_safe_handle_type);
  Py_CLEAR(tcp_transport_type);
  Py_CLEAR(unix_transport_type);
  Py_CLEAR(udp_transport_type);
  Py_CLEAR(listener_type);
  Py_CLEAR(read_pipe_type);
  Py_CLEAR(write_pipe_type);
  Py_CLEAR(process_type);
  Py_CLEAR(sock_call_type);
}

}  // namespace uvpy
