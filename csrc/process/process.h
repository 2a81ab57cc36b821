// Process: the end of one child. Owns its pidfd, which the loop watches, reaps it in the loop's thread and tells its
// transport, once. Made by uvpy/_process.py when the child has been spawned, which CPython's own subprocess does. Where
// there is no pidfd, a thread of uvpy/_process.py waits here instead, and reaps nothing. No signal handler, and no other
// child is touched.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include "core/file_identity.h"
#include "core/loop.h"
#include "core/resource.h"
#include "py/ref.h"

namespace uvpy::process {

class Process final : public core::Resource {
 public:
  static constexpr bool kWeakrefs = false;
  static constexpr bool kDict = false;
  static constexpr bool kFinalizer = false;
  static constexpr std::size_t kBaseWords = 0;

  Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  // Watches a child of this process for its transport; `by_thread` leaves the pidfd out. Null with an exception set.
  static py::Ref<> watch(core::Loop& loop, PyObject* transport, pid_t pid, bool by_thread);

  PyObject* object() const override { return self_; }
  void end_with_loop() override;
  void leak() override { pidfd_ = -1; }
  PyObject* describe() const override;

  // ---- for uvpy/_process.py
  PyObject* needs_thread_method();
  PyObject* wait_for_exit();
  PyObject* hand_over();
  PyObject* poll();
  PyObject* send_signal(PyObject* number);
  PyObject* get_pid();

  // ---- handles of the loop
  PyObject* noticed();
  PyObject* exited();

  int visit(visitproc visit, void* arg);
  void clear();

 private:
  enum class Fate { running, exited, unknown };

  // In a forked child: it is the parent's child.
  bool is_inherited() const { return loop().resources().is_inherited(this); }
  core::Loop& loop() const { return *py::state_of<core::Loop>(loop_.get()); }
  bool open(bool by_thread);
  bool is_own_pidfd() const;
  void unwatch();
  void close_pidfd();
  bool reap();
  Fate ask_kernel(int* status) const;
  bool take_status_from_popen();
  void give_status_to_popen() const;
  bool log_fate(PyObject* pid, PyObject* returncode) const;
  static void on_ready(void* owner, unsigned ready);

  PyObject* self_ = nullptr;
  py::Ref<> loop_;
  py::Ref<> transport_;  // until it has been told
  py::Ref<> popen_;      // its Popen object, or null
  py::Ref<> context_;    // of whoever spawned the child
  pid_t pid_ = 0;
  int pidfd_ = -1;
  core::FileIdentity pidfd_file_;
  int status_ = 0;
  Fate fate_ = Fate::running;
  bool watching_ = false;
  bool by_thread_ = false;
};

PyTypeObject* make_process_type(PyObject* module);
// watch_child(loop, transport, pid, by_thread) -> Process and children(loop) -> [Process], functions of the module.
PyObject* watch_child(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* children(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace uvpy::process
