// Listener: accepting. A listening socket under the loop's watchers, accept4 in a loop of ours, no more than the backlog
// at once. Out of descriptors it reports and pauses for a second; a client whose protocol_factory fails costs that client
// only. Not libuv's accept: that takes one connection a poll since 1.45 and hides EMFILE.
// SPDX-License-Identifier: MIT
#pragma once

#include "core/loop.h"
#include "core/resource.h"
#include "net/address.h"
#include "py/array.h"
#include "py/ref.h"

namespace uvpy::net {

class Listener final : public core::Resource {
 public:
  static constexpr bool kWeakrefs = false;
  static constexpr bool kDict = false;
  static constexpr bool kFinalizer = false;
  static constexpr std::size_t kBaseWords = 0;

  ~Listener() { close_waiting(); }

  // Starts accepting on a listening Python socket. False with an exception set.
  static bool listen(core::Loop& loop, PyObject* sock, PyObject* factory, PyObject* server, Py_ssize_t backlog,
                     PyObject* accept_tls, PyObject* context);
  // Stops the listener of a socket; does nothing where there is none. By the socket: it may be closed already, and its
  // number another's.
  static void stop_listening(core::Loop& loop, PyObject* sock);

  PyObject* object() const override { return self_; }
  void end_with_loop() override { stop(); }
  void leak() override {}
  void forget_input() override { close_waiting(); }
  PyObject* describe() const override;
  PyObject* resume_accepting();
  PyObject* accept_method();
  PyObject* connect_method();
  int visit(visitproc visit, void* arg);
  void clear();

 private:
  core::Loop& loop() const { return *py::state_of<core::Loop>(loop_.get()); }
  bool watch();
  void stop();
  void accept_ready();
  bool out_of_resources(int code);
  // False when there is no more to accept in this turn.
  bool accept_one();
  bool queue_connecting();
  void close_waiting();
  void accepted(int fd, const RawAddress& peer);
  bool make_connection(int fd, const RawAddress& peer, bool* taken);
  static void on_ready(void* owner, unsigned ready);

  PyObject* self_ = nullptr;
  py::Ref<> loop_;
  py::Ref<> sock_;
  py::Ref<> factory_;
  py::Ref<> server_;
  py::Ref<> accept_tls_;  // takes (socket, address) of a TLS client, or null
  py::Ref<> context_;
  bool context_given_ = false;  // then each connection keeps its copy
  Py_ssize_t backlog_ = 0;
  int fd_ = -1;
  RawAddress own_{};
  // Set on the listening socket for those accepted from it; they have it so on Linux, which the first one shows.
  enum class NoDelay : unsigned char { unknown, each, inherited };
  NoDelay no_delay_ = NoDelay::unknown;
  // Accepted clients whose connections the next iteration makes, from first_waiting_ on.
  struct Client {
    int fd;
    RawAddress peer;
  };
  py::Array<Client> waiting_;
  std::size_t first_waiting_ = 0;
  std::size_t waiting_end_ = 0;
  bool watching_ = false;
  bool stopped_ = false;
};

PyTypeObject* make_listener_type(PyObject* module);
// listen(loop, sock, protocol_factory, server, backlog, accept_tls, context) and stop_listening(loop, sock), functions of
// the module.
PyObject* listen(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* stop_listening(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::net
