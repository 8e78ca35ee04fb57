// Plans of QR: the same bits as the one-line calls, from several threads, in the caller's memory; workspaces; what a plan refuses.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"
#if defined(BALLAST_TEST_QR_ON_CUDA)
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/qr_on_device.hpp"
#endif

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_plan : public subjects::qr<Setting> {
 protected:
  using T = typename Setting::real;
  static constexpr backend which = Setting::which;

  static execution where(protection level = protection::correct) { return {.backend = which, .threads = 2, .protection = level}; }
  static plan<T> make(index rows, index columns, index batch = 1) {
    return plan<T>({.rows = rows, .columns = columns, .batch = batch}, where());
  }
  static std::vector<std::pair<index, index>> sizes() {
    if (which == backend::cuda && test::sampled()) return {{40, 24}, {24, 40}};
    return {{40, 24}, {24, 40}, {90, 70}, {1, 1}};
  }
};
TYPED_SUITE(qr_plan, settings, test::setting_names);

template <class T>
bool same(const dense<T>& a, const dense<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// The results of all operations of one plan on one matrix.
template <class T>
struct results {
  dense<T> F, Q, C, G, X;
  std::vector<T> tau;
  friend bool operator==(const results& a, const results& b) {
    return same(a.F, b.F) && same(a.Q, b.Q) && same(a.C, b.C) && same(a.G, b.G) && same(a.X, b.X) && a.tau == b.tau;
  }
};

// `geqrf` … are the functions of a plan, or the one-line ones.
template <class T, class Operations>
results<T> all_of(const dense<T>& A, const dense<T>& right, Operations&& call) {
  const index m = A.rows(), n = A.columns(), k = std::min(m, n);
  results<T> made{
      A, {}, right, A, dense<T>(std::max(m, n), right.columns(), order::column_major), std::vector<T>(static_cast<std::size_t>(k))};
  EXPECT_EQ(call.geqrf(made.F.view(), made.tau).verdict, verdict::clean);
  made.Q = copy_of<T>(std::as_const(made.F).view().block(0, 0, m, k));
  EXPECT_EQ(call.orgqr(made.Q.view(), made.tau).verdict, verdict::clean);
  EXPECT_EQ(call.ormqr(std::as_const(made.F).view(), made.tau, made.C.view()).verdict, verdict::clean);
  for (index j = 0; j < right.columns(); ++j) {
    for (index i = 0; i < m; ++i) made.X(i, j) = right(i, j);
  }
  EXPECT_EQ(call.gels(made.G.view(), made.X.view()).verdict, verdict::clean);
  return made;
}

template <class T>
struct by_plan {
  const plan<T>& of;
  report geqrf(matrix_view<T> A, std::span<T> tau) const { return of.geqrf(A, tau); }
  report orgqr(matrix_view<T> A, std::span<const T> tau) const { return of.orgqr(A, tau); }
  report ormqr(matrix_view<const T> A, std::span<const T> tau, matrix_view<T> C) const {
    return of.ormqr(side::left, transpose::yes, A, tau, C);
  }
  report gels(matrix_view<T> A, matrix_view<T> B) const { return of.gels(A, B); }
};

template <class T>
struct in_one_call {
  execution where;
  report geqrf(matrix_view<T> A, std::span<T> tau) const { return ballast::qr::geqrf(A, tau, where); }
  report orgqr(matrix_view<T> A, std::span<const T> tau) const { return ballast::qr::orgqr(A, tau, where); }
  report ormqr(matrix_view<const T> A, std::span<const T> tau, matrix_view<T> C) const {
    return ballast::qr::ormqr(side::left, transpose::yes, A, tau, C, where);
  }
  report gels(matrix_view<T> A, matrix_view<T> B) const { return ballast::qr::gels(A, B, where); }
};

TYPED_TEST(qr_plan, gives_the_bits_of_the_one_line_calls_each_time) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->sizes()) {
    SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
    const dense<T> A = random_matrix<T>(m, n, 1), right = random_matrix<T>(m, 3, 2);
    const results<T> expected = all_of<T>(A, right, in_one_call<T>{this->where()});
    const plan<T> made = this->make(m, n);
    for (int round = 0; round < 2; ++round) EXPECT_TRUE(all_of<T>(A, right, by_plan<T>{made}) == expected) << round;
  }
}

