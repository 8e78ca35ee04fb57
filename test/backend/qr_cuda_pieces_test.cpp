// Matrices that do not fit into the device's memory, on the emulator with little memory: its allocator refuses what is more.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "core/at.hpp"
#include "qr/cuda/kernels.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_on_device.hpp"
#include "support/reals.hpp"

namespace ballast::qr {
namespace {

using core::at;
using namespace subjects;

// So much memory that a piece of a matrix with m rows has 64 columns.
template <class T>
ballast::cuda::capabilities little_memory(index m) {
  ballast::cuda::capabilities about = simt::emulated_capabilities();
  about.memory = (m * (16 << 10) + 4 * m * static_cast<index>(sizeof(T)) * 80) / 9 * 10;
  return about;
}

template <class T>
class qr_cuda_pieces : public testing::Test {};
TYPED_TEST_SUITE(qr_cuda_pieces, test::reals, test::real_names);

TYPED_TEST(qr_cuda_pieces, factors_and_q_are_as_good_as_of_a_whole_matrix) {
  using T = TypeParam;
  struct shape {
    index m, n;
  };
  for (const auto& [m, n] : {shape{150, 140}, {70, 150}}) {
    SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
    const device_for_a_test here(std::make_shared<simt::emulated_device>(little_memory<T>(m)));
    for (const order layout : {order::column_major, order::row_major}) {
      const matrix<T> A = copy_of<T>(random_matrix<T>(m, n, 1).view(), layout);
      for (const protection level : {protection::correct, protection::off}) {
        matrix<T> F = A;
        std::vector<T> tau(at(std::min(m, n)));
        std::int64_t last = 0;
        const execution how{.backend = backend::cuda, .threads = 1, .protection = level, .on_progress = [&](const progress& seen) {
                              EXPECT_GT(seen.done, last);
                              last = seen.done;
                            }};
        ASSERT_EQ(geqrf(F.view(), tau, how).verdict, verdict::clean);
        EXPECT_GE(last, 3);
        const ratios seen = ratios_of<T>(A.view(), F.view(), tau);
        EXPECT_LE(seen.residual, 10);
        EXPECT_LE(seen.orthogonality, 10);
        if (test::sampled() && (layout == order::row_major) == (level == protection::correct)) continue;
        // Q, and Q applied from both sides, beside the reference backend.
        const execution plain{.backend = backend::cuda, .threads = 1, .protection = level}, reference{.backend = backend::reference};
        const index k = std::min(m, n);
        matrix<T> Q = copy_of<T>(F.view().block(0, 0, m, k)), expected = Q;
        ASSERT_EQ(orgqr(Q.view(), tau, plain).verdict, verdict::clean);
        ASSERT_EQ(orgqr(expected.view(), tau, reference).verdict, verdict::clean);
        const double tolerance = 100 * static_cast<double>(m) * abft::unit_roundoff<T>;
        EXPECT_LE(largest_change(Q, expected), tolerance);
        for (const side where : {side::left, side::right}) {
          for (const transpose op : {transpose::no, transpose::yes}) {
            if (test::sampled() && (where == side::left) != (op == transpose::yes)) continue;
            const matrix<T> X = where == side::left ? random_matrix<T>(m, 100, 2) : random_matrix<T>(100, m, 2);
            matrix<T> C = X, D = X;
            ASSERT_EQ(ormqr(where, op, F.view().block(0, 0, m, k), tau, C.view(), plain).verdict, verdict::clean);
            ASSERT_EQ(ormqr(where, op, F.view().block(0, 0, m, k), tau, D.view(), reference).verdict, verdict::clean);
            EXPECT_LE(largest_change(C, D), 10 * tolerance);
          }
        }
      }
    }
    const matrix<T> A = random_matrix<T>(m, n, 3);
    const factors<T> made = factor(A.view(), {.backend = backend::cuda, .threads = 1});
    EXPECT_EQ(made.report.verdict, verdict::clean);
    EXPECT_LE(ratios_of<T>(A.view(), made.storage.view(), made.tau).residual, 10);
    EXPECT_EQ(made.q({.backend = backend::cuda, .threads = 1}).columns(), std::min(m, n));
  }
}

// Every copy of a run but the caller's numbers on their way in: what arrives wrong, be it a factored piece that is loaded again, is copied
// once more. Without protection it reaches the result.
TYPED_TEST(qr_cuda_pieces, what_arrives_wrong_is_copied_again) {
  using T = TypeParam;
  const index m = 150, n = 140;
  const auto device = std::make_shared<struck_device>(std::make_shared<simt::emulated_device>(little_memory<T>(m)));
  const device_for_a_test here(device);
  const matrix<T> A = random_matrix<T>(m, n, 1);
  const auto factor_it = [&](protection level, matrix<T>& F) {
    F = A;
    std::vector<T> tau(at(n));
    return geqrf(F.view(), tau, {.backend = backend::cuda, .threads = 1, .protection = level, .throw_on_uncorrectable = false});
  };
  matrix<T> expected, F;
  ASSERT_EQ(factor_it(protection::correct, expected).verdict, verdict::clean);
  int repaired = 0, reached = 0;
  for (std::int64_t which = 0;; ++which) {
    if (!test::taken(static_cast<std::uint64_t>(which), 2)) continue;
    device->strikes = {{"copy_kernel", which, [&](const void* a) {
                          const auto& given = *static_cast<const cuda::copy_arguments<T>*>(a);
                          device->alter(given.to + (given.rows - 1) * given.to_row, 0.5);
                        }}};
    const report seen = factor_it(protection::correct, F);
    if (!device->strikes[0].met()) break;
    if (std::none_of(seen.events.begin(), seen.events.end(), [](const event& e) { return std::string(e.site) == "qr.piece"; })) continue;
    EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
    EXPECT_EQ(largest_change(F, expected), 0);
    ++repaired;
    device->strikes[0].seen = 0;
    EXPECT_EQ(factor_it(protection::off, F).verdict, verdict::clean);
    if (largest_change(F, expected) >= 1e-3) ++reached;
  }
  // Three pieces: 1 + 2 loads, as many results taken over, and a copy of each to go back to, which serves nothing without protection.
  EXPECT_GE(repaired, test::sampled() ? 4 : 9);
  EXPECT_GE(reached, test::sampled() ? 2 : 4);
}

}  // namespace
}  // namespace ballast::qr
