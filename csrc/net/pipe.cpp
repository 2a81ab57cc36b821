// The common part of pipe transports: their descriptor. Called by ReadPipeTransport and WritePipeTransport.
// SPDX-License-Identifier: MIT
#include "net/pipe.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "core/handle.h"
#include "py/args.h"
#include "py/call.h"

namespace uvpy::net {

namespace {

bool is_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

bool change_nonblocking(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0;
}

// Does a system call until no signal interrupts it, and the handlers of those that do.
template <class Call>
ssize_t uninterrupted(Call&& call, ssize_t interrupted) {
  for (;;) {
    const ssize_t count = call();
    if (count >= 0) {
      return count;
    }
    if (errno != EINTR) {
      return -static_cast<ssize_t>(errno);
    }
    if (PyErr_CheckSignals() < 0) {
      return interrupted;
    }
  }
}

// What a call says that the kernel, or a filter of system calls, knows only without its flag.
[[maybe_unused]] bool is_unsupported(ssize_t result) {
  return result == -EOPNOTSUPP || result == -ENOSYS || result == -EINVAL || result == -EPERM;
}

// The object whose method a handle calls, borrowed; null where it is another callable.
PyObject* owner_of(PyObject* handle) {
  py::Ref<> callback = py::steal(py::state_of<core::Handle>(handle)->get_callback());
  return PyCFunction_Check(callback.get()) ? PyCFunction_GET_SELF(callback.get()) : nullptr;
}

// Does one that might wait after all, with the GIL given up.
template <class Call>
ssize_t unlocked(Call&& call) {
  PyThreadState* saved = PyEval_SaveThread();
  const ssize_t count = call();
  const int code = errno;
  PyEval_RestoreThread(saved);
  errno = code;
  return count;
}

}  // namespace

Pipe::~Pipe() {
  if (loop_) {
    unlist();
    loop().resources().remove(this);
  }
}

// ---- opening

bool Pipe::open(core::Loop& loop, PyObject* self, const PipeParts& parts, const char* refusal) {
  lost_ = true;  // nothing to warn about before we know the descriptor
  py::Ref<> number = py::call_method(parts.pipe, loop.state().names.fileno);
  int is_out_of_reach = 0;
  const long fd = number ? PyLong_AsLongAndOverflow(number.get(), &is_out_of_reach) : -1;
  if (fd == -1 && PyErr_Occurred() != nullptr) {
    return false;
  }
  if (is_out_of_reach != 0 || fd > INT_MAX || fd < INT_MIN) {
    PyErr_SetString(PyExc_OverflowError, "Python int too large to convert to C int");  // as os.fstat() says it
    return false;
  }
  if (!begin(loop, self, static_cast<int>(fd), parts.protocol)) {
    return false;
  }
  // The dict is the caller's own, as in asyncio.
  extra_ = parts.extra != nullptr && parts.extra != Py_None ? py::borrow(parts.extra) : py::steal(PyDict_New());
  if (!extra_ || PyDict_SetItem(extra_.get(), loop.state().names.pipe, parts.pipe) < 0) {
    return false;
  }
  // From here on asyncio's finalizer closes the file of a transport that could not be made.
  pipe_ = py::borrow(parts.pipe);
  lost_ = false;
  struct stat found{};
  if (fstat(fd_, &found) < 0) {
    py::raise_os_error(errno);
    return false;
  }
  if (S_ISFIFO(found.st_mode)) {
    kind_ = found.st_nlink > 0 ? Kind::named_fifo : Kind::fifo;
  } else if (S_ISSOCK(found.st_mode)) {
    kind_ = Kind::socket;
  } else if (S_ISCHR(found.st_mode)) {
    kind_ = Kind::device;
  } else {
    // The file stays as it is.
    lost_ = true;
    pipe_.reset();
    PyErr_SetString(PyExc_ValueError, refusal);
    return false;
  }
  file_ = core::FileIdentity(found);
  return set_nonblocking();
}

void Pipe::opened() {
  loop().resources().add(this);
  list();
  // What holds a pipe transport is its reader or writer, as in asyncio: one that waits for nothing is collected.
  core::Resources::let_go(this);
}

bool Pipe::set_nonblocking() {
  if (is_nonblocking(fd_)) {
    return true;
  }
  if (!change_nonblocking(fd_, true)) {
    py::raise_os_error(errno);
    return false;
  }
  was_blocking_ = true;
  return true;
}

// O_NONBLOCK belongs to the open file description, which other descriptors may share: standard input and output of a
// terminal, the ones that a shell has. It is left as it was found, by the last of our transports that uses it.
void Pipe::restore_blocking() {
  if (!was_blocking_) {
    return;
  }
  was_blocking_ = false;
  if (loop().resources().is_inherited(this) || !is_our_file()) {
    return;  // a forked child's parent goes on with it; or the number is another file's
  }
  if (!pass_duty_on()) {
    change_nonblocking(fd_, false);
  }
}

// The open transports by their file, those of all loops: the duty may go to another loop's.
void Pipe::list() {
  Pipe*& first = loop().state().pipes[file_.inode() % kPipeLists];
  next_listed_ = first;
  if (first != nullptr) {
    first->previous_listed_ = this;
  }
  first = this;
  listed_ = true;
}

void Pipe::unlist() {
  if (!listed_) {
    return;
  }
  listed_ = false;
  Pipe*& first = loop().state().pipes[file_.inode() % kPipeLists];
  (previous_listed_ != nullptr ? previous_listed_->next_listed_ : first) = next_listed_;
  if (next_listed_ != nullptr) {
    next_listed_->previous_listed_ = previous_listed_;
  }
  next_listed_ = previous_listed_ = nullptr;
}

// Another open transport over the same description takes the duty over. A forked child's copies of the parent's, and those
// of a closed loop, will never come to it.
bool Pipe::pass_duty_on() {
  for (Pipe* other = loop().state().pipes[file_.inode() % kPipeLists]; other != nullptr; other = other->next_listed_) {
    if (other != this && !other->lost_ && !other->loop_ended_ && !other->loop().resources().is_inherited(other) &&
        other->file_ == file_ && shares_description(*other)) {
      other->was_blocking_ = true;
      return true;
    }
  }
  return false;
}

// Of two that are alike to fcntl(), which the two ends of a FIFO are not, the kernel shows it by the flag itself: what is
// cleared through one descriptor is clear through the other.
bool Pipe::shares_description(const Pipe& other) const {
  const int flags = fcntl(fd_, F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) == 0 || fcntl(other.fd_, F_GETFL) != flags) {
    return false;
  }
  change_nonblocking(fd_, false);
  const bool shared = !is_nonblocking(other.fd_);
  change_nonblocking(fd_, true);
  return shared;
}

