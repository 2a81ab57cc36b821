// Loop._debug_handles(): everything that is open on a loop, one dict each, all of one shape. What a kind of resource knows
// of itself comes from Resource::describe(), what is known of all of them is added here. Signal handlers are Python's
// business, and Loop in Python adds them.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "core/clock.h"
#include "core/loop.h"
#include "py/array.h"

namespace uvpy::core {

namespace {

constexpr double kNoAge = -1;

// A row of the common shape; what `known` (a dict, owned; null with an exception set) says replaces the defaults.
py::Ref<> make_row(py::Ref<>&& known, double age, PyObject* creator) {
  if (!known) {
    return {};
  }
  py::Ref<> seconds = age < 0 ? py::borrow(Py_None) : py::steal(PyFloat_FromDouble(age));
  if (!seconds) {
    return {};
  }
  py::Ref<> row =
      py::steal(Py_BuildValue("{sOsOsOsssisOsO}", "kind", Py_None, "fd", Py_None, "peer", Py_None, "state", "open",
                              "waiting", 0, "age", seconds.get(), "creator", creator != nullptr ? creator : Py_None));
  if (!row || PyDict_Update(row.get(), known.get()) < 0) {
    return {};
  }
  return row;
}

bool append(PyObject* list, py::Ref<>&& row) { return row && PyList_Append(list, row.get()) == 0; }

// Where one of our objects lies in memory.
struct Range {
  const char* begin;
  const char* end;
};

// What is told of a guest's handle; copied out of libuv's walk, in which nothing may be made that Python knows.
struct GuestHandle {
  uv_handle_type type;
  int fd;
  bool active;
  bool closing;
  std::size_t waiting;
};

struct GuestWalk {
  py::Array<Range> ours;
  std::size_t ours_count = 0;
  py::Array<GuestHandle> found;
  std::size_t count = 0;
  bool failed = false;

  // A libuv handle of ours is a member of the object that owns it.
  bool is_ours(const void* handle) const {
    const auto* at = static_cast<const char*>(handle);
    const Range* end = ours.data() + ours_count;
    const Range* next =
        std::upper_bound(ours.data(), end, at, [](const char* p, const Range& range) { return p < range.begin; });
    return next != ours.data() && at < (next - 1)->end;
  }
  void see(uv_handle_t* handle) {
    if (failed || is_ours(handle)) {
      return;
    }
    if (!found.reserve(count + 1)) {
      failed = true;
      return;
    }
    GuestHandle& seen = found[count++];
    seen = {handle->type, -1, uv_is_active(handle) != 0, uv_is_closing(handle) != 0, 0};
    uv_os_fd_t fd = -1;
    if (!seen.closing && uv_fileno(handle, &fd) == 0) {
      seen.fd = fd;
    }
    if (handle->type == UV_TCP || handle->type == UV_NAMED_PIPE || handle->type == UV_TTY) {
      seen.waiting = uv_stream_get_write_queue_size(reinterpret_cast<uv_stream_t*>(handle));
    }
  }
};

py::Ref<> guest_row(const GuestHandle& seen) {
  const char* state = seen.closing ? "closing" : seen.active ? "active" : "idle";
  py::Ref<> kind = py::steal(PyUnicode_FromFormat("guest %s", uv_handle_type_name(seen.type)));
  py::Ref<> fd = seen.fd < 0 ? py::borrow(Py_None) : py::steal(PyLong_FromLong(seen.fd));
  if (!kind || !fd) {
    return {};
  }
  return make_row(py::steal(Py_BuildValue("{sOsOsssn}", "kind", kind.get(), "fd", fd.get(), "state", state, "waiting",
                                          static_cast<Py_ssize_t>(seen.waiting))),
                  kNoAge, nullptr);
}

}  // namespace

bool Loop::describe_resources(PyObject* rows) {
  // Describing allocates, which may collect and end resources: each is held first, with its object.
  py::Ref<> held = py::steal(PyList_New(0));
  py::Array<Resource*> found;
  if (!held || !found.reserve(resources_.count())) {
    return false;
  }
  std::size_t count = 0;
  for (Resource* r = resources_.first(); r != nullptr && count < found.capacity(); r = Resources::next(r)) {
    if (PyList_Append(held.get(), r->object()) < 0) {
      return false;
    }
    found[count++] = r;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!append(rows, make_row(py::steal(found[i]->describe()), found[i]->age(), found[i]->creator()))) {
      return false;
    }
  }
  return true;
}

