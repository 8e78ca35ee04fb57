// Errors. A detected fault is data (report.hpp); misuse, a failing device and an unrepaired fault are exceptions.
// Layer: interface.
#pragma once

#include <stdexcept>
#include <string>

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
