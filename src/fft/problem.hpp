// Problems and their tokens: validation, default layouts, overlap.
// Layer: algorithm, backend-free.
#pragma once

#include "fft/contract.hpp"

namespace ballast::fft {

// Fills in every default and checks the rest. Throws invalid_argument_error with the token.
geometry resolve(const problem& value);

// Returns the factor of the norm that multiplies every element of the result.
double norm_factor(const geometry& shape, norm wanted, direction way);

// Returns the direction that the kind implies: forward for c2c, where the caller chooses.
direction natural_direction(kind value);

}  // namespace ballast::fft
