// Errors. A detected fault is data (report.hpp); misuse, an absent backend and an unrepaired fault are exceptions.
// Layer: interface.
#pragma once

#include <stdexcept>
#include <string>

#include <ballast/report.hpp>

namespace ballast {

// Base of everything Ballast throws, but for std::bad_alloc when memory runs out.
class BALLAST_API error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The call asks for something that has no meaning. The message says what was expected, what was got, and the problem token.
class BALLAST_API invalid_argument_error : public error {
 public:
  using error::error;
};

// The call has a meaning, but this build or this machine cannot run it (backend, scheme, injection).
class BALLAST_API unsupported_error : public error {
 public:
  using error::error;
};

// A detected fault could not be repaired. The output is not to be used; what it holds then, the operation says. The report has what was
// seen.
class BALLAST_API uncorrectable_error : public error {
 public:
  explicit uncorrectable_error(ballast::report seen);
  const ballast::report& report() const noexcept { return report_; }

 private:
  ballast::report report_;
};

}  // namespace ballast
