// The protection schemes and step-wise variants of the cuda backend by name.
// Layer: backend "cuda".
// Source: TurboFFT (PPoPP 2025) sections 4 and 5.1.5 for all but verify_before_store; docs/design/fft-cuda.md, "Schemes".
#include <string>

#include <ballast/error.hpp>

#include "fft/cuda/transform.hpp"

namespace ballast::fft::cuda {
namespace {

struct scheme_row {
  std::string_view name;
  check_form check;
  int transactions = 1;
};

// The default first.
constexpr scheme_row k_schemes[] = {
    {"verify_before_store", check_form::verify_before_store},
    {"one_sided", check_form::one_sided},
    {"threadblock", check_form::composite, 1},
    {"multi_transaction_2", check_form::composite, 2},
    {"multi_transaction_4", check_form::composite, 4},
    {"multi_transaction_8", check_form::composite, 8},
    {"multi_transaction_16", check_form::composite, 16},
    {"multi_transaction_32", check_form::composite, 32},
};

}  // namespace

const std::vector<std::string_view>& schemes() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> made;
    for (const scheme_row& each : k_schemes) made.push_back(each.name);
    return made;
  }();
  return names;
}

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect, std::string_view scheme) {
  for (const scheme_row& each : k_schemes) {
    if (each.name != scheme) continue;
    if (!protect) return make_transform(shape, type, transform_options{});
    return make_transform(shape, type, transform_options{each.check, each.transactions});
  }
  throw unsupported_error("scheme: the cuda backend has none of the name " + std::string(scheme));
}

}  // namespace ballast::fft::cuda
