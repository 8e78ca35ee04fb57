// The cuda backend of QR on the emulator: clusters of every size, slabs in global memory, operands in device memory, several calls at once,
// and work that a device does as late, or as early, as the order of its streams allows. Tests that all backends share are in
// qr_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "cuda/memory/shared_state.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/late_device.hpp"
#include "support/qr_on_device.hpp"
#include "support/reals.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

// The device of every test that sets no other.
class emulated final : public testing::Environment {
 public:
  void SetUp() override { cuda::override_device(std::make_shared<simt::emulated_device>()); }
  void TearDown() override { cuda::override_device(nullptr); }
};
[[maybe_unused]] const auto* const k_emulated = testing::AddGlobalTestEnvironment(new emulated);

template <class T>
class qr_cuda : public testing::Test {
 protected:
  static void expect_as_on_the_cpu(index m, index n, const std::vector<index>& zero_columns = {}) {
    matrix<T> A = random_matrix<T>(m, n, static_cast<std::uint64_t>(m + n));
    for (const index j : zero_columns) std::fill_n(&A(0, j), m, T(0));
    const factored<T> made = factor_on(backend::cuda, A), expected = factor_on(backend::cpu, A);
    EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
    EXPECT_EQ(made.report.backend, backend::cuda);
    const double tolerance = 500 * static_cast<double>(m) * abft::unit_roundoff<T>;
    for (std::size_t j = 0; j < made.tau.size(); ++j) ASSERT_NEAR(made.tau[j], expected.tau[j], tolerance) << m << " × " << n;
    for (std::size_t e = 0; e < A.size(); ++e)
      ASSERT_NEAR(made.F.data()[e], expected.F.data()[e], tolerance * std::sqrt(m)) << m << " × " << n;
  }
};
TYPED_SUITE(qr_cuda, test::reals, test::number_names);

TYPED_TEST(qr_cuda, panels_of_clusters_of_every_size) {
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{190, 40}, {260, 70}, {1600, 12}, {4200, 6}})
    this->expect_as_on_the_cpu(m, n);
}

TYPED_TEST(qr_cuda, panels_without_clusters) {
  const device_for_a_test here(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(4, 8)));
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{260, 40}, {90, 120}}) this->expect_as_on_the_cpu(m, n);
}

TYPED_TEST(qr_cuda, slabs_that_lie_in_global_memory) {
  cuda::capabilities small = simt::emulated_capabilities();
  small.shared_per_block = 50 << 10;
  const device_for_a_test here(std::make_shared<simt::emulated_device>(small));
  // A zero column keeps the panel from being made of its Gram matrix.
  this->expect_as_on_the_cpu(190, 70, {3, 40});
  this->expect_as_on_the_cpu(1500, 34, {3, 20});
}

// Panels wider than one launch takes, and sections of several blocks.
TYPED_TEST(qr_cuda, wide_panels) { this->expect_as_on_the_cpu(230, 220); }

// Every element of the input is loaded three times for what protects it: for the checksum columns, for the certificate's product and for
// the copy to go back to. A load that brings a wrong number spoils one of them.
TYPED_TEST(qr_cuda, a_wrong_load_for_what_protects_the_input_spoils_nothing) {
  using T = TypeParam;
  const index m = 90, n = 40;
  const matrix<T> A = random_matrix<T>(m, n, 7);
  const auto factor = [&](protection level) {
    return factor_in_place<T>(A.view(), {.backend = backend::cuda, .threads = 1, .protection = level});
  };
  simt::loads = {};
  const factored<T> clean = factor(protection::correct);
  ASSERT_EQ(clean.report.verdict, verdict::clean);
  const index loads = simt::loads.seen;  // each loads some neighbours
  EXPECT_GE(loads, 3 * m * n / static_cast<index>(16 / sizeof(T)));
  simt::loads = {};
  (void)factor(protection::detect);  // has no copy
  EXPECT_EQ(3 * simt::loads.seen, 2 * loads);
  int detected = 0, strikes = 0;
  for (index at = 17; at < loads; at += test::sampled() ? 397 : 53) {
    simt::loads = {0, at, sizeof(T) - 1};
    const factored<T> made = factor(protection::correct);
    simt::loads = {};
    SCOPED_TRACE("load " + std::to_string(at));
    ASSERT_NE(made.report.verdict, verdict::uncorrectable) << to_json(made.report);
    EXPECT_EQ(std::memcmp(made.F.data(), clean.F.data(), A.size() * sizeof(T)), 0) << to_json(made.report);
    ++strikes;
    detected += made.report.detected > 0 ? 1 : 0;
  }
  // Those for the copy are not seen: a third, of which these are a sample.
  EXPECT_GE(10 * detected, 5 * strikes) << "of " << strikes;
  EXPECT_LE(10 * detected, 9 * strikes) << "of " << strikes;
}

