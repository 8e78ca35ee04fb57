// The checks of each problem of fft_cuda_any_cases.hpp and of fft_cuda_reals_cases.hpp on the emulator: accuracy, gaps, operands on the
// host and on the device, the caller's workspace, and faults of every model at every site. Layer: backend tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "backend/fft_any_example.hpp"
#include "backend/fft_cuda_any_cases.hpp"
#include "backend/fft_cuda_target.hpp"
#include "backend/fft_emulator.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"

namespace ballast::fft {

// Calls body(example) on an emulated device.
template <class Body>
void on_emulator(const any_case& which, const Body& body) {
  const emulator device(which.where, 1, which.memory);
  if (which.problem.precision == precision::f32) {
    body(example<float>(which.problem, which.way, 7));
  } else {
    body(example<double>(which.problem, which.way, 7));
  }
}

// The words of one call's operands. In place both are the same.
template <class T>
struct operands {
  std::vector<T> in, out;
  bool in_place;

  operands(const example<T>& given, bool together) : in(given.in), out(given.fresh()), in_place(together) {
    if (!in_place) return;
    in.resize(std::max(in.size(), out.size()));
  }
  T* target() { return in_place ? in.data() : out.data(); }
  // The words of the output.
  std::vector<T> result() const { return in_place ? std::vector<T>(in.begin(), in.begin() + std::ssize(out)) : out; }
};

inline void expect_right_on_the_host_and_on_the_device(const any_case& which) {
  on_emulator(which, [&]<class T>(const example<T>& given) {
    const plan made(which.problem, on_cuda(), which.options());
    operands<T> host(given, which.in_place);
    const report seen = given.run(made, host.in.data(), host.target());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_EQ(seen.backend, backend::cuda);
    EXPECT_EQ(seen.fallback_kernels.empty(), which.where != machine::fallback) << to_json(seen);
    EXPECT_GT(seen.checks, 0U);
    EXPECT_LE(given.error(host.result()), given.allowed());
    if (!which.in_place) given.expect_gaps_kept(host.out);

    operands<T> bare(given, which.in_place);
    EXPECT_EQ(given.run(plan(which.problem, on_cuda(protection::off), which.options()), bare.in.data(), bare.target()).checks, 0U);
    EXPECT_LE(given.error(bare.result()), given.allowed());

    // On the device twice in the caller's workspace, with other data in it.
    const operands<T> fresh(given, which.in_place);
    const std::vector<unsigned char> other(at(made.workspace_bytes()), 0xa5);
    const device_copy<unsigned char> memory(emulated(), other);
    call now = test::quiet_call();
    now.workspace = {reinterpret_cast<std::byte*>(memory.data()), other.size()};
    for (int time = 0; time < 2; ++time) {
      const device_copy<T> in(emulated(), fresh.in), out(emulated(), fresh.out);
      const report there = given.enqueue(made, in.data(), which.in_place ? in.data() : out.data(), now).get();
      EXPECT_EQ(there.verdict, verdict::clean) << to_json(there);
      EXPECT_EQ(there.checks, seen.checks);
      std::vector<T> result = which.in_place ? in.read() : out.read();
      result.resize(fresh.out.size());
      EXPECT_EQ(result, host.result());
    }
  });
}

// How many calls a site has changed without protection, and how many reports with protection it has made other than clean.
using calls_of_site = std::map<inject::site, int>;

// A fault of every model at every site that acts on data: repaired, and without protection in the output.
inline void strike_every_site(const any_case& which, calls_of_site& changed, calls_of_site& found) {
  on_emulator(which, [&]<class T>(const example<T>& given) {
    const plan guarded(which.problem, on_cuda(), which.options()), bare(which.problem, on_cuda(protection::off), which.options());
    operands<T> clean(given, which.in_place), unguarded(given, which.in_place);
    (void)given.run(guarded, clean.in.data(), clean.target());
    (void)given.run(bare, unguarded.in.data(), unguarded.target());
    const std::vector<T> right = clean.result();
    double size = 0;
    for (const T value : right) size = std::max(size, std::abs(static_cast<double>(value)));
    for (const inject::site_row& row : inject::sites()) {
      if (row.operation() != "fft" && !row.operation().empty()) continue;
      SCOPED_TRACE(row.name);
      for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
        if (test::sampled() && (m + static_cast<std::size_t>(row.site)) % 3 != 0) continue;
        for (std::uint64_t seed = 0; seed < (test::sampled() ? 3 : 6); ++seed) {
          SCOPED_TRACE(std::string(inject::k_model_names[m]) + ' ' + std::to_string(seed));
          const inject::request wanted = fault_at<T>(row.site, m, seed);
          const inject::plan faults({wanted});
          const inject::scope struck(&faults);
          if (row.role == inject::site_role::data) {
            operands<T> open(given, which.in_place);
            (void)given.run(bare, open.in.data(), open.target());
            changed[row.site] += open.result() == unguarded.result() ? 0 : 1;
          }
          operands<T> data(given, which.in_place);
          const report seen = given.run(guarded, data.in.data(), data.target());
          found[row.site] += seen.verdict == verdict::clean ? 0 : 1;
          if (wanted.model == inject::model::stuck_at && seen.verdict == verdict::uncorrectable) continue;
          ASSERT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
          double effect = 0;
          const std::vector<T> got = data.result();
          for (std::size_t i = 0; i < got.size(); ++i) effect += std::pow(static_cast<double>(got[i]) - static_cast<double>(right[i]), 2);
          ASSERT_LE(std::sqrt(effect),
                    emulated().floor() * test::effect_unit(which.problem) * size * std::sqrt(static_cast<double>(given.shape.points())))
              << to_json(seen);
        }
      }
    }
  });
}

// Every site that acts on data was struck in some case, unless a filter excluded some.
inline void expect_all_sites_struck(calls_of_site& changed, calls_of_site& found) {
  const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
  if (suite.test_to_run_count() != suite.total_test_count() || suite.failed_test_count() > 0) return;
  for (const inject::site_row& row : inject::sites()) {
    if (row.operation() != "fft") continue;
    EXPECT_EQ(changed[row.site] > 0, row.role == inject::site_role::data) << row.name;
    EXPECT_GT(found[row.site], 0) << row.name;
  }
}

}  // namespace ballast::fft
