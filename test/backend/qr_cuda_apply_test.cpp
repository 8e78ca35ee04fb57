// Q applied on the cuda backend, on the emulator: T of wide panels, op(Q)ᵀa and the sums of the check beside plain loops; faults in what
// lies between the launches; blocks of columns; what a call launches and waits for.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "core/at.hpp"
#include "cuda/memory/shared_state.hpp"
#include "inject/sites.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/sites.hpp"
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

// Reflectors as geqrf leaves them, without a factorization: tails at random, τ = 2 / ‖v‖², but some that are 0; above the diagonal what
// must not be read as V.
template <class T>
struct random_reflectors {
  index m, count, ldv;
  std::vector<T> V, tau;
  random_reflectors(index rows, index columns, std::uint64_t seed)
      : m(rows), count(columns), ldv(rows + 3), V(at(ldv * columns)), tau(at(columns)) {
    const matrix<T> random = random_matrix<T>(rows, columns, seed);
    for (index j = 0; j < count; ++j) {
      double square = 1;
      for (index i = 0; i < m; ++i) {
        const T x = random(i, j) / static_cast<T>(std::sqrt(m));
        V[at(i + j * ldv)] = i > j ? x : T(1000);
        if (i > j) square += static_cast<double>(x) * static_cast<double>(x);
      }
      tau[at(j)] = j % 7 == 3 ? T(0) : static_cast<T>(2 / square);
    }
  }
  double v(index i, index j) const { return i < j ? 0 : i == j ? 1 : static_cast<double>(V[at(i + j * ldv)]); }
};

template <class T>
class qr_cuda_apply : public kernels_on_emulator<T> {};
TYPED_SUITE(qr_cuda_apply, test::reals, test::number_names);

// ------------------------------------------------------------------------------------------------------------------------ kernels

TYPED_TEST(qr_cuda_apply, t_of_wide_panels_is_that_of_one_reflector_after_the_other) {
  using T = TypeParam;
  using namespace cuda;
  struct problem {
    index m, count, width, chunks;
  };
  // One part; halves of every size, the second one narrow; a last panel of fewer columns; chunks of rows, the last ones empty.
  std::vector<problem> problems = {{40, 9, 9, 1}, {90, 70, 35, 5}, {150, 150, 128, 1}, {300, 270, 256, 3}};
  if (!test::sampled()) problems.push_back({530, 525, 512, 1});
  for (const auto& [m, count, width, chunks] : problems) {
    const random_reflectors<T> Q(m, count, static_cast<std::uint64_t>(m));
    const index panels = (count + width - 1) / width;
    const auto V = this->upload(Q.V), tau = this->upload(Q.tau);
    const index numbers = panels * width * width;
    const auto parts = this->upload(std::vector<double>(at(chunks * numbers), std::nan("")));
    const auto G = this->upload(std::vector<double>(at(numbers), std::nan("")));
    const auto made = this->upload(std::vector<T>(at(panels * width * width), std::numeric_limits<T>::quiet_NaN()));
    wide_arguments<T> all{static_cast<const T*>(V.data()),
                          Q.ldv,
                          m,
                          count,
                          static_cast<int>(width),
                          static_cast<const T*>(tau.data()),
                          static_cast<double*>(parts.data()),
                          static_cast<int>(chunks),
                          static_cast<T*>(made.data()),
                          0};
    const int tiles = wide_tiles(all.width);
    this->launch(work::wide_gram, panels * (tiles * (tiles + 1) / 2) * chunks, all);
    all.G = static_cast<double*>(G.data());
    this->launch(work::fold, (numbers + 31) / 32, fold_arguments{static_cast<const double*>(parts.data()), chunks, numbers, all.G});
    this->launch(work::wide_parts, (panels * ((width + k_inner - 1) / k_inner) + 7) / 8, all);
    for (all.half = k_inner; all.half < width; all.half *= 2)
      this->launch(work::wide_join, panels * wide_pairs(all.width, all.half) * (all.half / k_wide_strip), all);
    const std::vector<T> seen = this->template download<T>(made);
    for (index k = 0; k < panels; ++k) {
      const index first = k * width, w = std::min(width, count - first);
      std::vector<double> expected(at(w * w), 0);
      for (index j = 0; j < w; ++j) {
        const double own = static_cast<double>(Q.tau[at(first + j)]);
        std::vector<double> g(at(j), 0);
        for (index l = 0; l < j; ++l) {
          for (index i = first + j; i < m; ++i) g[at(l)] += Q.v(i, first + l) * Q.v(i, first + j);
        }
        for (index i = 0; i < j; ++i) {
          double sum = 0;
          for (index l = i; l < j; ++l) sum += expected[at(i + l * w)] * g[at(l)];
          expected[at(i + j * w)] = -own * sum;
        }
        expected[at(j + j * w)] = own;
      }
      for (index j = 0; j < w; ++j) {
        for (index i = 0; i < w; ++i) {
          const double found = static_cast<double>(seen[at(k * width * width + i + j * w)]);
          if (i >= j) {
            ASSERT_EQ(found, expected[at(i + j * w)]) << i << " " << j;
          } else {
            // Elements of T are below 2; sums of w products of them, on log w levels.
            ASSERT_NEAR(found, expected[at(i + j * w)], 50 * std::sqrt(w) * abft::unit_roundoff<T>)
                << m << " × " << count << ", panel " << k << ": " << i << " " << j;
          }
        }
      }
    }
  }
}