TYPED_TEST(qr_plan, serves_several_threads_at_once) {
  using T = typename TestFixture::T;
  const auto [m, n] = std::pair<index, index>(40, 24);
  const dense<T> A = random_matrix<T>(m, n, 1), right = random_matrix<T>(m, 3, 2);
  const plan<T> made = this->make(m, n);
  const results<T> expected = all_of<T>(A, right, by_plan<T>{made});
  std::vector<results<T>> found(4);
  std::vector<std::thread> threads;
  for (results<T>& each : found) threads.emplace_back([&] { each = all_of<T>(A, right, by_plan<T>{made}); });
  for (std::thread& each : threads) each.join();
  for (const results<T>& each : found) EXPECT_TRUE(each == expected);
}

TYPED_TEST(qr_plan, of_a_batch_gives_the_bits_of_the_one_line_calls_also_from_several_threads) {
  using T = typename TestFixture::T;
  constexpr index m = 12, n = 7, count = 5;
  const dense<T> A = random_matrix<T>(m, n * count, 3), B = random_matrix<T>(m, 2 * count, 4);
  const auto matrices = [](dense<T>& all, index columns) { return batch_of(column_major(all.data(), m, columns), count); };
  const auto constant = [](const dense<T>& all, index columns) { return batch_of(column_major(all.data(), m, columns), count); };
  struct batch_results {
    dense<T> F, Q, C, G, X;
    std::vector<T> tau = std::vector<T>(static_cast<std::size_t>(n * count));
    bool operator==(const batch_results& b) const {
      return same(F, b.F) && same(Q, b.Q) && same(C, b.C) && same(G, b.G) && same(X, b.X) && tau == b.tau;
    }
  };
  const auto expected = [&] {
    batch_results made{A, A, B, A, B};
    const execution where = this->where();
    EXPECT_EQ(geqrf(matrices(made.F, n), made.tau, where).verdict, verdict::clean);
    made.Q = made.F;
    EXPECT_EQ(orgqr(matrices(made.Q, n), std::as_const(made.tau), where).verdict, verdict::clean);
    EXPECT_EQ(ormqr(side::left, transpose::yes, constant(made.F, n), std::as_const(made.tau), matrices(made.C, 2), where).verdict,
              verdict::clean);
    EXPECT_EQ(gels(matrices(made.G, n), matrices(made.X, 2), where).verdict, verdict::clean);
    return made;
  }();
  const plan<T> made = this->make(m, n, count);
  const auto once = [&] {
    batch_results own{A, A, B, A, B};
    EXPECT_EQ(made.geqrf(matrices(own.F, n), own.tau).problem, to_token(made.problem()));
    own.Q = own.F;
    EXPECT_EQ(made.orgqr(matrices(own.Q, n), std::as_const(own.tau)).verdict, verdict::clean);
    EXPECT_EQ(made.ormqr(side::left, transpose::yes, constant(own.F, n), std::as_const(own.tau), matrices(own.C, 2)).verdict,
              verdict::clean);
    EXPECT_EQ(made.gels(matrices(own.G, n), matrices(own.X, 2)).verdict, verdict::clean);
    return own;
  };
  for (int round = 0; round < 2; ++round) EXPECT_TRUE(once() == expected) << round;
  std::vector<std::optional<batch_results>> found(4);
  std::vector<std::thread> threads;
  for (auto& each : found) threads.emplace_back([&] { each = once(); });
  for (std::thread& each : threads) each.join();
  for (const auto& each : found) EXPECT_TRUE(*each == expected);
}

TYPED_TEST(qr_plan, writes_results_into_strided_memory_and_nothing_else) {
  using T = typename TestFixture::T;
  constexpr index m = 30, n = 20;
  const dense<T> A = random_matrix<T>(m, n, 1);
  const plan<T> made = this->make(m, n);
  std::vector<T> tau(n), other(n);
  dense<T> expected = A;
  EXPECT_EQ(made.geqrf(expected.view(), tau).verdict, verdict::clean);
  // Rows of 3 n + 1 elements, of which every third belongs to A; columns with a gap.
  for (const auto& [row, column] : {std::pair<index, index>(3 * n + 1, 3), std::pair<index, index>(1, m + 5)}) {
    std::vector<T> memory(static_cast<std::size_t>(m * row + n * column), T(-7));
    const matrix_view<T> view{memory.data(), m, n, row, column};
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) view(i, j) = A(i, j);
    }
    EXPECT_EQ(made.geqrf(view, other).verdict, verdict::clean);
    EXPECT_EQ(other, tau);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        EXPECT_EQ(view(i, j), expected(i, j));
        view(i, j) = T(-7);
      }
    }
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](T each) { return each == T(-7); }));
  }
}

