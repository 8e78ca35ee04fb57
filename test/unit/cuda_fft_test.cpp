// The host side of the cuda backend's FFT: exchanges and their bank conflicts, schedules, tables, the tuning table; and that kernels of the
// production library carry no trace of fault injection.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "cuda/embedded.hpp"
#include "cuda/jit.hpp"
#include "cuda/nvrtc.hpp"
#include "fft/cuda/roots.hpp"
#include "fft/cuda/schedule.hpp"
#include "fft/cuda/tables.hpp"
#include "fft/cuda/weights.hpp"
#include "fft/problem.hpp"
#include "fft/wide.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::capabilities;
using ballast::cuda::typical_capabilities;
using testing::HasSubstr;
using testing::Not;

const capabilities& ampere() {
  static const capabilities about = typical_capabilities("sm_80");
  return about;
}
const capabilities& hopper() {
  static const capabilities about = typical_capabilities("sm_90a");
  return about;
}

// ---- No trace of injection ----

// The sources with every call of strike<…>(…) taken out; how many there were is added to `removed`.
std::vector<std::string> without_strikes(std::span<const ballast::cuda::nvrtc::source> sources, int& removed) {
  std::vector<std::string> made;
  for (const auto& each : sources) {
    std::string text = each.text;
    for (std::size_t at = text.find("strike<"); at != std::string::npos; at = text.find("strike<", at)) {
      std::size_t end = text.find('(', at);
      int depth = 0;
      do {
        depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
        ++end;
      } while (depth != 0);
      // Back to where the statement begins: `launch.injector.template strike<…>(…)`.
      std::size_t start = at;
      while (std::isalnum(static_cast<unsigned char>(text[start - 1])) != 0 || text[start - 1] == '.' || text[start - 1] == '_' ||
             (text[start - 1] == ' ' && text.substr(0, start).ends_with("template ")))
        --start;
      if (text[end] == ';') {
        text.replace(start, end - start, "static_cast<void>(0)");
        ++removed;
        at = start;
      } else {
        at = end;
      }
    }
    made.push_back(std::move(text));
  }
  return made;
}

// The first test: NVRTC 13.0 has been seen to crash inside itself on a heap that much had happened on.
TEST(cuda_fft_injection, leaves_no_trace_in_kernels_of_the_production_library) {
  const auto* const compiler = ballast::cuda::nvrtc::find(std::numeric_limits<int>::max());
  if (compiler == nullptr) GTEST_SKIP() << ballast::cuda::nvrtc::why_not_found(std::numeric_limits<int>::max());
  const auto sources = ballast::cuda::embedded_sources();
  int removed = 0;
  const auto texts = without_strikes(sources, removed);
  EXPECT_GE(removed, 8) << "every site of the FFT and the log";
  std::vector<ballast::cuda::nvrtc::source> bare;
  for (std::size_t i = 0; i < sources.size(); ++i) bare.push_back({sources[i].name, texts[i].c_str()});
  const tuning_table rules;
  schedule_request wanted;
  wanted.shape = resolve({.shape = {1 << 15}, .batch = 2});
  wanted.check = check_form::verify_before_store;
  wanted.tuned = &rules;
  const schedule made = make_schedule(wanted, ampere());
  ASSERT_EQ(made.passes.size(), 2u);
  // The first pass has stages, twiddle factors behind them and every check.
  const line_policy& policy = made.passes.front().policy;
  ASSERT_EQ(policy.store_factor, factor_form::separated);
  const auto compiled = [&](bool instrumented, const char* architecture, std::span<const ballast::cuda::nvrtc::source> from) {
    const auto request = kernel_for(policy, instrumented);
    return compiler->compile(request.header, request.expression, architecture, from);
  };
  // Operations without their types: the compiler may write x > y as !(x ≤ y).
  const auto operations = [](const std::string& ptx) {
    std::map<std::string, int> count;
    std::istringstream lines(ptx);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string word;
      words >> word;
      if (word.starts_with('@')) words >> word;  // a predicate
      if (!word.empty() && std::isalpha(static_cast<unsigned char>(word.front())) != 0) ++count[word.substr(0, word.find('.'))];
    }
    return count;
  };
  const auto production = compiled(false, "compute_80", sources);
  EXPECT_EQ(operations(production.image), operations(compiled(false, "compute_80", bare).image)) << "the hook must vanish";
  EXPECT_EQ(compiled(false, "sm_80", sources).uses, compiled(false, "sm_80", bare).uses);
  const auto instrumented = compiled(true, "compute_80", sources);
  EXPECT_NE(operations(instrumented.image), operations(compiled(true, "compute_80", bare).image))
      << "or the comparison would prove nothing";
}

// ---- Exchanges ----

int word_of(const line_policy& p, int s, int i, int line) {
  const exchange_layout& e = p.exchange[s];
  const auto place = [&](int at) { return at + at / e.run * e.pad; };
  const int word = e.columns ? place(i) * p.lines + line : line * place(p.share()) + place(i);
  return word ^ (word >> e.shift[0] & e.mask[0]) ^ (word >> e.shift[1] & e.mask[1]);
}

// Cycles of every access of every warp in exchange s over the fewest there can be, by counting what lies in each bank.
double counted_cost(const line_policy& p, int s) {
  const int width = p.scalar_bytes() * (p.split ? 1 : 2);
  const int together = 128 / width;  // lanes that one cycle can serve
  const int r = p.radix[s];
  const int before = p.before_share(s);
  const bool ends = s == p.stages - 1;
  const int next = ends ? r : p.radix[s + 1];
  double spent = 0, least = 0;
  const auto count = [&](bool columns, int butterflies, const auto& element) {
    for (int first = 0; first < p.block(); first += together) {
      for (int q = 0; q < butterflies; ++q) {
        for (int k = 0;; ++k) {
          std::map<int, std::set<int>> banks;
          bool more = false;
          for (int thread = first; thread < std::min(first + together, p.block()); ++thread) {
            const int line = columns ? thread % p.lines : thread / p.threads;
            const int t = columns ? thread / p.lines : thread % p.threads;
            const int i = element(t + q * p.threads, k);
            more = more || i != -2;
            if (i >= 0) banks[word_of(p, s, i, line) % together].insert(word_of(p, s, i, line));
          }
          if (!more) break;
          std::size_t most = 0;
          for (const auto& [bank, words] : banks) most = std::max(most, words.size());
          spent += static_cast<double>(most);
          least += banks.empty() ? 0 : 1;
        }
      }
    }
  };
  count(s == 0 ? p.in_columns : p.out_columns, p.butterflies(s), [&](int j, int k) {
    if (k == r) return -2;
    if (j >= p.share() / r) return -1;
    if (p.cluster == 1 || s != p.cluster_after) return (j - j % before) * r + j % before + k * before;
    // To the block that has its residue of outputs; what goes to different blocks has no bank in common, but counts as if it had.
    const int residue = j % before + k * before;
    return p.rank_of_residue(residue) * p.share() + j / before * p.target_run() + p.place_of_residue(residue);
  });
  count(p.out_columns, ends ? p.butterflies(s) : p.butterflies(s + 1), [&](int j, int k) {
    if (k == next) return -2;
    return j >= p.share() / next ? -1 : j + k * (p.share() / next);
  });
  return spent / least;
}

// Every way to load and store a line.
template <class Body>
void for_every_request(int length, const Body& body) {
  for (const capabilities* device : {&ampere(), &hopper()}) {
    for (const bool wide : {false, true}) {
      if (!fits_one_pass(length, wide, *device)) continue;
      for (const int order : {0, 1, 2, 3}) {
        if (order != 0 && length > (wide ? 1024 : 2048)) continue;
        for (const check_form check : {check_form::none, check_form::verify_before_store}) {
          line_request wanted;
          wanted.length = length;
          wanted.wide = wide;
          wanted.in_columns = order % 2 != 0;
          wanted.out_columns = order / 2 != 0;
          wanted.check = check;
          wanted.count = 1 << 20;
          wanted.columns = 1 << 10;
          SCOPED_TRACE(fmt::format("length {}{} order {}{} {}", length, wide ? " f64" : "", order,
                                   check == check_form::none ? "" : " checked", device->name));
          body(wanted, *device);
        }
      }
    }
  }
}