// --------------------------------------------------------------------------------------------------------- operands on the device

// Counts what goes from the device to the host.
class watched_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::int64_t to_host = 0;
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override {
    if (accessible(from) && !accessible(to)) to_host += bytes;
    forwarding_device::copy(to, from, bytes, on);
  }
};

template <class T>
class on_device {
 public:
  on_device(const std::shared_ptr<cuda::device>& device, const T* values, std::size_t count)
      : device_(device), count_(count), memory_(device, static_cast<std::int64_t>(count * sizeof(T))) {
    device_->copy(memory_.data(), values, memory_.bytes(), nullptr);
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> values() const {
    std::vector<T> seen(count_);
    device_->copy(seen.data(), memory_.data(), memory_.bytes(), nullptr);
    return seen;
  }

 private:
  std::shared_ptr<cuda::device> device_;
  std::size_t count_;
  cuda::device_buffer memory_;
};

TYPED_TEST(qr_cuda, matrices_on_the_device_stay_there) {
  using T = TypeParam;
  const auto device = std::make_shared<watched_device>(std::make_shared<simt::emulated_device>());
  const device_for_a_test here(device);
  const index m = 150, n = 70;
  const matrix<T> A = random_matrix<T>(m, n, 1);
  const factored<T> expected = factor_on(backend::cuda, A);
  for (const bool rows : {false, true}) {
    const matrix<T> given = rows ? matrix<T>(n, m, order::column_major) : A;
    std::vector<T> start(A.size());
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) start[static_cast<std::size_t>(rows ? j + i * n : i + j * m)] = A(i, j);
    }
    const on_device<T> F(device, start.data(), start.size()),
        tau(device, std::vector<T>(static_cast<std::size_t>(n)).data(), static_cast<std::size_t>(n));
    const matrix_view<T> view{F.data(), m, n, rows ? n : 1, rows ? 1 : m};
    device->to_host = 0;
    const report seen =
        geqrf(view, std::span<T>(tau.data(), static_cast<std::size_t>(n)), {.backend = backend::cuda, .scheme = "block_checksum"});
    EXPECT_EQ(seen.verdict, verdict::clean);
    EXPECT_LT(device->to_host, 8000) << "scalars and sizes of columns: the matrix has " << m * n * static_cast<index>(sizeof(T))
                                     << " bytes";
    EXPECT_EQ(tau.values(), expected.tau);
    const std::vector<T> made = F.values();
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) ASSERT_EQ(made[static_cast<std::size_t>(rows ? j + i * n : i + j * m)], expected.F(i, j));
    }
    const on_device<T> Q(device, expected.F.data(), expected.F.size());
    const report formed = orgqr(column_major(Q.data(), m, n), std::span<const T>(tau.data(), static_cast<std::size_t>(n)),
                                {.backend = backend::cuda, .scheme = "block_checksum"});
    EXPECT_EQ(formed.verdict, verdict::clean);
    matrix<T> host = expected.F;
    (void)orgqr(host.view(), expected.tau, {.backend = backend::cuda, .scheme = "block_checksum"});
    EXPECT_EQ(Q.values(), std::vector<T>(host.data(), host.data() + host.size()));
  }
}

TYPED_TEST(qr_cuda, an_uncorrectable_fault_gives_the_input_back) {
  using T = TypeParam;
  const auto device = cuda::overriding_device();
  const matrix<T> A = random_matrix<T>(60, 40, 2);
  const std::vector<T> start(A.data(), A.data() + A.size()), scalars(40, T(5));
  const on_device<T> F(device, start.data(), start.size()), tau(device, scalars.data(), scalars.size());
  const inject::plan faults({{.site = site::tau, .model = inject::model::stuck_at, .seed = 1}});
  const run::settings how{.backend = backend::cuda, .faults = &faults};
  EXPECT_THROW((void)geqrf(column_major(F.data(), index{60}, index{40}), std::span<T>(tau.data(), 40), how), uncorrectable_error);
  EXPECT_EQ(F.values(), start);
  EXPECT_EQ(tau.values(), scalars);
}

