// Products of block reflectors with few columns, on the emulator: the kernels beside loops in wider arithmetic, and that the protection
// sees what they make wrong.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "core/at.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_kernels.hpp"
#include "support/qr_on_device.hpp"
#include "support/reals.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using core::at;
using namespace subjects;
using namespace cuda;

template <class T>
class narrow_products : public kernels_on_emulator<T> {
 protected:
  // Columns `ld` apart, the rest is NaN.
  static std::vector<T> random(index rows, index columns, index ld, std::uint64_t seed) {
    const matrix<T> from = random_matrix<T>(rows, columns, seed);
    std::vector<T> made(at(ld * columns), std::numeric_limits<T>::quiet_NaN());
    for (index j = 0; j < columns; ++j) {
      for (index i = 0; i < rows; ++i) made[at(i + j * ld)] = from(i, j);
    }
    return made;
  }
  // Bounds the error of a sum of `count` products of that total size. All roundings except the last one are in double.
  static double tolerance(index count, double size) { return (abft::unit_roundoff<T> + static_cast<double>(count + 8) * 0x1p-53) * size; }
};
TYPED_SUITE(narrow_products, test::reals, test::number_names);

struct narrow_problem {
  index rows, width, columns, front, chunks;  // `front`: the first columns, which lie in other memory
};

// Tiles that are whole and that are not, in every direction; more chunks than there are rows for.
std::vector<narrow_problem> narrow_problems() {
  std::vector<narrow_problem> made = {{128, 128, 32, 32, 1}, {301, 100, 37, 35, 3}, {33, 7, 2, 2, 1}, {70, 64, 66, 33, 12}};
  if (!test::sampled()) made.insert(made.end(), {{520, 128, 190, 128, 4}, {17, 17, 1, 1, 1}, {256, 32, 9, 7, 2}});
  return made;
}

TYPED_TEST(narrow_products, are_those_of_wider_arithmetic) {
  using T = TypeParam;
  for (const auto& [m, w, n, front, chunks] : narrow_problems()) {
    SCOPED_TRACE(std::to_string(m) + " " + std::to_string(w) + " " + std::to_string(n));
    const index ldc = m + 3;
    const std::vector<T> V = this->random(m, w, m, 1), C = this->random(m, n, ldc, 2);
    std::vector<T> triangle = this->random(w, w, w, 3);
    for (index j = 0; j < w; ++j) {
      for (index i = j + 1; i < w; ++i) triangle[at(i + j * w)] = 0;
    }
    const auto v = this->upload(V), c = this->upload(C), t = this->upload(triangle);
    const auto parts = this->upload(std::vector<double>(at(chunks * w * n), std::numeric_limits<double>::quiet_NaN()));
    const auto* const from = static_cast<const T*>(c.data());
    const auto across = [](index columns, index each) { return (columns + each - 1) / each; };
    this->launch(work::narrow_product, chunks * (across(front, k_narrow_across) + across(n - front, k_narrow_across)),
                 narrow_product_arguments<T>{static_cast<const T*>(v.data()),
                                             m,
                                             static_cast<int>(w),
                                             {{from, ldc, static_cast<int>(front)}, {from + front * ldc, ldc, static_cast<int>(n - front)}},
                                             chunks,
                                             static_cast<double*>(parts.data())});
    const std::vector<double> in_parts = this->template download<double>(parts);
    std::vector<long double> W(at(w * n));
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < w; ++i) {
        long double sum = 0, size = 0, seen = 0;
        for (index l = 0; l < m; ++l) {
          const long double each = static_cast<long double>(V[at(l + i * m)]) * static_cast<long double>(C[at(l + j * ldc)]);
          sum += each;
          size += std::abs(each);
        }
        for (index q = 0; q < chunks; ++q) seen += static_cast<long double>(in_parts[at(q * w * n + i + j * w)]);
        ASSERT_NEAR(static_cast<double>(seen), static_cast<double>(sum),
                    static_cast<double>(m + chunks) * 0x1p-53 * static_cast<double>(size))
            << i << ", " << j;
        W[at(i + j * w)] = sum;
      }
    }
    // Whole, and in parts; the second half is what becomes of it.
    std::vector<T> halves(at(2 * w * n), std::numeric_limits<T>::quiet_NaN());
    for (index e = 0; e < w * n; ++e) halves[at(e)] = static_cast<T>(W[at(e)]);
    for (const bool transposed : {true, false}) {
      for (const bool few : {true, false}) {
        SCOPED_TRACE(std::string(transposed ? "transposed " : "") + (few ? "in parts" : "whole"));
        const auto both = this->upload(few ? std::vector<T>(at(2 * w * n), std::numeric_limits<T>::quiet_NaN()) : halves);
        const index each = few ? k_apply_t_few : k_apply_t_many;
        this->launch(
            few ? work::apply_t_few : work::apply_t_many, (n + each - 1) / each,
            apply_t_arguments<T>{static_cast<const T*>(t.data()), static_cast<int>(w), transposed, n,
                                 few ? static_cast<const double*>(parts.data()) : nullptr, few ? chunks : 0, static_cast<T*>(both.data())});
        const std::vector<T> made = this->template download<T>(both);
        for (index j = 0; j < n; ++j) {
          for (index i = 0; i < w; ++i) {
            double sum = 0, size = 0;
            for (index l = 0; l < w; ++l) {
              const double factor = static_cast<double>(transposed ? triangle[at(l + i * w)] : triangle[at(i + l * w)]);
              const double by = few ? static_cast<double>(W[at(l + j * w)]) : static_cast<double>(halves[at(l + j * w)]);
              sum += factor * by;
              size += std::abs(factor * by);
            }
            // W's own rounding in parts, and that of a sum of m products.
            ASSERT_NEAR(static_cast<double>(made[at(w * n + i + j * w)]), sum,
                        this->tolerance(m + w, 2 * size) + static_cast<double>(m) * 0x1p-52)
                << i << ", " << j;
          }
        }
      }
    }
    const auto applied = this->upload(halves), to = this->upload(C);
    this->launch(work::narrow_subtract, across(m, k_threads / 2) * across(n, k_subtract_across),
                 narrow_subtract_arguments<T>{static_cast<const T*>(v.data()), m, static_cast<int>(w),
                                              static_cast<const T*>(applied.data()), static_cast<int>(n), static_cast<T*>(to.data()), ldc});
    const std::vector<T> left = this->template download<T>(to);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        double sum = static_cast<double>(C[at(i + j * ldc)]), size = std::abs(sum);
        for (index l = 0; l < w; ++l) {
          const double each = static_cast<double>(V[at(i + l * m)]) * static_cast<double>(halves[at(l + j * w)]);
          sum -= each;
          size += std::abs(each);
        }
        ASSERT_NEAR(static_cast<double>(left[at(i + j * ldc)]), sum, this->tolerance(w, size)) << i << ", " << j;
      }
      for (index i = m; i < ldc; ++i) ASSERT_TRUE(std::isnan(left[at(i + j * ldc)])) << "a gap was written";
    }
  }
}

