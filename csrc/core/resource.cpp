// Listing a resource: with when, and in debug mode by whom, it was made.
// SPDX-License-Identifier: MIT
#include "core/resource.h"

#include "core/clock.h"
#include "core/debug.h"
#include "core/loop.h"
#include "py/error.h"

namespace uvpy::core {

void Resources::add(Resource* resource) {
  hold(resource);
  resource->since_ = coarse_seconds();
  resource->forks_ = loop_->state().forks;
  if (loop_->debug()) {
    py::SavedError error;
    resource->creator_ = debug::source_traceback(*loop_);
    if (!resource->creator_) {
      // It is for information only; but a signal's handler that raised there must be heard.
      py::Ref<> exc = py::take_error();
      if (py::ends_the_loop(exc.get())) {
        py::restore_error(std::move(exc));
        loop_->leave_with_error();
      }
    }
  }
  resource->listed_ = true;
  link(resource, first_);
  ++count_;
}

bool Resources::is_inherited(const Resource* resource) const { return resource->forks_ != loop_->state().forks; }

double Resource::age() const { return coarse_seconds() - since_; }

}  // namespace uvpy::core
