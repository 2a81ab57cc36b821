// Accepting connections. Called by uvpy.Loop's _start_serving and _stop_serving, and by the watchers in the poll.
// SPDX-License-Identifier: MIT
#include "net/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "core/debug.h"
#include "core/report.h"
#include "net/connection.h"
#include "net/tcp.h"
#include "py/args.h"
#include "py/call.h"
#include "py/method.h"
#include "py/type.h"

namespace uvpy::net {

namespace {

// asyncio.constants.ACCEPT_RETRY_DELAY, in seconds.
constexpr double kRetryDelay = 1.0;

int accept_client(int listening, RawAddress* peer) {
  peer->size = sizeof peer->storage;
#ifdef __linux__
  return accept4(listening, peer->get(), &peer->size, SOCK_NONBLOCK | SOCK_CLOEXEC);
#else
  const int fd = accept(listening, peer->get(), &peer->size);
  if (fd >= 0) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return fd;
#endif
}

}  // namespace

bool Listener::listen(core::Loop& loop, PyObject* sock, PyObject* factory, PyObject* server, Py_ssize_t backlog,
                      PyObject* accept_tls, PyObject* context) {
  const int fd = PyObject_AsFileDescriptor(sock);
  if (fd < 0) {
    return false;
  }
  stop_listening(loop, sock);
  py::Ref<> self = py::steal(py::create<Listener>(loop.state().listener_type));
  if (!self) {
    return false;
  }
  auto* state = py::state_of<Listener>(self.get());
  state->self_ = self.get();
  state->loop_ = py::borrow(loop.object());
  state->sock_ = py::borrow(sock);
  state->factory_ = py::borrow(factory);
  state->server_ = py::borrow(server);
  state->accept_tls_ = py::borrow(accept_tls == Py_None ? nullptr : accept_tls);
  state->context_given_ = context != nullptr && context != Py_None;
  state->context_ = state->context_given_ ? py::borrow(context) : py::steal(PyContext_CopyCurrent());
  state->backlog_ = backlog > 0 ? backlog : 1;
  state->fd_ = fd;
  state->own_.size = sizeof state->own_.storage;
  if (getsockname(fd, state->own_.get(), &state->own_.size) < 0) {
    py::raise_os_error(errno);
    return false;
  }
  if (state->own_.storage.ss_family == AF_UNIX) {
    state->no_delay_ = NoDelay::each;
  } else {
    TCPTransport::tune(fd);
  }
  if (!state->context_ || !state->watch()) {
    return false;
  }
  loop.resources().add(state);
  return true;
}

void Listener::stop_listening(core::Loop& loop, PyObject* sock) {
  for (core::Resource* r = loop.resources().first(); r != nullptr; r = core::Resources::next(r)) {
    if (Py_TYPE(r->object()) == loop.state().listener_type) {
      auto* listener = py::state_of<Listener>(r->object());
      if (listener->sock_.get() == sock) {
        listener->stop();
        return;
      }
    }
  }
}

bool Listener::watch() {
  const int error = loop().watchers().watch_native(loop(), fd_, core::kReadable, &Listener::on_ready, this);
  if (error != 0) {
    py::raise_os_error(error);
    return false;
  }
  watching_ = true;
  return true;
}

void Listener::stop() {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  if (watching_) {
    watching_ = false;
    loop().watchers().remove_native(loop(), fd_, this);
  }
  loop().resources().remove(this);  // may be the last reference
}

PyObject* Listener::resume_accepting() {
  if (!stopped_ && !watching_ && !watch()) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

void Listener::on_ready(void* owner, unsigned) {
  auto* self = static_cast<Listener*>(owner);
  py::Ref<> alive = py::borrow(self->object());
  core::Loop& loop = self->loop();
  if (!loop.must_queue_io()) {
    self->accept_ready();
    return;
  }
  py::Ref<> method = py::get_attr(self->object(), loop.state().names._accept_ready);
  if (!method || !loop.queue_io(method.get(), self->context_.get())) {
    loop.leave_with_error();
  }
}

PyObject* Listener::accept_method() {
  // The handle has entered our context; each connection enters a copy of it, which is another.
  py::Ref<> alive = py::borrow(object());
  accept_ready();
  Py_RETURN_NONE;
}

bool Listener::accept_one() {
  if (!waiting_.reserve(waiting_end_ + 1)) {
    loop().leave_with_error();
    return false;
  }
  Client& client = waiting_[waiting_end_];
  client.fd = accept_client(fd_, &client.peer);
  if (client.fd >= 0) {
    ++waiting_end_;
    return true;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return false;
  }
  if (errno != EINTR && errno != ECONNABORTED && !out_of_resources(errno)) {
    // One client's trouble (Linux gives pending network errors here): reported, and on to the next.
    py::Ref<> exc = py::os_error(errno);
    if (!exc || !core::report::call_exception_handler(loop(), "socket.accept() failed", exc.get())) {
      loop().leave_with_error();
    }
    return false;
  }
  return true;
}

void Listener::accept_ready() {
  const bool was_waiting = first_waiting_ < waiting_end_;
  for (Py_ssize_t i = 0; i < backlog_ && watching_ && !loop().is_leaving() && !loop().is_foreign(); ++i) {
    if (!accept_one()) {
      break;
    }
  }
  if (!was_waiting && first_waiting_ < waiting_end_ && !queue_connecting()) {
    loop().leave_with_error();
  }
}

// asyncio makes a connection in a task of its own, an iteration after it was accepted: what its peer, in this very
// process, does meanwhile comes before what a server does at once.
bool Listener::queue_connecting() {
  py::Ref<> method = py::get_attr(object(), loop().state().names._connect_waiting);
  return method && loop().call_soon_for(method.get(), nullptr, context_.get());
}

PyObject* Listener::connect_method() {
  py::Ref<> alive = py::borrow(object());
  while (first_waiting_ < waiting_end_ && !loop().is_leaving() && !loop().is_foreign()) {
    const Client client = waiting_[first_waiting_++];
    accepted(client.fd, client.peer);
  }
  if (first_waiting_ == waiting_end_) {
    first_waiting_ = waiting_end_ = 0;
    if (waiting_.capacity() > 8) {
      waiting_.free();  // a burst is over
    }
  } else if (!loop().is_foreign() && !queue_connecting()) {  // a factory has ended the run: the rest is for the next
    return nullptr;
  }
  Py_RETURN_NONE;
}

void Listener::close_waiting() {
  while (first_waiting_ < waiting_end_) {
    ::close(waiting_[first_waiting_++].fd);
  }
}

bool Listener::out_of_resources(int code) {
  if (code != EMFILE && code != ENFILE && code != ENOBUFS && code != ENOMEM) {
    return false;
  }
  // The socket stays readable: without a pause the loop would spin. The waiting clients are served afterwards.
  watching_ = false;
  loop().watchers().remove_native(loop(), fd_, this);
  const ModuleState& state = loop().state();
  py::Ref<> exc = py::os_error(code);
  py::Ref<> shown = exc ? py::call(state.transport_socket, sock_.get()) : py::Ref<>();
  py::Ref<> resume = shown ? py::get_attr(object(), state.names._resume_accepting) : py::Ref<>();
  if (!resume || !loop().call_later_for(kRetryDelay, resume.get()) ||
      !core::report::call_exception_handler(loop(), "socket.accept() out of system resource", exc.get(),
                                            {"socket", shown.get()})) {
    loop().leave_with_error();
  }
  return true;
}

void Listener::accepted(int fd, const RawAddress& peer) {
  loop().count_callback();
  bool taken = false;
  if (!make_connection(fd, peer, &taken)) {
    py::Ref<> exc = py::take_error();
    if (!taken) {
      ::close(fd);
    }
    if (py::ends_the_loop(exc.get())) {
      py::restore_error(std::move(exc));
      loop().leave_with_error();
    } else if (loop().debug() && !core::report::call_exception_handler(
                                     loop(), "Error on transport creation for incoming connection", exc.get())) {
      loop().leave_with_error();
    }
  }
}

// `*taken` says whether the descriptor has an owner now, who closes it.
bool Listener::make_connection(int fd, const RawAddress& peer, bool* taken) {
  // asyncio makes each connection in a task, which has a copy of the server's context.
  py::Ref<> context = py::steal(PyContext_Copy(context_.get()));
  if (!context) {
    return false;
  }
  py::ContextScope scope(context.get());
  if (!scope.entered()) {
    return false;
  }
  const ModuleState& state = loop().state();
  const int family = own_.storage.ss_family;
  if (accept_tls_ || loop().debug()) {
    py::Ref<> address = socket_address(peer.storage, peer.size);
    py::Ref<> args =
        address ? py::steal(Py_BuildValue("(iiii)", family, static_cast<int>(SOCK_STREAM), 0, fd)) : py::Ref<>();
    py::Ref<> sock = args ? py::steal(PyObject_CallObject(state.socket_type, args.get())) : py::Ref<>();
    if (!sock) {
      return false;
    }
    *taken = true;
    if (!py::call_method(sock.get(), state.names.setblocking, Py_False)) {
      return false;
    }
    if (loop().debug() && !core::debug::log(loop(), "%r got a new connection from %r: %r",
                                            server_ ? server_.get() : Py_None, address.get(), sock.get())) {
      return false;
    }
    if (accept_tls_) {
      return static_cast<bool>(py::call(accept_tls_.get(), sock.get(), address.get()));
    }
    *taken = false;
    if (!py::call_method(sock.get(), state.names.detach)) {
      return false;
    }
  }
  py::Ref<> protocol = py::steal(PyObject_CallNoArgs(factory_.get()));
  if (!protocol) {
    return false;
  }
  if (no_delay_ == NoDelay::unknown) {
    no_delay_ = TCPTransport::is_tuned(fd) ? NoDelay::inherited : NoDelay::each;
  }
  // A Unix socket has the listener's name. One of the internet may have another than that its listener is bound to:
  // transparent proxies and the kernel's programs for lookups see to it.
  py::Ref<> transport = make_transport(loop(), family,
                                       {.fd = fd,
                                        .protocol = protocol.get(),
                                        .server = server_.get(),
                                        .context = context_given_ ? context.get() : nullptr,
                                        .tuned = no_delay_ == NoDelay::inherited,
                                        .own = family == AF_UNIX ? &own_ : nullptr,
                                        .peer = &peer});
  *taken = static_cast<bool>(transport);
  return *taken;
}

PyObject* Listener::describe() const {
  return Py_BuildValue("{sssiss}", "kind", "listener", "fd", fd_, "state", watching_ ? "open" : "paused");
}

int Listener::visit(visitproc visit, void* arg) {
  Py_VISIT(loop_.get());
  Py_VISIT(sock_.get());
  Py_VISIT(factory_.get());
  Py_VISIT(server_.get());
  Py_VISIT(accept_tls_.get());
  Py_VISIT(context_.get());
  return 0;
}

void Listener::clear() {
  // loop_ stays, as everywhere: methods lean on it, and it breaks no cycle that the others do not.
  sock_.reset();
  context_.reset();
  factory_.reset();
  server_.reset();
  accept_tls_.reset();
}

// ---- from Python

PyObject* listen(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop",    "sock",       "protocol_factory", "server",
                                           "backlog", "accept_tls", "context"};
  enum { kLoop, kSock, kFactory, kServer, kBacklog, kAcceptTls, kContext, kCount };
  PyObject* given[kCount];
  if (!py::parse({"listen", kNames, 5, kCount}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  core::Loop* loop = core::loop_of(module, given[kLoop]);
  if (loop == nullptr || !loop->check_closed()) {
    return nullptr;
  }
  const Py_ssize_t backlog = PyNumber_AsSsize_t(given[kBacklog], PyExc_OverflowError);
  if ((backlog == -1 && PyErr_Occurred() != nullptr) ||
      !Listener::listen(*loop, given[kSock], given[kFactory], given[kServer], backlog,
                        given[kAcceptTls] != nullptr ? given[kAcceptTls] : Py_None, given[kContext])) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* stop_listening(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop", "sock"};
  PyObject* given[2];
  if (!py::parse({"stop_listening", kNames, 2, 2}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  core::Loop* loop = core::loop_of(module, given[0]);
  if (loop == nullptr) {
    return nullptr;
  }
  Listener::stop_listening(*loop, given[1]);
  Py_RETURN_NONE;
}

// ---- table

namespace {

PyMethodDef methods[] = {
    py::method<&Listener::accept_method>("_accept_ready", "Accept those who wait."),
    py::method<&Listener::connect_method>("_connect_waiting", "Make connections of those accepted."),
    py::method<&Listener::resume_accepting>("_resume_accepting", "Accept again after a pause."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_listener_type(PyObject* module) {
  const PyType_Slot more[] = {{Py_tp_methods, methods}};
  return py::make_type<Listener>(module, {"uvpy._core.Listener", "A listening socket of a uvpy loop.", more});
}

}  // namespace uvpy::net
