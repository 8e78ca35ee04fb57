// The contents of a plan: the problem, the chosen backend and scheme, and the memory of its calls.
// Layer: algorithm, backend-free.
#pragma once

#include <memory>

#include <ballast/qr.hpp>

#include "core/memory.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "qr/contract.hpp"
#include "run/sampling.hpp"
#include "run/settings.hpp"

namespace ballast::qr {

// The operations whose calls execution::sampled counts by themselves: those of batches, which are numbered alike, and further ones.
enum class counted : std::uint8_t { geqrf, ormqr, orgqr, gels, geqp3, gelsy, solve, form_q };

// The problem of matrices of numbers S.
template <class S>
qr::problem problem_of(std::int64_t rows, std::int64_t columns, std::int64_t batch = 1) {
  return {precision_of<real_of<S>>, rows, columns, batch, is_complex<S>};
}

// A plan without its type of numbers.
struct prepared {
  // Chooses the backend and the scheme. Does not look at the sizes: each operation states its own requirements. `kept`: whether the plan
  // serves many calls.
  prepared(const qr::problem& size, const execution& where, const options& wanted, core::arena::spares kept);

  // Returns the settings of one call, with the protection that the plan was asked for.
  run::settings settings_for(const call& now) const;
  // Counts the call, and leaves its protection or takes it away.
  void count(counted what, run::settings& how) const { sampled.apply(how, static_cast<std::size_t>(what)); }
  // Returns the backend for a call whose matrix lies at `operand`.
  ballast::backend backend_for(const void* operand, const run::settings& how) const;

  qr::problem problem;
  execution where;
  options wanted;
  shared_text token;
  int threads = 1;
  ballast::backend backend = ballast::backend::cpu;
  // Set only if cuda was chosen automatically: the cpu backend finishes before operands of the host could be copied.
  bool host_is_faster = false;
  shared_text scheme;
  std::unique_ptr<device_state> device;  // shared state of the cuda backend
  mutable core::arena memory;            // the memory of the calls
  run::sampling sampled;
};

template <class T>
struct plan<T>::implementation : prepared {
  implementation(const qr::problem& size, const execution& where, const options& wanted)
      : prepared(size, where, wanted, core::arena::spares::yes) {}
};

}  // namespace ballast::qr
