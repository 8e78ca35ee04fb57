// Refusals of points and centroids that the API and the driver share.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>
#include <string_view>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast::kmeans {

// `name`: of the operand.
[[noreturn]] inline void refuse_zeros(std::string_view token, std::string_view name, std::int64_t row) {
  throw invalid_argument_error(
      fmt::format("{}: {}: expected rows other than 0 for spherical K-Means, got zeros in row {}", token, name, row));
}

}  // namespace ballast::kmeans
