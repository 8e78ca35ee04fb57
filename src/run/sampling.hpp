// Which calls of a plan are protected when execution::sampled is more than 1; and the check of the protection that a plan is asked for.
// Layer: run. Each plan has a `sampling`.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include <ballast/execution.hpp>

#include "run/settings.hpp"

namespace ballast::run {

// Throws invalid_argument_error for sampled < 1; unsupported_error for more than 1 on a group, and for protection::final_only on a group or
// of an algorithm that has none. `token` names the problem.
void check_protection(const execution& where, std::string_view token, bool has_final_only);

// Counts the calls of a plan, each operation by itself: with one count for all, a program that alternates between two operations would have
// one of them always protected and the other never. A count belongs to a plan, for the same reason, and since a wrong table of a plan is
// found by calls of that plan. The first plan of a problem begins with a protected call, the next plan one call later, and so on: programs
// that make a plan for each call get every s-th protected too. Thread-safe: concurrent calls get different numbers.
class sampling {
 public:
  static constexpr std::size_t k_operations = 8;

  sampling() = default;
  sampling(int every, std::string_view token) : every_(every), token_(token) {}

  // Counts a call of `operation`, a number below k_operations, and returns whether it has the protection that was asked for. The first call
  // of each may allocate; later ones do not.
  bool takes(std::size_t operation) const;
  // The settings of this call: without protection unless it is one of those.
  void apply(settings& how, std::size_t operation) const {
    if (takes(operation)) return;
    how.protection = protection::off;
    how.final_only = false;
  }

 private:
  struct counter {
    std::once_flag begun;
    std::atomic<std::uint64_t> next{0};
  };
  int every_ = 1;
  shared_text token_;
  mutable std::array<counter, k_operations> counters_;
};

// For plans whose tables and kernels depend on the protection: those of calls without it, and the count. Empty: all calls have it.
template <class Implementation>
struct sampled_plans {
  std::unique_ptr<const sampling> calls;
  std::shared_ptr<const Implementation> unprotected;

  // Returns the one for the next call of `operation`; `own` is the protected one.
  const Implementation& next(const Implementation& own, std::size_t operation) const {
    return calls == nullptr || calls->takes(operation) ? own : *unprotected;
  }
};

// Makes an implementation, with make(execution), and where calls are sampled the other one too, as its member `sampled`.
template <class Make>
auto make_sampled(const execution& where, std::string_view token, Make&& make) {
  if (where.sampled == 1) return make(where);
  execution without = where;
  without.protection = protection::off;
  auto unprotected = make(without);
  auto made = make(where);
  made->sampled.calls = std::make_unique<const sampling>(where.sampled, token);
  made->sampled.unprotected = std::move(unprotected);
  return made;
}

}  // namespace ballast::run