// Lengths of one pass: every radix, two and more of them, powers and mixed ones.
const std::vector<int>& some_lengths() {
  static const std::vector<int> lengths = [] {
    std::vector<int> made = {60, 64, 91, 100, 128, 143, 169, 256, 360, 512, 1000, 1024, 1331, 2048, 4096, 6000, 8192, 16384};
    for (int n = 2; n <= 16; ++n) made.push_back(n);
    return made;
  }();
  return lengths;
}

int exchanges_of(const line_policy& p) { return p.exchanges() ? std::max(1, p.stages - 1) : 0; }

// Policies by rule; what was measured to be the fastest may have some.
TEST(cuda_fft_exchange, powers_of_two_have_no_bank_conflicts) {
  int seen = 0;
  for (int length = 2; length <= 16384; length *= 2) {
    for_every_request(length, [&](const line_request& wanted, const capabilities& device) {
      const line_policy p = choose_policy(wanted, device, tuning_table());
      for (int s = 0; s < exchanges_of(p); ++s) {
        ++seen;
        const double counted = counted_cost(p, s);
        if (length >= 64) {
          EXPECT_EQ(exchange_cost(p, s), 1) << "exchange " << s << " counted " << counted;
          EXPECT_EQ(counted, 1) << "exchange " << s;
        } else {
          EXPECT_LE(counted, 2) << "exchange " << s;
        }
      }
    });
  }
  EXPECT_GT(seen, 200);
}

// Lines of clusters, by rule: no conflicts either, also where results arrive in other blocks; and every element has one block and place.
TEST(cuda_fft_exchange, clusters_have_no_bank_conflicts) {
  for (const bool wide : {false, true}) {
    for (const check_form check : {check_form::none, check_form::verify_before_store}) {
      for (int length = wide ? 1 << 14 : 1 << 15; length <= (wide ? 1 << 16 : 1 << 17); length *= 2) {
        SCOPED_TRACE(fmt::format("length {}{}", length, wide ? " f64" : ""));
        EXPECT_GT(blocks_of_line(length, wide, hopper()), 1);
        EXPECT_EQ(blocks_of_line(length, wide, ampere()), 0);
        line_request wanted;
        wanted.length = length;
        wanted.wide = wide;
        wanted.check = check;
        line_policy p = choose_policy(wanted, hopper(), tuning_table());
        ASSERT_GT(p.cluster, 1);
        EXPECT_EQ(p.lines, 1);
        for (int s = 0; s < exchanges_of(p); ++s) {
          EXPECT_EQ(exchange_cost(p, s), 1) << "exchange " << s;
          EXPECT_EQ(counted_cost(p, s), 1) << "exchange " << s;
        }
        std::vector<bool> loaded(static_cast<std::size_t>(length)), stored(static_cast<std::size_t>(length));
        for (int rank = 0; rank < p.cluster; ++rank) {
          for (int i = 0; i < p.share(); ++i) {
            const auto from = static_cast<std::size_t>(p.source_element(i, rank));
            const auto to = static_cast<std::size_t>(p.target_element(i, rank));
            ASSERT_FALSE(loaded.at(from) || stored.at(to));
            loaded[from] = stored[to] = true;
          }
        }
        // The same with mirror images in one block.
        p.store = store_form::spectrum;
        stored.assign(stored.size(), false);
        for (int rank = 0; rank < p.cluster; ++rank) {
          for (int i = 0; i < p.share(); ++i) {
            const int o = p.target_element(i, rank);
            ASSERT_FALSE(stored.at(static_cast<std::size_t>(o)));
            stored[static_cast<std::size_t>(o)] = true;
            const int residue = o % p.target_distance();
            ASSERT_EQ(p.rank_of_residue(residue), rank);
            ASSERT_EQ(p.place_of_residue(residue), i % p.target_run());
            ASSERT_EQ(p.target_element(p.image_place(i, rank), rank), (length - o) % length);
          }
        }
        // Their layouts are chosen for lines without images: few conflicts.
        for (int s = 0; s < exchanges_of(p); ++s) {
          EXPECT_LE(exchange_cost(p, s), 1.5) << "exchange " << s;
          EXPECT_LE(counted_cost(p, s), 1.5) << "exchange " << s;
        }
      }
    }
  }
}

TEST(cuda_fft_exchange, every_layout_is_a_bijection) {
  for (const int length : some_lengths()) {
    for_every_request(length, [&](const line_request& wanted, const capabilities& device) {
      const line_policy p = choose_policy(wanted, device, tuning_table::active());
      const std::int64_t room = p.exchange_bytes() / (p.scalar_bytes() * (p.split ? 1 : 2));
      for (int s = 0; s < exchanges_of(p); ++s) {
        std::vector<bool> taken(static_cast<std::size_t>(room));
        for (int line = 0; line < p.lines; ++line) {
          for (int i = 0; i < length; ++i) {
            const int word = word_of(p, s, i, line);
            ASSERT_LT(word, room);
            ASSERT_FALSE(taken[static_cast<std::size_t>(word)]) << "element " << i << " of line " << line;
            taken[static_cast<std::size_t>(word)] = true;
          }
        }
      }
    });
  }
}

TEST(cuda_fft_policy, keeps_within_a_block) {
  for (const int prime : {37, 74, 67, 4099, 31 * 257}) EXPECT_FALSE(fits_one_pass(prime, false, hopper()));
  for (const int prime : {29, 58, 23 * 257}) EXPECT_FALSE(fits_one_pass(prime, true, hopper()));
  for (const int length : some_lengths()) {
    for_every_request(length, [&](const line_request& wanted, const capabilities& device) {
      const line_policy p = choose_policy(wanted, device, tuning_table::active());
      int product = 1;
      for (int s = 0; s < p.stages; ++s) product *= p.radix[s];
      EXPECT_EQ(product, length);
      EXPECT_GE(p.block(), 32);
      EXPECT_LE(p.block(), 1024);
      EXPECT_LE(p.min_blocks * p.block(), device.threads_per_multiprocessor);
      EXPECT_LE(p.shared_bytes(), device.shared_per_block);
      EXPECT_LE(p.min_blocks * p.shared_bytes(), device.shared_per_multiprocessor);
      EXPECT_LE(p.held() * (p.wide ? 4 : 2), 128) << "numbers that a thread holds must fit into its registers";
    });
  }
}

TEST(cuda_fft_policy, refuses_parts_that_do_not_fit_together) {
  line_request wanted;
  wanted.length = 64;
  EXPECT_NO_THROW(make_policy(wanted, {{8, 8}, 8, 4}));
  EXPECT_THROW(make_policy(wanted, {{8, 4}, 8, 4}), std::logic_error);
  EXPECT_NO_THROW(make_policy(wanted, {{32, 2}, 2, 16}));
  EXPECT_THROW(make_policy(wanted, {{64}, 1, 32}), std::logic_error);
  EXPECT_THROW(make_policy(wanted, {{8, 8}, 8, 3}), std::logic_error);
  EXPECT_THROW(make_policy(wanted, {{8, 8}, 8, 256}), std::logic_error);
  EXPECT_THROW(make_policy(wanted, {{}, 8, 4}), std::logic_error);
}