// A call brings its own listeners; the plan does not keep them.
TYPED_TEST(qr_plan, tells_events_and_progress_to_the_call) {
  using T = typename TestFixture::T;
  constexpr index m = 60, n = 50;
  const plan<T> made = this->make(m, n);
  dense<T> A = random_matrix<T>(m, n, 1);
  std::vector<T> tau(n);
  int events = 0, steps = 0;
  call now;
  now.on_event = [&](const event& each) { events += each.site.empty() ? 0 : 1; };
  now.on_progress = [&](const progress& each) { steps += each.done > 0 ? 1 : 0; };
  const inject::plan faults({fault(site::trailing, inject::model::random_value, 1)});
  {
    const inject::scope scope(&faults);
    const report seen = made.geqrf(A.view(), tau, now);
    EXPECT_GT(seen.detected, 0u);
    EXPECT_EQ(static_cast<std::size_t>(events), seen.events.size());
  }
  EXPECT_GT(steps, 0);
  const int before = steps;
  EXPECT_EQ(made.geqrf(A.view(), tau).detected, 0u);
  EXPECT_EQ(steps, before);
}

// execution::sampled: each operation counts its calls; those without protection have the bits of a plan without.
TYPED_TEST(qr_plan, samples_its_calls) {
  using T = typename TestFixture::T;
  constexpr index m = 40, n = 24;
  const dense<T> A = random_matrix<T>(m, n, 1), right = random_matrix<T>(m, 3, 2);
  // On cuda matrices of this size are one launch, unless a scheme is named.
  for (const char* scheme : {"", "block_checksum"}) {
    SCOPED_TRACE(scheme);
    const auto where = [&](protection level, int sampled) {
      execution made = this->where(level);
      made.scheme = scheme;
      made.sampled = sampled;
      return made;
    };
    const auto plan_with = [&](protection level, int sampled) { return plan<T>({.rows = m, .columns = n}, where(level, sampled)); };
    const plan<T> off = plan_with(protection::off, 1), full = plan_with(protection::correct, 1), made = plan_with(protection::correct, 3);
    const results<T> bare = all_of<T>(A, right, by_plan<T>{off}), whole = all_of<T>(A, right, by_plan<T>{full});
    std::vector<int> guarded;
    for (int call = 0; call < 6; ++call) {
      dense<T> F = A, X(m, 3, order::column_major), G = A;
      std::vector<T> tau(n);
      const report seen = made.geqrf(F.view(), tau);
      EXPECT_EQ(seen.sampled, 3);
      const bool is = seen.protection != protection::off;
      EXPECT_EQ(seen.checks > 0, is);
      if (is) guarded.push_back(call);
      const results<T>& wanted = is ? whole : bare;
      EXPECT_TRUE(same(F, wanted.F) && tau == wanted.tau);
      for (index j = 0; j < 3; ++j)
        for (index i = 0; i < m; ++i) X(i, j) = right(i, j);
      const report solved = made.gels(G.view(), X.view());
      EXPECT_EQ(solved.protection != protection::off, is);
      EXPECT_TRUE(same(G, wanted.G) && same(X, wanted.X));
    }
    ASSERT_EQ(guarded.size(), 2U);
    EXPECT_EQ(guarded[1] - guarded[0], 3);
    inject::request stays = fault(site::panel, inject::model::stuck_at, 3);
    stays.bit = 61;
    const inject::plan faults({stays});
    const inject::scope scope(&faults);
    int found = 0, wrong = 0;
    for (int call = 0; call < 3; ++call) {
      dense<T> F = A;
      std::vector<T> tau(n);
      const report seen = made.geqrf(F.view(), tau, {.throw_on_uncorrectable = false});
      found += seen.detected > 0;
      wrong += seen.protection == protection::off && !same(F, bare.F);
    }
    EXPECT_EQ(found, 1);
    EXPECT_EQ(wrong, 2);
  }
}

