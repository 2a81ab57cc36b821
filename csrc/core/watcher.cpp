// Watchers. Called by the loop's add_reader family, by listeners and by the signal wake-up. A ready reader or writer is
// queued as its handle and runs in the turn, as in asyncio; a native one runs in the poll, and so does a transport's handle
// where nothing was scheduled before it.
// SPDX-License-Identifier: MIT
#include "core/watcher.h"

#include <cerrno>
#include <utility>

#include "core/clock.h"
#include "core/handle.h"
#include "core/loop.h"
#include "core/report.h"
#include "py/compat.h"
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

// Tells the kernel what `next` wants: whose tag changes where the set has not known the descriptor, which `*anew` says
// where it should have.
int Watchers::tell_kernel(Loop& loop, int fd, Watch& next, bool* anew) {
  if (loop.is_foreign()) {
    return 0;  // a child leaves the parent's set alone
  }
  const unsigned wanted = next.wanted();
  if (next.told == 0) {
    ++next.tag;
  }
  int error = set_.watch(fd, next.tag, next.told, wanted, anew);
  if (error == 0 && *anew) {
    ++next.tag;
    error = set_.watch(fd, next.tag, wanted, wanted);
  }
  return error;
}

// Tells the kernel what it does not know, after a change of `watch` that can only take away.
void Watchers::settle(Loop& loop, int fd, bool was_taken) {
  auto& watch = table_[static_cast<std::size_t>(fd)];
  const unsigned wanted = watch.wanted();
  if (wanted != watch.told) {
    // A descriptor closed behind our back has left the set by itself.
    if (!loop.is_foreign()) {
      set_.watch(fd, watch.tag, watch.told, wanted);
    }
    watch.told = wanted;
  }
  const bool is_taken = watch.taken() != 0;
  if (was_taken != is_taken) {
    foreign_ = is_taken ? foreign_ + 1 : foreign_ - 1;
  }
}

py::Ref<> Watchers::drop_kept(Watch& watch) {
  if (watch.kept != nullptr) {
    --kept_;
  }
  return py::steal(std::exchange(watch.kept, nullptr));
}

Watchers::Watch Watchers::look(int fd) const {
  const auto at = static_cast<std::size_t>(fd);
  return fd >= 0 && at < table_.capacity() ? table_[at] : Watch{};
}

bool Watchers::add(Loop& loop, int fd, unsigned side, py::Ref<>&& handle) {
  return put(loop, fd, side, nullptr, std::move(handle));
}

bool Watchers::add_kept(Loop& loop, int fd, PyObject* sock, py::Ref<>&& handle) {
  return put(loop, fd, kReadable, sock, std::move(handle));
}

// `sock` is null but for add_kept().
bool Watchers::put(Loop& loop, int fd, unsigned side, PyObject* sock, py::Ref<>&& handle) {
  Watch next = look(fd);
  // A weak reference: another socket with the same number, at the same address even, is not taken for this one.
  const bool is_known = sock != nullptr && next.kept != nullptr && py::refers_to(next.kept, sock);
  py::Ref<> kept = sock != nullptr && !is_known ? py::steal(PyWeakref_NewRef(sock, nullptr)) : py::Ref<>();
  if (sock != nullptr && !is_known && !kept) {
    return false;
  }
  (side == kReadable ? next.reader : next.writer) = handle.get();
  if (side == kReadable && !is_known) {
    next.kept = kept.get();
  }
  const unsigned wanted = next.wanted();
  bool anew = false;
  if (!is_known || next.told != wanted) {
    // The kernel first: a number that means nothing must not cost a table of its size.
    const int error = tell_kernel(loop, fd, next, &anew);
    if (error != 0) {
      py::raise_os_error(error);
      return false;
    }
  }
  if (!table_.reserve(static_cast<std::size_t>(fd) + 1)) {
    set_.watch(fd, next.tag, wanted, 0);
    return false;
  }
  use(loop);
  auto& watch = table_[static_cast<std::size_t>(fd)];
  const bool was_taken = watch.taken() != 0;
  if (watch.reader == nullptr && watch.writer == nullptr) {
    watch.since = coarse_seconds();
  }
  watch.told = wanted;
  watch.tag = next.tag;
  // What was watched under that number before another file got it is over.
  py::Ref<> stale =
      anew ? py::steal(std::exchange(side == kReadable ? watch.writer : watch.reader, nullptr)) : py::Ref<>();
  if (anew) {
    watch.forget_owner();
  }
  py::Ref<> forgotten;
  if ((side == kReadable && !is_known) || (anew && sock == nullptr)) {
    forgotten = drop_kept(watch);
    if (kept) {
      watch.kept = kept.release();
      ++kept_;
    }
  }
  py::Ref<> old = py::steal(std::exchange(side == kReadable ? watch.reader : watch.writer, handle.release()));
  settle(loop, fd, was_taken);
  return (!stale || cancel(stale.get())) && (!old || cancel(old.get()));
}