TEST(cuda_fft_policy, candidates_for_clusters_are_policies) {
  for (const bool wide : {false, true}) {
    for (const int length : {8192, 16384, 32768, 65536}) {
      line_request wanted;
      wanted.length = length;
      wanted.wide = wide;
      wanted.count = 1 << 10;
      wanted.clusterable = true;
      std::set<int> blocks;
      for (const tuned_line& each : candidates(wanted, hopper())) {
        if (each.cluster == 1) {
          EXPECT_TRUE(fits_one_pass(length, wide, hopper()));
          continue;
        }
        blocks.insert(each.cluster);
        const line_policy p = make_policy(wanted, each);
        EXPECT_LE(p.shared_bytes(), hopper().shared_per_block);
        EXPECT_LE(p.block() * p.min_blocks, hopper().threads_per_multiprocessor);
        EXPECT_LE((p.shared_bytes() + 1024) * p.min_blocks, hopper().shared_per_multiprocessor);
        tuning_table table;
        table.set(wanted, 9, each);
        EXPECT_EQ(tuning_table::parse(table.to_text()).find(wanted, 9), each);
        EXPECT_EQ(choose_policy(wanted, hopper(), table).cluster, each.cluster);
      }
      EXPECT_GE(blocks.size(), 2u) << length;
      wanted.clusterable = false;
      for (const tuned_line& each : candidates(wanted, hopper())) EXPECT_EQ(each.cluster, 1);
    }
  }
  line_request wanted;
  wanted.length = 65536;
  const tuned_line good{{16, 16, 16, 16}, 256, 1, false, 2, false, 1, 8, 1};
  EXPECT_NO_THROW(make_policy(wanted, good));
  for (const auto& [cluster, after] : {std::pair(32, 1), std::pair(8, 3), std::pair(8, -1), std::pair(5, 1)}) {
    tuned_line wrong = good;
    wrong.cluster = cluster;
    wrong.cluster_after = after;
    EXPECT_THROW(make_policy(wanted, wrong), std::logic_error) << cluster << " " << after;
    EXPECT_THROW(tuning_table::parse(fmt::format("sm_90 f32 65536 rows rows checked 16.16.16.16 256 1 whole 2 1 {} {}", cluster, after)),
                 invalid_argument_error);
  }
  wanted.in_columns = true;
  EXPECT_THROW(make_policy(wanted, good), std::logic_error);
}

TEST(cuda_fft_policy, candidates_of_the_tuner_are_policies) {
  for (const int length : {8, 60}) {
    for_every_request(length, [&](const line_request& wanted, const capabilities& device) {
      if (device.major != 9 || wanted.in_columns != wanted.out_columns) return;
      const auto all = candidates(wanted, device);
      EXPECT_FALSE(all.empty());
      for (const tuned_line& each : all) {
        const line_policy p = make_policy(wanted, each);
        EXPECT_LE(p.shared_bytes(), device.shared_per_block);
        EXPECT_LE(p.block() * p.min_blocks, device.threads_per_multiprocessor);
        EXPECT_EQ(std::ranges::count(all, each), 1);
        tuning_table table;
        table.set(wanted, device.major, each);
        EXPECT_EQ(table.find(wanted, device.major), each);
      }
    });
  }
}

// ---- Tables ----

TEST(cuda_fft_roots, are_the_nearest_doubles) {
  static_assert(root_of_unity(1, 4).re == 0 && root_of_unity(1, 4).im == -1);
  const long double turn = 2 * std::numbers::pi_v<long double>;
  for (int n = 1; n <= 64; ++n) {
    for (int k = 0; k < 2 * n; ++k) {
      const unit_root w = cuda::root_of_unity(k, n);
      const auto wanted = fft::root_of_unity<long double>(k, n);
      EXPECT_NEAR(static_cast<double>(std::abs(wanted.real() - std::cos(turn * k / n))), 0, 1e-17) << k << "/" << n;
      EXPECT_EQ(w.re, static_cast<double>(wanted.real())) << k << "/" << n;
      EXPECT_EQ(w.im, static_cast<double>(wanted.imag())) << k << "/" << n;
    }
  }
}

template <class T>
std::complex<long double> number_at(const std::vector<T>& table, std::size_t i) {
  return {static_cast<long double>(table.at(2 * i)), static_cast<long double>(table.at(2 * i + 1))};
}

template <class T>
class cuda_fft_tables : public testing::Test {
 protected:
  static constexpr long double u = sizeof(T) == 4 ? 0x1p-24L : 0x1p-53L;

  static line_policy policy(int length) {
    line_request wanted;
    wanted.length = length;
    wanted.wide = sizeof(T) == 8;
    wanted.count = wanted.columns = 1000;
    wanted.check = check_form::verify_before_store;
    return choose_policy(wanted, hopper(), tuning_table());
  }
  static std::vector<std::complex<long double>> noise(std::size_t count) {
    std::mt19937_64 random(count);
    std::normal_distribution<double> normal;
    std::vector<std::complex<long double>> x;
    for (std::size_t i = 0; i < count; ++i) {
      const double re = normal(random);
      x.emplace_back(re, normal(random));
    }
    return x;
  }
};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(cuda_fft_tables, precisions);

TYPED_TEST(cuda_fft_tables, stage_twiddles_are_rounded_roots) {
  using T = TypeParam;
  for (const int length : {2, 60, 64, 1000, 1331, 4096}) {
    const line_policy p = this->policy(length);
    const auto table = table_source<T>::stage_twiddles(p);
    std::size_t used = 0;
    for (int s = 1; s < p.stages; ++s) {
      const int before = p.before(s);
      for (int k = 1; k < p.radix[s]; ++k) {
        for (int j = 0; j < before; ++j, ++used) {
          ASSERT_EQ(used, static_cast<std::size_t>(p.twiddle_offset(s) + (k - 1) * before + j));
          const auto wanted = fft::root_of_unity<long double>(std::int64_t{j} * k, std::int64_t{before} * p.radix[s]);
          ASSERT_LE(std::abs(number_at(table, used) - wanted), 1.01L * this->u) << length << " stage " << s << " k " << k << " j " << j;
        }
      }
    }
    EXPECT_EQ(table.size(), 2 * used);
  }
}

TYPED_TEST(cuda_fft_tables, coarse_and_fine_twiddles_multiply_to_every_power) {
  using T = TypeParam;
  for (const std::int64_t order : {2, 3, 64, 1000, 4096, 65536, 1 << 20, 1000000}) {
    const int bits = fine_bits_of(order);
    const std::int64_t coarse = coarse_size_of(order);
    const auto table = table_source<T>::split_twiddles(order, bits);
    ASSERT_EQ(table.size(), static_cast<std::size_t>(2 * (coarse + (std::int64_t{1} << bits))));
    EXPECT_LE(coarse * coarse, 4 * order);
    for (std::int64_t p = 0; p < order; p += std::max<std::int64_t>(1, order / 1009)) {
      const auto got = number_at(table, static_cast<std::size_t>(p >> bits)) *
                       number_at(table, static_cast<std::size_t>(coarse + (p & ((std::int64_t{1} << bits) - 1))));
      ASSERT_LE(std::abs(got - fft::root_of_unity<long double>(p, order)), 2.05L * this->u) << p << " of " << order;
    }
  }
}

TYPED_TEST(cuda_fft_tables, separated_twiddles_multiply_to_every_power) {
  using T = TypeParam;
  for (const int length : {4, 60, 64, 512}) {
    const line_policy p = this->policy(length);
    for (const std::int64_t columns : {1, 7, 64}) {
      const auto table = table_source<T>::separated_twiddles(p, columns);
      const std::int64_t radix = p.radix[p.stages - 1];
      const std::int64_t stride = length / radix;
      ASSERT_EQ(table.size(), static_cast<std::size_t>(2 * columns * (radix + stride)));
      for (std::int64_t c = 0; c < columns; c += 3) {
        for (std::int64_t k = 0; k < length; ++k) {
          const auto got = number_at(table, static_cast<std::size_t>(c * radix + k / stride)) *
                           number_at(table, static_cast<std::size_t>(columns * (radix + k % stride) + c));
          ASSERT_LE(std::abs(got - fft::root_of_unity<long double>(c * k, length * columns)), 2.05L * this->u) << c << " " << k;
        }
      }
    }
  }
}

