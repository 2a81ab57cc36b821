// sock_recv() and its siblings, and sending a file over a socket: what is asked of a socket is tried at once, and where
// the kernel has nothing or no room a SockCall waits for it behind the loop's watchers. Called by uvpy/_sock.py, whose
// coroutines await the call's future; sock_attempt.cpp has the tries, sock.cpp the waiting. A socket is read into a
// future that is not done only: a cancelled call takes nothing.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include "py/buffer.h"
#include "py/object.h"
#include "py/ref.h"
#include "state.h"

namespace uvpy::core {

class Loop;

enum class SockOp : unsigned char {
  recv,
  recv_into,
  recvfrom,
  recvfrom_into,
  accept,
  // From here on the write side is waited for.
  sendall,
  sendto,
  connect,
  sendfile,
};

enum class Attempt { done, again, failed };

// What is asked, and how far it has come. The pointers are borrowed.
struct SockRequest {
  SockOp op;
  PyObject* sock = nullptr;
  PyObject* first = nullptr;   // a size, a buffer, data, an address, a file
  PyObject* second = nullptr;  // an address or a size
  PyObject* number = nullptr;  // what its fileno() gave, where that was asked before the first try
  bool waited = false;         // the try is not the first one
  // sendall: bytes that are sent, of how many. sendfile: bytes sent, of how many or 0 for all.
  Py_ssize_t sent = 0;
  Py_ssize_t total = 0;
  // sendfile
  int file = -1;  // its number
  off_t offset = 0;
  bool seeks_always = false;  // also where nothing was sent

  bool writes() const { return op >= SockOp::sendall; }
};

// Tries once. done: `*result` is what the coroutine returns. again: there is nothing to be had yet. failed: an exception is
// set.
Attempt attempt(Loop& loop, SockRequest& request, py::Ref<>* result);
// Whether a socket is exactly Python's own and nobody has replaced a method of it: then its system calls may be made
// without it.
bool is_plain_socket(ModuleState& state, PyObject* sock);
// A sendfile that has waited: its file may be closed by now, and the number another's, to be left alone.
void look_at_file(Loop& loop, SockRequest& request);
// The file's position, after a sendfile that has ended: where the next byte to send would be. False with OSError set.
bool leave_file_position(const SockRequest& request);

class SockCall {
 public:
  static constexpr bool kWeakrefs = false;
  static constexpr bool kDict = false;
  static constexpr bool kFinalizer = false;
  static constexpr std::size_t kBaseWords = 0;

  SockCall() = default;
  SockCall(const SockCall&) = delete;
  SockCall& operator=(const SockCall&) = delete;

  // Tries, and where that must wait gives a SockCall; otherwise the result. Null with an exception set.
  static PyObject* start(Loop& loop, SockRequest& request);

  PyObject* object() const { return py::object_of(this); }
  PyObject* get_future();
  PyObject* release();
  PyObject* run();
  PyObject* repr() const;

  int visit(visitproc visit, void* arg);
  void clear();

 private:
  Loop& loop() const;
  bool wait(Loop& loop, const SockRequest& request);
  bool watch_kept(Loop& loop, int fd);
  void stop_watching();
  void let_go();

  SockRequest request_{};
  py::Ref<> loop_;
  py::Ref<> future_;
  py::Ref<> handle_;  // what the loop runs when the socket is ready
  py::Ref<> sock_;
  py::Ref<> first_;
  py::Ref<> second_;
  py::BufferView held_;  // sendall: so that nobody changes the size of what is being sent
  int fd_ = -1;
};

PyTypeObject* make_sock_call_type(PyObject* module);

// Functions of the module: sock_recv(loop, sock, n) and so on; each gives a result or a SockCall.
PyObject* sock_check(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
template <SockOp op>
PyObject* sock_start(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* sock_sendfile(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::core
