// The end of a child. Called by uvpy/_process.py, by the watchers in the poll and by handles of the loop. Never forks.
// SPDX-License-Identifier: MIT
#include "process/process.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "core/debug.h"
#include "py/args.h"
#include "py/call.h"
#include "py/compat.h"
#include "py/method.h"
#include "py/mutant.h"
#include "py/type.h"

namespace uvpy::process {

namespace {

// What asyncio reports of a child whose status somebody else has taken.
constexpr int kUnknownStatus = 255;
// Seconds until a child that cannot be reaped yet is asked for again. One that is traced is the tracer's to look at
// first: its pidfd is ready before. Where there is neither a pidfd nor a thread to be had, this is what is left.
constexpr double kAgain = 0.01;

#ifdef __linux__
constexpr auto kByPidfd = static_cast<idtype_t>(3);  // P_PIDFD, which headers older than their kernel lack
#endif

// The descriptor of os.pidfd_open(pid), looked up at each call: programs and tests replace it. -1 where it cannot be
// had, `*gone` when there is no such child any more; -2 with an exception set.
int open_pidfd(ModuleState& state, pid_t pid, bool* gone) {
  py::Ref<> os = py::steal(PyImport_ImportModule("os"));
  if (!os) {
    return -2;
  }
  py::Ref<> number = py::steal(PyLong_FromLong(pid));
  py::Ref<> opened = number ? py::call_method(os.get(), state.names.pidfd_open, number.get()) : py::Ref<>();
  if (opened) {
    const int fd = static_cast<int>(PyLong_AsLong(opened.get()));
    return fd == -1 && PyErr_Occurred() != nullptr ? -2 : fd;
  }
  *gone = PyErr_ExceptionMatches(PyExc_ProcessLookupError) != 0;
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    return -2;
  }
  // An old kernel, a sandbox that forbids it, another system, no descriptors left: it can be done without.
  PyErr_Clear();
  return -1;
}

// The attribute, or null without an exception where there is none; null with the exception that a property raised.
py::Ref<> attribute_or_null(PyObject* object, PyObject* name) {
  py::Ref<> found = py::get_attr(object, name);
  if (!found && PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
    PyErr_Clear();
  }
  return found;
}

}  // namespace

Process::~Process() { close_pidfd(); }

py::Ref<> Process::watch(core::Loop& loop, PyObject* transport, pid_t pid, bool by_thread) {
  py::Ref<> self = py::steal(py::create<Process>(loop.state().process_type));
  if (!self) {
    return {};
  }
  auto* state = py::state_of<Process>(self.get());
  state->self_ = self.get();
  state->loop_ = py::borrow(loop.object());
  state->transport_ = py::borrow(transport);
  state->popen_ = attribute_or_null(transport, loop.state().names._proc);  // a transport not of asyncio's may have none
  if (PyErr_Occurred() != nullptr) {
    return {};
  }
  state->context_ = py::steal(PyContext_CopyCurrent());
  state->pid_ = pid;
  if (!state->context_ || !state->open(by_thread)) {
    return {};
  }
  loop.resources().add(state);
  return self;
}

bool Process::open(bool by_thread) {
  bool gone = false;
  pidfd_ = by_thread ? -1 : open_pidfd(loop().state(), pid_, &gone);
  if (pidfd_ == -2) {
    pidfd_ = -1;
    return false;
  }
  if (gone) {
    // Reaped by somebody else already, or by the kernel, where SIGCHLD is ignored.
    py::Ref<> method = py::get_attr(self_, loop().state().names._noticed);
    return method && loop().call_soon_for(method.get(), nullptr);
  }
  if (pidfd_ >= 0) {
    pidfd_file_ = core::FileIdentity::of(pidfd_);
    watching_ = loop().watchers().watch_native(loop(), pidfd_, core::kReadable, &Process::on_ready, this) == 0;
  }
  if (!watching_) {
    close_pidfd();
    by_thread_ = true;
  }
  return true;
}

bool Process::is_own_pidfd() const {
  // A program that makes itself a daemon closes every descriptor; the number may be another file's by now. Before Linux
  // 6.9 all pidfds are one file to fstat(): another child's, opened by the program under our number, would pass for ours.
  return pidfd_file_.is(pidfd_);
}