// Bluestein's algorithm with the tables, everything else in long double, is the transform.
TYPED_TEST(cuda_fft_tables, chirp_and_filter_convolve_to_the_transform) {
  using T = TypeParam;
  for (const std::int64_t n : {17, 67, 101, 499}) {
    for (const bool inverse : {false, true}) {
      const std::int64_t convolution = inverse ? -n : n;
      const std::int64_t m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * n)));
      const auto chirp = table_source<T>::chirp(convolution, m, false);
      const auto mirrored = table_source<T>::chirp(convolution, m, true);
      const auto filter = table_source<T>::filter(convolution, m);
      ASSERT_EQ(chirp.size(), static_cast<std::size_t>(2 * m));
      ASSERT_EQ(filter.size(), static_cast<std::size_t>(2 * m));
      const auto x = this->noise(static_cast<std::size_t>(n));
      std::vector<std::complex<long double>> a(static_cast<std::size_t>(m));
      for (std::size_t i = 0; i < x.size(); ++i) {
        a[i] = x[i] * number_at(chirp, i);
        EXPECT_EQ(number_at(mirrored, i), std::conj(number_at(chirp, i)));
      }
      for (std::size_t i = x.size(); i < a.size(); ++i)
        EXPECT_EQ(number_at(chirp, i), std::complex<long double>()) << "zeros beyond the line";
      a = dft(std::move(a));
      // The inverse by exchanged parts, as the second pass does it: its chirp is the conjugate one, and filter holds the 1/m.
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] *= number_at(filter, i);
        a[i] = {a[i].imag(), a[i].real()};
      }
      a = dft(std::move(a));
      std::vector<std::complex<long double>> y;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto z = a[i] * number_at(mirrored, i);
        y.emplace_back(z.imag(), z.real());
      }
      auto wanted = x;
      if (inverse) std::ranges::transform(wanted, wanted.begin(), [](const auto& z) { return std::conj(z); });
      wanted = dft(std::move(wanted));
      if (inverse) std::ranges::transform(wanted, wanted.begin(), [](const auto& z) { return std::conj(z); });
      long double difference = 0, size = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        difference += std::norm(y[i] - wanted[i]);
        size += std::norm(wanted[i]);
      }
      EXPECT_LE(std::sqrt(difference / size), 4 * this->u) << n << (inverse ? " inverse" : "");
    }
  }
}

// a of output o for both vectors, from the phases of its butterfly and which result of it it is.
template <class T>
std::array<std::complex<long double>, 2> weights_of(const line_policy& p, const std::vector<T>& phases, int o) {
  const int last = p.radix[p.stages - 1];
  const int stride = p.length / last;
  const int k = o / stride;
  const auto j = static_cast<std::size_t>(o % stride);
  std::array<std::complex<long double>, 2> a;
  for (std::size_t v = 0; v < 2; ++v) {
    a[v] = {phases[4 * j + 2 * v], phases[4 * j + 2 * v + 1]};
    for (int i = 0; i < weight_quarters(last, k); ++i) a[v] *= std::complex<long double>(0, 1);
  }
  if (k >= weight_half(last)) a[1] = -a[1];
  return a;
}

// Constants of a first butterfly, for a radix that is known when the test runs.
template <int Radix = k_weight_patterns>
std::vector<std::array<std::complex<long double>, 3>> inputs_of(int radix) {
  if constexpr (Radix == 0) {
    return {};
  } else {
    if (radix != Radix) return inputs_of<Radix - 1>(radix);
    constexpr input_weights<Radix> w;
    const auto wide = [](const unit_root& z) { return std::complex<long double>(z.re, z.im); };
    std::vector<std::array<std::complex<long double>, 3>> made;
    for (int m = 0; m < Radix; ++m) made.push_back({wide(w.line[0][m]), wide(w.line[1][m]), wide(w.butterfly[m])});
    return made;
  }
}
std::complex<long double> turned(std::complex<long double> z, int quarters) {
  for (; quarters > 0; --quarters) z *= std::complex<long double>(0, 1);
  return z;
}

// What a kernel encodes of x: of one stage from the inputs, else from what the first butterflies make of them, and what that lacks.
template <class T>
std::array<std::complex<long double>, 2> encoded(const line_policy& p, const typename table_source<T>::weights& weights,
                                                 const std::vector<std::complex<long double>>& x) {
  const int r = p.radix[0];
  const auto constants = inputs_of(r);
  std::array<std::complex<long double>, 2> made{};
  const int butterflies = p.length / r;
  for (int j = 0; j < butterflies; ++j) {
    std::vector<std::complex<long double>> z;
    std::complex<long double> given = 0, results = 0, series = 0;
    for (int m = 0; m < r; ++m) {
      z.push_back(x[static_cast<std::size_t>(j + m * butterflies)]);
      given += constants[static_cast<std::size_t>(m)][2] * z.back();
      if (p.stages > 1) continue;
      for (const std::size_t v : {0u, 1u}) made[v] += number_at(weights.verify, v) * constants[static_cast<std::size_t>(m)][v] * z.back();
    }
    if (p.stages == 1) continue;
    z = dft(std::move(z));
    const auto step = number_at(weights.encode, static_cast<std::size_t>(2 * butterflies + j));
    for (int k = 0; k < r; ++k) {
      const auto at = static_cast<std::size_t>(k);
      results += static_cast<long double>(butterfly_weight_size(r, k)) * turned(z[at], butterfly_weight_quarters(r, k));
      series += turned(z[at], weight_quarters(r, k)) * std::pow(step, k - weight_centre(r));
    }
    // In exact arithmetic these are the same.
    EXPECT_LE(std::abs(results - given), 1e-14L * std::abs(given) + 1e-14L);
    for (const std::size_t v : {0u, 1u})
      made[v] += number_at(weights.encode, 2 * static_cast<std::size_t>(j) + v) * (series + results - given);
  }
  return made;
}

// aᵀ(Wx) is what is encoded of x, for both vectors.
TYPED_TEST(cuda_fft_tables, weights_encode_what_they_verify) {
  using T = TypeParam;
  for (const int length : {1, 2, 7, 60, 64, 1000, 1024, 1331}) {
    const line_policy p = this->policy(length);
    const auto weights = table_source<T>::checksum_weights(p);
    ASSERT_EQ(weights.verify.size(), static_cast<std::size_t>(4 * length / p.radix[p.stages - 1]));
    ASSERT_EQ(weights.encode.size(), static_cast<std::size_t>(p.stages == 1 ? 0 : 6 * length / p.radix[0]));
    const auto x = this->noise(static_cast<std::size_t>(length));
    const auto y = dft(x);
    const auto in = encoded<T>(p, weights, x);
    std::complex<long double> out[2], product = 0;
    long double norm = 0;
    for (int i = 0; i < length; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto a = weights_of(p, weights.verify, i);
      product += a[0] * std::conj(a[1]);
      norm += std::norm(x[at]);
      for (const std::size_t v : {0u, 1u}) {
        EXPECT_NEAR(static_cast<double>(std::abs(a[v])), 1, 1e-6);
        out[v] += a[v] * y[at];
      }
    }
    for (const int v : {0, 1}) {
      // Only A and the step of the series are rounded beyond a: |A(j)| is about √(N/r), and the errors of N terms add up like noise.
      const long double allowed = 6 * this->u * std::sqrt(static_cast<long double>(length) * norm);
      EXPECT_LE(std::abs(out[v] - in[v]), allowed) << "length " << length << " vector " << v;
      EXPECT_GT(std::abs(out[v]), 100 * allowed) << "or this would prove nothing";
    }
    if (length >= 60) {
      EXPECT_LE(std::abs(product), length / 4.0L) << "vectors that are nearly orthogonal";
    }
  }
}