int Watchers::remove(Loop& loop, int fd, unsigned side) {
  if (look(fd).wanted() == 0) {
    return 0;
  }
  auto& watch = table_[static_cast<std::size_t>(fd)];
  const bool was_taken = watch.taken() != 0;
  py::Ref<> forgotten = side == kReadable ? drop_kept(watch) : py::Ref<>();
  py::Ref<> old = py::steal(std::exchange(side == kReadable ? watch.reader : watch.writer, nullptr));
  settle(loop, fd, was_taken);
  if (!old) {
    return 0;
  }
  return cancel(old.get()) ? 1 : -1;
}

bool Watchers::release(Loop& loop, int fd, unsigned side, PyObject* handle) {
  const Watch found = look(fd);
  if (handle == nullptr || (side == kReadable ? found.reader : found.writer) != handle) {
    return true;
  }
  auto& watch = table_[static_cast<std::size_t>(fd)];
  py::Ref<> old = py::steal(std::exchange(side == kReadable ? watch.reader : watch.writer, nullptr));
  settle(loop, fd, true);
  return cancel(old.get());
}

bool Watchers::keeps(int fd, PyObject* sock) const {
  const Watch found = look(fd);
  return found.kept != nullptr && transport(fd) == nullptr && py::refers_to(found.kept, sock);
}

void Watchers::forget_kept(Loop& loop, int fd) {
  const Watch found = look(fd);
  if (found.kept != nullptr && found.reader == nullptr) {
    py::Ref<> forgotten = drop_kept(table_[static_cast<std::size_t>(fd)]);
    settle(loop, fd, found.taken() != 0);
  }
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
  const auto at = static_cast<std::size_t>(fd);
  Watch next = look(fd);
  // From a new owner the kernel is told anyhow: what was known of the number may be of a file that is closed by now.
  const bool is_known = next.ready == ready && next.owner == owner;
  next.sides = sides;
  next.kept = nullptr;
  bool anew = false;
  if (!is_known || next.told != next.wanted()) {
    const int error = tell_kernel(loop, fd, next, &anew);
    if (error != 0) {
      return error;
    }
  }
  if (!table_.reserve(at + 1)) {
    PyErr_Clear();
    set_.watch(fd, next.tag, sides, 0);
    return ENOMEM;
  }
  use(loop);
  auto& watch = table_[at];
  const bool was_taken = watch.taken() != 0;
  py::Ref<> forgotten = drop_kept(watch);
  watch.told = next.wanted();
  watch.tag = next.tag;
  watch.ready = ready;
  watch.owner = owner;
  watch.sides = sides;
  // The handles were of another file that had this number.
  py::Ref<> reader = anew ? py::steal(std::exchange(watch.reader, nullptr)) : py::Ref<>();
  py::Ref<> writer = anew ? py::steal(std::exchange(watch.writer, nullptr)) : py::Ref<>();
  settle(loop, fd, was_taken);
  if ((reader && !cancel(reader.get())) || (writer && !cancel(writer.get()))) {
    loop.leave_with_error();
  }
  return 0;
}

void Watchers::remove_native(Loop& loop, int fd, const void* owner) {
  const Watch found = look(fd);
  if (found.ready == nullptr || found.owner != owner) {
    return;  // the number is somebody else's by now
  }
  table_[static_cast<std::size_t>(fd)].forget_owner();
  settle(loop, fd, found.taken() != 0);
}

bool Watchers::set_transport(int fd, PyObject* transport) {
  const auto at = static_cast<std::size_t>(fd);
  if (transport == nullptr) {
    if (at < transports_.capacity()) {
      transports_[at] = nullptr;
    }
    return true;
  }
  if (!transports_.reserve(at + 1)) {
    return false;
  }
  transports_[at] = transport;
  return true;
}

PyObject* Watchers::transport(int fd) const {
  const auto at = static_cast<std::size_t>(fd);
  return fd >= 0 && at < transports_.capacity() ? transports_[at] : nullptr;
}