// ---- reading and writing

// Linux can be told for one call not to wait, of pipes since 6.4; what cannot says so at the first call.
//
// Others who share the description may have made it blocking again, a shell its terminal for one. Then a call is made only
// where the kernel says that it need not wait, in small pieces, and with the GIL given up in case it does. Another thread
// may then do anything to the transport: the callers hold what is written and look at the state anew. A terminal says that
// it need not wait when it has room for a single byte: it is made non-blocking for the one call.
bool Pipe::may_block() const { return !is_nonblocking(fd_); }

ssize_t Pipe::read_some(char* to, std::size_t room) {
  if (kind_ == Kind::socket) {
    return uninterrupted([&] { return ::recv(fd_, to, room, MSG_DONTWAIT); }, kInterrupted);
  }
#ifdef RWF_NOWAIT
  if (nowait_) {
    const iovec part = {to, room};
    const ssize_t count = uninterrupted([&] { return ::preadv2(fd_, &part, 1, -1, RWF_NOWAIT); }, kInterrupted);
    if (!is_unsupported(count)) {
      return count;
    }
    nowait_ = false;
  }
#endif
  if (!may_block()) {
    return uninterrupted([&] { return ::read(fd_, to, room); }, kInterrupted);
  }
  pollfd asked = {fd_, POLLIN, 0};
  if (::poll(&asked, 1, 0) == 0) {
    return -EAGAIN;
  }
  // Not into the loop's memory for input: another thread may read into that meanwhile.
  const std::unique_ptr<char[]> own(new (std::nothrow) char[room]);
  if (!own) {
    return -ENOMEM;
  }
  const ssize_t count =
      uninterrupted([&] { return unlocked([&] { return ::read(fd_, own.get(), room); }); }, kInterrupted);
  if (count > 0) {
    std::memcpy(to, own.get(), static_cast<std::size_t>(count));
  }
  return count;
}