// What a change of one number before each stage does to the checksums, over the root of how many outputs it reaches: aᵀ taken backwards
// through the stages. Independent random phases give 1 in the mean square, and something near 0 for the unluckiest of many numbers. Where
// all outputs are those of one butterfly nothing is random, and the larger response must be well above 0.
TYPED_TEST(cuda_fft_tables, every_number_before_every_stage_is_seen_by_the_weights) {
  using T = TypeParam;
  double least_of_all = 10;
  for (const int length : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 60, 64, 256, 320, 512, 1000, 1024, 1331, 4096, 8192}) {
    SCOPED_TRACE(length);
    const line_policy p = this->policy(length);
    const auto weights = table_source<T>::checksum_weights(p);
    std::vector<std::array<std::complex<long double>, 2>> a(static_cast<std::size_t>(length));
    for (int o = 0; o < length; ++o) a[static_cast<std::size_t>(o)] = weights_of(p, weights.verify, o);
    double touched = 1;
    double square_sum = 0;
    int numbers = 0;
    for (int s = p.stages - 1; s >= std::min(1, p.stages - 1); --s) {
      const int r = p.radix[s];
      const int before = p.before(s);
      const int stride = length / r;
      auto back = a;
      double least = 10;
      touched *= r;
      for (int j = 0; j < stride; ++j) {
        for (int k = 0; k < r; ++k) {
          std::array<std::complex<long double>, 2> sum{};
          for (int m = 0; m < r; ++m) {
            const auto w = fft::root_of_unity<long double>(std::int64_t{m} * k, r);
            for (const std::size_t v : {0u, 1u})
              sum[v] += w * a[static_cast<std::size_t>((j - j % before) * r + j % before + m * before)][v];
          }
          const auto w = fft::root_of_unity<long double>(std::int64_t{j % before} * k, std::int64_t{before} * r);
          for (const std::size_t v : {0u, 1u}) back[static_cast<std::size_t>(j + k * stride)][v] = w * sum[v];
          const double first = static_cast<double>(std::abs(sum[0])) / std::sqrt(touched);
          const double second = static_cast<double>(std::abs(sum[1])) / std::sqrt(touched);
          least = std::min(least, std::max(first, second));
          square_sum += first * first + second * second;
          numbers += 2;
        }
      }
      a = std::move(back);
      if (s == p.stages - 1) {
        EXPECT_GE(least, 0.66);
      }
      EXPECT_GE(least, 0.05) << "stage " << s;
      least_of_all = std::min(least_of_all, least);
    }
    // What the first of several stages is given and makes is seen by its own weights, times A of its butterfly.
    if (p.stages > 1) {
      const int r = p.radix[0];
      const auto constants = inputs_of(r);
      double least = 10;
      for (int j = 0; j < length / r; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const double size = static_cast<double>(
            std::max(std::abs(number_at(weights.encode, 2 * at)), std::abs(number_at(weights.encode, 2 * at + 1))) / std::sqrt(length / r));
        for (int m = 0; m < r; ++m) {
          const auto given = static_cast<double>(std::abs(constants[static_cast<std::size_t>(m)][2])) / std::sqrt(r);
          least = std::min({least, size * given, size * butterfly_weight_size(r, m)});
        }
      }
      EXPECT_GE(least, 0.15) << "before and behind the first butterflies";
    }
    EXPECT_NEAR(square_sum / numbers, 1, 0.01);
  }
  this->RecordProperty("least_response", std::to_string(least_of_all));
}

// The exponents that weights.hpp has, for what it claims of them.
TEST(cuda_fft_weights, one_butterfly_has_no_blind_spot) {
  for (int count = 2; count <= k_weight_patterns; ++count) {
    SCOPED_TRACE(count);
    double least = 10;
    double least_first = 10;  // of the constant weights of first butterflies, whose size is 1 in the mean square after division by `size`
    double size = 0;
    for (int k = 0; k < count; ++k) size += butterfly_weight_size(count, k) * butterfly_weight_size(count, k) / count;
    for (int apart = 1; apart < count; ++apart) {
      if (count % apart != 0) continue;
      const int terms = count / apart;
      for (int first = 0; first < apart; ++first) {
        for (int frequency = 0; frequency < terms; ++frequency) {
          std::complex<double> half[2] = {0, 0};
          std::complex<double> alone = 0;
          for (int i = 0; i < terms; ++i) {
            const int n = first + i * apart;
            const double turn = -2 * std::numbers::pi * i * frequency / terms;
            half[n < weight_half(count) ? 0 : 1] += std::polar(1.0, std::numbers::pi / 2 * weight_quarters(count, n) + turn);
            alone += std::polar(butterfly_weight_size(count, n), std::numbers::pi / 2 * butterfly_weight_quarters(count, n) + turn);
          }
          least_first = std::min(least_first, std::abs(alone) / std::sqrt(terms * size));
          least = std::min(least, std::max(std::abs(half[0] + half[1]), std::abs(half[0] - half[1])) / std::sqrt(terms));
        }
      }
    }
    EXPECT_GE(least, count <= 16 ? 0.66 : 0.35);
    // 12 and 15 give some of this for what is within a butterfly, below.
    const bool used = count <= 16 || count == 17 || count == 19 || count == 23 || count == 29 || count == 31;
    EXPECT_GE(least_first, count == 12 || count == 15 ? 0.48 : used ? 0.53 : 0.39);
  }
}

// What one wrong number within a butterfly of `count` changes of its results, for each of its numbers: as butterfly.cuh computes them.
std::vector<std::vector<std::complex<double>>> faults_within(int count) {
  using results = std::vector<std::complex<double>>;
  const auto root = [](int k, int n) { return std::polar(1.0, -2 * std::numbers::pi * k / n); };
  std::vector<results> made;
  if (count <= 2) return made;
  if (count == 4) return {{1, 0, 1, 0}, {1, 0, -1, 0}, {0, 1, 0, 1}, {0, {0, -1}, 0, {0, 1}}};
  if (smallest_factor(count) == count) {
    for (int k = 1; 2 * k < count; ++k) {
      results sum(static_cast<std::size_t>(count)), difference = sum, cosines = sum, sines = sum;
      for (int m = 0; m < count; ++m) {
        sum[static_cast<std::size_t>(m)] = root(m * k, count).real();
        difference[static_cast<std::size_t>(m)] = root(m * k, count).imag();
      }
      cosines[static_cast<std::size_t>(k)] = cosines[static_cast<std::size_t>(count - k)] = sines[static_cast<std::size_t>(k)] = 1;
      sines[static_cast<std::size_t>(count - k)] = -1;
      made.insert(made.end(), {sum, difference, cosines, sines});
    }
    return made;
  }
  const int inner = inner_radix(count);
  const int outer = count / inner;
  const bool thomas = coprime(inner, outer);
  const auto place = [&](int p, int q) {
    return static_cast<std::size_t>(thomas ? index_of_remainders(p, inner, q, outer) : p + inner * q);
  };
  auto before = faults_within(inner);
  for (int p = 0; p < inner; ++p) {
    before.emplace_back(inner);
    before.back()[static_cast<std::size_t>(p)] = 1;
  }
  for (const results& wrong : before) {
    for (int b = 0; b < outer; ++b) {
      made.emplace_back(count);
      for (int p = 0; p < inner; ++p) {
        for (int q = 0; q < outer; ++q)
          made.back()[place(p, q)] = wrong[static_cast<std::size_t>(p)] * (thomas ? 1.0 : root(p * b, count)) * root(b * q, outer);
      }
    }
  }
  for (const results& wrong : faults_within(outer)) {
    for (int p = 0; p < inner; ++p) {
      made.emplace_back(count);
      for (int q = 0; q < outer; ++q) made.back()[place(p, q)] = wrong[static_cast<std::size_t>(q)];
    }
  }
  return made;
}

// The weights of last butterflies, and those of first ones, see every one of them.
TEST(cuda_fft_weights, no_number_within_a_butterfly_is_a_blind_spot) {
  for (const int count : {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 23, 29, 31, 32}) {
    SCOPED_TRACE(count);
    double size = 0;
    for (int k = 0; k < count; ++k) size += butterfly_weight_size(count, k) * butterfly_weight_size(count, k) / count;
    double least = 10;
    double least_first = 10;
    for (const auto& wrong : faults_within(count)) {
      double square = 0;
      std::complex<double> half[2] = {0, 0};
      std::complex<double> alone = 0;
      for (int k = 0; k < count; ++k) {
        const std::complex<double> y = wrong[static_cast<std::size_t>(k)];
        square += std::norm(y);
        half[k < weight_half(count) ? 0 : 1] += y * std::polar(1.0, std::numbers::pi / 2 * weight_quarters(count, k));
        alone += y * std::polar(butterfly_weight_size(count, k), std::numbers::pi / 2 * butterfly_weight_quarters(count, k));
      }
      least = std::min(least, std::max(std::abs(half[0] + half[1]), std::abs(half[0] - half[1])) / std::sqrt(square));
      least_first = std::min(least_first, std::abs(alone) / std::sqrt(square * size));
    }
    EXPECT_GE(least, count <= 16 ? 0.47 : 0.35);
    EXPECT_GE(least_first, 0.37);
  }
}

// ---- Tuning table ----

