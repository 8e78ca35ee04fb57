// Tokens, choice of the backend and the scheme, and the report.
// Layer: the public entry.
#include "skeleton/plan.hpp"

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/token.hpp"
#include "inject/injector.hpp"
#include "run/call_scope.hpp"
#include "run/dispatch.hpp"
#include "skeleton/contract.hpp"
#include "skeleton/sites.hpp"

namespace ballast::skeleton {

namespace {

backend backend_for(const execution& where, std::string_view token) {
  if (where.backend == backend::automatic) return backend::reference;
  const backend chosen = run::choose_backend(run::settings_of(where), token);
  if (chosen == backend::cpu) throw unsupported_error(fmt::format("{}: backend: expected reference or cuda, got cpu", token));
  return chosen;
}

}  // namespace

std::string to_token(const problem& value) { return fmt::format("skeleton_f64_m{}_n{}", value.m, value.n); }

problem parse_token(std::string_view text) {
  core::token_reader reader(text, "skeleton_f64_m5_n1000");
  problem made;
  reader.skip("skeleton_f64");
  made.m = reader.number("_m");
  made.n = reader.number("_n");
  reader.end();
  return made;
}

plan::plan(const skeleton::problem& size, const execution& where)
    : size_(size),
      where_(where),
      token_(to_token(size)),
      backend_(backend_for(where, token_)),
      scheme_(run::choose_scheme(run::settings_of(where), "twice", {"twice"}, token_)) {
  if (size.m < 1 || size.n < 1) throw invalid_argument_error(fmt::format("{}: expected at least one row and one column", token_));
}

report plan::sum(const double* x, double* y, const call& now) const {
  return run::in_call(nullptr, where_.device, token_, [&] {
    const run::settings how = run::settings_of(where_, now);
    inject::active_injector injector(how.faults, site::table());
    run::recorder seen(token_, backend_, scheme_, how, injector);
    const work given = {size_, x, y, how, injector, seen};
    if (backend_ == ballast::backend::cuda)
      sum_on_device(given);
    else
      sum_on_host(given);
    return seen.finish();
  });
}

}  // namespace ballast::skeleton
