// The report of work that is still running on a stream.
// Layer: interface; implemented in src/run.
#pragma once

#include <memory>

#include <ballast/report.hpp>
#include <ballast/types.hpp>

namespace ballast {
inline namespace abi_1 {

// Work that was enqueued on a stream. It keeps the plan alive. Destroyed, it gives its memory to the next call of the plan, which must be
// ordered after this one (the same stream, or graph). Findings that get() has not returned stay there: the report of the fft call that
// takes the memory has them. Those of a plan's last call, of other algorithms, and with call::workspace, are lost.
class BALLAST_API pending_report {
 public:
  pending_report(pending_report&&) noexcept;
  pending_report& operator=(pending_report&&) noexcept;
  ~pending_report();

  // Waits for the stream and reports the findings since the work was enqueued or get() was last called: a captured graph may have run many
  // times. Throws uncorrectable_error if a fault persisted and call::throw_on_uncorrectable is set, rank_deficient_error (qr),
  // invalid_argument_error if this was moved from.
  report get();

  // Returns true if the stream has passed the work, so that get() would not wait. The first call after the work was enqueued, or after
  // get(), marks the stream: work that was enqueued until then counts too. Throws device_error, invalid_argument_error if the stream
  // is captured or this was moved from.
  bool ready();

  struct implementation;  // src/run/pending.hpp
  explicit pending_report(std::unique_ptr<implementation> work);

 private:
  std::unique_ptr<implementation> implementation_;
};

}  // namespace abi_1
}  // namespace ballast
