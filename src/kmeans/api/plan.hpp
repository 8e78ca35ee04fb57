// The contents of a plan: the problem, the chosen backend and schemes, and the memory of its calls.
// Layer: algorithm, backend-free.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include <ballast/kmeans.hpp>

#include "core/memory.hpp"
#include "kmeans/contract.hpp"
#include "run/sampling.hpp"
#include "run/settings.hpp"

namespace ballast::kmeans {

// The calls of a plan. They differ in schemes and in their cost on a device.
enum class operation : std::uint8_t { fit, batch, predict, transform };
inline constexpr std::size_t k_operations = 4;

// A plan without its type of numbers.
struct prepared {
  // Chooses the backend. `size` and `options` have been validated.
  prepared(const kmeans::problem& size, const kmeans::options& wanted, const execution& where);
  // Returns whether calls run on devices of a group: those of one process, or that of a rank over NCCL. Returns their numbers here.
  bool on_devices() const;
  std::vector<int> device_numbers() const;
  // Chooses the schemes. `takes_batch`: a block of the device can hold a fit.
  void choose_schemes(bool takes_batch);

  // Returns the backend for a call whose operands and results lie at these addresses.
  ballast::backend backend_for(operation op, const run::settings& how, std::initializer_list<const void*> operands) const;
  // Returns the scheme of an operation. Throws unsupported_error if the plan's scheme does not serve it.
  const shared_text& scheme_of(operation op) const;
  // Counts a call whose operands are accepted, and makes its settings those of this call (execution::sampled).
  void count(operation op, run::settings& how) const { sampled.apply(how, static_cast<std::size_t>(op)); }
  // Returns the state for an engine of this backend.
  plan_state* state_for(ballast::backend which) const { return which == ballast::backend::cuda ? state.get() : nullptr; }

  kmeans::problem problem;
  kmeans::options options;
  execution where;
  shared_text token;      // the token of the problem
  shared_text one_token;  // the token of one of its data sets
  ballast::backend backend = ballast::backend::cpu;
  std::array<shared_text, k_operations> schemes;  // empty: the plan's scheme does not serve the operation
  shared_text row_checksum;                       // the default scheme
  // By operation: the cpu backend finishes before operands of the host could be copied. True only if cuda was chosen automatically.
  std::array<bool, k_operations> host_is_faster{};
  std::shared_ptr<plan_state> state;                // only for the cuda backend on one device
  std::vector<std::shared_ptr<plan_state>> states;  // one for each device of a group
  mutable core::arena memory;                       // the memory of the calls
  run::sampling sampled;
};

template <class T>
struct plan<T>::implementation : prepared {
  using prepared::prepared;
};

// api/batch.cpp: all fits of a batch, one by one, or by scheme k_dmr side by side on the device. The operands have been validated; the call
// is counted as `what`. `token`: of the report.
template <class T>
report fit_batch(const prepared& plan, operation what, const batch_data<T>& from, const batch_results<T>& to, run::settings how,
                 const shared_text& token, const shared_text& scheme);
// The same by k_dmr without waiting. `owner`: the plan.
template <class T>
pending_report enqueue_batch(const std::shared_ptr<const prepared>& owner, const batch_data<T>& from, const batch_results<T>& to,
                             const call& now);

// api/group.cpp: the calls of a plan on a group. They validate the operands.
template <class T>
report fit_in_group(const prepared& plan, const data<T>& from, const fit_results<T>& to, const run::settings& how);
template <class T>
report predict_in_group(const prepared& plan, const data<T>& from, const prediction_results& to, const run::settings& how);
template <class T>
report transform_in_group(const prepared& plan, const data<T>& from, const matrix_view<T>& values, const run::settings& how);

// api/devices.cpp: the same on a group of devices.
template <class T>
report fit_on_devices(const prepared& plan, const data<T>& from, const fit_results<T>& to, const run::settings& how);
template <class T>
report predict_on_devices(const prepared& plan, const data<T>& from, const prediction_results& to, const run::settings& how);
template <class T>
report transform_on_devices(const prepared& plan, const data<T>& from, const matrix_view<T>& values, const run::settings& how);

}  // namespace ballast::kmeans
