// The lengths that have a fallback kernel, and the division of their lines.
#include "fft/cuda/plan/fallback.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <stdexcept>
#include <string>

#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/policy/choose_policy.hpp"

namespace ballast::fft::cuda {

namespace {

// The division of a line of 2^e points in a fallback kernel. Neighbouring threads take neighbouring lines, but few enough that a warp still
// reads runs of each line: this suits both contiguous lines and lines side by side. With radices of at most 8, and 8 numbers per thread, a
// kernel is short: the compiler needs half a second to a second for it.
struct fallback_line {
  std::vector<int> radices;
  int threads;
  int lines;
};
const fallback_line k_lines[] = {{{1}, 1, 128},      {{2}, 1, 128},      {{4}, 1, 128},         {{8}, 1, 128},
                                 {{4, 4}, 4, 16},    {{8, 4}, 4, 16},    {{8, 8}, 8, 16},       {{8, 4, 4}, 16, 8},
                                 {{8, 8, 4}, 32, 4}, {{8, 8, 8}, 64, 4}, {{8, 8, 4, 4}, 128, 2}};
constexpr int k_most = std::size(k_lines) - 1;
constexpr int k_most_passes = 3;

struct shapes {
  line_policy of[2][2];  // [wide][checked]
};

// Returns e if n is 2^e, otherwise −1.
int exponent_of(std::int64_t n) {
  return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)) ? std::countr_zero(static_cast<std::uint64_t>(n)) : -1;
}

shapes shapes_of(int e) {
  const fallback_line& line = k_lines[e];
  shapes made;
  for (const bool wide : {false, true}) {
    for (const bool checked : {false, true}) {
      line_request wanted;
      wanted.length = 1 << e;
      wanted.wide = wide;
      wanted.in_columns = wanted.out_columns = true;
      wanted.check = checked ? check_form::verify_before_store : check_form::none;
      line_policy& one = made.of[wide][checked];
      one = make_policy(wanted, {line.radices, line.threads, line.lines});
      one.fallback = true;
    }
  }
  return made;
}

}  // namespace

line_policy fallback_policy(std::int64_t length, bool wide, check_form check) {
  // Computed once: the search for the layouts of the exchanges takes as long as the rest of a plan.
  static const std::vector<shapes> all = [] {
    std::vector<shapes> made;
    for (int e = 0; e <= k_most; ++e) made.push_back(shapes_of(e));
    return made;
  }();
  const int e = exponent_of(length);
  if (e < 0 || e > k_most || (check != check_form::none && check != check_form::verify_before_store))
    throw std::logic_error("fallback kernel: expected a power of two up to 1024, got " + std::to_string(length));
  return all[static_cast<std::size_t>(e)].of[wide][check != check_form::none];
}

std::vector<std::int64_t> fallback_split(std::int64_t n) {
  const int e = exponent_of(n);
  if (e < 0 || e > k_most_passes * k_most) return {};
  const int passes = std::max(1, (e + k_most - 1) / k_most);
  std::vector<std::int64_t> made;
  for (int i = 0; i < passes; ++i) made.push_back(std::int64_t{1} << (e + i) / passes);
  return made;
}

line_policy kernel_policy(const line_policy& fallback) {
  line_policy made = fallback_policy(fallback.length, fallback.wide, fallback.check);
  made.scaled = made.padded = made.truncated = true;
  made.load_factor = factor_form::table;
  made.store_factor = factor_form::twiddle;
  return made;
}

unsigned forms_of(const line_policy& fallback) {
  unsigned forms = 0;
  if (fallback.inverse) forms |= k_form_inverse;
  if (fallback.load == load_form::real) forms |= k_form_load_real;
  if (fallback.load == load_form::half) forms |= k_form_load_half;
  if (fallback.store == store_form::real) forms |= k_form_store_real;
  if (fallback.store_factor == factor_form::twiddle) forms |= k_form_twiddles;
  return forms;
}

std::vector<ballast::cuda::kernel_request> fallback_kernels() {
  std::vector<ballast::cuda::kernel_request> made;
  for (int e = 0; e <= k_most; ++e) {
    for (const bool wide : {false, true}) {
      for (const check_form check : {check_form::none, check_form::verify_before_store})
        made.push_back(kernel_for(fallback_policy(std::int64_t{1} << e, wide, check), false));
    }
  }
  return made;
}

}  // namespace ballast::fft::cuda
