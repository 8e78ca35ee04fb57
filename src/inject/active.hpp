// The injector of a call as an opaque type, for code that only passes it on: contracts, the recorder, the host code of device kernels. Such
// code is compiled once for both libraries. Code that strikes includes inject/injector.hpp.
// Layer: foundation.
#pragma once

#include <cstdint>
#include <vector>

#include "inject/device_fault.hpp"
#include "inject/site.hpp"

namespace ballast::inject {

// The position of a strike in the computation. A fault is put into one interval (tile, block, panel) out of `intervals`, at one step
// (stage, pass, column) out of `steps`; both are drawn from its seed. Every (interval, step) must be visited exactly once in one round
// (transform, Lloyd iteration, factorization), for any number of threads.
struct position {
  std::int64_t interval = 0;
  std::int64_t intervals = 1;
  std::int64_t step = 0;
  std::int64_t steps = 1;
};

class plan;

// Gives the calls that this thread begins inside it the faults of `faults`, which must outlive them. For tests and the instrumented
// command.
class scope {
 public:
  explicit scope(const plan* faults) noexcept;
  ~scope();
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

 private:
  const plan* before_;
};

// The faults of the innermost scope of this thread; null if there is none.
const plan* scoped_faults() noexcept;

// no_injector in the production library, fault_injector in the instrumented one.
class active_injector;

// A mask by bit_of(site) of the sites at which faults of the call wait. Always 0 in the production library.
std::uint64_t armed_sites(const active_injector& of) noexcept;

// The faults of the call for kernels on a device (cuda/block/injector.cuh), with everything drawn.
std::vector<device_fault> faults_for_device(const active_injector& of);

}  // namespace ballast::inject
