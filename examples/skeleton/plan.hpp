// Protected sums of the rows of a matrix, y_r = Σ_i x_ri in double: the algorithm that CONTRIBUTING.md copies, "Adding an algorithm".
// Layer: interface; what a user sees.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ballast/execution.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>

namespace ballast::skeleton {

// m rows of n numbers.
struct problem {
  std::int64_t m = 1;
  std::int64_t n = 1;
};

// The one-line name of a problem: skeleton_f64_m5_n1000.
std::string to_token(const problem& value);
problem parse_token(std::string_view text);  // invalid_argument_error if it is not one

// A prepared problem: where and how it is computed. Immutable and thread-safe.
// Backends: reference and cuda; automatic is reference. Scheme: "twice" (default), see contract.hpp.
class plan {
 public:
  // Throws invalid_argument_error (sizes), unsupported_error (backend, scheme).
  explicit plan(const skeleton::problem& size, const execution& where = {});

  // Sets y[r] = Σ_i x[r n + i] for r = 0 … m − 1. x: m n numbers; y: m numbers, apart from x. On cuda both may lie in host or device
  // memory. Inf and NaN in a row give the sum that arithmetic gives. 3 m n additions. Covered: everything from the loads of x to the stores
  // of y. Throws uncorrectable_error, device_error, out_of_memory_error. A row that stays wrong is not stored; with the exception and on
  // cuda no row is stored.
  report sum(const double* x, double* y, const call& now = {}) const;

  const std::string& token() const noexcept { return token_; }
  ballast::backend backend() const noexcept { return backend_; }

 private:
  skeleton::problem size_;
  execution where_;
  std::string token_;
  ballast::backend backend_;
  std::string scheme_;
};

}  // namespace ballast::skeleton