ssize_t Pipe::write_some(const iovec* parts, int count) {
  if (kind_ == Kind::socket) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(count);
    return uninterrupted([&] { return ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL); }, kInterrupted);
  }
#ifdef RWF_NOWAIT
  if (nowait_) {
    const ssize_t sent = uninterrupted([&] { return ::pwritev2(fd_, parts, count, -1, RWF_NOWAIT); }, kInterrupted);
    if (!is_unsupported(sent)) {
      return sent;
    }
    nowait_ = false;
  }
#endif
  if (!may_block()) {
    return uninterrupted(
        [&] { return count == 1 ? ::write(fd_, parts->iov_base, parts->iov_len) : ::writev(fd_, parts, count); },
        kInterrupted);
  }
  pollfd asked = {fd_, POLLOUT, 0};
  if (::poll(&asked, 1, 0) == 0) {
    return -EAGAIN;
  }
  // A pipe that is ready takes so much at once; a terminal may have room for less, and would wait for more.
  const std::size_t most = std::min(parts->iov_len, static_cast<std::size_t>(PIPE_BUF));
  if (kind_ == Kind::device && change_nonblocking(fd_, true)) {
    const ssize_t sent = uninterrupted([&] { return ::write(fd_, parts->iov_base, most); }, kInterrupted);
    change_nonblocking(fd_, false);
    return sent;
  }
  return uninterrupted([&] { return unlocked([&] { return ::write(fd_, parts->iov_base, most); }); }, kInterrupted);
}

// ---- watching

bool Pipe::watch(unsigned side, PyObject* name) {
  py::Ref<> method = py::get_attr(self_, name);
  py::Ref<> number = method ? py::steal(PyLong_FromLong(fd_)) : py::Ref<>();
  return number && watch_for(side, number.get(), method.get());
}

bool Pipe::watch_for(unsigned side, PyObject* fd, PyObject* callback) {
  PyObject* argv[] = {fd, callback};
  py::Ref<> handle = py::steal(side == core::kReadable ? loop().add_reader_private(argv, 2, nullptr)
                                                       : loop().add_writer_private(argv, 2, nullptr));
  if (!handle) {
    return false;
  }
  if (owner_of(handle.get()) == self_ && loop().watchers().handle(fd_, side) == handle.get()) {
    py::state_of<core::Handle>(handle.get())->run_in_poll();
  }
  return true;
}

bool Pipe::unwatch(unsigned side) {
  PyObject* handle = loop().watchers().handle(fd_, side);
  if (handle == nullptr) {
    return true;
  }
  PyObject* owner = owner_of(handle);
  if (owner != self_) {
    // Somebody else watches under our number: one of ours that shares it keeps its watch, and so does whoever got the
    // number with another file; a reader that the program has put in our place is removed, as asyncio removes it.
    const ModuleState& state = loop().state();
    const bool is_pipe =
        owner != nullptr && (Py_TYPE(owner) == state.read_pipe_type || Py_TYPE(owner) == state.write_pipe_type);
    if (is_pipe || !is_our_file()) {
      return true;
    }
  }
  return loop().watchers().remove(loop(), fd_, side) >= 0;
}

// ---- ending

