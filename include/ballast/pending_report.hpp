// The report of work that is still running on a stream.
// Layer: interface; implemented in src/run.
#pragma once

#include <memory>

#include <ballast/report.hpp>
#include <ballast/types.hpp>

namespace ballast {

// What was enqueued on a stream. If it is destroyed before the stream has passed the work, what its checks see is lost. Its memory goes to
// the next execution of the same plan, which must then be ordered behind this one (the same stream, or graph).
class BALLAST_API pending_report {
 public:
  pending_report(pending_report&&) noexcept;
  pending_report& operator=(pending_report&&) noexcept;
  ~pending_report();

  // Waits for the stream and reports what the checks have seen since the work was enqueued or get() was last called: a captured graph may
  // have run many times. Throws uncorrectable_error if a fault persisted and execution::throw_on_uncorrectable is set,
  // invalid_argument_error if this was moved from.
  report get();

  struct implementation;  // src/run/pending.hpp
  explicit pending_report(std::unique_ptr<implementation> made);

 private:
  std::unique_ptr<implementation> implementation_;
};

}  // namespace ballast
