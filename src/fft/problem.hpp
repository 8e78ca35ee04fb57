// Problems and their tokens: validation, default layouts, overlap.
// Layer: algorithm, backend-free.
#pragma once

#include "fft/contract.hpp"

namespace ballast::fft {

// Fills in every default and checks the rest. Throws invalid_argument_error with the token.
geometry resolve(const problem& value);

// What the elements of the result are multiplied with.
double norm_factor(const geometry& shape, norm wanted, direction way);

// The direction that a problem has when its kind leaves no choice; forward for c2c.
direction natural_direction(kind value);

}  // namespace ballast::fft
