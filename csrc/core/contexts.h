// Contexts: the copies of the current context that handles run in. asyncio makes one for each handle; a turn that schedules
// a thousand callbacks makes a thousand, which are alike nearly always, and starts the garbage collector by their number.
// Here handles that are scheduled with the same variables share one copy, which nobody enters; each runs in the spare, a
// context with those variables that nobody else has, and which serves the next one unless the callback has set something
// in it or somebody has kept it. Who asks a handle for its context gets one that is its own from then on.
// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "py/context.h"
#include "py/mutant.h"
#include "py/ref.h"

namespace uvpy::core {

class Contexts {
 public:
  // Whether copy_current() gives a shared one: while the loop runs, whose batches end with a look at what is still shared.
  bool shares() const { return runs_; }
  void begin_run() { runs_ = py::variables_at != 0; }
  void end_run() {
    runs_ = false;
    drop();
  }

  // Null with an exception set.
  py::Ref<> copy_current() {
    if (copy_) [[likely]] {
      PyObject* now = py::current_context();
      if (now != nullptr && py::variables_of(now) == py::variables_of(copy_.get())) [[likely]] {
        return copy_.dup();
      }
    }
    return copy_anew();
  }

  // The spare for a run with the variables of a shared copy, or another that is nobody else's; the shared one itself where
  // only the caller, and perhaps we, have it. Null with an exception set.
  py::Ref<> take(py::Ref<>& shared) {
    if (spare_ && py::variables_of(spare_.get()) == py::variables_of(shared.get())) [[likely]] {
      return py::steal(spare_.release());
    }
    return take_other(shared);
  }

  // After the run in a context that take() gave for `shared`, which is null where it was that one: whether it has become
  // the spare. Then `shared` has the same variables, and stands for it. `dropped` takes what is to go when the caller, too,
  // is done: the values that a variable had may run code when they go, and that code schedules.
  bool give_back(py::Ref<>& ran, py::Ref<>& shared, py::Ref<>& dropped) {
    if (!copy_ || Py_REFCNT(ran.get()) != 1 ||
        (py::variables_of(ran.get()) != py::variables_of(copy_.get()) && !py::mutant("context-changed"))) {
      return false;
    }
    py::Ref<> spare = std::move(spare_);  // one with the same variables: nothing but itself goes with it
    if (shared.get() != copy_.get() && (!shared || py::variables_of(shared.get()) != py::variables_of(copy_.get())))
        [[unlikely]] {
      // The callback has set something, and scheduled another with it.
      dropped.put(py::steal(shared.release()));
      shared.put(copy_.dup());
    }
    spare_.put(py::steal(ran.release()));
    // The last of those that shared it: what the variables refer to must not live longer than in asyncio.
    if (Py_REFCNT(copy_.get()) == 2 && shared.get() == copy_.get()) [[unlikely]] {
      drop();
    }
    return true;
  }

  // At the end of a batch: handles that were not run leave a copy that nobody shares.
  void drop_unshared() {
    if (copy_ && Py_REFCNT(copy_.get()) == 1) {
      drop();
    }
  }

  void drop() {
    py::Ref<> spare = std::move(spare_);
    py::Ref<> copy = std::move(copy_);
  }
  int visit(visitproc visit, void* arg) const {
    Py_VISIT(copy_.get());
    Py_VISIT(spare_.get());
    return 0;
  }

 private:
  [[gnu::noinline]] py::Ref<> copy_anew() {
    py::Ref<> made = py::steal(PyContext_CopyCurrent());
    if (made && shares()) {
      drop();
      copy_ = made.dup();
    }
    return made;
  }
  [[gnu::noinline]] py::Ref<> take_other(py::Ref<>& shared) {
    const bool is_ours = shared.get() == copy_.get();
    if (Py_REFCNT(shared.get()) == (is_ours ? 2 : 1)) {
      if (is_ours) {
        drop();
      }
      return py::steal(shared.release());
    }
    return py::steal(PyContext_Copy(shared.get()));
  }

  bool runs_ = false;
  py::Ref<> copy_;   // with the variables of who scheduled last; never entered
  py::Ref<> spare_;  // only beside a copy, with the same variables; not entered, ours alone
};

}  // namespace uvpy::core
