// Problems and their tokens: validation, default layouts, overlap.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fft/contract.hpp"

namespace ballast::fft {

// Fills in every default and checks the rest. Throws invalid_argument_error with the token.
array_problem describe(const problem& value);

// The strides of the axes and of the batch that a transform takes: at least 1, or any.
enum class strides_taken : std::uint8_t { forward, any };
// Returns nullopt if no transform takes such arrays: more than three axes of more than one point, other strides, real to real.
std::optional<nested_geometry> nest_of(const array_problem& value, strides_taken by = strides_taken::forward);

// Returns the geometry of a problem without such loops. Throws invalid_argument_error.
geometry resolve(const problem& value);

// Returns the factor of the norm that multiplies every element of the result.
double norm_factor(const array_problem& value, norm wanted, direction way);

// Returns the nominal operations of all signals. Lengths with large prime factors take the time of about three times as many.
double nominal_flops(const array_problem& value);

// Returns the direction that the kind implies: forward for c2c, where the caller chooses.
direction natural_direction(kind value);

}  // namespace ballast::fft