void Process::unwatch() {
  if (watching_) {
    watching_ = false;
    loop().watchers().remove_native(loop(), pidfd_, this);
  }
}

void Process::close_pidfd() {
  if (is_own_pidfd()) {
    ::close(pidfd_);
  }
  pidfd_ = -1;
}

void Process::on_ready(void* owner, unsigned) {
  auto* self = static_cast<Process*>(owner);
  py::Ref<> alive = py::borrow(self->object());
  core::Loop& loop = self->loop();
  if constexpr (py::mutant("exit-before-last-words")) {
    if (!py::steal(self->exited())) {
      loop.leave_with_error();
    }
    return;
  }
  // Always behind what was scheduled before, never in the poll: the child's last words come before its end.
  py::Ref<> method = py::get_attr(self->object(), loop.state().names._noticed);
  if (!method || !loop.queue_io(method.get(), self->context_.get())) {
    loop.leave_with_error();
    return;
  }
  self->unwatch();
}

PyObject* Process::noticed() {
  // One turn later everything that this poll has read of the pipes has been handed on. Only then is the child reaped:
  // until its transport is told, nobody can get its number.
  py::Ref<> method = py::get_attr(self_, loop().state().names._exited);
  if (!method || !loop().call_soon_for(method.get(), nullptr)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* Process::exited() {
  if (!transport_ || loop().is_foreign()) {
    Py_RETURN_NONE;
  }
  const bool at_end = reap();
  py::Ref<> failed = py::take_error();  // of the Popen object: the transport is told all the same
  if (!at_end) {
    py::Ref<> method = py::get_attr(self_, loop().state().names._exited);
    if (!method || !loop().call_later_for(kAgain, method.get())) {
      return nullptr;
    }
    Py_RETURN_NONE;
  }
  py::Ref<> alive = py::borrow(self_);
  py::Ref<> transport = std::move(transport_);
  py::Ref<> popen = std::move(popen_);
  unwatch();
  close_pidfd();
  loop().resources().remove(this);
  py::Ref<> pid = py::steal(PyLong_FromLong(pid_));
  py::Ref<> returncode = py::steal(PyLong_FromLong(status_));
  if (!pid || !returncode) {
    return nullptr;
  }
  const bool logged = log_fate(pid.get(), returncode.get());
  py::Ref<> told;
  {
    const py::SavedError error;
    told = py::call_method(transport.get(), loop().state().names._process_exited, returncode.get());
  }
  if (!logged || !told) {
    return nullptr;
  }
  if (failed) {
    py::restore_error(std::move(failed));
    return nullptr;
  }
  Py_RETURN_NONE;
}

bool Process::log_fate(PyObject* pid, PyObject* returncode) const {
  // The texts of asyncio's default watcher in this version, or of the one that has no pidfd.
  const bool as_thread = by_thread_ || py::kChildrenByThread;
  if (fate_ == Fate::exited) {
    return !as_thread || !loop().debug() ||
           core::debug::log(loop(), "process %s exited with returncode %s", pid, returncode);
  }
  const ModuleState& state = loop().state();
  py::Ref<> logger = py::get_attr(state.base_events, state.names.logger);
  py::Ref<> text = py::steal(
      PyUnicode_FromString(as_thread ? "Unknown child process pid %d, will report returncode 255"
                                     : "child process pid %d exit status already read:  will report returncode 255"));
  return logger && text && py::call_method(logger.get(), state.names.warning, text.get(), pid);
}

// ---- reaping

// Whether the child is at its end; from then on its number may be another's. Then an exception may be set, which a
// property of a Popen object of the program's own raised.
bool Process::reap() {
  if (fate_ != Fate::running) {
    return true;
  }
  fate_ = ask_kernel(&status_);
  if (fate_ == Fate::exited) {
    give_status_to_popen();
  } else if (fate_ == Fate::unknown && !(py::kChildrenByThread && take_status_from_popen())) {
    status_ = kUnknownStatus;
  }
  return fate_ != Fate::running;
}

Process::Fate Process::ask_kernel(int* status) const {
#ifdef __linux__
  if (is_own_pidfd()) {
    siginfo_t info{};
    int result = 0;
    do {
      result = waitid(kByPidfd, static_cast<id_t>(pidfd_), &info, WEXITED | WNOHANG);
    } while (result < 0 && errno == EINTR);
    if (result == 0) {
      *status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
      return info.si_pid == 0 ? Fate::running : Fate::exited;
    }
    if (errno == ECHILD) {
      return Fate::unknown;
    }
    // Linux 5.3 has pidfds, but does not wait for them.
  }
#endif
  int waited = 0;
  pid_t found = 0;
  do {
    found = waitpid(pid_, &waited, WNOHANG);
  } while (found < 0 && errno == EINTR);
  if (found <= 0) {
    return found == 0 ? Fate::running : Fate::unknown;
  }
  *status = WIFEXITED(waited) ? WEXITSTATUS(waited) : -WTERMSIG(waited);
  return Fate::exited;
}

// Up to 3.11 asyncio's thread takes the status before a Popen.poll() of the program's can.
bool Process::take_status_from_popen() {
  const ModuleState::Names& names = loop().state().names;
  py::Ref<> known = popen_ ? attribute_or_null(popen_.get(), names.returncode) : py::Ref<>();
  if (!known || !PyLong_Check(known.get())) {
    return false;
  }
  int is_out_of_reach = 0;
  const long status = PyLong_AsLongAndOverflow(known.get(), &is_out_of_reach);
  if (is_out_of_reach != 0 || status < INT_MIN || status > INT_MAX) {
    return false;  // no kernel's
  }
  status_ = static_cast<int>(status);
  fate_ = Fate::exited;
  return true;
}

// So that the Popen object neither asks for the child nor signals it any more.
void Process::give_status_to_popen() const {
  const ModuleState::Names& names = loop().state().names;
  py::Ref<> known = popen_ ? attribute_or_null(popen_.get(), names.returncode) : py::Ref<>();
  py::Ref<> status = known && known.get() == Py_None ? py::steal(PyLong_FromLong(status_)) : py::Ref<>();
  if (status && PyObject_SetAttr(popen_.get(), names.returncode, status.get()) < 0 &&
      PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
    PyErr_Clear();  // one that cannot be told
  }
}

PyObject* Process::poll() {
  if (!is_inherited()) {
    reap();
  }
  return PyErr_Occurred() != nullptr ? nullptr : Py_NewRef(Py_None);
}

// ---- signals

PyObject* Process::send_signal(PyObject* number) {
  if (is_inherited()) {
    Py_RETURN_FALSE;  // it is the parent's child
  }
  // What os.kill() takes, says, and tells an audit hook.
  Py_ssize_t given = 0;
  if (PyArg_Parse(number, "n", &given) == 0 || PySys_Audit("os.kill", "in", static_cast<int>(pid_), given) < 0) {
    return nullptr;
  }
  const int signum = static_cast<int>(given);
  if (fate_ != Fate::running) {
    Py_RETURN_TRUE;  // the number may be a stranger's
  }
  int error = ENOSYS;
#if defined(__linux__) && defined(SYS_pidfd_send_signal)
  if (is_own_pidfd()) {
    error = syscall(SYS_pidfd_send_signal, pidfd_, signum, nullptr, 0) < 0 ? errno : 0;
  }
#endif
  // A sandbox may forbid the call, with EPERM; where it is the child that may not be signalled, kill() says so too.
  if (error == ENOSYS || error == EPERM) {
    error = ::kill(pid_, signum) < 0 ? errno : 0;
  }
  if (error != 0 && error != ESRCH) {
    return py::raise_os_error(error);
  }
  Py_RETURN_TRUE;
}

// ---- without a pidfd

PyObject* Process::needs_thread_method() { return PyBool_FromLong(by_thread_ ? 1 : 0); }

PyObject* Process::wait_for_exit() {
  const pid_t pid = pid_;
  Py_BEGIN_ALLOW_THREADS;
  siginfo_t info;
  int result = 0;
  do {
    // The child stays a zombie, its number taken, until the loop's thread reaps it.
    result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  } while (result < 0 && errno == EINTR);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject* Process::hand_over() {
  if (by_thread_ || fate_ != Fate::running || is_inherited()) {
    Py_RETURN_FALSE;
  }
  unwatch();
  close_pidfd();
  by_thread_ = true;
  Py_RETURN_TRUE;
}

// ---- life

void Process::end_with_loop() {
  unwatch();
  close_pidfd();
  // A thread that waits still has use for the transport. Otherwise it goes, and may warn, when nobody else has it.
  py::Ref<> transport = by_thread_ ? py::Ref<>() : std::move(transport_);
  loop().resources().remove(this);  // may be the last reference
}

PyObject* Process::describe() const {
  py::Ref<> fd = pidfd_ < 0 ? py::borrow(Py_None) : py::steal(PyLong_FromLong(pidfd_));
  if (!fd) {
    return nullptr;
  }
  return Py_BuildValue("{sssOsiss}", "kind", "process", "fd", fd.get(), "pid", static_cast<int>(pid_), "state",
                       fate_ == Fate::running && (watching_ || by_thread_) ? "running" : "exited");
}

PyObject* Process::get_pid() { return PyLong_FromLong(pid_); }

int Process::visit(visitproc visit, void* arg) {
  Py_VISIT(loop_.get());
  Py_VISIT(transport_.get());
  Py_VISIT(popen_.get());
  Py_VISIT(context_.get());
  return 0;
}

void Process::clear() {
  transport_.reset();
  popen_.reset();
  context_.reset();
}

// ---- from Python

PyObject* watch_child(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop", "transport", "pid", "by_thread"};
  PyObject* given[4];
  if (!py::parse({"watch_child", kNames, 3, 4}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  core::Loop* loop = core::loop_of(module, given[0]);
  int pid = 0;
  if (loop == nullptr || !loop->check_closed() || PyArg_Parse(given[2], "i", &pid) == 0) {
    return nullptr;
  }
  if (pid <= 0) {  // to waitpid() these are groups
    return PyErr_Format(PyExc_ValueError, "no process has the number %d", pid);
  }
  const int by_thread = given[3] != nullptr ? PyObject_IsTrue(given[3]) : 0;
  return by_thread < 0 ? nullptr : Process::watch(*loop, given[1], pid, by_thread != 0).release();
}

PyObject* children(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr const char* kNames[] = {"loop"};
  PyObject* given[1];
  if (!py::parse({"children", kNames, 1, 1}, args, nargs, kwnames, given)) {
    return nullptr;
  }
  core::Loop* loop = core::loop_of(module, given[0]);
  py::Ref<> found = loop != nullptr ? py::steal(PyList_New(0)) : py::Ref<>();
  if (!found) {
    return nullptr;
  }
  // Appending may allocate, but never collects: a list's items are plain memory.
  for (core::Resource* r = loop->resources().first(); r != nullptr; r = core::Resources::next(r)) {
    if (Py_TYPE(r->object()) == loop->state().process_type && PyList_Append(found.get(), r->object()) < 0) {
      return nullptr;
    }
  }
  return found.release();
}

// ---- table

namespace {

PyMethodDef methods[] = {
    py::method<&Process::noticed>("_noticed", "The child has exited; reap it in the next turn."),
    py::method<&Process::exited>("_exited", "Reap the child and tell its transport."),
    py::method<&Process::poll>("poll", "Reap the child if it has exited; the transport is told later."),
    py::method<&Process::send_signal>("send_signal",
                                      "Signal the child; nothing when it has gone. Not in a forked copy: False."),
    py::method<&Process::needs_thread_method>("needs_thread", "Whether a thread must wait, for want of a pidfd."),
    py::method<&Process::wait_for_exit>("wait_for_exit", "Block until the child has exited, and leave it a zombie."),
    py::method<&Process::hand_over>("hand_over", "Give the pidfd up for a thread; whether there was one to give up."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    py::getter<&Process::get_pid>("pid", "The child's number."),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

PyTypeObject* make_process_type(PyObject* module) {
  const PyType_Slot more[] = {{Py_tp_methods, methods}, {Py_tp_getset, attributes}};
  return py::make_type<Process>(module, {"uvpy._core.Process", "A child process of a uvpy loop, to its end.", more});
}

}  // namespace uvpy::process