bool Pipe::close_pipe() {
  for (const unsigned side : {core::kReadable, core::kWritable}) {
    // There is one only where _call_connection_lost() was called by hand; it must not outlive the descriptor.
    PyObject* handle = loop().watchers().handle(fd_, side);
    if (handle != nullptr && owner_of(handle) == self_ && !unwatch(side)) {
      return false;
    }
  }
  restore_blocking();
  unlist();
  loop().resources().remove(this);
  py::Ref<> pipe = std::move(pipe_);
  return !pipe || py::steal(PyObject_CallMethod(pipe.get(), "close", nullptr));
}

bool Pipe::release_descriptor() { return close_pipe(); }

void Pipe::close_unclosed() {
  lost_ = true;
  closing_ = true;
  if (!close_pipe()) {
    PyErr_WriteUnraisable(self_);
  }
}

void Pipe::finalize() {
  if (loop_) {
    warn_unclosed();
    loop().resources().remove(this);  // the list must not know an object that is being freed
  }
}

void Pipe::end_with_loop() {
  // As under asyncio's loop the file stays open, until the transport is collected.
  loop_ended_ = true;
  restore_blocking();
}

void Pipe::leak() {
  loop_ended_ = true;
  was_blocking_ = false;
}

// ---- for Python

PyObject* Pipe::set_protocol(PyObject* protocol) {
  if (!protocol_.set(loop(), protocol)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Pipe::get_pipe() { return Py_NewRef(pipe_ ? pipe_.get() : Py_None); }

// None stands for a closed file: who closes the file himself says so, and is not warned.
int Pipe::set_pipe(PyObject* pipe) {
  if (pipe == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "_pipe cannot be deleted");
    return -1;
  }
  restore_blocking();
  pipe_ = py::borrow(pipe == Py_None ? nullptr : pipe);
  lost_ = pipe == Py_None;
  return 0;
}

PyObject* Pipe::repr_with(const char* name, unsigned side, bool writes) {
  const char* state = !pipe_ ? " closed" : closing_ ? " closing" : "";
  if (!pipe_ || loop().is_closed()) {
    return PyUnicode_FromFormat("<%s%s fd=%d %s>", name, state, fd_, pipe_ ? "open" : "closed");
  }
  const char* watched = (loop().watchers().watched(fd_) & side) != 0 ? "polling" : "idle";
  if (writes) {
    return PyUnicode_FromFormat("<%s%s fd=%d %s bufsize=%zu>", name, state, fd_, watched, waiting());
  }
  return PyUnicode_FromFormat("<%s%s fd=%d %s>", name, state, fd_, watched);
}

PyObject* Pipe::describe_as(const char* kind) const {
  return Py_BuildValue("{sssisssn}", "kind", kind, "fd", fd_, "state", closing_ ? "closing" : "open", "waiting",
                       static_cast<Py_ssize_t>(waiting()));
}

int Pipe::visit_pipe(visitproc visit, void* arg) const {
  Py_VISIT(pipe_.get());
  return visit_common(visit, arg);
}

// The file object goes too: what it refers to may lead back here. Its owner, or its own finalizer, closes it.
void Pipe::clear_pipe() {
  pipe_.reset();
  clear_common();
}

bool parse_pipe(PyObject* module, const char* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                core::Loop** loop, PipeParts* parts) {
  static constexpr const char* kNames[] = {"loop", "pipe", "protocol", "waiter", "extra"};
  enum { kLoop, kPipe, kProtocol, kWaiter, kExtra, kCount };
  PyObject* given[kCount];
  if (!py::parse({function, kNames, 3, kCount}, args, nargs, kwnames, given)) {
    return false;
  }
  *loop = core::loop_of(module, given[kLoop]);
  if (*loop == nullptr) {
    return false;
  }
  if (given[kExtra] != nullptr && given[kExtra] != Py_None && !PyDict_Check(given[kExtra])) {
    PyErr_SetString(PyExc_TypeError, "extra must be a dict or None");
    return false;
  }
  *parts = {given[kPipe], given[kProtocol], given[kWaiter], given[kExtra]};
  return true;
}

}  // namespace uvpy::net
