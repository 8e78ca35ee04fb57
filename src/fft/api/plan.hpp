// The contents of a plan.
// Layer: algorithm, backend-free.
#pragma once

#include <memory>
#include <string_view>
#include <variant>

#include <ballast/fft.hpp>
#include <ballast/fft_group.hpp>

#include "core/memory.hpp"
#include "fft/contract.hpp"
#include "run/sampling.hpp"

namespace ballast::fft {

struct plan::implementation {
  // Returns the implementation for the next call in this direction: this one, or the one without protection (execution::sampled).
  const implementation& next(direction way) const { return sampled.next(*this, way == direction::inverse ? 1 : 0); }

  fft::problem problem;
  execution where;
  options wanted;
  shared_text token[2];  // forward, inverse
  array_problem shape;
  int threads = 1;
  ballast::backend backend = ballast::backend::cpu;
  shared_text scheme;
  std::unique_ptr<const transform> work;
  // The cpu backend's, for operands on the host that would be copied for longer than it computes. Set only if cuda was chosen
  // automatically.
  std::unique_ptr<const transform> work_here;
  // On a group of devices these compute, and `work` is null.
  std::variant<std::monostate, group_plan<float>, group_plan<double>> devices;
  mutable core::arena memory;  // the memory of its calls
  run::sampled_plans<implementation> sampled;
};

// The transform of a backend that runs here, for a plan of so many threads; 0: not by the user's tuning table, which is for these.
std::unique_ptr<const transform> make_work(backend which, const array_problem& shape, precision type, bool protect, int threads,
                                           std::string_view scheme);

}  // namespace ballast::fft