TYPED_TEST(qr_cuda_apply, vectors_under_q_are_those_of_one_reflector_after_the_other) {
  using T = TypeParam;
  using namespace cuda;
  for (const auto& [m, count] : std::vector<std::pair<index, index>>{{1, 1}, {7, 5}, {75, 75}, {300, 33}, {300, 70}}) {
    const random_reflectors<T> Q(m, count, 3);
    const auto V = this->upload(Q.V), tau = this->upload(Q.tau);
    std::vector<double> start(at(m * k_vectors));
    for (std::size_t e = 0; e < start.size(); ++e) start[e] = random_signed(k_application_stream, e);
    for (const bool last_first : {false, true}) {
      std::vector<double> expected = start;
      for (index s = 0; s < count; ++s) {
        const index j = last_first ? count - 1 - s : s;
        for (index q = 0; q < k_vectors; ++q) {
          double sum = 0;
          for (index i = j; i < m; ++i) sum += Q.v(i, j) * expected[at(i + q * m)];
          for (index i = j; i < m; ++i) expected[at(i + q * m)] -= sum * static_cast<double>(Q.tau[at(j)]) * Q.v(i, j);
        }
      }
      for (int cluster = 0; cluster < k_chain_cluster_count; ++cluster) {
        const auto y = this->upload(start);
        this->launch(kernel_names<T>::chain(cluster), k_chain_clusters[cluster].blocks,
                     chain_arguments<T>{static_cast<const T*>(V.data()), Q.ldv, m, count, static_cast<const T*>(tau.data()), last_first,
                                        static_cast<double*>(y.data())});
        const std::vector<double> seen = this->template download<double>(y);
        for (std::size_t e = 0; e < seen.size(); ++e)
          ASSERT_NEAR(seen[e], expected[e], 50 * static_cast<double>(m) * abft::unit_roundoff<double>)
              << m << " × " << count << ", " << k_chain_clusters[cluster].blocks << " blocks, element " << e;
      }
      // The same by launches for each group.
      constexpr index blocks = 3, groups_of = k_inner;
      const auto y = this->upload(start);
      const auto parts = this->upload(std::vector<double>(at(blocks * k_chain_sums))),
                 sums = this->upload(std::vector<double>(at(k_chain_sums)));
      const chain_arguments<T> chain{static_cast<const T*>(V.data()), Q.ldv, m, count, static_cast<const T*>(tau.data()), last_first,
                                     static_cast<double*>(y.data())};
      for (index step = 0; step <= (count + groups_of - 1) / groups_of; ++step) {
        this->launch(work::tall_chain, blocks,
                     tall_chain_arguments<T>{chain, step, static_cast<const double*>(sums.data()), static_cast<double*>(parts.data())});
        this->launch(work::fold, (k_chain_sums + 31) / 32,
                     fold_arguments{static_cast<const double*>(parts.data()), blocks, k_chain_sums, static_cast<double*>(sums.data())});
      }
      const std::vector<double> seen = this->template download<double>(y);
      for (std::size_t e = 0; e < seen.size(); ++e)
        ASSERT_NEAR(seen[e], expected[e], 50 * static_cast<double>(m) * abft::unit_roundoff<double>) << m << " × " << count << ", " << e;
    }
  }
}

