// Errors. A detected fault is data (report.hpp); misuse, a failing device and an unrepaired fault are exceptions.
// Layer: interface.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ballast/report.hpp>

namespace ballast {
inline namespace abi_1 {

// Base of everything Ballast throws. The message says what was expected, what was got, and the problem token.
class BALLAST_API error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument has no meaning: a shape, a stride, an overlap, a value. Nothing was computed.
class BALLAST_API invalid_argument_error : public error {
 public:
  using error::error;
};

// A least-squares problem whose matrix does not have full rank.
class BALLAST_API rank_deficient_error : public error {
 public:
  using error::error;
};

// The call has a meaning, but this build or this machine cannot run it (backend, scheme, kernels, injection).
class BALLAST_API unsupported_error : public error {
 public:
  using error::error;
};

// A device or its driver failed. The message holds the driver's words.
class BALLAST_API device_error : public error {
 public:
  using error::error;
};

// Host or device memory ran out.
class BALLAST_API out_of_memory_error : public error {
 public:
  using error::error;
};

// Ranks of a group were lost, and the call cannot go on without them: they ended, they were silent for longer than
// group_options::patience, or the others gave this rank up. Nothing was stored.
class BALLAST_API rank_lost_error : public error {
 public:
  rank_lost_error(const std::string& what, std::vector<int> ranks) : error(what), ranks_(std::move(ranks)) {}
  const std::vector<int>& ranks() const noexcept { return ranks_; }  // ascending

 private:
  std::vector<int> ranks_;
};

// A detected fault could not be repaired. The output is not to be used; each operation documents what it holds then. report() has the
// events.
class BALLAST_API uncorrectable_error : public error {
 public:
  explicit uncorrectable_error(ballast::report seen);
  const ballast::report& report() const noexcept { return report_; }

 private:
  ballast::report report_;
};

}  // namespace abi_1
}  // namespace ballast