bool Loop::describe_watchers(PyObject* rows) {
  for (std::size_t fd = 0; fd < watchers_.limit(); ++fd) {
    const int number = static_cast<int>(fd);
    unsigned mask = 0;
    for (const unsigned side : {kReadable, kWritable}) {
      PyObject* handle = watchers_.handle(number, side);
      // The handles of pipe transports are shown with the transport.
      if (handle != nullptr && !py::state_of<Handle>(handle)->runs_in_poll()) {
        mask |= side;
      }
    }
    if (mask == 0) {
      continue;
    }
    const char* kind = mask == (kReadable | kWritable) ? "reader+writer" : mask == kReadable ? "reader" : "writer";
    PyObject* handle = watchers_.handle(number, (mask & kReadable) != 0 ? kReadable : kWritable);
    py::Ref<> creator = py::steal(py::state_of<Handle>(handle)->get_source_traceback());
    const double age = coarse_seconds() - watchers_.since(number);
    if (!append(rows, make_row(py::steal(Py_BuildValue("{sssi}", "kind", kind, "fd", number)), age, creator.get()))) {
      return false;
    }
  }
  return true;
}

bool Loop::describe_timers(PyObject* rows) {
  double now = 0;
  py::Ref<> timers = py::steal(get_scheduled());
  if (!timers || (PyList_GET_SIZE(timers.get()) > 0 && !time_now(&now))) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(timers.get()); ++i) {
    auto* timer = py::state_of<Timer>(PyList_GET_ITEM(timers.get(), i));
    py::Ref<> creator = py::steal(timer->get_source_traceback());
    if (!append(rows, make_row(py::steal(Py_BuildValue("{sssssd}", "kind", "timer", "state", "waiting", "due",
                                                       timer->deadline() - now)),
                               kNoAge, creator.get()))) {
      return false;
    }
  }
  return true;
}

bool Loop::describe_guests(PyObject* rows) {
  // A child's copy of the parent's libuv may name handles that their owners have freed here. In another thread libuv may
  // be at work on its lists just now.
  if (!guests_.are_here() || !uv_open_ || foreign_ || (running_ && thread_id_ != PyThread_get_thread_ident())) {
    return true;
  }
  GuestWalk walk;
  if (!walk.ours.reserve(resources_.count() + 1)) {
    return false;
  }
  const auto* self = reinterpret_cast<const char*>(this);
  walk.ours[walk.ours_count++] = {self, self + sizeof(Loop)};
  for (Resource* r = resources_.first(); r != nullptr && walk.ours_count < walk.ours.capacity();
       r = Resources::next(r)) {
    const auto* at = reinterpret_cast<const char*>(r->object());
    walk.ours[walk.ours_count++] = {at, at + Py_TYPE(r->object())->tp_basicsize};
  }
  std::sort(walk.ours.data(), walk.ours.data() + walk.ours_count,
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uv_walk(&uv_, [](uv_handle_t* handle, void* arg) { static_cast<GuestWalk*>(arg)->see(handle); }, &walk);
  for (std::size_t i = 0; !walk.failed && i < walk.count; ++i) {
    if (!append(rows, guest_row(walk.found[i]))) {
      return false;
    }
  }
  return !walk.failed;
}

PyObject* Loop::debug_handles() {
  py::Ref<> rows = py::steal(PyList_New(0));
  if (!rows || !describe_resources(rows.get()) || !describe_watchers(rows.get()) || !describe_timers(rows.get()) ||
      !describe_guests(rows.get())) {
    return nullptr;
  }
  return rows.release();
}

}  // namespace uvpy::core