TEST(cuda_fft_tuning, comes_back_as_it_was_written) {
  const std::string text =
      "sm_80 f64 1000 rows columns unchecked 10.10.10 50 4 split 3 1.25\n"
      "sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1.08\n"
      "sm_90 f64 1024 rows rows checked 16.8.8 64 4 staged_split 3 1\n";
  const tuning_table table = tuning_table::parse("# a comment\n\n" + text);
  EXPECT_EQ(table.to_text(), text);
  EXPECT_EQ(tuning_table::parse(table.to_text()).to_text(), text);
  line_request wanted;
  wanted.length = 1024;
  wanted.check = check_form::verify_before_store;
  const auto found = table.find(wanted, 9);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, (tuned_line{{16, 8, 8}, 64, 4, false, 3, false, 1.08}));
  EXPECT_FALSE(table.find(wanted, 8).has_value());
  wanted.wide = true;
  EXPECT_TRUE(table.find(wanted, 9)->staged && table.find(wanted, 9)->split);
  wanted.in_columns = true;
  EXPECT_FALSE(table.find(wanted, 9).has_value());
  EXPECT_EQ(tuning_table::parse("").to_text(), "");
  const tuning_table& active = tuning_table::active();
  EXPECT_EQ(tuning_table::parse(active.to_text()).to_text(), active.to_text());
}

TEST(cuda_fft_tuning, errors_name_the_line_and_what_is_wrong_with_it) {
  const std::pair<const char*, const char*> wrong[] = {
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3", "12 fields"},
      {"sm_90 f32 n rows rows checked 16.8.8 64 4 whole 3 1", "12 fields"},
      {"gfx90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1", "an architecture like sm_90"},
      {"sm_x f32 1024 rows rows checked 16.8.8 64 4 whole 3 1", "an architecture like sm_90"},
      {"sm_90 f16 1024 rows rows checked 16.8.8 64 4 whole 3 1", "f32 or f64"},
      {"sm_90 f32 1024 row rows checked 16.8.8 64 4 whole 3 1", "rows or columns"},
      {"sm_90 f32 1024 rows column checked 16.8.8 64 4 whole 3 1", "rows or columns"},
      {"sm_90 f32 1024 rows rows yes 16.8.8 64 4 whole 3 1", "checked or unchecked"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 4 half 3 1", "whole, split, staged or staged_split"},
      {"sm_90 f32 1024 rows rows checked 64.16 64 4 whole 3 1", "radices from 1 to 32"},
      {"sm_90 f32 1024 rows rows checked 16.x.8 64 4 whole 3 1", "radices from 1 to 32"},
      {"sm_90 f32 1024 rows rows checked 16.8.4 64 4 whole 3 1", "whose product is the length"},
      {"sm_90 f32 512 rows rows checked 2.2.2.2.2.2.2.2.2 64 4 whole 3 1", "at most 8 radices"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 0 4 whole 3 1", "of at least 1"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 0 whole 3 1", "of at least 1"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 0 1", "of at least 1"},
  };
  for (const auto& [line, what] : wrong) {
    try {
      (void)tuning_table::parse(std::string("# first\n") + line);
      ADD_FAILURE() << "accepted: " << line;
    } catch (const invalid_argument_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("line 2"));
      EXPECT_THAT(e.what(), HasSubstr(what));
      EXPECT_THAT(e.what(), HasSubstr(line));
    }
  }
}

TEST(cuda_fft_tuning, a_line_that_is_in_the_table_gets_its_policy) {
  line_request wanted;
  wanted.length = 64;
  wanted.count = wanted.columns = 100000;
  tuning_table table;
  table.set(wanted, 9, {{4, 4, 4}, 8, 16, true, 2});
  const line_policy p = choose_policy(wanted, hopper(), table);
  EXPECT_EQ(p.stages, 3);
  EXPECT_EQ(p.threads, 8);
  EXPECT_EQ(p.lines, 16);
  EXPECT_TRUE(p.split);
  EXPECT_EQ(p.min_blocks, 2);
  EXPECT_NE(choose_policy(wanted, ampere(), table).stages, 3);
  wanted.count = 4;  // fewer lines than a tile has
  wanted.columns = 4;
  EXPECT_LT(choose_policy(wanted, hopper(), table).lines, 16);
}

// ---- Schedules ----

schedule scheduled(const problem& p, direction way, const capabilities& device, check_form check = check_form::verify_before_store) {
  schedule_request wanted;
  wanted.shape = resolve(p);
  wanted.precision = p.precision;
  wanted.direction = way;
  wanted.check = check;
  return make_schedule(wanted, device);
}

TEST(cuda_fft_schedule, lengths_are_split_into_passes_that_fit) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = 1; n <= 2500; n += n < 200 ? 1 : 13) lengths.push_back(n);
  for (int bit = 12; bit <= 29; ++bit) lengths.push_back(std::int64_t{1} << bit);
  for (const std::int64_t n : {1331 * 1331, 200 * 200 * 200, 531441, 4099, 65537, 1000003, 16777213}) lengths.push_back(n);
  for (const capabilities* device : {&ampere(), &hopper()}) {
    for (const precision type : {precision::f32, precision::f64}) {
      for (const std::int64_t n : lengths) {
        SCOPED_TRACE(fmt::format("{} {} {}", n, to_string(type), device->name));
        const schedule made = scheduled({.precision = type, .shape = {n}, .batch = 3}, direction::forward, *device);
        const bool convolves = made.passes.front().padded_to != 0;
        const std::int64_t whole = convolves ? made.passes.front().padded_to : n;
        if (convolves) {
          EXPECT_GE(whole, 2 * n - 1);
          EXPECT_LT(whole, 4 * n);
          EXPECT_GT(prime_factors(n).back(), 13);
        }
        std::int64_t product = 1;
        for (const pass& each : made.passes) {
          product *= each.policy.length;
          EXPECT_TRUE(fits_one_pass(each.policy.share(), type == precision::f64, *device));
          if (each.policy.cluster > 1) {
            EXPECT_GE(device->major, 9);
          }
          EXPECT_EQ(each.lines() * each.policy.length, 3 * whole);
        }
        EXPECT_EQ(product, convolves ? whole * whole : n);
        EXPECT_LE(made.passes.size(), convolves ? 6u : 3u);
        EXPECT_EQ(made.passes.size() == 1, made.work_elements() == 0);
        EXPECT_EQ(made.passes.front().from, place::input);
        EXPECT_EQ(made.passes.back().to, place::output);
      }
    }
  }
}

