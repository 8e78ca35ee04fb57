// Tries shifts, masks and gaps on the exact accesses of the kernel.
#include "fft/cuda/policy/exchange.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/device/bank_conflicts.hpp"

namespace ballast::fft::cuda {

namespace {

using ballast::cuda::warp_access;

constexpr double k_cost_of_masks = 0.35;  // in cycles per access above the minimum

// Returns the words that the threads of the first warps access in each access of exchange s: at least one access of each kind.
std::vector<warp_access> accesses(const line_policy& p, int s) {
  const bool ends = s == p.stages - 1;
  const exchange_layout e = p.exchange[s];
  std::vector<warp_access> made;
  const auto word = [&](int i, int line) {
    return e.columns ? e.position(i) * p.lines + line : line * e.position(p.share()) + e.position(i);
  };
  const auto add = [&](bool columns, const auto& element) {
    const int warps = std::min(4, (p.block() + 31) / 32);
    for (int w = 0; w < warps; ++w) {
      warp_access words;
      for (int lane = 0; lane < 32 && w * 32 + lane < p.block(); ++lane) {
        const int thread = w * 32 + lane;
        const int line = columns ? thread % p.lines : thread / p.threads;
        const int t = columns ? thread / p.lines : thread % p.threads;
        const int i = element(t);
        words.push_back(i < 0 ? -1 : word(i, line));
      }
      made.push_back(std::move(words));
    }
  };
  const int r = p.radix[s];
  const int before = p.before_share(s);
  const int next = ends ? r : p.radix[s + 1];
  const bool leaves = p.cluster > 1 && s == p.cluster_after;
  // The words of one thread differ by constants, and the masks act differently on them: a few of them represent all.
  for (int k = 0; k < r; k += std::max(1, r / 4)) {
    add(s == 0 ? p.in_columns : p.out_columns, [&](int t) {
      if (t >= p.share() / r) return -1;
      // The position in the receiving block. Words for different blocks are counted as if one block received them all.
      if (leaves) {
        const int residue = t % before + k * before;
        return p.rank_of_residue(residue) * p.share() + t / before * p.target_run() + p.position_of_residue(residue);
      }
      return (t - t % before) * r + t % before + k * before;
    });
  }
  for (int k = 0; k < next; k += std::max(1, next / 4)) {
    add(p.out_columns, [&](int t) { return t >= p.share() / next ? -1 : t + k * (p.share() / next); });
  }
  return made;
}

// Returns the function that applies the shifts and masks of a layout to a word.
auto moved_by(const exchange_layout& e) {
  return [e](int word) { return word ^ (word >> e.shift[0] & e.mask[0]) ^ (word >> e.shift[1] & e.mask[1]); };
}

// Returns the mean cycles of an access above the minimum; if that exceeds `most`, some number above `most`.
double cost_of(const std::vector<warp_access>& all, const exchange_layout& e, int width,
               double most = std::numeric_limits<double>::infinity()) {
  return ballast::cuda::bank_cost(all, width, moved_by(e), most);
}

int word_width(const line_policy& p) { return p.scalar_bytes() * (p.split ? 1 : 2); }

// Unless length, lines and threads are powers of two, masks cost a thread about three instructions per access. In that case this function
// returns the cheapest layout without masks (with or without gaps), unless `found` has clearly fewer conflicts.
exchange_layout straight_or(line_policy p, int s, const exchange_layout& found, double cost) {
  const auto power = [](int n) { return std::has_single_bit(static_cast<unsigned>(n)); };
  if (power(p.length) && power(p.lines) && power(p.threads)) return found;
  // For these, layouts without masks were not faster on an H200, or took more registers than available.
  if (p.wide || p.check != check_form::none || p.ragged(s) || p.ragged(s + 1)) return found;
  exchange_layout best = found;
  double least = cost + (found.mask[0] != 0 ? k_cost_of_masks : 0.0);
  const int own = p.before(s + 1);
  const int distance = p.share() / p.radix[s + 1];
  for (int run = own; run <= distance; run += own) {
    if (distance % run != 0) continue;
    for (int pad = 0; pad < 16 && (pad == 0 || 8 * pad <= run); ++pad) {
      exchange_layout tried;
      tried.columns = p.out_columns;
      tried.run = pad == 0 ? 1 : run;
      tried.pad = pad;
      p.exchange[s] = tried;
      const double spent = cost_of(accesses(p, s), tried, word_width(p), least);
      if (spent >= least - 1e-9) continue;
      least = spent;
      best = tried;
    }
  }
  return best;
}

// Returns a policy with only the fields that the choice depends on; the others keep their defaults.
line_policy what_decides(const line_policy& p) {
  line_policy made;
  made.wide = p.wide;
  made.in_columns = p.in_columns;
  made.out_columns = p.out_columns;
  made.split = p.split;
  made.store = p.store;  // mirror images, in a cluster
  made.check = p.check;
  made.length = p.length;
  made.lines = p.lines;
  made.threads = p.threads;
  made.stages = p.stages;
  made.cluster = p.cluster;
  made.cluster_after = p.cluster_after;
  std::ranges::copy(p.radix, made.radix);
  return made;
}

exchange_layout search(line_policy p, int s) {
  exchange_layout best;
  best.columns = p.out_columns;
  p.exchange[s] = best;
  const auto seen = accesses(p, s);
  const int width = word_width(p);
  double least = cost_of(seen, best, width);
  const int bits = std::bit_width(static_cast<unsigned>(p.share() * p.lines));
  exchange_layout one = best;
  for (int shift = 3; shift < bits && least > 1.0001; ++shift) {
    for (const int mask : {15, 14, 12, 8, 7, 3, 1, 6, 4, 2}) {
      if (shift == 3 && mask > 7) continue;
      exchange_layout tried = best;
      tried.shift[0] = shift;
      tried.mask[0] = mask;
      tried.mask[1] = 0;
      const double cost = cost_of(seen, tried, width, least);
      if (cost < least - 1e-9) {
        least = cost;
        one = tried;
      }
    }
  }
  exchange_layout two = one;
  for (int shift = 3; shift < bits && least > 1.0001; ++shift) {
    for (int mask = 1; mask < 16; ++mask) {
      if (shift == 3 && mask > 7) continue;
      exchange_layout tried = one;
      tried.shift[1] = shift;
      tried.mask[1] = mask;
      const double cost = cost_of(seen, tried, width, least);
      if (cost < least - 1e-9) {
        least = cost;
        two = tried;
      }
    }
  }
  // Powers of two have layouts without conflicts. If choosing the shifts one after the other found none, choose both together.
  if (least > 1.0001 && p.share() >= 64 && std::has_single_bit(static_cast<unsigned>(p.share() * p.lines))) {
    for (const bool columns : {p.out_columns, !p.out_columns}) {
      exchange_layout tried = best;
      tried.columns = columns;
      p.exchange[s] = tried;
      const auto touched = accesses(p, s);
      for (tried.shift[0] = 3; tried.shift[0] < bits; ++tried.shift[0]) {
        for (tried.shift[1] = tried.shift[0] + 1; tried.shift[1] < bits; ++tried.shift[1]) {
          for (tried.mask[0] = tried.shift[0] == 3 ? 7 : 15; tried.mask[0] > 0; --tried.mask[0]) {
            for (tried.mask[1] = 15; tried.mask[1] > 0; --tried.mask[1]) {
              if (ballast::cuda::conflict_free(touched, width, moved_by(tried))) return tried;
            }
          }
        }
      }
    }
  }
  return p.cluster == 1 && s + 1 < p.stages ? straight_or(p, s, two, least) : two;
}

}  // namespace

exchange_layout choose_exchange(const line_policy& policy, int s) {
  // Caches results, since plans of one length, and candidates for one plan, ask for the same choice repeatedly.
  struct choice {
    line_policy of;
    int s;
    exchange_layout made;
  };
  static thread_local std::vector<choice> known;
  const line_policy of = what_decides(policy);
  for (const choice& each : known) {
    if (each.s == s && each.of == of) return each.made;
  }
  if (known.size() == 500) known.clear();
  known.push_back({of, s, search(of, s)});
  return known.back().made;
}

double exchange_cost(const line_policy& p, int s) { return cost_of(accesses(p, s), p.exchange[s], word_width(p)); }

}  // namespace ballast::fft::cuda