TYPED_TEST(qr_plan, returns_an_uncorrectable_report_or_throws_it) {
  using T = typename TestFixture::T;
  constexpr index m = 40, n = 30;
  const plan<T> made = this->make(m, n);
  const dense<T> A = random_matrix<T>(m, n, 1);
  inject::request wanted = fault(site::panel, inject::model::stuck_at, 3);
  wanted.bit = 61;
  const inject::plan faults({wanted});
  const inject::scope scope(&faults);
  dense<T> F = A;
  std::vector<T> tau(n, T(5));
  const report seen = made.geqrf(F.view(), tau, {.throw_on_uncorrectable = false});
  if (seen.verdict != verdict::uncorrectable) GTEST_SKIP() << "this bit was stuck at its own value";
  EXPECT_TRUE(same(F, A)) << "a result was committed";
  EXPECT_EQ(tau[0], T(5));
  try {
    (void)made.geqrf(F.view(), tau);
    FAIL();
  } catch (const uncorrectable_error& e) {
    EXPECT_EQ(e.report().verdict, verdict::uncorrectable);
  }
}

TYPED_TEST(qr_plan, refuses_what_does_not_fit_and_says_why) {
  using T = typename TestFixture::T;
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const invalid_argument_error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
    return true;
  };
  has(message([&] { this->make(0, 4); }), "expected at least 1 row, column and matrix, got 0 × 4");
  has(message([&] { this->make(4, -1); }), "qr_");
  has(message([&] { this->make(4, 4, 0); }), "batch of 0");
  execution wrong = this->where();
  wrong.threads = -1;
  EXPECT_THROW(plan<T>({.rows = 4, .columns = 4}, wrong), invalid_argument_error);
  wrong = this->where();
  wrong.sampled = 0;
  has(message([&] { plan<T>({.rows = 4, .columns = 4}, wrong); }), "sampled: expected 1 or more, got 0");
  wrong = this->where(protection::final_only);
  EXPECT_THROW(plan<T>({.rows = 4, .columns = 4}, wrong), unsupported_error);
  wrong = this->where();
  wrong.scheme = "magic";
  EXPECT_THROW(plan<T>({.rows = 4, .columns = 4}, wrong), unsupported_error);
  wrong.scheme = "qr_update";
  EXPECT_THROW(plan<T>({.rows = 4, .columns = 4, .batch = 2}, wrong), unsupported_error);

  const plan<T> one = this->make(6, 4), batch = this->make(6, 4, 3);
  EXPECT_EQ(one.problem().rows, 6);
  EXPECT_EQ(one.problem().precision, precision_of<T>);
  EXPECT_EQ(one.backend(), this->which);
  dense<T> A = random_matrix<T>(6, 4, 1), B = random_matrix<T>(6, 1, 2), small = random_matrix<T>(5, 4, 1),
           all = random_matrix<T>(6, 12, 1);
  std::vector<T> tau(4), many(12);
  has(message([&] { (void)one.geqrf(small.view(), tau); }), "the plan's 6 × 4, got 5 × 4");
  has(message([&] { (void)one.gels(A.view().block(0, 0, 6, 3), B.view()); }), "got 6 × 3");
  has(message([&] { (void)one.orgqr(all.view(), tau); }), "or its first columns, got 6 × 12");
  has(message([&] { (void)batch.geqrf(A.view(), tau); }), "expected 3 matrices, got 1");
  has(message([&] { (void)batch.geqrf(batch_of(column_major(all.data(), index{6}, index{4}), 2), std::span<T>(many).first(8)); }),
      "expected 3 matrices, got 2");
  has(message([&] { (void)one.geqrf(A.view(), many); }), "expected 4 elements, got 12");
  const auto three = batch_of(column_major(all.data(), index{6}, index{4}), 3);
  if (this->which == backend::cuda) {
    EXPECT_THROW((void)batch.enqueue_geqrf(three, many), invalid_argument_error) << "host memory";
  } else {
    EXPECT_THROW((void)batch.enqueue_geqrf(three, many), unsupported_error);
  }
  plan<T> moved = one;
  const plan<T> other = std::move(moved);
  EXPECT_EQ(other.geqrf(A.view(), tau).verdict, verdict::clean);
  EXPECT_THROW((void)moved.geqrf(A.view(), tau), invalid_argument_error);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW((void)moved.enqueue_geqrf(three, many), invalid_argument_error);
  EXPECT_THROW((void)moved.workspace_bytes(operation::geqrf), invalid_argument_error);
}

