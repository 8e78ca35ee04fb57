// The protection schemes and step-wise variants of the cuda backend by name.
// Layer: backend "cuda".
// Source: TurboFFT (PPoPP 2025) sections 4 and 5.1.5 for all but verify_before_store; docs/design/fft-cuda.md, "Schemes".
#include <string>

#include <ballast/error.hpp>

#include "fft/cuda/run/axes_in_turn.hpp"
#include "fft/cuda/run/real_to_real.hpp"
#include "fft/cuda/run/split_parts.hpp"
#include "fft/cuda/run/transform.hpp"
#include "fft/problem.hpp"
#include "run/dispatch.hpp"

namespace ballast::fft::cuda {
namespace {

// The computation of a scheme, independent of its check.
enum class variant { best, rules, plain, radix2, cufft };

struct scheme_row {
  std::string_view name;
  check_form check;  // none: a variant without protection. For cufft any other value, since it has its own check
  int transactions = 1;
  variant computes = variant::best;
  bool end_to_end = false;
};

// The default comes first.
constexpr scheme_row k_schemes[] = {
    {"verify_before_store", check_form::verify_before_store},
    {"end_to_end", check_form::verify_before_store, 1, variant::best, true},
    {"one_sided", check_form::one_sided},
    {"threadblock", check_form::composite, 1},
    {"multi_transaction_2", check_form::composite, 2},
    {"multi_transaction_4", check_form::composite, 4},
    {"multi_transaction_8", check_form::composite, 8},
    {"multi_transaction_16", check_form::composite, 16},
    {"multi_transaction_32", check_form::composite, 32},
    {"thread", check_form::thread},
    {"offline", check_form::verify_before_store, 1, variant::cufft},
    {"v0", check_form::none, 1, variant::radix2},
    {"v1", check_form::none, 1, variant::plain},
    {"v2", check_form::none, 1, variant::rules},
    {"tuned", check_form::none},
};

// The default scheme and the one over cuFFT compute the same without protection. The other schemes differ from the default by their check
// only.
run::scheme_use use_of(const scheme_row& row) {
  if (row.check == check_form::none) return run::scheme_use::unprotected;
  const bool bare = row.computes != variant::best || &row == k_schemes;
  return bare ? run::scheme_use::any : run::scheme_use::protected_only;
}

}  // namespace

const std::vector<std::string_view>& schemes() {
  static const std::vector<std::string_view> names = run::names_of(k_schemes);
  return names;
}

namespace {

transform_options options_of(const scheme_row& row, bool protect) {
  transform_options options;
  if (protect) options.check = row.check;
  options.transactions = row.transactions;
  options.end_to_end = protect && row.end_to_end;
  options.plain = row.computes == variant::plain;
  if (row.computes == variant::rules) options.origin = policy_origin::rules;
  return options;
}

std::unique_ptr<transform> make_nest(const nested_geometry& shape, precision type, bool protect, const scheme_row& row) {
  if (row.computes == variant::cufft) return make_offline_transform(shape, type, protect);
  if (row.computes == variant::radix2) return make_radix2_transform(shape, type);
  // It copies an input in place from its first element on.
  if (row.check == check_form::one_sided && (shape.input.first != 0 || shape.output.first != 0))
    throw unsupported_error("scheme one_sided: expected arrays that run forward");
  return make_transform(shape, type, options_of(row, protect));
}

}  // namespace

std::unique_ptr<transform> make_transform(const array_problem& shape, precision type, bool protect, std::string_view scheme) {
  const scheme_row* const row = run::row_named(k_schemes, scheme);
  if (row == nullptr) throw unsupported_error("scheme: the cuda backend has none of the name " + std::string(scheme));
  run::check_use(scheme, use_of(*row), protect);
  if (shape.split)
    return make_split_parts(shape, type, protect, [&](const array_problem& inner) { return make_transform(inner, type, protect, scheme); });
  if (shape.kind == kind::r2r) {
    if (row->computes == variant::cufft || row->computes == variant::radix2 || (row != k_schemes && row->check != check_form::none))
      throw unsupported_error("scheme " + std::string(scheme) + ": expected complex data on one side, got a real-to-real transform");
    return make_real_to_real(shape, type, options_of(*row, protect));
  }
  const auto nest = nest_of(shape, strides_taken::any);
  if (nest) return make_nest(*nest, type, protect, *row);
  return make_axes_in_turn(shape, type, [&](const nested_geometry& step) { return make_nest(step, type, protect, *row); });
}

}  // namespace ballast::fft::cuda
