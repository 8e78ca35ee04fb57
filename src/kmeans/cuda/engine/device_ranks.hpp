// The exchanges of the devices of a group: numbers of each device's own points, joined in the order of rows; integer sums; verdicts.
// Layer: backend "cuda" of K-Means, host. docs/design/distributed.md, "Devices".
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <ballast/error.hpp>

#include "abft/seal.hpp"
#include "abft/verify.hpp"
#include "core/format.hpp"
#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "group/exchange.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"

namespace ballast::kmeans::cuda {

// The operations, by which ranks see that all do the same.
enum class joined : std::uint64_t {
  settle = 1,
  agree,
  ranges,
  refused,
  sums,
  squares,
  points,
  positions,
  weight,
  potentials,
  potential,
  candidates,
  drawn,
  weighed,
  start,
  stretch,
  pass,
  labelled,
  host_sums,
  end,
  farthest,
  inertia
};

class device_ranks {
 public:
  // `over` null: the call has no group, and no other member but the conversion is called.
  device_ranks(wire::exchange* over, run::recorder& seen) : over_(over), seen_(seen) {}
  explicit operator bool() const { return over_ != nullptr; }
  std::size_t place() const { return over_->place(); }
  std::size_t size() const { return over_->size(); }
  // Returns whether a fault on any rank is uncorrectable, as far as all ranks know it alike.
  bool failed() const { return failed_; }

