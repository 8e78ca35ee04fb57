// Policies of kernels: the exchanges through shared memory and their bank conflicts, the limits of a block, and the tuner's candidates.
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/exchange.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/cuda/tune/candidates.hpp"
#include "support/effort.hpp"
#include "unit/cuda_fft_devices.hpp"

namespace ballast::fft::cuda {
namespace {

// ---- Exchanges ----

int word_of(const line_policy& p, int s, int i, int line) {
  if (p.by_definition()) return i * p.definition_pitch() + line;
  const exchange_layout& e = p.exchange[s];
  const auto position = [&](int at) { return at + at / e.run * e.pad; };
  const int word = e.columns ? position(i) * p.lines + line : line * position(p.share()) + position(i);
  return word ^ (word >> e.shift[0] & e.mask[0]) ^ (word >> e.shift[1] & e.mask[1]);
}

// Returns the cycles of all accesses of all warps in exchange s divided by the minimum, by counting the words in each bank.
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
    // Each result goes to the block that has its residue of outputs. Stores to different blocks share no banks; counting them as if they
    // did can only raise the count.
    const int residue = j % before + k * before;
    return p.rank_of_residue(residue) * p.share() + j / before * p.target_run() + p.position_of_residue(residue);
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

// Lengths of one pass: every radix, products of two and more of them, powers and mixed lengths.
const std::vector<int>& some_lengths() {
  static const std::vector<int> lengths = [] {
    std::vector<int> made = {29,  37,  60,  74,   592,  64,   91,   100,  128,  143,  127,  169,
                             256, 360, 512, 1000, 1024, 1331, 2048, 4096, 6000, 8192, 16384};
    for (int n = 2; n <= 16; ++n) made.push_back(n);
    return made;
  }();
  return lengths;
}

int exchanges_of(const line_policy& p) { return p.exchanges() ? std::max(1, p.stages - 1) : 0; }

// For policies chosen by rule. A policy of the tuning table may have conflicts and still be faster.
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

// Clusters, with policies chosen by rule: no exchange has conflicts, including those into other blocks, and every element has one block and
// one place.
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
        // The same if each mirror image must be in the same block.
        p.store = store_form::spectrum;
        stored.assign(stored.size(), false);
        for (int rank = 0; rank < p.cluster; ++rank) {
          for (int i = 0; i < p.share(); ++i) {
            const int o = p.target_element(i, rank);
            ASSERT_FALSE(stored.at(static_cast<std::size_t>(o)));
            stored[static_cast<std::size_t>(o)] = true;
            const int residue = o % p.target_distance();
            ASSERT_EQ(p.rank_of_residue(residue), rank);
            ASSERT_EQ(p.position_of_residue(residue), i % p.target_run());
            ASSERT_EQ(p.target_element(p.image_position(i, rank), rank), (length - o) % length);
          }
        }
        // Layouts are chosen for lines without mirror images: here a few conflicts remain.
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

// ---- Limits of a block ----

TEST(cuda_fft_policy, keeps_within_a_block) {
  for (const int length : {131, 37 * 17, 37 * 37, 4099, 31 * 257}) EXPECT_FALSE(fits_one_pass(length, false, hopper())) << length;
  for (const int length : {131, 29 * 9, 29 * 29, 23 * 257}) EXPECT_FALSE(fits_one_pass(length, true, hopper())) << length;
  for (const int length : some_lengths()) {
    for_every_request(length, [&](const line_request& wanted, const capabilities& device) {
      const line_policy p = choose_policy(wanted, device, tuning_table::active());
      int product = 1;
      for (int s = 0; s < p.stages; ++s) product *= p.radix[s];
      const int before = radix_before_definition(length, wanted.wide);
      EXPECT_EQ(product, before != 0 ? before : length);
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
      if (test::sampled() && length != 16384) continue;
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
    const auto line = fmt::format("fft sm_90 f32 65536 rows rows checked 16.16.16.16 256 1 whole 2 1 {} {}", cluster, after);
    EXPECT_EQ(tuning_table::parse(line).warnings().size(), 1u) << line;
  }
  wanted.in_columns = true;
  EXPECT_THROW(make_policy(wanted, good), std::logic_error);
}

TEST(cuda_fft_policy, candidates_of_the_tuner_are_policies) {
  for (const int length : {8, 60}) {
    if (test::sampled() && length != 8) continue;
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

}  // namespace
}  // namespace ballast::fft::cuda
