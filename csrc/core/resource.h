// Resource: what lives on a loop besides callbacks: a transport, a listener, a child. Listed from its making to the closing
// of its handle, so that Loop.close finds it. While libuv or the kernel can call it, the list owns one strong reference to
// its object; one that waits for nothing (paused, at its end) may be let go, so that it is collected when nobody else wants
// it, as asyncio's are: its finalizer then closes it, held again. This is also the one small interface by which core
// reaches what net and process define: flush what was gathered, hand on what was received ahead, end with the loop.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "py/ref.h"

namespace uvpy::core {

class Loop;

class Resource {
 public:
  // The Python object, borrowed.
  virtual PyObject* object() const = 0;
  // The loop closes: let go of the kernel's and libuv's things, call no user code. The list's reference goes when the
  // handle has closed.
  virtual void end_with_loop() = 0;
  // A forked child gives the parent's loop up: nothing is closed, the memory stays.
  virtual void leak() = 0;
  // In a forked child: what was taken from the kernel and not handed on yet is for the parent to hand on.
  virtual void forget_input() {}
  // Sends what was gathered since the last flush.
  virtual void flush() {}
  // Hands on one piece of the input that it has taken from the kernel and holds (Loop::hold_input).
  virtual void hand_on() {}
  // For Loop._debug_handles: a new dict of what there is of "kind" (which must be there), "fd", "peer", "state" (default
  // "open"), "waiting" (bytes, default 0) and more of its own; or null with an exception set. Age and creator are added.
  virtual PyObject* describe() const = 0;

  // Seconds since it was listed.
  double age() const;
  // The stack that listed it, where that was in debug mode; borrowed, or null.
  PyObject* creator() const { return creator_.get(); }

 protected:
  ~Resource() = default;

 private:
  friend class Resources;
  Resource* previous_ = nullptr;
  Resource* next_ = nullptr;
  friend class ResourceQueue;
  Resource* next_queued_[2] = {};
  bool queued_[2] = {};
  std::uint64_t round_ = 0;
  double since_ = 0;
  py::Ref<> creator_;  // a traceback.StackSummary, which refers to nothing of ours
  bool listed_ = false;
  bool held_ = false;
  bool ended_ = false;
  unsigned forks_ = 0;  // ModuleState::forks when it was listed
};

// A queue of resources, each in it once at most; kind 0 or 1 names the fields of Resource that it uses.
class ResourceQueue {
 public:
  explicit ResourceQueue(unsigned kind) : kind_(kind) {}
  bool empty() const { return first_ == nullptr; }
  Resource* first() const { return first_; }
  void push(Resource* resource) {
    if (!resource->queued_[kind_]) {
      resource->queued_[kind_] = true;
      resource->next_queued_[kind_] = nullptr;
      *(last_ != nullptr ? &last_->next_queued_[kind_] : &first_) = resource;
      last_ = resource;
    }
  }
  // The first one, taken out; null when there is none.
  Resource* pop() {
    Resource* resource = first_;
    if (resource != nullptr) {
      first_ = resource->next_queued_[kind_];
      if (first_ == nullptr) {
        last_ = nullptr;
      }
      resource->queued_[kind_] = false;
    }
    return resource;
  }
  void remove(Resource* resource) {
    if (!resource->queued_[kind_]) {
      return;
    }
    resource->queued_[kind_] = false;
    Resource* before = nullptr;
    for (Resource* r = first_; r != nullptr; before = r, r = r->next_queued_[kind_]) {
      if (r == resource) {
        *(before != nullptr ? &before->next_queued_[kind_] : &first_) = r->next_queued_[kind_];
        if (last_ == r) {
          last_ = before;
        }
        return;
      }
    }
  }

 private:
  unsigned kind_;
  Resource* first_ = nullptr;
  Resource* last_ = nullptr;
};

class Resources {
 public:
  void set_loop(Loop* loop) { loop_ = loop; }
  // Takes a reference to the object. May run Python code in debug mode.
  void add(Resource* resource);
  // Drops the reference, which may be the last: nothing of the resource may be used afterwards.
  void remove(Resource* resource) {
    if (!resource->listed_) {
      return;
    }
    dirty.remove(resource);
    holding.remove(resource);
    resource->listed_ = false;
    unlink(resource, resource->ended_ ? ended_ : first_);
    --count_;
    let_go(resource);
  }
  void hold(Resource* resource) {
    if (!resource->held_) {
      resource->held_ = true;
      Py_INCREF(resource->object());
    }
  }
  static bool is_held(const Resource* resource) { return resource->held_; }
  // May drop the last reference: nothing of the resource may be used afterwards, unless the caller has one.
  static void let_go(Resource* resource) {
    if (resource->held_) {
      resource->held_ = false;
      Py_DECREF(resource->object());
    }
  }
  // The first that has not been taken so; from then on it is on the list of those that end. Null when there is none.
  // So the loop can end them one by one, whatever ending one of them does to the others.
  Resource* take_to_end() {
    Resource* resource = first_;
    if (resource != nullptr) {
      unlink(resource, first_);
      resource->ended_ = true;
      link(resource, ended_);
    }
    return resource;
  }
  // A resource that holds input, to be asked for a piece of it in a later round than this.
  void hold_input(Resource* resource, std::uint64_t round) {
    resource->round_ = round;
    holding.push(resource);
  }
  // The first whose turn has come by that round, taken out; null when there is none.
  Resource* take_holding(std::uint64_t round) {
    Resource* resource = holding.first();
    return resource != nullptr && resource->round_ < round ? holding.pop() : nullptr;
  }
  // Whether it was made before this process was forked: what the kernel knows of it, a child's pid or the flags of a file,
  // is the parent's too.
  bool is_inherited(const Resource* resource) const;
  Resource* first() const { return first_; }
  static Resource* next(const Resource* resource) { return resource->next_; }
  std::size_t count() const { return count_; }
  int visit(visitproc visit, void* arg) const {
    for (Resource* list : {first_, ended_}) {
      for (Resource* r = list; r != nullptr; r = r->next_) {
        if (r->held_) {
          Py_VISIT(r->object());
        }
      }
    }
    return 0;
  }

  ResourceQueue dirty{0};    // with gathered writes, in the order of their first one
  ResourceQueue holding{1};  // that hold input

 private:
  static void link(Resource* resource, Resource*& first) {
    resource->previous_ = nullptr;
    resource->next_ = first;
    if (first != nullptr) {
      first->previous_ = resource;
    }
    first = resource;
  }
  static void unlink(Resource* resource, Resource*& first) {
    (resource->previous_ != nullptr ? resource->previous_->next_ : first) = resource->next_;
    if (resource->next_ != nullptr) {
      resource->next_->previous_ = resource->previous_;
    }
  }

  Loop* loop_ = nullptr;
  Resource* first_ = nullptr;
  Resource* ended_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace uvpy::core