// The first columns of A are enough where only reflectors are read.
TYPED_TEST(qr_plan, forms_some_columns_of_q) {
  using T = typename TestFixture::T;
  const plan<T> made = this->make(20, 12);
  dense<T> F = random_matrix<T>(20, 12, 1);
  std::vector<T> tau(12);
  EXPECT_EQ(made.geqrf(F.view(), tau).verdict, verdict::clean);
  dense<T> whole = F, some = copy_of<T>(std::as_const(F).view().block(0, 0, 20, 5));
  EXPECT_EQ(made.orgqr(whole.view(), tau).verdict, verdict::clean);
  EXPECT_EQ(made.orgqr(some.view(), std::span<const T>(tau).first(5)).verdict, verdict::clean);
  for (index j = 0; j < 5; ++j) {
    for (index i = 0; i < 20; ++i) EXPECT_NEAR(some(i, j), whole(i, j), 100 * abft::unit_roundoff<T>);
  }
}

TYPED_TEST(qr_plan, reports_a_matrix_without_full_rank_as_such) {
  using T = typename TestFixture::T;
  dense<T> A = random_matrix<T>(6, 4, 1), B = random_matrix<T>(6, 1, 2);
  for (index i = 0; i < 6; ++i) A(i, 2) = 0;
  const plan<T> made = this->make(6, 4);
  const dense<T> before = A;
  EXPECT_THROW((void)made.gels(A.view(), B.view()), rank_deficient_error);
  EXPECT_TRUE(same(A, before));
  // The others of a batch of larger matrices are solved, on cuda by other kernels than a single one.
  constexpr index m = 270, n = 3, count = 3;
  dense<T> all = random_matrix<T>(m, n * count, 3), right = random_matrix<T>(m, count, 4);
  for (index i = 0; i < m; ++i) all(i, n + 1) = 0;
  const dense<T> original = all;
  dense<T> last = copy_of<T>(std::as_const(all).view().block(0, 2 * n, m, n)),
           solution = copy_of<T>(std::as_const(right).view().block(0, 2, m, 1));
  EXPECT_EQ(gels(last.view(), solution.view(), this->where()).verdict, verdict::clean);
  try {
    (void)this->make(m, n, count)
        .gels(batch_of(column_major(all.data(), m, n), count), batch_of(column_major(right.data(), m, index{1}), count));
    FAIL();
  } catch (const rank_deficient_error& e) {
    EXPECT_NE(std::string(e.what()).find("column 1 of matrix 1"), std::string::npos) << e.what();
  }
  for (index i = 0; i < n; ++i) EXPECT_NEAR(right(i, 2), solution(i, 0), 100 * abft::unit_roundoff<T>);
}

#if defined(BALLAST_TEST_QR_ON_CUDA)

