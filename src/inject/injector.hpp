// The hook through which kernels are struck. In the production library it is an empty type whose calls compile to nothing. In the
// instrumented library it strikes the data that a kernel passes to it.
// Layer: foundation. Kernels are templates over the injector type and are instantiated with `active_injector`. Code that only passes the
// injector on includes inject/active.hpp.
#pragma once

#if defined(BALLAST_COMPILED_ONCE)
#error "This source sees the injector: list it under ballast_injected_sources, not ballast_sources (src/CMakeLists.txt)."
#endif

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "inject/active.hpp"
#include "inject/device_fault.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"

namespace ballast::inject {

// Production: no state, no code.
class no_injector {
 public:
  static constexpr bool enabled = false;
  no_injector(const plan* faults, const site_table& sites);  // throws unsupported_error unless `faults` is null

  static constexpr bool armed(site) noexcept { return false; }
  static constexpr std::uint64_t armed_sites() noexcept { return 0; }
  static std::vector<device_fault> for_device() { return {}; }

  template <class T>
  static constexpr bool strike(site, const position&, T*, std::int64_t) noexcept {
    return false;
  }
};

// Instrumented.
class fault_injector {
 public:
  static constexpr bool enabled = true;
  // Takes the requests of `faults`. Their sites must be in the table of the operation, `sites`, or belong to every operation; otherwise it
  // throws invalid_argument_error. For a site of role repair it adds a fault at the table's carrier.
  fault_injector(const plan* faults, const site_table& sites);

  // Returns whether any fault waits at `where`. If none does, a kernel skips the work that only exposes its registers to the injector.
  bool armed(site where) const noexcept { return (armed_ >> bit_of(where) & 1) != 0 && waits_at(where); }

  // Strikes the elements of data[0 … count) that a fault of the plan selects, and returns true if there were any. T: float, double, or an
  // integer of 32 or 64 bits. Thread-safe.
  template <class T>
  bool strike(site where, const position& here, T* data, std::int64_t count) noexcept {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    if (!armed(where) || count <= 0) return false;
    return strike_words(where, here, data, count, sizeof(T), std::is_floating_point_v<T>);
  }

  // Returns the number of faults that have struck so far.
  std::int64_t fired() const noexcept;

  // Return the same faults for kernels on a device (cuda/block/injector.cuh), with everything drawn, and a mask by bit_of(site) of the
  // sites that they arm.
  std::vector<device_fault> for_device() const;
  std::uint64_t armed_sites() const noexcept { return armed_; }

 private:
  struct fault {
    request what;
    std::uint64_t number = 0;  // among the faults of its request
    std::atomic<std::int64_t> visits{0};
    std::atomic<std::uint64_t> stuck{0};  // stuck_at: 0 not decided yet, else 2 + the forced bit
    std::atomic<bool> fired{false};
  };
  bool waits_at(site where) const noexcept;
  bool strike_words(site where, const position& here, void* data, std::int64_t count, int bytes, bool floating) noexcept;

  std::uint64_t armed_ = 0;  // a mask by bit_of(site) of the sites at which faults wait
  std::vector<std::unique_ptr<fault>> faults_;
};

#if defined(BALLAST_INSTRUMENTED)
using chosen_injector = fault_injector;
#else
using chosen_injector = no_injector;
#endif

class active_injector final : public chosen_injector {
  using chosen_injector::chosen_injector;
};

}  // namespace ballast::inject
