// What a plan holds.
// Layer: algorithm, backend-free.
#pragma once

#include <memory>
#include <string>

#include "fft/contract.hpp"

namespace ballast::fft {

struct plan::implementation {
  fft::problem problem;
  ballast::execution how;
  geometry shape;
  ballast::backend backend = ballast::backend::cpu;
  std::string scheme;
  std::unique_ptr<const transform> work;
  // The cpu backend's, for operands on the host that would be copied for longer than it computes. Null unless the backend is cuda because
  // nobody has named one.
  std::unique_ptr<const transform> work_here;
};

}  // namespace ballast::fft