TYPED_TEST(qr_cuda, least_squares_on_the_device) {
  using T = TypeParam;
  const auto device = cuda::overriding_device();
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{90, 50}, {50, 90}}) {
    const index most = std::max(m, n), k = 3;
    const matrix<T> A = random_matrix<T>(m, n, 3), B = random_matrix<T>(most, k, 4);
    const on_device<T> F(device, A.data(), A.size()), X(device, B.data(), B.size());
    EXPECT_EQ(gels(column_major(F.data(), m, n), column_major(X.data(), most, k), {.backend = backend::cuda}).verdict, verdict::clean);
    matrix<T> G = A, expected = B;
    (void)gels(G.view(), expected.view(), {.backend = backend::cpu, .threads = 1});
    const std::vector<T> made = X.values();
    for (index c = 0; c < k; ++c) {
      for (index i = 0; i < n; ++i)
        EXPECT_NEAR(made[static_cast<std::size_t>(i + c * most)], expected(i, c),
                    3000.0 * static_cast<double>(most) * abft::unit_roundoff<T>);
    }
  }
}

// The device chooses the order of the columns of a matrix in its memory.
TYPED_TEST(qr_cuda, pivots_of_a_matrix_on_the_device) {
  using T = TypeParam;
  const auto device = cuda::overriding_device();
  constexpr index m = 60, n = 40, k = 2;
  const matrix<T> A = random_matrix<T>(m, n, 3), B = random_matrix<T>(m, k, 4);
  matrix<T> expected = A, right = B;
  std::vector<T> scalars(n);
  std::vector<index> order(n), pivots(n);
  index rank = 0, found = 0;
  const execution where{.backend = backend::cuda};
  ASSERT_EQ(geqp3(expected.view(), order, scalars, where).verdict, verdict::clean);
  const on_device<T> F(device, A.data(), A.size()), tau(device, std::vector<T>(n).data(), n), G(device, A.data(), A.size()),
      X(device, B.data(), B.size());
  EXPECT_EQ(geqp3(column_major(F.data(), m, n), pivots, std::span<T>(tau.data(), n), where).verdict, verdict::clean);
  EXPECT_EQ(pivots, order);
  EXPECT_EQ(tau.values(), scalars);
  EXPECT_EQ(F.values(), std::vector<T>(expected.data(), expected.data() + expected.size()));
  matrix<T> own = A;
  ASSERT_EQ(gelsy(own.view(), right.view(), order, 0.01, rank, where).verdict, verdict::clean);
  EXPECT_EQ(gelsy(column_major(G.data(), m, n), column_major(X.data(), m, k), pivots, 0.01, found, where).verdict, verdict::clean);
  EXPECT_EQ(found, rank);
  EXPECT_EQ(G.values(), F.values());
  EXPECT_EQ(X.values(), std::vector<T>(right.data(), right.data() + right.size()));
}

// ------------------------------------------------------------------------------------------------------------- calls and choices

TYPED_TEST(qr_cuda, several_calls_at_once) {
  using T = TypeParam;
  std::vector<matrix<T>> A;
  std::vector<factored<T>> expected, made(3);
  for (std::uint64_t t = 0; t < 3; ++t) {
    A.push_back(random_matrix<T>(60 + 7 * static_cast<index>(t), 50, t));
    expected.push_back(factor_on(backend::cuda, A.back()));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 3; ++t) threads.emplace_back([&, t] { made[t] = factor_on(backend::cuda, A[t]); });
  }
  for (std::size_t t = 0; t < 3; ++t) expect_the_same(made[t], expected[t]);
}

TYPED_TEST(qr_cuda, nothing_is_left_on_the_device) {
  using T = TypeParam;
  const auto device = std::make_shared<simt::emulated_device>();
  const device_for_a_test here(device);
  const matrix<T> A = random_matrix<T>(60, 40, 2);
  (void)factor_on(backend::cuda, A);
  EXPECT_EQ(device->allocated(), 0);
  EXPECT_EQ(device->streams(), 7)
      << "main, beside, aside, three for what panels leave for the host and one for what encode() does are kept for the next call";
  const std::int64_t launches = device->launches();
  (void)factor_on(backend::cuda, A);
  EXPECT_EQ(device->streams(), 7);
  EXPECT_EQ(device->launches(), 2 * launches);
  cuda::forget_idle_states();
  EXPECT_EQ(device->streams(), 0);
  EXPECT_EQ(device->pinned(), 0);
}