// Columns in the range of doubles' squares, above it and below it, zero, with Inf and with NaN: in one piece and in chunks of rows, of
// which the last ones are empty; whole columns, and what is above or below a diagonal.
TYPED_TEST(qr_cuda_apply, norms_of_columns_are_the_same_in_chunks_of_rows) {
  using T = TypeParam;
  using namespace cuda;
  const index m = 1003, n = 7, ld = m + 2;
  const matrix<T> random = random_matrix<T>(m, n, 5);
  std::vector<T> values(at(ld * n), T(7));
  const int exponents[n] = {0, sizeof(T) == 4 ? 120 : 800, sizeof(T) == 4 ? -120 : -800, 0, 3, 0, 0};
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) values[at(i + j * ld)] = j == 3 ? T(0) : std::ldexp(random(i, j), exponents[j]);
  }
  values[at(900 + 5 * ld)] = std::numeric_limits<T>::infinity();
  values[at(2 + 6 * ld)] = std::numeric_limits<T>::quiet_NaN();
  const auto X = this->upload(values);
  for (const auto& [upper, lower] : std::vector<std::pair<bool, bool>>{{false, false}, {true, false}, {false, true}}) {
    for (const index chunks : {1, 3, 400}) {
      const auto to = this->upload(std::vector<column_result>(at(n)));
      const auto partial = this->upload(std::vector<double>(at(n * chunks), std::nan("")));
      const auto arrived = this->upload(std::vector<std::uint32_t>(at(n), 0));
      for (int again = 0; again < 2; ++again) {  // the counters are as they were
        this->launch(work::scan, n * chunks,
                     scan_arguments<T>{static_cast<const T*>(X.data()), ld, m, 0, upper, lower, static_cast<column_result*>(to.data()),
                                       chunks, static_cast<double*>(partial.data()), static_cast<std::uint32_t*>(arrived.data())});
        const auto seen = this->template download<column_result>(to);
        for (index j = 0; j < n; ++j) {
          SCOPED_TRACE(std::to_string(chunks) + " chunks, column " + std::to_string(j));
          long double sum = 0;
          bool finite = true;
          for (index i = lower ? j : 0; i < (upper ? j + 1 : m); ++i) {
            const long double x = static_cast<long double>(values[at(i + j * ld)]);
            finite = finite && std::isfinite(x);
            sum += x * x;
          }
          ASSERT_EQ(seen[at(j)].finite != 0, finite);
          if (!finite) continue;
          const auto norm = static_cast<double>(std::sqrt(sum));
          ASSERT_NEAR(std::ldexp(seen[at(j)].norm, seen[at(j)].exponent), norm, 1e-13 * norm);
        }
      }
    }
  }
}