// Each pass that reads the input reads each of its elements once, each that writes the output writes each once, and lines know their
// signal.
TEST(cuda_fft_schedule, passes_touch_every_element_once_and_know_its_signal) {
  capabilities little = hopper();
  little.shared_per_block = little.shared_per_multiprocessor = 8192 + 4 * 64;
  struct layouts {
    std::vector<std::int64_t> shape;
    std::int64_t batch;
    layout in, out;
  };
  const layouts cases[] = {
      {{60}, 7, {}, {}},
      {{60}, 7, {{7}, 1}, {{7}, 1}},
      {{60}, 7, {{2}, 130}, {{40}, 1}},
      {{1024}, 3, {}, {}},
      {{1024}, 3, {{3}, 1}, {{1}, 1030}},
      {{6000}, 2, {{2}, 1}, {}},
      {{12, 20}, 3, {}, {}},
      {{12, 20}, 3, {{25, 1}, 320}, {{2, 30}, 700}},
      {{3, 4, 128}, 3, {{530, 130, 1}, 1600}, {{1, 3, 13}, 1700}},
      {{5, 6, 7}, 4, {{4, 20, 120}, 1}, {}},
      {{1, 30, 1}, 5, {}, {}},
      {{67}, 4, {{4}, 1}, {}},
      {{5, 1}, 4, {}, {}},
  };
  for (const capabilities* device : {&hopper(), &static_cast<const capabilities&>(little)}) {
    for (const layouts& c : cases) {
      for (const kind what : {kind::c2c, kind::r2c, kind::c2r}) {
        problem p{.kind = what, .shape = c.shape, .batch = c.batch, .input = c.in, .output = c.out};
        SCOPED_TRACE(fmt::format("{} on {} bytes", to_token(p, natural_direction(what)), device->shared_per_block));
        const geometry g = resolve(p);
        schedule made;
        ASSERT_NO_THROW(made = scheduled(p, natural_direction(what), *device));
        // Signal of each element, by its place.
        const auto elements_of = [&](const side& s) {
          std::map<std::int64_t, std::int64_t> signal;
          for (std::int64_t b = 0; b < g.batch; ++b) {
            for (std::int64_t i = 0; i < s.length[0]; ++i) {
              for (std::int64_t j = 0; j < s.length[1]; ++j) {
                for (std::int64_t k = 0; k < s.length[2]; ++k)
                  EXPECT_TRUE(signal.emplace(b * s.distance + i * s.stride[0] + j * s.stride[1] + k * s.stride[2], b).second);
              }
            }
          }
          return signal;
        };
        const auto inputs = elements_of(g.input);
        const auto outputs = elements_of(g.output);
        for (const pass& each : made.passes) {
          std::set<std::int64_t> read, written;
          std::vector<pass::repeat> loops = {{each.columns, each.source.column, each.target.column, each.signals[0]},
                                             {each.middles, each.source.middle, each.target.middle, each.signals[1]},
                                             {each.batches, each.source.batch, each.target.batch, each.signals[2]}};
          loops.insert(loops.end(), each.repeats.begin(), each.repeats.end());
          // Positions, too, which tell what padding and truncation leave out.
          const std::int64_t in_step[3] = {each.source.position_column, each.source.position_middle, 0};
          const std::int64_t out_step[3] = {each.target.position_column, each.target.position_middle, 0};
          // Reals in pairs: two places each. Of a spectrum there is one element more.
          const std::int64_t reals_read = each.from == place::input && g.input.real && each.policy.load == load_form::complex ? 2 : 1;
          const std::int64_t reals_written = each.to == place::output && g.output.real && each.policy.store == store_form::complex ? 2 : 1;
          const std::int64_t loaded = each.policy.length + (each.policy.load == load_form::spectrum ? 1 : 0);
          const std::int64_t stored = each.policy.length + (each.policy.mirrors() ? 1 : 0);
          for (std::int64_t index = 0; index < each.lines(); ++index) {
            std::int64_t rest = index, source = 0, target = 0, signal = 0, in_position = 0, out_position = 0;
            for (std::size_t d = 0; d < loops.size(); ++d) {
              const std::int64_t at = rest % loops[d].count;
              rest /= loops[d].count;
              source += at * loops[d].source;
              target += at * loops[d].target;
              signal += at / loops[d].signals.divisor % loops[d].signals.modulus;
              in_position += d < 3 ? at * in_step[d] : 0;
              out_position += d < 3 ? at * out_step[d] : 0;
            }
            ASSERT_LT(signal, g.batch);
            for (std::int64_t k = 0; k < std::max(loaded, stored); ++k) {
              const std::int64_t from = in_position + k * each.source.position_element;
              const std::int64_t to = out_position + k * each.target.position_element;
              if (each.from == place::input && k < loaded && !(each.policy.padded && from >= each.loaded)) {
                std::int64_t at = source + k * each.source.element;
                const bool mirrored = each.policy.load == load_form::half && 2 * from > each.whole;
                if (mirrored) at += (each.whole - 2 * from) * each.unit;
                for (std::int64_t real = reals_read * at; real < reals_read * (at + 1); ++real) {
                  ASSERT_TRUE(inputs.contains(real)) << "element " << k << " of line " << index;
                  ASSERT_EQ(inputs.at(real), signal);
                  ASSERT_TRUE(mirrored || read.insert(real).second);
                }
              }
              if (each.to == place::output && k < stored && !(each.policy.truncated && to >= each.stored)) {
                const std::int64_t at = target + k * each.target.element;
                for (std::int64_t real = reals_written * at; real < reals_written * (at + 1); ++real) {
                  ASSERT_TRUE(outputs.contains(real)) << "element " << k << " of line " << index;
                  ASSERT_EQ(outputs.at(real), signal);
                  ASSERT_TRUE(written.insert(real).second);
                }
              }
            }
          }
          EXPECT_TRUE(each.from != place::input || read.size() == inputs.size()) << read.size();
          EXPECT_TRUE(each.to != place::output || written.size() == outputs.size()) << written.size();
        }
      }
    }
  }
}

// Reals of even lengths are complex lines of half of them, where addresses and check allow it and that takes one pass.
TEST(cuda_fft_schedule, reals_go_in_pairs) {
  const auto paired = [](problem p, alignment aligned = {}, check_form check = check_form::verify_before_store) {
    schedule_request wanted;
    wanted.shape = resolve(p);
    wanted.direction = natural_direction(p.kind);
    wanted.check = check;
    wanted.aligned = aligned;
    for (const pass& each : make_schedule(wanted, hopper()).passes) {
      if (each.policy.load == load_form::spectrum || each.policy.mirrors()) return each.policy.length;
    }
    return 0;
  };
  for (const kind what : {kind::r2c, kind::c2r}) {
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}), 200);
    EXPECT_EQ(paired({.kind = what, .shape = {12, 400}, .batch = 3}), 200);
    EXPECT_EQ(paired({.kind = what, .shape = {65536}, .batch = 500}), 32768);
    EXPECT_EQ(paired({.kind = what, .shape = {65536}, .batch = 1}), 0) << "two passes occupy more of the device";
    EXPECT_EQ(paired({.kind = what, .shape = {2}, .batch = 3}), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {401}, .batch = 3}), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {134}, .batch = 3}), 0) << "a convolution";
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}, {true, false}), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}, {}, check_form::composite), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}, {}, check_form::thread), 0);
  }
  // A table's cluster for a length that is no power of two is not for these.
  schedule_request wanted;
  wanted.shape = resolve({.kind = kind::r2c, .shape = {18432}, .batch = 1000});
  const schedule made = make_schedule(wanted, hopper());
  ASSERT_EQ(made.passes.size(), 1u);
  EXPECT_TRUE(made.passes[0].policy.mirrors());
  EXPECT_EQ(made.passes[0].policy.length, 9216);
  EXPECT_EQ(made.passes[0].policy.cluster, 1);
  EXPECT_EQ(paired({.kind = kind::r2c, .shape = {3, 8}, .batch = 2, .input = {{9, 1}, 27}, .output = {{5, 1}, 15}}), 0) << "odd strides";
  EXPECT_EQ(paired({.kind = kind::r2c, .shape = {3, 8}, .batch = 2, .input = {{10, 1}, 31}, .output = {{5, 1}, 15}}), 0) << "odd distance";
  EXPECT_EQ(paired({.kind = kind::r2c, .shape = {8}, .batch = 2, .input = {{2}, 20}, .output = {{1}, 5}}), 0) << "not side by side";
}

// Where the elements of a tile's lines are, as its kernel finds them: on the side that two passes share.
std::set<std::int64_t> places_of(const pass& p, const line_side& s, std::int64_t tile, std::int64_t elements) {
  std::set<std::int64_t> made;
  const std::int64_t column_tiles = (p.columns + p.policy.lines - 1) / p.policy.lines;
  const std::int64_t row = tile / column_tiles;
  for (std::int64_t line = 0; line < p.policy.lines; ++line) {
    const std::int64_t column = tile % column_tiles * p.policy.lines + line;
    if (column >= p.columns) break;
    for (std::int64_t k = 0; k < elements; ++k)
      made.insert(column * s.column + row % p.middles * s.middle + row / p.middles * s.batch + k * s.element);
  }
  return made;
}

