// Counters of calls, and the number of plans of each problem so far.
#include "run/sampling.hpp"

#include <string>
#include <unordered_map>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast::run {

void check_protection(const execution& where, std::string_view token, bool has_final_only) {
  if (where.sampled < 1) throw invalid_argument_error(fmt::format("{}: sampled: expected 1 or more, got {}", token, where.sampled));
  if (where.group && where.sampled > 1)
    throw unsupported_error(fmt::format("{}: sampled: expected 1 for a call on a group, got {}", token, where.sampled));
  if (where.protection != protection::final_only) return;
  if (!has_final_only)
    throw unsupported_error(fmt::format("{}: protection: expected off, detect or correct, got final_only, which is for K-Means", token));
  if (where.group)
    throw unsupported_error(fmt::format("{}: protection: expected off, detect or correct for a call on a group, got final_only", token));
}

namespace {

// Returns how many plans of this problem have begun to count calls of this operation.
std::uint64_t plans_before(std::string_view token, std::size_t operation) {
  // A program with ever new problems does not fill the memory. After a problem was forgotten its next plan begins with a protected call.
  constexpr std::size_t most = 1 << 16;
  static std::mutex mutex;
  static std::unordered_map<std::string, std::uint64_t> plans;
  const std::string key = std::string(token) + '#' + std::to_string(operation);
  const std::lock_guard lock(mutex);
  if (plans.size() >= most && plans.find(key) == plans.end()) plans.clear();
  return plans[key]++;
}

}  // namespace

bool sampling::takes(std::size_t operation) const {
  if (every_ <= 1) return true;
  counter& of = counters_[operation];
  std::call_once(of.begun, [&] { of.next.store(plans_before(token_, operation), std::memory_order_relaxed); });
  return of.next.fetch_add(1, std::memory_order_relaxed) % static_cast<std::uint64_t>(every_) == 0;
}

}  // namespace ballast::run