TYPED_TEST(qr_cuda_apply, sums_of_the_check_take_any_strides) {
  using T = TypeParam;
  using namespace cuda;
  const index m = 270, columns = 7, rows = 261;  // the operand ends above
  const matrix<T> X = random_matrix<T>(rows, columns, 1);
  std::vector<double> b(at(m * k_vectors));
  for (std::size_t e = 0; e < b.size(); ++e) b[e] = random_signed(k_application_stream, e);
  std::vector<int> shifts(at(columns), 0);
  shifts[2] = -9;
  const auto vectors = this->upload(b), exponents = this->upload(shifts);
  for (const bool by_rows : {false, true}) {
    std::vector<T> values(at(rows * columns));
    for (index j = 0; j < columns; ++j) {
      for (index i = 0; i < rows; ++i) values[at(by_rows ? j + i * columns : i + j * rows)] = X(i, j);
    }
    const auto from = this->upload(values);
    for (const index chunks : {1, 3, 300}) {  // 39 of 300 chunks are empty
      const auto to = this->upload(std::vector<double>(at(chunks * columns * k_vectors), std::nan("")));
      this->launch(work::dots, 2 * chunks,
                   dots_arguments<T>{static_cast<const T*>(from.data()), by_rows ? columns : 1, by_rows ? 1 : rows, rows, 0, columns,
                                     static_cast<const int*>(exponents.data()), static_cast<const double*>(vectors.data()), m,
                                     static_cast<double*>(to.data()), chunks});
      const std::vector<double> seen = this->template download<double>(to);
      for (index q = 0; q < k_vectors; ++q) {
        for (index j = 0; j < columns; ++j) {
          double sum = 0, found = 0;
          for (index i = 0; i < rows; ++i) sum += b[at(i + q * m)] * std::ldexp(static_cast<double>(X(i, j)), shifts[at(j)]);
          for (index c = 0; c < chunks; ++c) found += seen[at(j + (q + c * k_vectors) * columns)];
          ASSERT_NEAR(found, sum, 1e-11) << j << " " << q << ", " << chunks << " chunks";
        }
      }
    }
  }
  // Columns of the identity; the last one is beyond its end.
  const auto to = this->upload(std::vector<double>(at(columns * k_vectors), std::nan("")));
  this->launch(work::dots, 2,
               dots_arguments<T>{nullptr, 0, 0, m, m - columns + 1, columns, nullptr, static_cast<const double*>(vectors.data()), m,
                                 static_cast<double*>(to.data()), 1});
  const std::vector<double> seen = this->template download<double>(to);
  for (index q = 0; q < k_vectors; ++q) {
    for (index j = 0; j < columns; ++j)
      ASSERT_EQ(seen[at(j + q * columns)], j + 1 < columns ? b[at(m - columns + 1 + j + q * m)] : 0) << j << " " << q;
  }
}

