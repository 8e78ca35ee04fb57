// The report of enqueued work.
#include "run/pending.hpp"

#include <utility>

namespace ballast {

pending_report::pending_report(std::unique_ptr<implementation> made) : implementation_(std::move(made)) {}
pending_report::pending_report(pending_report&&) noexcept = default;
pending_report& pending_report::operator=(pending_report&&) noexcept = default;
pending_report::~pending_report() = default;

report pending_report::get() {
  implementation& mine = *implementation_;
  run::recorder seen(mine.token, mine.backend, mine.scheme, mine.how, mine.injector);
  mine.work->collect(seen);
  return seen.finish();
}

}  // namespace ballast
