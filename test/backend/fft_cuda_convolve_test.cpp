// Convolutions of signals on the cuda backend, by the emulator: against sums by the definition; operands of the host and of the device;
// faults at every site.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/convolve.hpp>
#include <ballast/error.hpp>

#include "backend/fft_convolved.hpp"
#include "backend/fft_cuda_convolve_cases.hpp"
#include "backend/fft_cuda_target.hpp"
#include "backend/fft_emulator.hpp"
#include "fft/cuda/convolve/convolve.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

// A device for one case, whose groups have few blocks.
class grouped_emulator {
 public:
  explicit grouped_emulator(std::int64_t most_elements) : device_(machine::whole) { cuda::override_convolution_group(most_elements); }
  ~grouped_emulator() { cuda::override_convolution_group(0); }
  grouped_emulator(const grouped_emulator&) = delete;
  grouped_emulator& operator=(const grouped_emulator&) = delete;

 private:
  emulator device_;
};

template <class Body>
void with_case(const device_convolution_case& which, const Body& body) {
  const bool single = which.problem.precision == precision::f32;
  if (which.problem.complex) {
    single ? body(convolved<std::complex<float>>(which.problem)) : body(convolved<std::complex<double>>(which.problem));
  } else {
    single ? body(convolved<float>(which.problem)) : body(convolved<double>(which.problem));
  }
}

TEST(fft_cuda_convolution, agrees_with_the_definition_from_host_and_device_memory) {
  for (const device_convolution_case& each : device_convolution_cases()) {
    const grouped_emulator device(each.most_elements);
    with_case(each, [&]<class Element>(const convolved<Element>& given) {
      SCOPED_TRACE(to_token(given.what));
      const convolution guarded(given.what, on_cuda()), open(given.what, on_cuda(protection::off));
      std::vector<Element> out(given.wanted.size()), bare(out.size());
      const report seen = guarded.run(given.x, given.h, out, test::quiet_call());
      EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      EXPECT_EQ(seen.detected, 0U) << to_json(seen);
      EXPECT_EQ(seen.backend, backend::cuda);
      EXPECT_GT(seen.checks, 2U);
      EXPECT_LE(given.error(out), given.allowed());
      EXPECT_EQ(open.run(given.x, given.h, bare).checks, 0U);
      EXPECT_LE(given.error(bare), given.allowed());
      const auto x = on_device(given.x), h = on_device(given.h), y = on_device(std::vector<Element>(out.size()));
      const auto n = given.x.size(), m = given.h.size();
      const report there = guarded.run(std::span<const Element>(x.data(), n), std::span<const Element>(h.data(), m),
                                       std::span<Element>(y.data(), out.size()), test::quiet_call());
      EXPECT_EQ(there.verdict, verdict::clean) << to_json(there);
      EXPECT_EQ(y.read(), out);
    });
  }
}

// A fault at every site, at several visits: repaired, and without protection in the output.
TEST(fft_cuda_convolution, every_site) {
  const std::vector<device_convolution_case> all = device_convolution_cases();
  // One axis; two, in groups of blocks; three, in one block and in groups; more axes than kernels are compiled for.
  for (const std::size_t number : {0UL, 2UL, 6UL, 9UL, 12UL, 16UL, 17UL, 20UL}) {
    const grouped_emulator device(all[number].most_elements);
    with_case(all[number], [&]<class Element>(const convolved<Element>& given) {
      SCOPED_TRACE(to_token(given.what));
      const convolution guarded(given.what, on_cuda()), open(given.what, on_cuda(protection::off));
      std::vector<Element> clean(given.wanted.size());
      (void)guarded.run(given.x, given.h, clean);
      for (const inject::site_row& row : inject::sites()) {
        // Transforms as short as these have no twiddle factors in some of their stages.
        if (row.operation() != "fft" || row.site == site::twiddle) continue;
        struck_convolutions seen;
        for (std::uint64_t seed = 0; seed < (test::sampled() ? 12 : given.what.first.size() > 1 ? 30 : 60); ++seed) {
          SCOPED_TRACE(std::string(row.name) + ' ' + std::to_string(seed));
          inject::request wanted;
          wanted.site = row.site;
          wanted.model = static_cast<inject::model>(seed % inject::k_model_names.size());
          wanted.seed = seed;
          wanted.bit = given.what.precision == precision::f32 ? 30 : 62;
          wanted.visit = static_cast<std::int64_t>(seed % 3);
          strike(given, guarded, open, clean, row, wanted, seen);
          if (testing::Test::HasFatalFailure()) return;
        }
        EXPECT_EQ(seen.changed > 0, row.role == inject::site_role::data) << row.name;
        EXPECT_GT(seen.found, 0) << row.name;
      }
    });
  }
}

// Inf, NaN and numbers whose squares overflow or vanish are no fault.
TEST(fft_cuda_convolution, odd_numbers_are_no_fault) {
  const grouped_emulator device(0);
  const convolution single({.first = {300}, .second = {9}}, on_cuda());
  std::vector<float> x(300, 1), h(9, 2), y(308);
  x[10] = std::numeric_limits<float>::infinity();
  const report seen = single.run(x, h, y);
  EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
  EXPECT_FALSE(std::isfinite(y[12]));
  const convolution wide({.precision = precision::f64, .first = {9}, .second = {300}, .mode = convolution_mode::same}, on_cuda());
  for (const double size : {1e-200, 1e-155, 1e160, 0.0}) {
    const std::vector<double> few = test::noise<double>(9, 1), many = test::noise<double>(300, 2);
    std::vector<double> a(9), b(300), c(9);
    std::ranges::transform(few, a.begin(), [&](double v) { return v * size; });
    std::ranges::transform(many, b.begin(), [&](double v) { return v * (size > 1 ? 1 : 2); });
    const report same = wide.run(a, b, c);
    EXPECT_EQ(same.verdict, verdict::clean) << size << to_json(same);
    double largest = 0;
    for (const double v : c) largest = std::max(largest, std::abs(v));
    EXPECT_EQ(largest > 0, size > 0);
  }
}

TEST(fft_cuda_convolution, refuses_misaligned_memory) {
  const grouped_emulator device(0);
  const convolution made({.first = {20}, .second = {13}}, on_cuda());
  const auto x = on_device(std::vector<float>(21)), h = on_device(std::vector<float>(13)), y = on_device(std::vector<float>(32));
  const auto* const beyond = reinterpret_cast<const float*>(reinterpret_cast<const char*>(x.data()) + 1);
  std::string text;
  try {
    (void)made.run(std::span<const float>(beyond, 20), std::span<const float>(h.data(), 13), std::span<float>(y.data(), 32));
  } catch (const invalid_argument_error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("convolve_real_f32_n20_m13_full: first: expected device memory at a multiple of 4 bytes"), std::string::npos) << text;
}

}  // namespace
}  // namespace ballast::fft