// Each number that lies between two launches of a call, wrong once: with protection the block is computed again, without it what serves
// the data reaches the output.
TYPED_TEST(qr_cuda_apply, a_wrong_number_between_two_launches_does_not_reach_the_output) {
  using T = TypeParam;
  using namespace cuda;
  const auto device = std::make_shared<struck_device>(std::make_shared<simt::emulated_device>());
  const device_for_a_test here(device);
  const index m = 110, n = 90, columns = 20;  // two panels of 45 reflectors, each two parts
  const factored<T> made = factor_on(backend::cuda, random_matrix<T>(m, n, 1));
  const matrix<T> X = random_matrix<T>(m, columns, 2);
  struct fault {
    const char* kernel;
    std::int64_t which;
    bool data;  // or it serves the check alone
    std::function<void(const void*)> change;
  };
  const double off = 0.01;
  const std::vector<fault> faults = {
      {"form_v_kernel", 0, true, [&](const void* a) { device->alter(static_cast<const form_v_arguments<T>*>(a)->to + 3 * 110 + 50, off); }},
      {"form_v_kernel", 1, true, [&](const void* a) { device->alter(static_cast<const form_v_arguments<T>*>(a)->to + 7, off); }},
      {"wide_gram_kernel", 0, true, [&](const void* a) { device->alter(static_cast<const wide_arguments<T>*>(a)->G + 5 + 12 * 45, off); }},
      {"wide_gram_kernel", 0, true,
       [&](const void* a) { device->alter(static_cast<const wide_arguments<T>*>(a)->G + 45 * 45 + 5 + 40 * 45, off); }},
      {"wide_parts_kernel", 0, true, [&](const void* a) { device->alter(static_cast<const wide_arguments<T>*>(a)->T + 3 + 3 * 45, off); }},
      {"wide_join_kernel", 0, true, [&](const void* a) { device->alter(static_cast<const wide_arguments<T>*>(a)->T + 7 + 41 * 45, off); }},
      {"wide_join_kernel", 0, true, [&](const void* a) { device->alter(static_cast<const wide_arguments<T>*>(a)->T + 9 + 2 * 45, off); }},
      {"copy_kernel", 0, true, [&](const void* a) { device->alter(static_cast<const copy_arguments<T>*>(a)->to + 30, off); }},
      {"chain_kernel", 0, false, [&](const void* a) { device->alter(static_cast<const chain_arguments<T>*>(a)->y + 30, off); }},
      {"dots_kernel", 0, false, [&](const void* a) { device->alter(static_cast<const dots_arguments<T>*>(a)->to + 3, off); }},
      {"dots_kernel", 1, false, [&](const void* a) { device->alter(static_cast<const dots_arguments<T>*>(a)->to + 3, off); }}};
  for (const bool transposed : {false, true}) {
    for (const protection level : {protection::correct, protection::off}) {
      const auto apply = [&](matrix<T>& C) {
        return ormqr(side::left, transposed ? transpose::yes : transpose::no, made.F.view(), made.tau, C.view(),
                     {.backend = backend::cuda, .protection = level, .scheme = "block_checksum"});
      };
      matrix<T> expected = X;
      device->strikes.clear();
      ASSERT_EQ(apply(expected).verdict, verdict::clean);
      for (const fault& each : faults) {
        if (level == protection::off && !each.data) continue;
        SCOPED_TRACE(std::string(each.kernel) + " " + std::to_string(each.which) + (transposed ? ", transposed" : "") +
                     (level == protection::off ? ", without protection" : ""));
        device->strikes = {{each.kernel, each.which, each.change}};
        matrix<T> C = X;
        const report seen = apply(C);
        ASSERT_TRUE(device->strikes[0].met());
        if (level == protection::off) {
          EXPECT_GE(largest_change(C, expected), 1e-4) << "the fault changes nothing: it proves nothing";
          continue;
        }
        EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
        EXPECT_EQ(std::memcmp(C.data(), expected.data(), C.size() * sizeof(T)), 0) << to_json(seen);
      }
    }
  }
}

// The same for a tall matrix, whose check is computed in several launches, and whose sums are added in chunks of rows.
TYPED_TEST(qr_cuda_apply, a_wrong_number_of_the_check_of_a_tall_matrix_is_found) {
  using T = TypeParam;
  using namespace cuda;
  const auto device = std::make_shared<struck_device>(std::make_shared<simt::emulated_device>());
  const device_for_a_test here(device);
  const index m = 2100, n = 3, columns = 2;
  const factored<T> made = factor_on(backend::reference, random_matrix<T>(m, n, 1));
  const matrix<T> X = random_matrix<T>(m, columns, 2);
  const double off = sizeof(T) == 4 ? 0.2 : 0.01;        // above the floor for any weights
  constexpr index vectors = k_chain_sums - 8 * k_inner;  // the first sum of Vᵀ times the vectors
  struct fault {
    const char* kernel;
    std::int64_t which;
    std::function<void(const void*)> change;
  };
  const std::vector<fault> faults = {
      {"tall_chain_kernel", 0, [&](const void* a) { device->alter(static_cast<const tall_chain_arguments<T>*>(a)->parts + vectors, off); }},
      {"tall_chain_kernel", 1, [&](const void* a) { device->alter(static_cast<const tall_chain_arguments<T>*>(a)->chain.y + 30, off); }},
      {"fold_kernel", 0, [&](const void* a) { device->alter(static_cast<const fold_arguments*>(a)->to + vectors, off); }},
      {"dots_kernel", 0, [&](const void* a) { device->alter(static_cast<const dots_arguments<T>*>(a)->to + 3, off); }},
      {"dots_kernel", 1,
       [&](const void* a) { device->alter(static_cast<const dots_arguments<T>*>(a)->to + k_vectors * columns + 1, off); }}};
  const auto apply = [&](matrix<T>& C) {
    return ormqr(side::left, transpose::yes, made.F.view(), made.tau, C.view(), {.backend = backend::cuda, .scheme = "block_checksum"});
  };
  matrix<T> expected = X;
  device->strikes.clear();
  ASSERT_EQ(apply(expected).verdict, verdict::clean);
  for (const fault& each : faults) {
    SCOPED_TRACE(std::string(each.kernel) + " " + std::to_string(each.which));
    device->strikes = {{each.kernel, each.which, each.change}};
    matrix<T> C = X;
    const report seen = apply(C);
    ASSERT_TRUE(device->strikes[0].met());
    EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
    EXPECT_EQ(std::memcmp(C.data(), expected.data(), C.size() * sizeof(T)), 0) << to_json(seen);
  }
}

