// Pipe: what the transports over one end of a pipe share: a file object whose descriptor is a FIFO, a socket, a terminal or
// another character device. The descriptor stays the file object's, which closes it once; we read and write it ourselves
// (libuv's uv_pipe_t aborts on some kinds, and cannot see a reader go away). It is watched through handles of add_reader
// and add_writer, as asyncio's pipes are: two transports may share one descriptor, and what a callback raises is a
// callback's error.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/uio.h>

#include "core/file_identity.h"
#include "net/transport.h"

namespace uvpy::net {

// What a new pipe transport is made from; all borrowed.
struct PipeParts {
  PyObject* pipe = nullptr;
  PyObject* protocol = nullptr;
  PyObject* waiter = nullptr;
  PyObject* extra = nullptr;
};

class Pipe : public Transport {
 public:
  static constexpr bool kWeakrefs = true;
  static constexpr bool kDict = true;
  static constexpr bool kFinalizer = true;

  void end_with_loop() final;
  void leak() final;

  PyObject* get_pipe();
  int set_pipe(PyObject* pipe);
  PyObject* set_protocol(PyObject* protocol);
  void finalize();

 protected:
  enum class Kind { fifo, named_fifo, socket, device };

  ~Pipe();

  // Takes the file object in; ValueError with `refusal` where it is none of the kinds. False with an exception set.
  bool open(core::Loop& loop, PyObject* self, const PipeParts& parts, const char* refusal);
  // After the last thing that can fail: the loop knows of the pipe, without owning it.
  void opened();
  Kind kind() const { return kind_; }

  // Each does one system call and never waits. The number of bytes, or a negated errno; kInterrupted with an exception of
  // a signal handler set.
  static constexpr ssize_t kInterrupted = -100000;
  ssize_t read_some(char* to, std::size_t room);
  ssize_t write_some(const iovec* parts, int count);

  // Watches a side for self.method(). False with an exception set.
  bool watch(unsigned side, PyObject* method);
  // The same for any callback, and any descriptor; what is ours runs in the poll.
  bool watch_for(unsigned side, PyObject* fd, PyObject* callback);
  bool unwatch(unsigned side);

  const char* default_error() const final { return "Fatal error on pipe transport"; }
  bool release_descriptor() final;
  void close_unclosed() final;
  PyObject* repr_with(const char* name, unsigned side, bool writes);
  PyObject* describe_as(const char* kind) const;
  int visit_pipe(visitproc visit, void* arg) const;
  void clear_pipe();

 private:
  bool set_nonblocking();
  void restore_blocking();
  bool pass_duty_on();
  bool is_our_file() const { return file_.is(fd_); }
  bool shares_description(const Pipe& other) const;
  void list();
  void unlist();
  bool close_pipe();
  bool may_block() const;

  py::Ref<> pipe_;  // null once closed
  Kind kind_ = Kind::fifo;
  core::FileIdentity file_;
  Pipe* next_listed_ = nullptr;  // ModuleState::pipes
  Pipe* previous_listed_ = nullptr;
  bool listed_ = false;
  bool nowait_ = true;         // a call can be told not to wait, until one says otherwise
  bool was_blocking_ = false;  // we made it non-blocking, and are to undo it
};

// The module's functions (loop, pipe, protocol, waiter=None, extra=None).
bool parse_pipe(PyObject* module, const char* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                core::Loop** loop, PipeParts* parts);

}  // namespace uvpy::net