// What a tile of the second pass of a pair reads is written by tiles of the first that belong to the same unit, and what units write into
// one slot of the ring stays within it.
TEST(cuda_fft_schedule, units_of_pairs_depend_on_nothing_else) {
  capabilities little = hopper();
  little.shared_per_block = 8192 + 4 * 64;
  little.shared_per_multiprocessor = 4 * little.shared_per_block;
  int pairs = 0, rings = 0, groups = 0, tails = 0;
  for (const capabilities* device : {&hopper(), &static_cast<const capabilities&>(little)}) {
    for (const check_form check : {check_form::none, check_form::verify_before_store}) {
      for (const problem& p : std::vector<problem>{{.shape = {1024}, .batch = 5},
                                                   {.shape = {1024}, .batch = 1},
                                                   {.shape = {8192}, .batch = 1},
                                                   {.shape = {67}, .batch = 1},
                                                   {.kind = kind::c2r, .shape = {20, 18}, .batch = 1},
                                                   {.shape = {1024}, .batch = 5, .input = {{5}, 1}, .output = {{5}, 1}},
                                                   {.shape = {1024}, .batch = 5, .input = {{2}, 2050}, .output = {{1}, 1030}},
                                                   {.shape = {6000}, .batch = 3},
                                                   {.shape = {8192}, .batch = 2},
                                                   {.kind = kind::r2c, .shape = {1024}, .batch = 3},
                                                   {.kind = kind::c2r, .shape = {1024}, .batch = 3},
                                                   {.shape = {67}, .batch = 40},
                                                   {.shape = {4099}, .batch = 7},
                                                   {.shape = {40, 36}, .batch = 9},
                                                   {.shape = {40, 36}, .batch = 9, .input = {{40, 1}, 1700}, .output = {{1, 44}, 1800}},
                                                   {.kind = kind::r2c, .shape = {20, 18}, .batch = 9},
                                                   {.kind = kind::c2r, .shape = {20, 18}, .batch = 9},
                                                   {.shape = {6, 20, 18}, .batch = 4},
                                                   {.kind = kind::r2c, .shape = {6, 20, 18}, .batch = 4},
                                                   {.shape = {4, 128}, .batch = 3},
                                                   {.shape = {65536}, .batch = 3},
                                                   {.precision = precision::f64, .shape = {16384}, .batch = 3}}) {
        SCOPED_TRACE(fmt::format("{} on {} bytes", to_token(p, natural_direction(p.kind)), device->shared_per_block));
        schedule_request wanted;
        wanted.shape = resolve(p);
        wanted.precision = p.precision;
        wanted.direction = natural_direction(p.kind);
        wanted.check = check;
        wanted.pairs = pairing::wherever_possible;
        schedule made;
        try {
          made = make_schedule(wanted, *device);
        } catch (const std::logic_error&) {
          continue;  // a tile that does not fit into so little shared memory
        }
        for (std::size_t i = 0; i + 1 < made.passes.size(); ++i) {
          const pass& first = made.passes[i];
          if (!first.pair) continue;
          const pass& second = made.passes[i + 1];
          const pair_arguments& pair = *first.pair;
          EXPECT_FALSE(second.pair.has_value());
          EXPECT_EQ(first.to, second.from);
          EXPECT_EQ(first.policy.block(), second.policy.block());
          EXPECT_TRUE(pair.ahead >= 1 && (pair.ahead < pair.slots || pair.slots == pair.units)) << pair.ahead << " " << pair.slots;
          EXPECT_EQ(first.groups(), std::int64_t{pair.units} * pair.first_tiles);
          EXPECT_EQ(second.groups(), std::int64_t{pair.units} * pair.second_tiles);
          ++pairs;
          rings += first.to == place::ring ? 1 : 0;
          groups += pair.groups > 1 ? 1 : 0;
          tails += first.columns % first.policy.lines != 0 ? 1 : 0;
          std::set<std::int64_t> tiles;
          for (std::int64_t unit = 0; unit < pair.units; ++unit) {
            std::set<std::int64_t> written, read;
            const std::int64_t stored = first.policy.truncated ? first.stored : first.policy.length + (first.policy.mirrors() ? 1 : 0);
            const std::int64_t loaded = second.policy.load == load_form::half
                                            ? second.whole / 2 + 1
                                            : second.policy.length + (second.policy.load == load_form::spectrum ? 1 : 0);
            for (std::int64_t t = 0; t < pair.first_tiles; ++t)
              written.merge(places_of(first, first.target, unit * pair.first_tiles + t, stored));
            for (std::int64_t t = 0; t < pair.second_tiles; ++t) {
              const std::int64_t tile = (unit / pair.groups * pair.second_tiles + t) * pair.groups + unit % pair.groups;
              EXPECT_TRUE(tiles.insert(tile).second);
              read.merge(places_of(second, second.source, tile, loaded));
            }
            ASSERT_EQ(written, read) << "unit " << unit;
            if (pair.slot_elements == 0) continue;
            EXPECT_GE(*written.begin(), unit * pair.unit_elements);
            EXPECT_LT(*written.rbegin(), unit * pair.unit_elements + pair.slot_elements);
          }
          EXPECT_GE(made.room[static_cast<std::size_t>(place::ring)],
                    first.to == place::ring ? pair.slots * pair.slot_elements : std::int64_t{0});
        }
      }
    }
  }
  EXPECT_GE(pairs, 30);
  EXPECT_GE(rings, 15);
  EXPECT_GE(groups, 1);
  EXPECT_GE(tails, 1);
}

// Only where it was measured to pay.
TEST(cuda_fft_schedule, pairs_are_made_where_they_pay) {
  const auto paired = [](const problem& p, const capabilities& device, check_form check = check_form::none) {
    const schedule made = scheduled(p, direction::forward, device, check);
    return std::ranges::any_of(made.passes, [](const pass& each) { return each.pair.has_value(); });
  };
  const problem long_lines{.shape = {1 << 18}, .batch = 1024};
  EXPECT_TRUE(paired(long_lines, hopper()));
  EXPECT_TRUE(paired({.shape = {1 << 20}, .batch = 256}, hopper()));
  EXPECT_TRUE(paired({.precision = precision::f64, .shape = {1 << 18}, .batch = 512}, hopper()));
  EXPECT_FALSE(paired(long_lines, ampere()));
  EXPECT_FALSE(paired(long_lines, hopper(), check_form::verify_before_store));
  EXPECT_FALSE(paired({.precision = precision::f64, .shape = {1 << 20}, .batch = 128}, hopper()));
  EXPECT_FALSE(paired({.shape = {1 << 18}, .batch = 20}, hopper()));
  EXPECT_FALSE(paired({.kind = kind::r2c, .shape = {1 << 18}, .batch = 1024}, hopper()));
  EXPECT_FALSE(paired({.shape = {1 << 18}, .batch = 1024, .input = {{1024}, 1}, .output = {{1024}, 1}}, hopper()));
  EXPECT_FALSE(paired({.shape = {320, 320}, .batch = 256}, hopper()));
  // Its workspace is a part of what all signals need, and of what a chunk does.
  const schedule made = scheduled(long_lines, direction::forward, hopper(), check_form::none);
  EXPECT_LE(made.work_elements() * 8, hopper().l2_cache);
}

TEST(cuda_fft_schedule, expressions_differ_where_policies_do) {
  line_policy p;
  std::set<std::string> texts;
  const auto add = [&] {
    EXPECT_TRUE(texts.insert(kernel_expression(p, false)).second);
    EXPECT_TRUE(texts.insert(kernel_expression(p, true)).second);
  };
  add();
  for (bool line_policy::*flag :
       {&line_policy::wide, &line_policy::inverse, &line_policy::scaled, &line_policy::in_columns, &line_policy::out_columns,
        &line_policy::split, &line_policy::padded, &line_policy::truncated, &line_policy::shared_source, &line_policy::shared_target}) {
    p.*flag = true;
    add();
  }
  for (int line_policy::*number :
       {&line_policy::length, &line_policy::lines, &line_policy::threads, &line_policy::min_blocks, &line_policy::stages,
        &line_policy::transactions, &line_policy::source_step, &line_policy::target_step}) {
    p.*number += 1;
    add();
  }
  p.radix[7] = 5;
  add();
  p.exchange[7].mask[1] = 3;
  add();
  p.exchange[7].run = 10;
  add();
  p.exchange[7].pad = 1;
  add();
  const auto request = kernel_for(p, false);
  EXPECT_EQ(request.header, "fft/cuda/line.cuh");
  EXPECT_EQ(request.threads, p.block());
  EXPECT_EQ(request.shared, p.shared_bytes());
}

}  // namespace
}  // namespace ballast::fft::cuda