// A wrong size of a column of C must not scale the column to nothing, nor leave it without checks.
TYPED_TEST(qr_cuda_apply, a_wrong_size_of_a_column_does_not_reach_the_output) {
  using T = TypeParam;
  using namespace cuda;
  const auto device = std::make_shared<struck_device>(std::make_shared<simt::emulated_device>());
  const device_for_a_test here(device);
  const index m = 110, n = 90, columns = 20;
  const factored<T> made = factor_on(backend::cuda, random_matrix<T>(m, n, 1));
  const matrix<T> X = random_matrix<T>(m, columns, 2);
  const auto apply = [&](matrix<T>& C) {
    return ormqr(side::left, transpose::no, made.F.view(), made.tau, C.view(), {.backend = backend::cuda, .scheme = "block_checksum"});
  };
  matrix<T> expected = X;
  device->strikes.clear();
  ASSERT_EQ(apply(expected).verdict, verdict::clean);
  int sizes_of_c = 0;
  for (std::int64_t which = 0; which < 3; ++which) {
    for (const int exponent : {-900, 481, 900}) {
      for (const int finite : {1, 0}) {
        SCOPED_TRACE(std::to_string(which) + " " + std::to_string(exponent) + " " + std::to_string(finite));
        device->strikes = {{"scan_kernel", which, [&](const void* a) {
                              const auto& given = *static_cast<const scan_arguments<T>*>(a);
                              sizes_of_c += given.rows == m && !given.lower;
                              device->set(&given.to[0].exponent, exponent);
                              device->set(&given.to[0].finite, finite);
                            }}};
        matrix<T> C = X;
        const report seen = apply(C);
        EXPECT_EQ(std::memcmp(C.data(), expected.data(), C.size() * sizeof(T)), 0) << to_json(seen);
      }
    }
  }
  EXPECT_GT(sizes_of_c, 0);
}

