// Watchers. Called by the loop's add_reader family, by listeners and by the signal wake-up. A ready reader or writer is
// queued as its handle and runs in the turn, as in asyncio; a native one runs in the poll.
// SPDX-License-Identifier: MIT
#include "core/watcher.h"

#include <cerrno>
#include <utility>

#include "core/handle.h"
#include "core/loop.h"
#include "core/report.h"
#include "py/error.h"

namespace uvpy::core {

namespace {
bool cancel(PyObject* handle) {
  py::Ref<> done = py::steal(py::state_of<Handle>(handle)->cancel());
  return static_cast<bool>(done);
}
}  // namespace

void Watchers::use(Loop& loop) {
  if (!used_) {
    used_ = true;
    loop.wake();  // from another thread while the loop polls: it must come out and arm the set
  }
}

int Watchers::arm(Loop& loop) {
  const uv::Status made = uv_poll_init(loop.uv(), poll_.get(), set_.fd());
  if (!made.ok()) {
    return made.error();
  }
  poll_.opened(&loop);
  const uv::Status started = uv_poll_start(poll_.get(), UV_READABLE, &Watchers::on_poll);
  return started.ok() ? 0 : started.error();
}

int Watchers::tell_kernel(Loop& loop, int fd, unsigned before, unsigned wanted, bool* anew) {
  return loop.is_foreign() ? 0 : set_.watch(fd, before, wanted, anew);  // a child leaves the parent's set alone
}

unsigned Watchers::mask(int fd) const {
  return fd >= 0 && static_cast<std::size_t>(fd) < table_.capacity() ? table_[static_cast<std::size_t>(fd)].mask() : 0;
}

bool Watchers::add(Loop& loop, int fd, unsigned side, py::Ref<>&& handle) {
  // The kernel first: a number that means nothing must not cost a table of its size.
  const unsigned before = mask(fd);
  bool anew = false;
  const int error = tell_kernel(loop, fd, before, before | side, &anew);
  if (error != 0) {
    py::raise_os_error(error);
    return false;
  }
  if (!table_.reserve(static_cast<std::size_t>(fd) + 1)) {
    tell_kernel(loop, fd, side, 0, nullptr);
    return false;
  }
  use(loop);
  auto& watch = table_[static_cast<std::size_t>(fd)];
  if (before == 0) {
    ++foreign_;
  }
  // What was watched under that number before another file got it is over.
  py::Ref<> stale =
      anew ? py::steal(std::exchange(side == kReadable ? watch.writer : watch.reader, nullptr)) : py::Ref<>();
  if (anew) {
    watch.forget_owner();
    tell_kernel(loop, fd, side, side, nullptr);
  }
  py::Ref<> old = py::steal(std::exchange(side == kReadable ? watch.reader : watch.writer, handle.release()));
  return (!stale || cancel(stale.get())) && (!old || cancel(old.get()));
}

int Watchers::remove(Loop& loop, int fd, unsigned side) {
  if (fd < 0 || static_cast<std::size_t>(fd) >= table_.capacity()) {
    return 0;
  }
  auto& watch = table_[static_cast<std::size_t>(fd)];
  const unsigned before = watch.mask();
  PyObject*& place = side == kReadable ? watch.reader : watch.writer;
  if (before == 0) {
    return 0;
  }
  py::Ref<> old = py::steal(place);
  place = nullptr;
  const unsigned wanted = watch.mask();
  if (wanted != before) {
    // A descriptor closed behind our back has left the set by itself.
    tell_kernel(loop, fd, before, wanted, nullptr);
    if (wanted == 0) {
      --foreign_;
    }
  }
  if (!old) {
    return 0;
  }
  return cancel(old.get()) ? 1 : -1;
}

unsigned Watchers::watched(int fd) const {
  if (fd < 0 || static_cast<std::size_t>(fd) >= table_.capacity()) {
    return 0;
  }
  const auto& watch = table_[static_cast<std::size_t>(fd)];
  return (watch.reader != nullptr ? kReadable : 0U) | (watch.writer != nullptr ? kWritable : 0U);
}

PyObject* Watchers::handle(int fd, unsigned side) const {
  if (fd < 0 || static_cast<std::size_t>(fd) >= table_.capacity()) {
    return nullptr;
  }
  const auto& watch = table_[static_cast<std::size_t>(fd)];
  return side == kReadable ? watch.reader : watch.writer;
}

int Watchers::watch_native(Loop& loop, int fd, unsigned sides, Ready ready, void* owner) {
  const unsigned before = mask(fd);
  const unsigned handles = watched(fd);
  const auto at = static_cast<std::size_t>(fd);
  // From a new owner the kernel is told anyhow: what was known of the number may be of a file that is closed by now.
  const bool is_known = at < table_.capacity() && table_[at].ready == ready && table_[at].owner == owner;
  bool anew = false;
  if (!is_known || before != (handles | sides)) {
    const int error = tell_kernel(loop, fd, before, handles | sides, &anew);
    if (error != 0) {
      return error;
    }
  }
  if (!table_.reserve(at + 1)) {
    PyErr_Clear();
    tell_kernel(loop, fd, sides, before, nullptr);
    return ENOMEM;
  }
  use(loop);
  auto& watch = table_[at];
  watch.ready = ready;
  watch.owner = owner;
  watch.sides = sides;
  if (before == 0) {
    ++foreign_;
  }
  if (anew) {
    // The handles were of another file that had this number.
    py::Ref<> reader = py::steal(std::exchange(watch.reader, nullptr));
    py::Ref<> writer = py::steal(std::exchange(watch.writer, nullptr));
    tell_kernel(loop, fd, sides, sides, nullptr);
    if ((reader && !cancel(reader.get())) || (writer && !cancel(writer.get()))) {
      loop.leave_with_error();
    }
  }
  return 0;
}

void Watchers::remove_native(Loop& loop, int fd, const void* owner) {
  if (fd < 0 || static_cast<std::size_t>(fd) >= table_.capacity()) {
    return;
  }
  auto& watch = table_[static_cast<std::size_t>(fd)];
  if (watch.ready == nullptr || watch.owner != owner) {
    return;  // the number is somebody else's by now
  }
  const unsigned before = watch.mask();
  watch.forget_owner();
  if (watch.mask() != before) {
    tell_kernel(loop, fd, before, watch.mask(), nullptr);
  }
  if (watch.mask() == 0) {
    --foreign_;
  }
}

bool Watchers::set_transport(int fd, PyObject* transport) {
  const auto at = static_cast<std::size_t>(fd);
  if (transport == nullptr) {
    if (at < table_.capacity()) {
      table_[at].transport = nullptr;
    }
    return true;
  }
  if (!table_.reserve(at + 1)) {
    return false;
  }
  table_[at].transport = transport;
  return true;
}

PyObject* Watchers::transport(int fd) const {
  const auto at = static_cast<std::size_t>(fd);
  return fd >= 0 && at < table_.capacity() ? table_[at].transport : nullptr;
}

void Watchers::on_poll(uv_poll_t* handle, int, int) {
  auto* loop = uv::owner_of<Loop>(handle);
  loop->gil().take();
  loop->watchers().dispatch(*loop);
}

void Watchers::dispatch(Loop& loop) {
  // As many at once as are watched, which is what asyncio asks for; more rounds only when that is more than fits.
  constexpr int kRoom = 256;
  PollEvent events[kRoom];
  std::size_t rounds = foreign_ / kRoom + 1;
  while (rounds-- > 0) {
    const int count = set_.ready(events, kRoom);
    for (int i = 0; i < count; ++i) {
      const auto& event = events[i];
      const auto at = static_cast<std::size_t>(event.fd);
      if (at >= table_.capacity()) {
        continue;
      }
      // A native callback may change the table: nothing of it is kept across the call.
      if ((event.ready & table_[at].sides) != 0) {
        table_[at].ready(table_[at].owner, event.ready & table_[at].sides);
      }
      if ((event.ready & kReadable) != 0 && table_[at].reader != nullptr) {
        queue(loop, event.fd, kReadable, table_[at].reader);
      }
      if ((event.ready & kWritable) != 0 && table_[at].writer != nullptr) {
        queue(loop, event.fd, kWritable, table_[at].writer);
      }
    }
    if (count < kRoom) {
      return;
    }
  }
}

void Watchers::queue(Loop& loop, int fd, unsigned side, PyObject* handle) {
  if (py::state_of<Handle>(handle)->is_cancelled()) {
    const bool failed = remove(loop, fd, side) < 0;
    py::Ref<> file = watched(fd) == 0 ? loop.watched_files().take(fd) : py::Ref<>();
    if (failed) {
      loop.leave_with_error();
    }
  } else if (!loop.ready().push(py::borrow(handle))) {
    loop.leave_with_error();
  }
}

void Watchers::close(uv_close_cb on_closed) {
  for (std::size_t fd = 0; fd < table_.capacity(); ++fd) {
    py::Ref<> reader = py::steal(table_[fd].reader);
    py::Ref<> writer = py::steal(table_[fd].writer);
    table_[fd] = Watch{};
  }
  foreign_ = 0;
  poll_.close(on_closed);
  set_.close();
}

int Watchers::visit(visitproc visit, void* arg) const {
  for (std::size_t fd = 0; fd < table_.capacity(); ++fd) {
    Py_VISIT(table_[fd].reader);
    Py_VISIT(table_[fd].writer);
  }
  return 0;
}

}  // namespace uvpy::core
