// Chooses the backend and the scheme of a call.
// Layer: run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <ballast/types.hpp>

#include "core/function_ref.hpp"
#include "run/settings.hpp"

namespace ballast::run {

// The backends that can run on this machine, the fastest first.
std::vector<backend> available_backends();

// The fastest backend that computes on the host.
backend host_backend() noexcept;

// The backend for `how`: its own if it can run here, the fastest if it is automatic. Throws unsupported_error, which says why not and
// what there is; `token` names the problem.
backend choose_backend(const settings& how, std::string_view token);

// Nominal operations per second of one thread of the cpu backend, in large transforms with protection.
double flops_per_second(precision type) noexcept;

// The cost of a call with operands in host memory.
struct host_call {
  double bytes = 0;  // bytes of all operands, which are copied to the device and back
  double flops = 0;  // nominal
  ballast::precision precision = ballast::precision::f32;
  int threads = 1;  // threads of the cpu backend
  // Seconds of launches and waits on a device, without copies and computation. The default is that of a transform: two waits and a copy of
  // the event ring.
  double latency = 50e-6;
};

// Returns true if the cpu backend finishes before the operands could be copied to a device and back. The model assumes that the device
// computes in no time; its constants are in dispatch.cpp. It affects speed, never results.
bool copying_takes_longer(const host_call& call) noexcept;

// Returns true if the cpu backend should answer a call with operands in host memory: it finishes before they could be copied, or the
// kernels would have to be compiled and ten such calls on the device would not win back what that takes. `compilation(begin)` predicts the
// seconds of the compiler, 0 if all kernels are ready; it is asked only where that decides, and with `begin` once more if the cpu backend
// answers for this reason: then it starts a compilation in the background, so that later plans find the kernels. For a plan, which decides
// once.
bool host_answers_first(const host_call& call, core::function_ref<double(bool begin)> compilation);

// `how.scheme`, or `fallback` if that is empty. Throws unsupported_error unless it is one of `known`.
std::string_view choose_scheme(const settings& how, std::string_view fallback, const std::vector<std::string_view>& known,
                               std::string_view token);

// A backend's table of schemes is an array of rows with a `name`. Their names, in order; and the row of this name, null if there is none.
template <class Row, std::size_t Rows>
std::vector<std::string_view> names_of(const Row (&table)[Rows]) {
  std::vector<std::string_view> made;
  for (const Row& each : table) made.push_back(each.name);
  return made;
}
template <class Row, std::size_t Rows>
const Row* row_named(const Row (&table)[Rows], std::string_view name) {
  const Row* const found = std::ranges::find(table, name, &Row::name);
  return found == table + Rows ? nullptr : found;
}

// The calls that a scheme serves: with protection, without it, or both.
enum class scheme_use : std::uint8_t { any, unprotected, protected_only };

// Throws unsupported_error, which says what the scheme expects, if it is not made for calls with (`protect`) or without protection.
void check_use(std::string_view scheme, scheme_use use, bool protect);

}  // namespace ballast::run
