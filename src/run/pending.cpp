// The report of enqueued work.
#include "run/pending_report.hpp"

#include <utility>

#include <ballast/error.hpp>

namespace ballast {
inline namespace abi_1 {

pending_report::pending_report(std::unique_ptr<implementation> made) : implementation_(std::move(made)) {}
pending_report::pending_report(pending_report&&) noexcept = default;
pending_report& pending_report::operator=(pending_report&&) noexcept = default;
pending_report::~pending_report() = default;

report pending_report::get() {
  if (implementation_ == nullptr)
    throw invalid_argument_error("pending_report: expected one of enqueued work, got one that was moved from");
  implementation& mine = *implementation_;
  run::recorder seen(mine.token, mine.backend, mine.scheme, mine.how, mine.injector);
  mine.work->collect(seen);
  return seen.finish();
}

}  // namespace abi_1
}  // namespace ballast