// The gate of panels ahead relies on this: with V = 0 and T = 0 no bit of the matrix changes, not even the sign of a zero.
TYPED_TEST(narrow_products, zeros_change_nothing) {
  using T = TypeParam;
  const index m = 140, w = 33, n = 40;
  std::vector<T> C = this->random(m, n, m, 2);
  for (index i = 0; i < m; i += 3) C[at(i + i % n * m)] = i % 2 == 0 ? -T(0) : T(0);
  const std::vector<T> none(at(m * w), T(0));
  const auto v = this->upload(none), from = this->upload(std::vector<T>(at(w * n), T(0))), to = this->upload(C);
  this->launch(work::narrow_subtract, 2 * 3,
               narrow_subtract_arguments<T>{static_cast<const T*>(v.data()), m, static_cast<int>(w), static_cast<const T*>(from.data()),
                                            static_cast<int>(n), static_cast<T*>(to.data()), m});
  const std::vector<T> made = this->template download<T>(to);
  for (std::size_t e = 0; e < C.size(); ++e) {
    ASSERT_EQ(made[e], C[e]);
    ASSERT_EQ(std::signbit(made[e]), std::signbit(C[e]));
  }
}

// A number that one of them leaves wrong is repaired, and without protection it reaches the result.
TYPED_TEST(narrow_products, what_they_make_wrong_is_repaired) {
  using T = TypeParam;
  ballast::cuda::capabilities about = simt::emulated_capabilities(4, 8);
  about.shared_per_block = 50 << 10;  // so that panels are tall
  const auto on = std::make_shared<struck_device>(std::make_shared<simt::emulated_device>(about));
  const device_for_a_test here(on);
  const index m = 384, n = 186;
  const matrix<T> A = random_matrix<T>(m, n, 31);
  const auto run = [&](protection level) {
    return factor_in_place<T>(A.view(), {.backend = backend::cuda, .threads = 1, .protection = level});
  };
  struct fault {
    const char* kernel;
    std::function<void(const void*)> change;
  };
  const double off = 0.5;
  const std::vector<fault> faults = {
      {"narrow_product_kernel", [&](const void* a) { on->alter(static_cast<const narrow_product_arguments<T>*>(a)->parts + 70, off); }},
      {"apply_t_kernel",
       [&](const void* a) {
         const auto& given = *static_cast<const apply_t_arguments<T>*>(a);
         on->alter(given.W + given.width * given.columns + 70, off);
       }},
      {"narrow_subtract_kernel", [&](const void* a) { on->alter(static_cast<const narrow_subtract_arguments<T>*>(a)->C + 70, off); }}};
  for (const protection level : {protection::correct, protection::off}) {
    on->strikes.clear();
    const factored<T> clean = run(level);
    ASSERT_EQ(clean.report.verdict, verdict::clean);
    for (const fault& each : faults) {
      // Products with columns of the matrix, and with checksums.
      for (const std::int64_t number : {0, 1}) {
        if (level == protection::off && number > 0) continue;
        SCOPED_TRACE(std::string(each.kernel) + " " + std::to_string(number) + (level == protection::off ? ", without protection" : ""));
        on->strikes = {{each.kernel, number, each.change}};
        const factored<T> made = run(level);
        ASSERT_TRUE(on->strikes[0].met());
        if (level == protection::off) {
          EXPECT_GE(change(made.F, clean.F), 1e4) << "the fault changes nothing: it proves nothing";
        } else {
          EXPECT_TRUE(made.report.verdict == verdict::corrected || made.report.verdict == verdict::recomputed) << to_json(made.report);
          EXPECT_LE(change(made.F, clean.F), 300.0 * m);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::qr