  // The arrays of all ranks, in their order. `seal`: of what all ranks must hold alike.
  template <class Value>
  std::vector<core::vector<Value>> parts(joined what, std::span<const Value> own, std::uint64_t seal = 0) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const std::int64_t flag = seen_.uncorrectable() ? 1 : 0;
    wire::bytes block(sizeof flag + own.size_bytes());
    std::memcpy(block.data(), &flag, sizeof flag);
    if (!own.empty()) std::memcpy(block.data() + sizeof flag, own.data(), own.size_bytes());
    expect(what, seal);
    std::vector<core::vector<Value>> made;
    for (const wire::bytes& each : over_->gather(std::span<const std::byte>(block))) {
      std::int64_t seen = 0;
      std::memcpy(&seen, each.data(), sizeof seen);
      failed_ = failed_ || seen != 0;
      core::vector<Value>& part = made.emplace_back((each.size() - sizeof seen) / sizeof(Value));
      if (!part.empty()) std::memcpy(part.data(), each.data() + sizeof seen, part.size() * sizeof(Value));
    }
    return made;
  }
  // The same in one array.
  template <class Value>
  core::vector<Value> all(joined what, const core::vector<Value>& own, std::uint64_t seal = 0) {
    core::vector<Value> made;
    for (const core::vector<Value>& each : parts(what, std::span<const Value>(own), seal))
      made.insert(made.end(), each.begin(), each.end());
    return made;
  }
  // Replaces words by their sums over all ranks, modulo 2⁶⁴, and returns the `own` of every rank.
  std::vector<std::uint64_t> add(joined what, std::span<unsigned long long> words, std::uint64_t own = 0, std::uint64_t seal = 0) {
    std::vector<std::int64_t> message(words.size() + size() + 1, 0);
    if (!words.empty()) std::memcpy(message.data(), words.data(), words.size_bytes());
    message[words.size() + place()] = static_cast<std::int64_t>(own);
    message.back() = seen_.uncorrectable() ? 1 : 0;
    expect(what, seal);
    over_->add(message);
    failed_ = failed_ || message.back() != 0;
    if (!words.empty()) std::memcpy(words.data(), message.data(), words.size_bytes());
    return {message.begin() + static_cast<std::ptrdiff_t>(words.size()), message.end() - 1};
  }
  // Writes the sums of the words of all ranks to `to` and returns the `state` of every rank. The words are read where they lie: every rank
  // sends the address of its own, with two sums over them, and each that reads them compares these. `own` must stay as it is until the
  // next call but one has begun. `level`: whether they are compared, and read again if they differ (check group.sum).
  std::vector<std::uint64_t> add_in_place(joined what, std::span<const unsigned long long> own, std::span<unsigned long long> to,
                                          std::uint64_t state, protection level, int threads) {
    struct notice {
      const unsigned long long* words;
      std::uint64_t count, state, sums[2];
    };
    notice mine{own.data(), own.size(), state, {}};
    const std::int64_t tasks = (static_cast<std::int64_t>(own.size()) + k_task - 1) / k_task;
    const auto range = [&](std::span<const unsigned long long> of, std::int64_t task) {
      const auto first = static_cast<std::size_t>(task * k_task);
      return of.subspan(first, std::min<std::size_t>(k_task, of.size() - first));
    };
    core::vector<notice> sealed(static_cast<std::size_t>(tasks));
    if (level != protection::off) {
      core::parallel_for(threads, tasks, [&](std::int64_t task, int) {
        weigh(range(own, task), task * k_task, sealed[static_cast<std::size_t>(task)].sums);
      });
      for (const notice& each : sealed) mine.sums[0] += each.sums[0], mine.sums[1] += each.sums[1];
    }
    const core::vector<notice> all = this->all(what, core::vector<notice>{mine});
    std::vector<std::uint64_t> states;
    for (const notice& each : all) states.push_back(each.state);
    if (std::ranges::any_of(all, [&](const notice& each) { return each.count != own.size(); }))
      throw invalid_argument_error(fmt::format("group: expected {} words of every device, got others", own.size()));
    const auto once = [&] {
      core::vector<std::uint64_t> found(2 * all.size() * static_cast<std::size_t>(tasks));
      core::parallel_for(threads, tasks, [&](std::int64_t task, int) {
        const auto first = static_cast<std::size_t>(task * k_task);
        for (std::size_t p = 0; p < all.size(); ++p) {
          const std::span<const unsigned long long> part = range({all[p].words, all[p].count}, task);
          if (level != protection::off)
            weigh(part, task * k_task, &found[2 * (p * static_cast<std::size_t>(tasks) + static_cast<std::size_t>(task))]);
          for (std::size_t e = 0; e < part.size(); ++e) to[first + e] = p == 0 ? part[e] : to[first + e] + part[e];
        }
      });
      abft::finding made;
      for (std::size_t p = 0; p < all.size() && level != protection::off; ++p) {
        std::uint64_t sums[2] = {};
        for (std::size_t task = 0; task < static_cast<std::size_t>(tasks); ++task)
          for (std::size_t e = 0; e < 2; ++e) sums[e] += found[2 * (p * static_cast<std::size_t>(tasks) + task) + e];
        if (sums[0] == all[p].sums[0] && sums[1] == all[p].sums[1]) continue;
        made.word = abft::k_fail;
        made.residual = std::numeric_limits<double>::quiet_NaN();
        made.index = static_cast<std::int64_t>(p);
      }
      return made;
    };
    if (level == protection::off || own.empty()) {
      (void)once();
      return states;
    }
    run::attempt(seen_, level, "group.sum", 0, [&](int) {
      seen_.checked(all.size());
      return once();
    });
    return states;
  }
  // Returns whether `own` is true on all ranks.
  bool everywhere(joined what, bool own, std::uint64_t seal = 0) {
    for (const std::uint64_t each : add(what, {}, own ? 1 : 0, seal))
      if (each == 0) return false;
    return true;
  }
  // See engine::agreed.
  abft::finding agreed(const abft::finding& own) {
    abft::finding made = own;
    if (!everywhere(joined::agree, own.word == abft::k_pass) && made.word == abft::k_pass) {
      made.word = abft::k_fail;
      made.check = "group.verdict";
    }
    if (own.judged) return made;
    abft::result_hash bits;
    for (const std::uint64_t each : add(joined::agree, {}, own.bits)) bits.add(static_cast<std::int64_t>(each));
    made.bits = bits.bits();
    return made;
  }

 private:
  static constexpr std::int64_t k_task = 8192;  // words
  // Adds two sums over words, each word times an odd weight of its number, as wire::sum_body does.
  static void weigh(std::span<const unsigned long long> words, std::int64_t first, std::uint64_t* sums) {
    std::uint64_t a = 0, b = 0, place = 2 * static_cast<std::uint64_t>(first) + 1;
    for (const unsigned long long word : words) {
      a += word * (0x9e3779b97f4a7c15u * place);
      b += (word ^ word >> 31) * (0xd6e8feb86659fd93u * place);
      place += 2;
    }
    sums[0] += a;
    sums[1] += b;
  }
  void expect(joined what, std::uint64_t seal) {
    over_->expect_alike(abft::chained(abft::chained(0x6465766963657321u, static_cast<std::uint64_t>(what)), seal));
  }

  wire::exchange* over_;
  run::recorder& seen_;
  bool failed_ = false;
};

}  // namespace ballast::kmeans::cuda
