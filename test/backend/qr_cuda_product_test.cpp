// Products of floats as three products of TF32, on the emulator: the kernels beside loops in double; which calls take them, and that these
// see what they make wrong.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "core/at.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_kernels.hpp"
#include "support/qr_on_device.hpp"

namespace ballast::qr {
namespace {

using core::at;
using namespace subjects;
using namespace cuda;

constexpr double k_u = 0x1p-24;

// A matrix with a gap after each column, at an address that is `off` floats after an aligned one.
struct padded {
  index rows, columns, ld, off;
  std::vector<float> values;
  padded(index m, index n, index gap, index off_, std::uint64_t seed)
      : rows(m), columns(n), ld(m + gap), off(off_), values(at(off + ld * n), std::numeric_limits<float>::quiet_NaN()) {
    const matrix<float> random = random_matrix<float>(m, n, seed);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) (*this)(i, j) = random(i, j);
    }
  }
  float& operator()(index i, index j) { return values[at(off + i + j * ld)]; }
  float operator()(index i, index j) const { return values[at(off + i + j * ld)]; }
};

class qr_cuda_product : public kernels_on_emulator<float> {
 protected:
  // V's images: first the one by rows, then the one by columns.
  ballast::cuda::device_buffer images(const padded& V) const {
    const split_shape shape(V.rows, V.columns);
    std::vector<float> compact;
    for (index j = 0; j < V.columns; ++j) {
      for (index i = 0; i < V.rows; ++i) compact.push_back(V(i, j));
    }
    const auto from = upload(compact);
    auto made = upload(std::vector<float>(at(shape.by_rows() + shape.by_columns()), std::numeric_limits<float>::quiet_NaN()));
    auto* const image = static_cast<float*>(made.data());
    launch(work::split, shape.strips * shape.across,
           split_arguments{static_cast<const float*>(from.data()), V.rows, V.columns, image, image + shape.by_rows()});
    return made;
  }
  std::vector<float> project(const padded& V, const padded& C, index splits) const {
    const split_shape shape(V.rows, V.columns);
    const auto image = images(V), from = upload(C.values);
    const auto W = upload(std::vector<float>(at(V.columns * C.columns), std::numeric_limits<float>::quiet_NaN()));
    const auto parts = upload(std::vector<float>(at(splits * V.columns * C.columns), std::numeric_limits<float>::quiet_NaN()));
    const project_arguments given{static_cast<const float*>(image.data()),
                                  V.rows,
                                  V.columns,
                                  static_cast<const float*>(from.data()) + C.off,
                                  C.ld,
                                  C.columns,
                                  static_cast<float*>(W.data()),
                                  splits,
                                  splits > 1 ? static_cast<float*>(parts.data()) : nullptr};
    launch(work::project, shape.tiles() * ((C.columns + k_side - 1) / k_side) * splits, given);
    if (splits > 1) launch(work::add_parts, slabs(V.columns * C.columns), given);
    return download<float>(W);
  }
  padded subtract(const padded& V, const std::vector<float>& W, const padded& C, int chunks) const {
    const split_shape shape(V.rows, V.columns);
    const auto image = images(V), with = upload(W), in = upload(C.values);
    const subtract_arguments given{static_cast<const float*>(image.data()) + shape.by_rows(),
                                   V.rows,
                                   V.columns,
                                   static_cast<const float*>(with.data()),
                                   C.columns,
                                   static_cast<float*>(in.data()) + C.off,
                                   C.ld,
                                   chunks};
    if (V.columns > k_side) {
      launch(work::subtract_deep, shape.strips * ((C.columns + k_side - 1) / k_side), given);
    } else {
      launch(work::subtract, shape.strips * chunks, given);
    }
    padded made = C;
    made.values = download<float>(in);
    return made;
  }
};

// Returns the index of the upper part of a number in a chunk, before the permutation of sixteen neighbours.
index index_of(index i, index k) { return i * k_depth + k; }

struct problem {
  index m, width, n, splits;
  int chunks;
};

// Tiles that are whole and that are not, in every direction; more parts than there are chunks of rows; blocks without a tile.
std::vector<problem> problems() {
  std::vector<problem> made = {{128, 128, 128, 1, 1}, {130, 20, 67, 2, 2}, {31, 5, 3, 3, 1}, {260, 129, 65, 2, 5}};
  if (!test::sampled()) made.push_back({520, 300, 200, 3, 2});
  return made;
}

