// One call of QR on all ranks of a group: what every member of row_factors and column_factors does around its work.
// Layer: algorithm, over group/session.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/execution.hpp>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "core/format.hpp"
#include "group/session.hpp"
#include "inject/injector.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "qr/sites.hpp"
#include "run/attempt.hpp"
#include "run/sampling.hpp"
#include "run/settings.hpp"

namespace ballast::qr {

// Numbers of the digests.
enum class group_call : std::uint64_t {
  factor = 0x51,
  apply,
  apply_transposed,
  solve,
  factor_columns,
  q_columns,
  redistribute,
  factor_grid
};

// One call: what every member does around its work.
template <class T>
class group_operation {
 public:
  group_operation(const execution& where, const call& now, std::string token, group_call what, std::int64_t columns)
      : group_(where.group),
        over_(wire::exchange_of(where.group, token)),
        alone_(where),
        token_(token),
        part_(std::move(token)),
        how_(run::settings_of(where, now)),
        quiet_(nullptr, site::table()),
        seen_(part_, ballast::backend::automatic, "", how_, quiet_),
        digest_(digest_of({static_cast<std::uint64_t>(what), static_cast<std::uint64_t>(columns), sizeof(T), is_complex<T> ? 1u : 0u,
                           static_cast<std::uint64_t>(how_.protection)})) {
    run::check_protection(where, token_, false);
    alone_.group = {};
  }

  // The problem's token from now on: that of the whole matrix, where the ranks learn its size from each other. Reports have it.
  void poses(std::string token) { token_ = std::move(token); }

  wire::exchange& over() { return over_; }
  bool first() const { return over_.place() == 0; }
  // How a rank computes by itself: a fault that stays is known to all ranks before it is thrown.
  const execution& alone() const { return alone_; }
  static call silent() { return {.throw_on_uncorrectable = false}; }
  void add(const report& part) {
    if (own_.backend == ballast::backend::automatic) {
      own_.backend = part.backend;
      own_.scheme = part.scheme;
    }
    own_.merge(part);
  }

  // Sends what the first rank has to all.
  wire::bytes from_first(std::span<const std::byte> block) {
    return std::move(over_.gather(first() ? block : std::span<const std::byte>())[0]);
  }

  // Calls check(), which throws invalid_argument_error where this rank refuses its arguments and else returns numbers that all ranks must
  // have alike. If a rank refuses, all throw: those that do their own error, the others that of the first. If numbers differ, all throw
  // invalid_argument_error with `unlike`.
  template <class Check>
  void check_together(const Check& check, const std::string& unlike) {
    std::vector<std::int64_t> numbers;
    std::string refused;
    try {
      numbers = check();
    } catch (const invalid_argument_error& wrong) {
      refused = wrong.what();
    }
    const auto own =
        refused.empty() ? std::as_bytes(std::span<const std::int64_t>(numbers)) : std::as_bytes(std::span<const char>(refused));
    std::vector<std::byte> block(own.size() + 1, std::byte{0});  // the first says whether it refuses
    block[0] = static_cast<std::byte>(refused.empty() ? 0 : 1);
    std::ranges::copy(own, block.begin() + 1);
    const std::vector<wire::bytes> all = over_.gather(block);
    if (!refused.empty()) throw invalid_argument_error(refused);
    bool alike = true;
    for (std::size_t p = 0; p < all.size(); ++p) {
      const wire::bytes& other = all[p];
      if (!other.empty() && other[0] != std::byte{0})
        throw invalid_argument_error(fmt::format("{} (rank {} of the group)",
                                                 std::string_view(reinterpret_cast<const char*>(other.data()) + 1, other.size() - 1),
                                                 over_.members()[p]));
      alike = alike && other == block;
    }
    if (!alike) throw invalid_argument_error(unlike);
  }

  ballast::protection protection() const { return how_.protection; }
  void checked(std::uint64_t count) { seen_.checked(count); }

  // Makes attempts that all ranks make alike: pass(number) is this rank's part of attempt `number`, which may contain exchanges. It returns
  // its finding, or std::nullopt if something below it has failed for good, which is recorded; an attempt passes if it passes on all ranks.
  template <class Pass>
  void attempt(const char* site, const Pass& pass) {
    struct verdict {
      std::uint64_t failed = 0, wrong = 0, judged = 1, bits = 0;
      double residual = 0, threshold = 0;
      std::int64_t index = -1;
    };
    run::attempt(seen_, how_.protection, site, 0, [&](int number) -> std::optional<abft::finding> {
      const std::optional<abft::finding> own = pass(number);
      verdict mine{.failed = own ? std::uint64_t{0} : 1};
      if (own) mine = {0, own->word == abft::k_pass ? 0u : 1u, own->judged ? 1u : 0u, own->bits, own->residual, own->threshold, own->index};
      abft::finding all = own.value_or(abft::finding{});
      all.word = abft::k_pass;
      abft::result_hash bits;
      bool failed = false, computed = true;
      for (const auto& each : over_.gather(std::span<const verdict>(&mine, 1))) {
        const verdict& other = each.at(0);
        failed = failed || other.failed != 0;
        all.judged = all.judged && other.judged != 0;
        computed = computed && other.bits != 0;
        bits.add(other.bits);
        if (other.wrong == 0 || all.word != abft::k_pass) continue;
        all.word = abft::k_fail;
        all.residual = other.residual;
        all.threshold = other.threshold;
        all.index = other.index;
      }
      if (failed) return std::nullopt;
      all.bits = computed ? bits.bits() : 0;
      if (all.word != abft::k_pass && mine.wrong == 0) all.check = "group.verdict";
      return all;
    });
  }

  // Runs work() on all ranks and returns the report of all.
  template <class Work>
  report run(const Work& work) {
    try {
      return named(wire::in_group(over_, seen_, part_, [&] {
        over_.expect_alike(digest_);
        work();
        report all = seen_.collect();
        all.merge(own_);
        all.backend = own_.backend;
        all.scheme = own_.scheme;
        return wire::joined(over_, all);
      }));
    } catch (const uncorrectable_error& fault) {
      throw uncorrectable_error(named(fault.report()));
    } catch (const wire::ranks_lost&) {
      over_.regroup();
      throw rank_lost_error(wire::lost_message(over_, token_), over_.lost());
    }
  }

 private:
  // A hash of numbers that all ranks must have alike, since their exchanges depend on them.
  static std::uint64_t digest_of(std::initializer_list<std::uint64_t> words) {
    std::uint64_t made = 0;
    for (const std::uint64_t each : words) made = abft::chained(made, each);
    return made;
  }
  report named(report made) const {
    made.problem = token_;
    return made;
  }

  group group_;
  wire::exchange& over_;
  execution alone_;
  std::string token_;
  const std::string part_;  // the token that the call was begun with
  run::settings how_;
  inject::active_injector quiet_;
  run::recorder seen_;
  std::uint64_t digest_;
  report own_;
};

}  // namespace ballast::qr