// Operands and results in device memory; a batch without waiting, in the caller's workspace, then in the plan's.
TYPED_TEST(qr_plan, works_on_device_memory) {
  using T = typename TestFixture::T;
  const auto device = ballast::cuda::current_device();
  constexpr index m = 20, n = 12, count = 5, size = static_cast<index>(sizeof(T));
  const dense<T> A = random_matrix<T>(m, n * count, 7);
  const ballast::cuda::device_buffer there(device, m * n * count * size), scalars(device, n * count * size);
  T* const a = static_cast<T*>(there.data());
  const std::span<T> tau(static_cast<T*>(scalars.data()), static_cast<std::size_t>(n * count));
  {
    const plan<T> one = this->make(m, n);
    dense<T> expected = copy_of<T>(A.view().block(0, 0, m, n));
    std::vector<T> expected_tau(n);
    EXPECT_EQ(one.geqrf(expected.view(), expected_tau).verdict, verdict::clean);
    device->copy(a, A.data(), there.bytes(), nullptr);
    EXPECT_EQ(one.geqrf(column_major(a, m, n), tau.first(n)).verdict, verdict::clean);
    EXPECT_EQ(std::memcmp(a, expected.data(), expected.size() * sizeof(T)), 0);
    EXPECT_EQ(std::memcmp(tau.data(), expected_tau.data(), n * sizeof(T)), 0);
  }
  const plan<T> made = this->make(m, n, count);
  dense<T> expected = A;
  std::vector<T> expected_tau(n * count);
  EXPECT_EQ(made.geqrf(batch_of(column_major(expected.data(), m, n), count), expected_tau).verdict, verdict::clean);
  const matrix_batch_view<T> view = batch_of(column_major(a, m, n), count);
  const std::int64_t bytes = made.workspace_bytes(operation::geqrf);
  ASSERT_GT(bytes, 0);
  const ballast::cuda::device_buffer memory(device, bytes);
  const std::span<std::byte> room(static_cast<std::byte*>(memory.data()), static_cast<std::size_t>(bytes));
  for (const std::span<std::byte> workspace : {room, std::span<std::byte>{}, std::span<std::byte>{}}) {
    device->copy(a, A.data(), there.bytes(), nullptr);
    pending_report pending = made.enqueue_geqrf(view, tau, {.workspace = workspace});
    EXPECT_EQ(pending.get().verdict, verdict::clean);
    EXPECT_EQ(std::memcmp(a, expected.data(), expected.size() * sizeof(T)), 0);
  }
  EXPECT_THROW((void)made.enqueue_geqrf(view, tau, {.workspace = room.first(room.size() - 1)}), invalid_argument_error);
  EXPECT_THROW((void)made.enqueue_geqrf(view, tau, {.workspace = room.subspan(16)}), invalid_argument_error);
}

// The next call takes the workspace of a report that was never read. It must not find that call's events.
TYPED_TEST(qr_plan, does_not_report_the_events_of_a_dropped_report) {
  using T = typename TestFixture::T;
  const auto device = ballast::cuda::current_device();
  constexpr index m = 20, n = 12, count = 5, size = static_cast<index>(sizeof(T));
  const dense<T> A = random_matrix<T>(m, n * count, 7);
  const ballast::cuda::device_buffer there(device, m * n * count * size), scalars(device, n * count * size);
  device->copy(there.data(), A.data(), there.bytes(), nullptr);
  const matrix_batch_view<T> view = batch_of(column_major(static_cast<T*>(there.data()), m, n), count);
  const std::span<T> tau(static_cast<T*>(scalars.data()), static_cast<std::size_t>(n * count));
  const plan<T> made = this->make(m, n, count);
  // Most faults strike the zeros around a matrix.
  int detected = 0;
  for (std::uint64_t seed = 0; detected < 2 && seed < 80; ++seed) {
    const inject::plan faults({fault(site::panel, inject::model::random_value, seed)});
    {
      const inject::scope scope(&faults);
      detected += made.enqueue_geqrf(view, tau).get().detected > 0 ? 1 : 0;
      (void)made.enqueue_geqrf(view, tau);
    }
    EXPECT_EQ(made.enqueue_geqrf(view, tau).get().detected, 0u);
  }
  EXPECT_GT(detected, 0);
}

// More calls at once than a device keeps lanes for: the streams of the surplus ones are released, after the memory that is ordered on them.
// The emulator aborts if it is the other way round, and the driver crashes.
TEST(qr_lanes, of_eight_threads_are_released_after_their_memory) {
  const auto device = std::make_shared<simt::emulated_device>();
  const device_for_a_test here(device);
  {
    const plan<double> made({.rows = 30, .columns = 20}, {.backend = backend::cuda});
    // All calls are inside the library before the first ends.
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        dense<double> A = random_matrix<double>(30, 20, static_cast<std::uint64_t>(t));
        std::vector<double> tau(20);
        for (int round = 0; round < 4; ++round) EXPECT_NE(made.geqrf(A.view(), tau).verdict, verdict::uncorrectable);
      });
    for (std::thread& each : threads) each.join();
  }
  ballast::cuda::forget_idle_states();
  EXPECT_EQ(device->streams(), 0);
  EXPECT_EQ(device->allocated(), 0);
}

