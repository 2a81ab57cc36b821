// Resource: what lives on a loop besides callbacks: a transport, a listener. While it is listed the loop owns one strong
// reference to its object, so that it lives as long as libuv or the kernel can call it; Loop.close finds it by the list,
// the collector visits it through the list. This is also the one small interface by which core reaches the transports
// that net defines: flush what was gathered, end with the loop.
// SPDX-License-Identifier: MIT
#pragma once

#include <Python.h>

namespace uvpy::core {

class Resource {
 public:
  // The Python object, borrowed.
  virtual PyObject* object() const = 0;
  // The loop closes: let go of the kernel's and libuv's things, call no user code. The list's reference goes when the
  // handle has closed.
  virtual void end_with_loop() = 0;
  // A forked child gives the parent's loop up: nothing is closed, the memory stays.
  virtual void leak() = 0;
  // Sends what was gathered since the last flush.
  virtual void flush() {}
  // {"kind": str, "fd": int, "state": str, ...}: a new reference, or null with an exception set.
  virtual PyObject* describe() const = 0;

 protected:
  ~Resource() = default;

 private:
  friend class Resources;
  Resource* previous_ = nullptr;
  Resource* next_ = nullptr;
  Resource* next_dirty_ = nullptr;
  bool listed_ = false;
  bool dirty_ = false;
};

class Resources {
 public:
  // Takes a reference to the object.
  void add(Resource* resource) {
    Py_INCREF(resource->object());
    resource->listed_ = true;
    resource->previous_ = nullptr;
    resource->next_ = first_;
    if (first_ != nullptr) {
      first_->previous_ = resource;
    }
    first_ = resource;
    ++count_;
  }
  // Drops the reference, which may be the last: nothing of the resource may be used afterwards.
  void remove(Resource* resource) {
    if (!resource->listed_) {
      return;
    }
    clean(resource);
    resource->listed_ = false;
    (resource->previous_ != nullptr ? resource->previous_->next_ : first_) = resource->next_;
    if (resource->next_ != nullptr) {
      resource->next_->previous_ = resource->previous_;
    }
    --count_;
    Py_DECREF(resource->object());
  }
  Resource* first() const { return first_; }
  static Resource* next(const Resource* resource) { return resource->next_; }
  std::size_t count() const { return count_; }
  int visit(visitproc visit, void* arg) const {
    for (Resource* r = first_; r != nullptr; r = r->next_) {
      Py_VISIT(r->object());
    }
    return 0;
  }

  // The dirty list: resources with gathered writes, in the order of their first one.
  void mark_dirty(Resource* resource) {
    if (!resource->dirty_) {
      resource->dirty_ = true;
      resource->next_dirty_ = nullptr;
      *(last_dirty_ != nullptr ? &last_dirty_->next_dirty_ : &first_dirty_) = resource;
      last_dirty_ = resource;
    }
  }
  bool has_dirty() const { return first_dirty_ != nullptr; }
  // The next one to flush, taken off the list; null when there is none.
  Resource* take_dirty() {
    Resource* resource = first_dirty_;
    if (resource != nullptr) {
      first_dirty_ = resource->next_dirty_;
      if (first_dirty_ == nullptr) {
        last_dirty_ = nullptr;
      }
      resource->dirty_ = false;
    }
    return resource;
  }

 private:
  void clean(Resource* resource) {
    if (!resource->dirty_) {
      return;
    }
    resource->dirty_ = false;
    Resource* before = nullptr;
    for (Resource* r = first_dirty_; r != nullptr; before = r, r = r->next_dirty_) {
      if (r == resource) {
        *(before != nullptr ? &before->next_dirty_ : &first_dirty_) = r->next_dirty_;
        if (last_dirty_ == r) {
          last_dirty_ = before;
        }
        return;
      }
    }
  }

  Resource* first_ = nullptr;
  Resource* first_dirty_ = nullptr;
  Resource* last_dirty_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace uvpy::core