// Bounds the error. Each product loses, in units of rounding, two lower parts that are cut, and their product. Sums: of 8 in a tensor core,
// then one for each k_depth, then parts.
double tolerance(index deep, index parts) { return (8 + 12 * 2 + static_cast<double>(deep) / k_depth + static_cast<double>(parts)) * k_u; }

TEST_F(qr_cuda_product, is_as_accurate_as_fp32) {
  for (const auto& [m, width, n, splits, chunks] : problems()) {
    for (const index gap : {0, 1, 4}) {
      const padded V(m, width, 0, 0, 1), C(m, n, gap, gap % 4, 2);
      const std::vector<float> W = project(V, C, splits);
      for (index j = 0; j < n; ++j) {
        for (index i = 0; i < width; ++i) {
          double sum = 0, size = 0;
          for (index l = 0; l < m; ++l) {
            const double one = static_cast<double>(V(l, i)) * static_cast<double>(C(l, j));
            sum += one;
            size += std::abs(one);
          }
          ASSERT_NEAR(W[at(i + j * width)], sum, tolerance(m, splits) * size) << m << " " << width << " " << n << ": " << i << ", " << j;
        }
      }
      const padded made = subtract(V, W, C, chunks);
      for (index j = 0; j < n; ++j) {
        for (index i = 0; i < m; ++i) {
          double sum = static_cast<double>(C(i, j)), size = std::abs(sum);
          for (index l = 0; l < width; ++l) {
            const double one = static_cast<double>(V(i, l)) * static_cast<double>(W[at(l + j * width)]);
            sum -= one;
            size += std::abs(one);
          }
          ASSERT_NEAR(made(i, j), sum, tolerance(width, 0) * size) << m << " " << width << " " << n << ": " << i << ", " << j;
        }
        for (index i = m; i < made.ld; ++i) ASSERT_TRUE(std::isnan(made(i, j))) << "a gap was written";
      }
    }
  }
}

// By one product of TF32 the error would be 2^-11 of a number.
TEST_F(qr_cuda_product, both_parts_of_both_operands_count) {
  const index m = 32, width = 8, n = 64;
  padded V(m, width, 0, 0, 1), C(m, n, 0, 0, 2);
  std::fill(V.values.begin(), V.values.end(), 0.F);
  std::fill(C.values.begin(), C.values.end(), 0.F);
  V(3, 2) = 1 + 0x1p-12F;
  C(3, 5) = 1 + 0x1p-12F;
  const std::vector<float> W = project(V, C, 1);
  EXPECT_EQ(W[at(2 + 5 * width)], 1 + 0x1p-11F);  // less 2^-24
  EXPECT_EQ(std::count_if(W.begin(), W.end(), [](float x) { return x != 0; }), 1);
  const padded made = subtract(V, W, padded(m, n, 0, 0, 3), 1), before(m, n, 0, 0, 3);
  EXPECT_NEAR(static_cast<double>(made(3, 5)) - static_cast<double>(before(3, 5)), -(1 + 0x1p-12) * (1 + 0x1p-11), 0x1p-22);
}

TEST_F(qr_cuda_product, where_operands_lie_does_not_change_a_bit) {
  const padded V(200, 40, 0, 0, 1);
  std::vector<float> first_w;
  padded first_c(200, 70, 0, 0, 2);
  for (const index gap : {0, 1, 2, 3, 4}) {
    const padded C(200, 70, gap, gap, 2);
    const std::vector<float> W = project(V, C, 2);
    const padded made = subtract(V, W, C, 3);
    if (gap == 0) {
      first_w = W;
      first_c = made;
    }
    ASSERT_EQ(W, first_w);
    for (index j = 0; j < C.columns; ++j) {
      for (index i = 0; i < C.rows; ++i) ASSERT_EQ(made(i, j), first_c(i, j));
    }
  }
}

// The gate of panels ahead relies on this: with W = 0 no bit of the matrix changes, not even the sign of a zero.
TEST_F(qr_cuda_product, zeros_change_nothing) {
  padded V(140, 33, 0, 0, 1), C(140, 70, 0, 0, 2);
  for (index i = 0; i < C.rows; i += 3) C(i, i % 70) = i % 2 == 0 ? -0.F : 0.F;
  const padded made = subtract(V, std::vector<float>(at(V.columns * C.columns), 0.F), C, 2);
  EXPECT_TRUE(std::equal(made.values.begin(), made.values.end(), C.values.begin(),
                         [](float x, float y) { return std::signbit(x) == std::signbit(y) && x == y; }));
}