// One multiprocessor: blocks of 128 columns.
TYPED_TEST(qr_cuda_apply, several_blocks_of_columns_are_computed_each_by_itself) {
  using T = TypeParam;
  const device_for_a_test here(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(1)));
  const auto unit = abft::unit_roundoff<T>;
  const index columns = 140;
  for (const bool formed : {false, true}) {
    const index m = formed ? 150 : 600, n = formed ? columns : 30;  // 600: in chunks of rows
    const random_reflectors<T> Q(m, n, 1);
    const matrix_view<const T> V{Q.V.data(), m, n, 1, Q.ldv};
    const matrix<T> X = formed ? copy_of<T>(V) : random_matrix<T>(m, columns, 2);
    const auto apply = [&](backend which, const inject::plan* faults, matrix<T>& C) {
      const run::settings how{.backend = which, .faults = faults};
      return formed ? orgqr(C.view(), Q.tau, how) : ormqr(side::left, transpose::no, V, Q.tau, C.view(), how);
    };
    matrix<T> expected = X, host = X;
    (void)apply(backend::cpu, nullptr, host);
    const report clean = apply(backend::cuda, nullptr, expected);
    EXPECT_EQ(clean.verdict, verdict::clean);
    EXPECT_EQ(clean.checks, 3u) << "two blocks of columns, and the copy of the result";
    EXPECT_LE(largest_change(expected, host), 100.0 * static_cast<double>(m) * unit);
    int recomputed = 0, runs = 0;
    for (const inject::site where : {site::t, site::product, site::q}) {
      for (std::uint64_t seed = 0; seed < (formed ? 1u : test::sampled() ? 2u : 3u); ++seed) {
        inject::request fault;
        fault.site = where;
        fault.model = inject::model::random_value;
        fault.seed = seed;
        const inject::plan faults({fault});
        matrix<T> C = X;
        const report seen = apply(backend::cuda, &faults, C);
        ++runs;
        recomputed += seen.verdict == verdict::recomputed ? 1 : 0;
        EXPECT_LE(largest_change(C, expected), 1000 * unit) << inject::row_of(where).name << " " << seed << to_json(seen);
      }
    }
    EXPECT_GE(recomputed, runs * 2 / 3);
  }
}

// A block of columns leaves the multiprocessors free that make op(Q)ᵀa meanwhile: of twelve, four.
TYPED_TEST(qr_cuda_apply, a_block_of_columns_leaves_room_for_its_check) {
  using T = TypeParam;
  const device_for_a_test here(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(12)));
  const index m = 30, n = 6;
  const random_reflectors<T> Q(m, n, 1);
  const matrix_view<const T> V{Q.V.data(), m, n, 1, Q.ldv};
  for (const auto& [columns, blocks] : std::vector<std::pair<index, std::uint64_t>>{{8 * 128, 1}, {8 * 128 + 1, 2}}) {
    std::vector<T> X(at(m * columns), T(1));
    const report seen = ormqr(side::left, transpose::yes, V, Q.tau, column_major(X.data(), m, columns),
                              {.backend = backend::cuda, .scheme = "block_checksum"});
    EXPECT_EQ(seen.verdict, verdict::clean);
    EXPECT_EQ(seen.checks, blocks + 1) << "the last one is that of the copied result";
  }
}

// A further panel adds only the launches for its V, VᵀC, T VᵀC and the subtraction from C, and no wait.
TYPED_TEST(qr_cuda_apply, a_panel_takes_three_launches_and_a_product_and_no_wait) {
  using T = TypeParam;
  const auto device = std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>());
  const device_for_a_test here(device);
  for (const protection level : {protection::off, protection::correct}) {
    std::int64_t launches[2], waits[2];
    for (const int panels : {2, 4}) {
      const index n = 128 * panels, m = n;
      const random_reflectors<T> Q(m, n, 1);
      const matrix_view<const T> V{Q.V.data(), m, n, 1, Q.ldv};
      matrix<T> C = random_matrix<T>(m, 3, 2);
      device->launches.clear();
      device->products = device->waits = 0;
      EXPECT_EQ(
          ormqr(side::left, transpose::yes, V, Q.tau, C.view(), {.backend = backend::cuda, .protection = level, .scheme = "block_checksum"})
              .verdict,
          verdict::clean);
      const int which = panels == 2 ? 0 : 1;
      launches[which] = device->all();
      waits[which] = device->waits;
      EXPECT_EQ(device->of("form_v_kernel"), panels);
      EXPECT_EQ(device->products, panels);
    }
    EXPECT_EQ(launches[1] - launches[0], 3 * 2);
    EXPECT_EQ(waits[1], waits[0]);
  }
}

}  // namespace
}  // namespace ballast::qr