TYPED_TEST(qr_cuda, an_automatic_choice) {
  using T = TypeParam;
  const auto device = cuda::overriding_device();
  const matrix<T> A = random_matrix<T>(60, 40, 2);
  factored<T> host{A, std::vector<T>(40), {}};
  EXPECT_EQ(geqrf(host.F.view(), host.tau).backend, backend::cpu) << "done before it has been copied";
  const on_device<T> F(device, A.data(), A.size()), tau(device, host.tau.data(), host.tau.size());
  const auto view = column_major(F.data(), index{60}, index{40});
  const std::span<T> scalars(tau.data(), 40);
  EXPECT_EQ(geqrf(view, scalars).backend, backend::cuda);
  for (const char* scheme : {"qr_update", "block_checksum", "hybrid"})
    EXPECT_EQ(geqrf(view, scalars, {.scheme = scheme}).backend, backend::cuda);
}

// --------------------------------------------------------------------------------------------------------- orders of completion

TYPED_TEST(qr_cuda, any_order_that_the_streams_allow_gives_the_same) {
  using T = TypeParam;
  using test::late_device;
  using manner = late_device::manner;
  // One block in the other's lookahead, several blocks, blocks that never become panels; columns that are scaled; and faults, whose repair
  // runs while others are updated beside it.
  const matrix<T> square = random_matrix<T>(150, 140, 5), wide = random_matrix<T>(50, 120, 6);
  matrix<T> scaled = random_matrix<T>(90, 80, 7);
  for (index i = 0; i < 90; ++i) scaled(i, 3) *= static_cast<T>(sizeof(T) == 4 ? 0x1p-60 : 0x1p-400);
  std::vector<std::pair<const matrix<T>*, std::optional<inject::request>>> cases = {
      {&square, std::nullopt}, {&wide, std::nullopt}, {&scaled, std::nullopt}};
  std::vector<inject::site> sites = {site::trailing, site::reflector, site::r, site::product, site::panel, site::t, site::checksum};
  if (test::sampled()) sites.resize(sizeof(T) == 4 ? 3 : 1);
  for (const inject::site where : sites) {
    inject::request fault;
    fault.site = where;
    fault.model = inject::model::random_value;
    fault.seed = 3;
    cases.emplace_back(where == site::product ? &wide : &square, fault);
  }
  for (const char* scheme : {"block_checksum", "hybrid"}) {
    for (const auto& [A, fault] : cases) {
      const auto run = [&, A = A, fault = fault] {
        const inject::plan faults(fault ? std::vector<inject::request>{*fault} : std::vector<inject::request>{});
        return factor_on(backend::cuda, *A, fault ? &faults : nullptr, scheme);
      };
      const factored<T> expected = run();
      std::vector<std::pair<manner, std::uint64_t>> orders = {
          {manner::one_last, 0}, {manner::one_last, 1}, {manner::one_last, 2}, {manner::awaited_first, 1}, {manner::any, 1}};
      if (test::sampled()) orders.resize(sizeof(T) == 4 ? 2 : 1);
      for (const auto& [how, seed] : orders) {
        const device_for_a_test here(std::make_shared<late_device>(std::make_shared<simt::emulated_device>(), how, seed));
        const factored<T> made = run();
        SCOPED_TRACE(std::string(scheme) + " " + std::to_string(A->rows()) + " × " + std::to_string(A->columns()) +
                     (fault ? " " + std::string(inject::row_of(fault->site).name) : "") + ", manner " +
                     std::to_string(static_cast<int>(how)));
        expect_the_same(made, expected);
        if (!fault) {
          matrix<T> C = random_matrix<T>(A->rows(), 70, 8), D = C;
          const auto V = made.F.view().block(0, 0, A->rows(), static_cast<index>(made.tau.size()));
          (void)ormqr(side::left, transpose::yes, V, made.tau, C.view(), {.backend = backend::cuda, .scheme = "block_checksum"});
          const device_for_a_test plain(std::make_shared<simt::emulated_device>());
          (void)ormqr(side::left, transpose::yes, V, made.tau, D.view(), {.backend = backend::cuda, .scheme = "block_checksum"});
          EXPECT_EQ(std::memcmp(C.data(), D.data(), C.size() * sizeof(T)), 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::qr