// A call that waits would end the capture of its stream with an error of the driver: it is refused before anything is enqueued.
TEST(qr_capture, is_refused_by_calls_that_wait) {
  const auto device = std::make_shared<simt::emulated_device>();
  const device_for_a_test here(device);
  const ballast::cuda::stream stream = device->make_stream(false);
  device->capture(stream);
  const call now{.stream = stream};
  const plan<double> made({.rows = 30, .columns = 20}, {.backend = backend::cuda});
  dense<double> A = random_matrix<double>(30, 20, 1), B = random_matrix<double>(30, 20, 2);
  std::vector<double> tau(20);
  const dense<double> before = A;
  const auto refused = [&](auto&& work) {
    try {
      work();
    } catch (const unsupported_error& e) {
      return std::string(e.what()).find("expected a stream that is not being captured") != std::string::npos;
    }
    return false;
  };
  const matrix_batch_view<double> one = batch_of(A.view(), 1);
  EXPECT_TRUE(refused([&] { (void)made.geqrf(A.view(), tau, now); }));
  EXPECT_TRUE(refused([&] { (void)made.geqrf(one, tau, now); }));
  EXPECT_TRUE(refused([&] { (void)made.orgqr(A.view(), tau, now); }));
  EXPECT_TRUE(refused([&] { (void)made.ormqr(side::left, transpose::no, std::as_const(A).view(), tau, B.view(), now); }));
  EXPECT_TRUE(refused([&] { (void)made.gels(A.view(), B.view(), now); }));
  EXPECT_TRUE(same(A, before));
  EXPECT_EQ(device->launches(), 0);
  device->capture(nullptr);
  EXPECT_EQ(made.geqrf(A.view(), tau, now).verdict, verdict::clean);
  device->release_stream(stream);
}

// Larger matrices need BLAS. Small ones do not, alone or in a batch.
TEST(qr_without_blas, runs_on_the_host_unless_cuda_is_named) {
  const auto device = std::make_shared<simt::emulated_device>();
  device->lacks_blas("no cuBLAS here");
  const device_for_a_test here(device);
  EXPECT_EQ(plan<double>({.rows = 3000, .columns = 3000}).backend(), backend::cpu);
  EXPECT_EQ(plan<double>({.rows = 30, .columns = 30, .batch = 1000}).backend(), backend::cuda);
  const plan<double> named({.rows = 30, .columns = 20}, {.backend = backend::cuda});
  EXPECT_EQ(named.backend(), backend::cuda);
  dense<double> A = random_matrix<double>(30, 20, 1), larger = random_matrix<double>(300, 20, 1);
  std::vector<double> tau(20);
  EXPECT_EQ(named.geqrf(A.view(), tau).verdict, verdict::clean);
  try {
    (void)plan<double>({.rows = 300, .columns = 20}, {.backend = backend::cuda}).geqrf(larger.view(), tau);
    FAIL();
  } catch (const unsupported_error& e) {
    EXPECT_NE(std::string(e.what()).find("no cuBLAS here"), std::string::npos) << e.what();
  }
}

// Without a named backend, small operands of the host are computed there, and operands of the device on the device.
TEST(qr_automatic, computes_where_the_operands_are) {
  const auto device = ballast::cuda::current_device();
  const plan<double> made({.rows = 8, .columns = 6});
  EXPECT_EQ(made.backend(), backend::cuda);
  dense<double> A = random_matrix<double>(8, 6, 1);
  std::vector<double> tau(6);
  EXPECT_EQ(made.geqrf(A.view(), tau).backend, backend::cpu);
  const ballast::cuda::device_buffer there(device, 48 * 8), scalars(device, 6 * 8);
  device->copy(there.data(), A.data(), there.bytes(), nullptr);
  const report seen = made.geqrf(column_major(static_cast<double*>(there.data()), 8, 6), {static_cast<double*>(scalars.data()), 6});
  EXPECT_EQ(seen.backend, backend::cuda);
}

#else

TYPED_TEST(qr_plan, of_the_host_takes_no_workspace) {
  const auto made = this->make(20, 12, 5);
  for (const operation what : {operation::geqrf, operation::ormqr, operation::orgqr, operation::gels})
    EXPECT_EQ(made.workspace_bytes(what), 0);
}

#endif

}  // namespace
}  // namespace ballast::qr
