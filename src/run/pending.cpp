// The report of enqueued work.
#include "run/pending_report.hpp"

#include <utility>

#include <ballast/error.hpp>

#include "core/fork.hpp"

namespace ballast {
inline namespace abi_1 {

// Made inside the call that enqueues, on its device.
pending_report::pending_report(std::unique_ptr<implementation> made) : implementation_(std::move(made)) {
  implementation_->device = cuda::current_device();
}
pending_report::pending_report(pending_report&&) noexcept = default;
pending_report& pending_report::operator=(pending_report&&) noexcept = default;
pending_report::~pending_report() = default;

namespace {

pending_report::implementation& made_of(const std::unique_ptr<pending_report::implementation>& given) {
  if (given == nullptr) throw invalid_argument_error("pending_report: expected one of enqueued work, got one that was moved from");
  return *given;
}

}  // namespace

bool pending_report::ready() {
  implementation& mine = made_of(implementation_);
  const core::active_call call;
  const cuda::device_scope on(mine.how.device);
  if (mine.device->captured(mine.how.stream))  // a question about it would end the capture
    throw invalid_argument_error("pending_report: ready: expected a stream that is not captured, got one that is");
  if (mine.mark == nullptr) {
    mine.mark = mine.device->make_event(false);
    mine.device->record(*mine.mark, mine.how.stream);
  }
  return mine.device->passed(*mine.mark);
}

report pending_report::get() {
  implementation& mine = made_of(implementation_);
  mine.mark = nullptr;
  run::recorder seen(mine.token, mine.backend, mine.scheme, mine.how, mine.injector);
  mine.work->collect(seen);
  return seen.finish();
}

}  // namespace abi_1
}  // namespace ballast