// A column with Inf or NaN has NaN where it counts, and other columns do not see it.
TEST_F(qr_cuda_product, inf_and_nan_stay_in_their_columns) {
  const padded V(64, 16, 0, 0, 1);
  padded C(64, 64, 0, 0, 2);
  C(7, 3) = std::numeric_limits<float>::infinity();
  C(9, 11) = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> W = project(V, C, 1);
  for (index j = 0; j < C.columns; ++j) {
    for (index i = 0; i < V.columns; ++i) EXPECT_EQ(std::isfinite(W[at(i + j * V.columns)]), j != 3 && j != 11);
  }
}

// Each of them is taken by a factorization, and by Q applied; a number that one of them leaves wrong is repaired, and without protection it
// reaches the result. With tf32x3 off none of them runs.
TEST(qr_cuda_products, what_they_make_wrong_is_repaired) {
  // So many multiprocessors that products are made in parts, and that every one of them has a tile.
  const auto device = std::make_shared<struck_device>(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(8)));
  const device_for_a_test here(device);
  const index m = 260, n = 484;  // panels of 64 columns; of 128 for Q applied
  const matrix<float> A = random_matrix<float>(m, n, 1), X = random_matrix<float>(m, 512, 2);
  struct fault {
    const char* kernel;
    std::function<void(const void*)> change;
  };
  const double off = 0.5;
  const std::vector<fault> faults = {
      {"split_kernel", [&](const void* a) { device->alter(static_cast<const split_arguments*>(a)->by_rows + index_of(30, 3), off); }},
      {"split_kernel", [&](const void* a) { device->alter(static_cast<const split_arguments*>(a)->by_columns + index_of(30, 3), off); }},
      {"project_kernel", [&](const void* a) { device->alter(static_cast<const project_arguments*>(a)->parts + 70, off); }},
      {"add_parts_kernel", [&](const void* a) { device->alter(static_cast<const project_arguments*>(a)->W + 70, off); }},
      {"subtract_kernel", [&](const void* a) { device->alter(static_cast<const subtract_arguments*>(a)->C + 70, off); }}};
  const auto how = [](protection level, bool tf32x3) {
    return run::settings{.backend = backend::cuda, .threads = 1, .protection = level, .tf32x3 = tf32x3};
  };
  const auto factor = [&](protection level, bool tf32x3) {
    matrix<float> F = A;
    std::vector<float> tau(at(m));
    const report seen = geqrf(F.view(), tau, how(level, tf32x3));
    return std::pair(std::move(F), seen);
  };
  const factored<float> Q = factor_on(backend::cuda, random_matrix<float>(m, m, 3));
  const auto apply = [&](protection level, bool tf32x3) {
    matrix<float> C = X;
    const report seen = ormqr(side::left, transpose::yes, Q.F.view(), Q.tau, C.view(), how(level, tf32x3));
    return std::pair(std::move(C), seen);
  };
  // `both`: also without protection. A sample runs only one of the two, since the kernels are the same.
  const auto strike_each = [&](const auto& run, bool both) {
    device->strikes.clear();
    for (const fault& each : faults) device->strikes.push_back({each.kernel, 0, [](const void*) { ADD_FAILURE() << "it was off"; }});
    ASSERT_EQ(run(protection::correct, false).second.verdict, verdict::clean);
    device->strikes.clear();
    const matrix<float> expected = run(protection::correct, true).first;
    for (const fault& each : faults) {
      for (const protection level : {protection::correct, protection::off}) {
        if (level == protection::off && !both) continue;
        SCOPED_TRACE(std::string(each.kernel) + (level == protection::off ? ", without protection" : ""));
        device->strikes = {{each.kernel, 0, each.change}};
        const auto [made, seen] = run(level, true);
        ASSERT_TRUE(device->strikes[0].met());
        if (level == protection::off) {
          EXPECT_GE(largest_change(made, expected), 1e-2) << "the fault changes nothing: it proves nothing";
        } else {
          EXPECT_TRUE(seen.verdict == verdict::corrected || seen.verdict == verdict::recomputed) << to_json(seen);
          EXPECT_LE(largest_change(made, expected), 1e-3);
        }
      }
    }
  };
  strike_each(factor, true);
  strike_each(apply, !test::sampled());
}

}  // namespace
}  // namespace ballast::qr