void Watchers::on_poll(uv_poll_t* handle, int, int) {
  auto* loop = uv::owner_of<Loop>(handle);
  loop->gil().take();
  Watchers& watchers = loop->watchers();
  PollEvent events[kRoom];
  watchers.dispatch(*loop, events, watchers.wait(events, 0));
}

void Watchers::dispatch(Loop& loop, const PollEvent* events, int count) {
  for (int i = 0; i < count; ++i) {
    dispatch_one(loop, events[i]);
  }
  if (count == kRoom) {
    dispatch_more(loop);
  }
}

// As many at once as are watched, which is what asyncio asks for; more rounds only when that is more than fits.
void Watchers::dispatch_more(Loop& loop) {
  std::size_t rounds = (foreign_ + kept_) / kRoom;
  PollEvent more[kRoom];
  for (int count = kRoom; count == kRoom && rounds > 0; --rounds) {
    count = wait(more, 0);
    for (int i = 0; i < count; ++i) {
      dispatch_one(loop, more[i]);
    }
  }
}

void Watchers::dispatch_one(Loop& loop, const PollEvent& event) {
  const auto at = static_cast<std::size_t>(event.fd);
  // What a native owner or a transport's handle calls may change the table, and close the file and open another under its
  // number: the event is then of a file that is not this number's any more. Nothing is kept across the calls.
  const auto is_meant = [&] { return at < table_.capacity() && table_[at].tag == event.tag; };
  if (!is_meant()) {
    return;
  }
  if (const Watch& watch = table_[at]; watch.reader == nullptr && watch.writer == nullptr && watch.kept == nullptr) {
    // A transport's, mostly: it alone is called.
    if (const unsigned ready = event.ready & watch.sides; ready != 0) {
      watch.ready(watch.owner, ready);
    }
    return;
  }
  if ((event.ready & table_[at].sides) != 0) {
    table_[at].ready(table_[at].owner, event.ready & table_[at].sides);
  }
  if (is_meant() && (event.ready & kReadable) != 0) {
    if (table_[at].reader != nullptr) {
      queue(loop, event.fd, kReadable, table_[at].reader);
    } else {
      forget_kept(loop, event.fd);  // nobody waits: once told is enough
    }
  }
  if (is_meant() && (event.ready & kWritable) != 0 && table_[at].writer != nullptr) {
    queue(loop, event.fd, kWritable, table_[at].writer);
  }
}

void Watchers::queue(Loop& loop, int fd, unsigned side, PyObject* handle) {
  const auto* state = py::state_of<Handle>(handle);
  if (state->is_cancelled()) {
    const bool failed = remove(loop, fd, side) < 0;
    py::Ref<> file = watched(fd) == 0 ? loop.watched_files().take(fd) : py::Ref<>();
    if (failed) {
      loop.leave_with_error();
    }
  } else if (state->runs_in_poll() && !loop.must_queue_io() && !loop.is_leaving() && !loop.is_foreign()) {
    loop.run_in_poll(handle);
  } else if (!loop.ready().push(py::borrow(handle))) {
    loop.leave_with_error();
  }
}

void Watchers::close(uv_close_cb on_closed) {
  for (std::size_t fd = 0; fd < table_.capacity(); ++fd) {
    py::Ref<> reader = py::steal(table_[fd].reader);
    py::Ref<> writer = py::steal(table_[fd].writer);
    py::Ref<> kept = py::steal(table_[fd].kept);
    table_[fd] = Watch{};
  }
  foreign_ = 0;
  kept_ = 0;
  poll_.close(on_closed);
  set_.close();
}

int Watchers::renew() {
  const int error = set_.renew();
  for (std::size_t fd = 0; error == 0 && fd < table_.capacity(); ++fd) {
    table_[fd].told = 0;
  }
  return error;
}

void Watchers::watch_all_again() {
  for (std::size_t fd = 0; fd < table_.capacity(); ++fd) {
    Watch& watch = table_[fd];
    const unsigned wanted = watch.wanted();
    // One that was closed meanwhile has left the parent's set, too, and cannot be watched.
    if (wanted != watch.told && set_.watch(static_cast<int>(fd), watch.tag, watch.told, wanted) == 0) {
      watch.told = wanted;
    }
  }
}

int Watchers::visit(visitproc visit, void* arg) const {
  for (std::size_t fd = 0; fd < table_.capacity(); ++fd) {
    Py_VISIT(table_[fd].reader);
    Py_VISIT(table_[fd].writer);
    Py_VISIT(table_[fd].kept);
  }
  return 0;
}

}  // namespace uvpy::core
