// Policies by rule: radices, threads, lines, and swizzles found by counting the bank conflicts of every exchange.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>

#include "fft/cuda/schedule.hpp"
#include "fft/wide.hpp"

namespace ballast::fft::cuda {

namespace {

constexpr int k_largest_product = 16;     // of several primes,
constexpr int k_largest_power = 32;       // and of 2, where that is asked for
constexpr double k_cost_of_masks = 0.35;  // in cycles of an access over the fewest there can be

// Radices of at most `limit` whose product is n, as few and as equal as possible, the largest first; empty if there are none.
std::vector<int> split_into_radices(std::int64_t n, int limit) {
  if (n == 1) return {1};
  const auto primes = prime_factors(n);
  std::vector<int> best;
  const auto score = [](const std::vector<int>& r) {
    int sum = 0;
    for (const int each : r) sum += each;
    return std::pair(r.size(), sum);
  };
  std::vector<int> now;
  const std::function<void(std::int64_t, int)> search = [&](std::int64_t rest, int largest) {
    if (rest == 1) {
      if (best.empty() || score(now) < score(best)) best = now;
      return;
    }
    if (!best.empty() && now.size() + 1 > best.size()) return;
    for (int r = largest; r >= 2; --r) {
      if (rest % r != 0 || (r > k_largest_product && r != k_largest_power && std::ranges::find(primes, r) == primes.end())) continue;
      now.push_back(r);
      search(rest / r, r);
      now.pop_back();
    }
  };
  search(n, limit);
  return best;
}

// Shared-memory cycles of one warp's access to words of `width` bytes: a cycle serves 128 bytes without two words in one bank.
int cycles(const std::vector<int>& words, int width) {
  const int lanes = 128 / width;  // that one cycle can serve
  int total = 0;
  for (std::size_t first = 0; first < words.size(); first += static_cast<std::size_t>(lanes)) {
    std::array<int, 32> load{};
    std::vector<int> seen;
    int most = 0;
    for (std::size_t i = first; i < std::min(words.size(), first + static_cast<std::size_t>(lanes)); ++i) {
      if (words[i] < 0 || std::ranges::find(seen, words[i]) != seen.end()) continue;
      seen.push_back(words[i]);
      most = std::max(most, ++load[static_cast<std::size_t>(words[i] % lanes)]);
    }
    total += most;
  }
  return total;
}

// Words that the threads of the first two warps touch in one access of an exchange.
struct access_pattern {
  std::vector<std::vector<int>> warps;
};

std::vector<access_pattern> patterns(const line_policy& p, int s) {
  const bool ends = s == p.stages - 1;
  const exchange_layout e = p.exchange[s];
  std::vector<access_pattern> made;
  const auto word = [&](int i, int line) { return e.columns ? e.place(i) * p.lines + line : line * e.place(p.share()) + e.place(i); };
  const auto add = [&](bool columns, const auto& element) {
    access_pattern one;
    const int warps = std::min(4, (p.block() + 31) / 32);
    for (int w = 0; w < warps; ++w) {
      std::vector<int> words;
      for (int lane = 0; lane < 32 && w * 32 + lane < p.block(); ++lane) {
        const int thread = w * 32 + lane;
        const int line = columns ? thread % p.lines : thread / p.threads;
        const int t = columns ? thread / p.lines : thread % p.threads;
        const int i = element(t);
        words.push_back(i < 0 ? -1 : word(i, line));
      }
      one.warps.push_back(std::move(words));
    }
    made.push_back(std::move(one));
  };
  const int r = p.radix[s];
  const int before = p.before_share(s);
  const int next = ends ? r : p.radix[s + 1];
  const bool leaves = p.cluster > 1 && s == p.cluster_after;
  // Registers of one thread differ by constants, which a permutation of groups of 16 does not see alike: sample a few.
  for (int k = 0; k < r; k += std::max(1, r / 4)) {
    add(s == 0 ? p.in_columns : p.out_columns, [&](int t) {
      if (t >= p.share() / r) return -1;
      // At the block that it is sent to; words for different blocks count as if one took them all.
      if (leaves) {
        const int residue = t % before + k * before;
        return p.rank_of_residue(residue) * p.share() + t / before * p.target_run() + p.place_of_residue(residue);
      }
      return (t - t % before) * r + t % before + k * before;
    });
  }
  for (int k = 0; k < next; k += std::max(1, next / 4)) {
    add(p.out_columns, [&](int t) { return t >= p.share() / next ? -1 : t + k * (p.share() / next); });
  }
  return made;
}

// Mean cycles of an access of a warp, over the fewest there can be.
double cost_of(const std::vector<access_pattern>& all, const exchange_layout& e, int width) {
  double spent = 0;
  double least = 0;
  std::vector<int> moved;
  for (const access_pattern& each : all) {
    for (const std::vector<int>& words : each.warps) {
      moved.clear();
      int active = 0;
      for (const int w : words) {
        moved.push_back(w < 0 ? -1 : w ^ (w >> e.shift[0] & e.mask[0]) ^ (w >> e.shift[1] & e.mask[1]));
        active += w >= 0;
      }
      if (active == 0) continue;
      spent += cycles(moved, width);
      least += (static_cast<int>(words.size()) * width + 127) / 128;
    }
  }
  return least == 0 ? 1 : spent / least;
}

// Whether no access takes longer than it must; soon done where one does.
bool conflict_free(const std::vector<access_pattern>& all, const exchange_layout& e, int width) {
  const auto lanes = static_cast<std::size_t>(128 / width);
  for (const access_pattern& each : all) {
    for (const std::vector<int>& words : each.warps) {
      for (std::size_t first = 0; first < words.size(); first += lanes) {
        std::array<int, 32> held;  // the word that a bank is busy with
        held.fill(-1);
        for (std::size_t i = first; i < std::min(words.size(), first + lanes); ++i) {
          if (words[i] < 0) continue;
          const int word = words[i] ^ (words[i] >> e.shift[0] & e.mask[0]) ^ (words[i] >> e.shift[1] & e.mask[1]);
          int& bank = held[static_cast<std::size_t>(word) % lanes];
          if (bank >= 0 && bank != word) return false;
          bank = word;
        }
      }
    }
  }
  return true;
}

int word_width(const line_policy& p) { return p.scalar_bytes() * (p.split ? 1 : 2); }

// Where not everything is a power of two, masks cost a thread about three instructions for every access. So the cheapest layout without
// them is taken, with gaps or none, unless `found` has clearly fewer conflicts.
exchange_layout straight_or(line_policy p, int s, const exchange_layout& found, double cost) {
  const auto power = [](int n) { return std::has_single_bit(static_cast<unsigned>(n)); };
  if (power(p.length) && power(p.lines) && power(p.threads)) return found;
  // Elsewhere it was not faster on an H200, or took more registers than there are.
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
      const double spent = cost_of(patterns(p, s), tried, word_width(p));
      if (spent >= least - 1e-9) continue;
      least = spent;
      best = tried;
    }
  }
  return best;
}

// The cheapest layout for exchange s: rows or columns, first as the threads that read it run, and at most two shifts into the low bits.
exchange_layout choose_exchange(line_policy p, int s) {
  exchange_layout best;
  best.columns = p.out_columns;
  p.exchange[s] = best;
  const auto seen = patterns(p, s);
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
      const double cost = cost_of(seen, tried, width);
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
      const double cost = cost_of(seen, tried, width);
      if (cost < least - 1e-9) {
        least = cost;
        two = tried;
      }
    }
  }
  // Where one shift after the other does not come to the minimum, both together do for powers of two.
  if (least > 1.0001 && p.share() >= 64 && std::has_single_bit(static_cast<unsigned>(p.share() * p.lines))) {
    for (const bool columns : {p.out_columns, !p.out_columns}) {
      exchange_layout tried = best;
      tried.columns = columns;
      p.exchange[s] = tried;
      const auto touched = patterns(p, s);
      for (tried.shift[0] = 3; tried.shift[0] < bits; ++tried.shift[0]) {
        for (tried.shift[1] = tried.shift[0] + 1; tried.shift[1] < bits; ++tried.shift[1]) {
          for (tried.mask[0] = tried.shift[0] == 3 ? 7 : 15; tried.mask[0] > 0; --tried.mask[0]) {
            for (tried.mask[1] = 15; tried.mask[1] > 0; --tried.mask[1]) {
              if (conflict_free(touched, tried, width)) return tried;
            }
          }
        }
      }
    }
  }
  return p.cluster == 1 && s + 1 < p.stages ? straight_or(p, s, two, least) : two;
}

int ceil_divide(int a, int b) { return (a + b - 1) / b; }

// Threads of a line for given radices: few idle butterflies, at most `limit` registers' worth of elements each.
int choose_threads(int length, const std::vector<int>& radices, int limit) {
  int best = 1;
  double least = 1e300;
  std::vector<int> tried;
  for (const int r : radices) {
    for (int share = 1; share <= 8; ++share) {
      if (length / r / share >= 1) tried.push_back(ceil_divide(length / r, share));
    }
  }
  for (const int threads : tried) {
    if (threads > 1024) continue;
    int held = 0;
    double work = 0;
    for (const int r : radices) {
      const int own = ceil_divide(length / r, threads);
      held = std::max(held, own * r);
      work += static_cast<double>(own) * r * threads;
    }
    // Idle work counts; so does holding more than the limit, or far less.
    double cost = work / (static_cast<double>(length) * static_cast<double>(radices.size()));
    if (held > limit) cost += 4.0 * (held - limit) / limit;
    cost += 0.02 * std::abs(std::log2(static_cast<double>(held) / limit));
    if (cost < least) {
      least = cost;
      best = threads;
    }
  }
  return best;
}

}  // namespace

double exchange_cost(const line_policy& p, int s) { return cost_of(patterns(p, s), p.exchange[s], word_width(p)); }

line_policy make_policy(const line_request& wanted, const tuned_line& value) {
  const std::vector<int>& radices = value.radices;
  const int threads = value.threads;
  line_policy p;
  p.wide = wanted.wide;
  p.in_columns = wanted.in_columns;
  p.out_columns = wanted.out_columns;
  p.check = wanted.check;
  p.length = wanted.length;
  p.lines = value.lines;
  p.threads = threads;
  p.split = value.split;
  p.min_blocks = value.min_blocks;
  p.stages = static_cast<int>(radices.size());
  p.cluster = value.cluster;
  p.cluster_after = value.cluster_after;
  p.staged = value.staged && wanted.stageable && p.stages > 1 && p.cluster == 1 && wanted.check != check_form::composite;
  if (radices.empty() || radices.size() > k_max_stages) throw std::logic_error("radices: expected 1 to 8");
  int product = 1;
  for (std::size_t s = 0; s < radices.size(); ++s) {
    p.radix[s] = radices[s];
    product *= radices[s];
    if (radices[s] < 1 || radices[s] > k_max_radix) throw std::logic_error("radices: expected at most 32");
  }
  if (product != p.length) throw std::logic_error("radices: expected the length as their product");
  if (p.cluster > 1) {
    if (p.cluster > k_most_cluster || p.lines != 1 || p.in_columns || p.out_columns || p.cluster_after < 0 ||
        p.cluster_after >= p.stages - 1 || p.target_distance() % p.cluster != 0 || p.source_distance() % p.cluster != 0 ||
        wanted.check == check_form::composite)
      throw std::logic_error("cluster: expected one that divides both sides of its stage");
  }
  if (p.stages == 1 && threads != 1) throw std::logic_error("threads: expected 1 for a line of one butterfly");
  if (p.block() > 1024 || p.block() < 32) throw std::logic_error("block: expected 32 to 1024 threads");
  const int exchanges = p.exchanges() ? std::max(1, p.stages - 1) : 0;
  for (int s = 0; s < exchanges; ++s) {
    p.exchange[s].columns = p.out_columns;
    if (!wanted.plain) p.exchange[s] = choose_exchange(p, s);
  }
  return p;
}

int largest_prime(bool wide) { return wide ? 23 : 31; }

bool fits_one_pass(std::int64_t length, bool wide, const ballast::cuda::capabilities& device) {
  if (length > (wide ? 8192 : 16384)) return false;
  if (length * (wide ? 8 : 4) + 8192 > device.shared_per_block) return false;
  for (const std::int64_t prime : prime_factors(length)) {
    // A large butterfly leaves room for few threads, and each thread has one.
    if (prime > largest_prime(wide) || (prime > k_largest_product && length / prime > 256)) return false;
  }
  return true;
}

namespace {

// Radices and the stage behind which data change blocks, for a cluster of `blocks`. The shorter of the runs that blocks load and store is
// as long as it can be, up to 128 bytes; radices are of at most `limit`, and smaller only where runs would have less than 64 bytes. No
// radices: there are none.
tuned_line split_for_cluster(std::int64_t n, int blocks, bool wide, int limit) {
  const int enough = wide ? 8 : 16;
  tuned_line best;
  best.cluster = blocks;
  int longest = wide ? 2 : 4;  // runs are at least 32 bytes
  for (int most = limit; most >= 2 && longest < enough / 2; most /= 2) {
    std::vector<int> radices = split_into_radices(n, std::max(most, static_cast<int>(prime_factors(n).back())));
    if (radices.size() > k_max_stages) break;
    std::ranges::sort(radices, std::greater{});
    do {
      std::int64_t first = 1;
      for (std::size_t s = 0; s + 1 < radices.size(); ++s) {
        first *= radices[s];
        if (first % blocks != 0 || n / first % blocks != 0) continue;
        const auto run = static_cast<int>(std::min<std::int64_t>(std::min(first, n / first) / blocks, enough));
        if (run < longest || (run == longest && !best.radices.empty() && best.radices.size() < radices.size())) continue;
        longest = run;
        best.radices = radices;
        best.cluster_after = static_cast<int>(s);
      }
    } while (longest < enough && std::prev_permutation(radices.begin(), radices.end()));
  }
  return best;
}

// Blocks of the largest cluster. More than 8 are not portable: data-centre devices have them.
int most_blocks(const ballast::cuda::capabilities& device) { return device.major < 9 ? 1 : device.major <= 10 ? k_most_cluster : 8; }

// What a block of a cluster should hold, if 16 of them can: a quarter of what a multiprocessor can, so that it has four of them. Where they
// cannot, twice as much.
std::array<std::int64_t, 2> share_limits(bool wide) {
  if (wide) return {2048, 4096};
  return {4096, 8192};
}

// The smallest cluster for lines of n, by rule; without radices if there is none.
tuned_line smallest_cluster(std::int64_t n, bool wide, const ballast::cuda::capabilities& device) {
  for (const std::int64_t limit : share_limits(wide)) {
    for (int blocks = 2; blocks <= most_blocks(device); ++blocks) {
      if (n % (blocks * blocks) != 0 || n / blocks > limit || !fits_one_pass(n / blocks, wide, device)) continue;
      tuned_line made = split_for_cluster(n, blocks, wide, wide && n / blocks <= 2048 ? 8 : 16);
      if (!made.radices.empty()) return made;
    }
  }
  return {};
}

}  // namespace

int blocks_of_line(std::int64_t length, bool wide, const ballast::cuda::capabilities& device) {
  const tuned_line found = smallest_cluster(length, wide, device);
  return found.radices.empty() ? 0 : found.cluster;
}

namespace {

// About how many registers a thread will want.
int registers_of(const line_request& wanted, const tuned_line& value) {
  int held = 0;
  int beside = 0;  // sums and differences of a large prime's butterfly
  bool ragged = false;
  bool odd = false;
  for (const int r : value.radices) {
    odd = odd || (value.radices.size() > 1 && !std::has_single_bit(static_cast<unsigned>(r)));
    const int all = wanted.length / value.cluster / r;
    held = std::max(held, ceil_divide(all, value.threads) * r);
    ragged = ragged || all % value.threads != 0;
    if (r > k_largest_product) beside = r + 4;
    if (r == 14 || r == 15) beside = std::max(beside, 4);
  }
  const int scalars = wanted.wide ? 4 : 2;
  int registers = 24 + (held + beside) * scalars + (wanted.check == check_form::none ? 8 : 24) + (wanted.wide ? 16 : 0);
  if (ragged && wanted.check == check_form::none) registers += 8;
  if (odd && wanted.in_columns) registers += wanted.wide ? 16 : 12;
  if (odd && wanted.check != check_form::none) registers += 24;
  // Factors of the next pass; beside the sums of a checked line the compiler finds room for them.
  if (wanted.check == check_form::none && wanted.in_columns && wanted.out_columns) registers += 8;
  if (wanted.check != check_form::none && (wanted.wide || !wanted.in_columns)) registers += wanted.wide ? 16 : 8;
  if (wanted.check == check_form::composite) registers += held * scalars + 8 * scalars + 80;
  if (wanted.check == check_form::thread) registers += held * scalars + 24;
  return std::min(255, registers);
}

// Whether the threads of a block can have that many registers each.
bool block_has(int registers, int threads, const ballast::cuda::capabilities& device) {
  const int warps = ceil_divide(ceil_divide(threads, 32), 4);
  return static_cast<int>(device.registers_per_multiprocessor) / 4 / 32 / warps / 8 * 8 >= registers;
}

// How many blocks of so many threads have that many registers. A multiprocessor's warps are dealt to four schedulers, each with a quarter
// of the registers.
int fitting_blocks(int registers, int threads, const ballast::cuda::capabilities& device) {
  const int warps = ceil_divide(threads, 32);
  const int quarter = static_cast<int>(device.registers_per_multiprocessor) / 4 / 32;
  int blocks = std::min(16, device.threads_per_multiprocessor / (warps * 32));
  while (blocks > 1 && quarter / ceil_divide(blocks * warps, 4) / 8 * 8 < registers) --blocks;
  return std::max(blocks, 1);
}

// Whether a tile of so many lines leaves multiprocessors idle that a smaller one would use.
bool too_few_tiles(const line_request& wanted, int lines, const ballast::cuda::capabilities& device) {
  return (wanted.count + lines - 1) / lines < device.multiprocessors;
}

// Radices of 4, one butterfly a thread and blocks of 256 threads, as nearly as length and shared memory allow.
line_policy plain_policy(const line_request& wanted, const ballast::cuda::capabilities& device) {
  int limit = 4;
  for (const std::int64_t prime : prime_factors(wanted.length)) limit = std::max(limit, static_cast<int>(prime));
  const std::vector<int> radices = split_into_radices(wanted.length, limit);
  int smallest = radices.front();
  for (const int r : radices) smallest = std::min(smallest, r);
  const int threads = radices.size() == 1 ? 1 : std::min(1024, wanted.length / smallest);
  int lines = std::max(1, 256 / threads);
  while (threads * lines < 32) ++lines;
  for (bool split : {false, true}) {
    for (int side = lines; side >= 1 && threads * side >= 32; side /= 2) {
      const line_policy p = make_policy(wanted, {radices, threads, side, split, 1});
      if (p.shared_bytes() <= device.shared_per_block) return p;
    }
  }
  throw std::logic_error("length: expected one that fits into shared memory");
}

line_policy cluster_policy(const line_request& wanted, const ballast::cuda::capabilities& device) {
  tuned_line value = smallest_cluster(wanted.length, wanted.wide, device);
  const int share = wanted.length / value.cluster;
  const bool summed = wanted.check != check_form::none;
  const int held = (wanted.wide ? 8 : 16) * (share > (wanted.wide ? 2048 : 4096) ? 2 : 1);
  value.threads = std::max(32, choose_threads(share, value.radices, held));
  for (const bool split : {false, true}) {
    value.split = split;
    line_policy p = make_policy(wanted, value);
    if (p.shared_bytes() > device.shared_per_block) continue;
    const int fitting = static_cast<int>(device.shared_per_multiprocessor / (p.shared_bytes() + 1024));
    // What was found not to spill: 64 registers beside 16 complex floats or 8 doubles, more with sums; 128 beside twice as many; and all
    // where each butterfly is kept until it has been verified.
    const int registers = wanted.check == check_form::thread  ? 255
                          : p.held() > (wanted.wide ? 8 : 16) ? 128
                          : !summed                           ? 64
                          : wanted.wide                       ? 128
                                                              : 80;
    const int blocks = static_cast<int>(device.registers_per_multiprocessor) / (registers * ceil_divide(value.threads, 32) * 32);
    p.min_blocks = std::clamp(std::min(fitting, blocks), 1, 16);
    return p;
  }
  throw std::logic_error("length: expected one that fits into a cluster");
}

}  // namespace

line_policy choose_policy(const line_request& wanted, const ballast::cuda::capabilities& device, const tuning_table& tuned) {
  const int n = wanted.length;
  if (wanted.plain) return plain_policy(wanted, device);
  if (const auto entry = tuned.find(wanted, device.major);
      entry && (entry->cluster == 1 || (wanted.clusterable && wanted.check != check_form::composite))) {
    tuned_line value = *entry;
    const int least = wanted.in_columns || wanted.out_columns ? (wanted.wide ? 2 : 4) : 1;
    while (value.lines / 2 >= least && value.lines % 2 == 0 && value.threads * value.lines / 2 >= 32 &&
           (value.lines / 2 >= wanted.columns || too_few_tiles(wanted, value.lines, device)))
      value.lines /= 2;
    int held = 0;
    for (const int r : value.radices) held = std::max(held, ceil_divide(n / value.cluster / r, value.threads) * r);
    // The table is for a kernel that holds half as many numbers as these.
    const bool twice = wanted.check == check_form::composite || wanted.check == check_form::thread;
    const bool fits = !twice || held <= (wanted.wide ? 8 : 16);
    if (twice) {
      const int threads = value.threads * value.lines;
      value.min_blocks = std::min(value.min_blocks, fitting_blocks(registers_of(wanted, value), threads, device));
    }
    if (fits) {
      line_policy p = make_policy(wanted, value);
      if (p.shared_bytes() <= device.shared_per_block) return p;
    }
  }
  if (!fits_one_pass(n, wanted.wide, device)) return cluster_policy(wanted, device);
  const int limit = wanted.wide ? 8 : 16;  // complex numbers that a thread should hold
  const auto prime = n == 1 ? 1 : static_cast<int>(prime_factors(n).back());
  std::vector<int> radices = split_into_radices(n, n <= 16 ? 16 : std::max({limit, 13, prime}));
  if (std::has_single_bit(static_cast<unsigned>(n)) && n > 16) radices = split_into_radices(n, limit);
  if (radices.empty()) throw std::logic_error("length: expected small prime factors");
  // A short line in rows belongs to a few threads, which take neighbouring elements: whole lines, one a thread, are apart by their length.
  int most = limit;
  if (n >= 8 && n <= 32 && !(wanted.in_columns && wanted.out_columns)) {
    most = n <= 16 ? 4 : 8;
    radices = split_into_radices(n, std::max(most, prime));
  }
  int threads = radices.size() == 1 ? 1 : choose_threads(n, radices, most);
  // A block of 1024 threads leaves 64 registers to each: too few for the sums of a checked line; one of 512 leaves 128, too few beside 16
  // complex doubles.
  const int most_threads = wanted.check == check_form::none ? 1024 : wanted.wide && n > 4096 ? 256 : 512;
  const auto numbers_of = [&](int tried) {
    int held = 0;
    for (const int r : radices) held = std::max(held, ceil_divide(n / r, tried) * r);
    return held * (wanted.wide ? 4 : 2);
  };
  while (threads > most_threads && numbers_of(ceil_divide(threads, 2)) <= 128) threads = ceil_divide(threads, 2);
  const int sector_lines = wanted.wide ? 8 : 16;  // 128 bytes of neighbouring lines
  const bool columns = wanted.in_columns || wanted.out_columns;
  // Small blocks of checked lines: a step from one number of blocks to the next is then a few registers a thread.
  int lines = std::max(1, (wanted.check == check_form::none ? 256 : 128) / threads);
  if (columns) lines = std::max(lines, n >= 1024 ? sector_lines / 2 : sector_lines);
  lines = static_cast<int>(std::bit_floor(static_cast<unsigned>(lines)));
  while (lines > 1 && (lines / 2 >= wanted.columns || (!columns && too_few_tiles(wanted, lines, device))) && threads * lines / 2 >= 32)
    lines /= 2;
  while (threads * lines > (wanted.check == check_form::none ? 1024 : 512) && lines > 1) lines /= 2;
  while (threads * lines < 32) lines *= 2;
  int registers = registers_of(wanted, {radices, threads});
  if (device.major < 9 && wanted.check != check_form::none && wanted.wide && columns) registers = std::min(255, registers + 40);
  while (lines > (wanted.wide ? 2 : 4) && threads * lines / 2 >= 32 && !block_has(registers, threads * lines, device)) lines /= 2;
  const auto blocks_for = [&](int threads_of_block) { return fitting_blocks(registers, threads_of_block, device); };
  for (bool split : {false, true}) {
    for (int side = lines; side >= 1 && threads * side >= 32; side /= 2) {
      if (!split && columns && side < (wanted.wide ? 2 : 4) && side < wanted.columns) break;
      line_policy p = make_policy(wanted, {radices, threads, side, split, 1});
      if (p.shared_bytes() > device.shared_per_block) continue;
      p.min_blocks =
          std::max(1, std::min(blocks_for(p.block()), static_cast<int>(device.shared_per_multiprocessor / (p.shared_bytes() + 1024))));
      // The compiler needs more registers for these on sm_80.
      if (device.major < 9 && wanted.check != check_form::none && !wanted.wide) p.min_blocks = std::max(1, p.min_blocks - 1);
      return p;
    }
  }
  throw std::logic_error("length: expected one that fits into shared memory");
}

namespace {

// Threads of a line, and how many a block should have at most.
std::vector<std::pair<int, int>> blocks_of(int threads, int others) {
  std::vector<std::pair<int, int>> made;
  for (const int block : {64, 128, 256, 512, 1024}) {
    made.emplace_back(threads, block);
    if (others != threads) made.emplace_back(others, block);
  }
  return made;
}

// Clusters for a line, in blocks of 1024 elements and more.
void add_clusters(std::vector<tuned_line>& made, const line_request& wanted, const ballast::cuda::capabilities& device) {
  for (int blocks = 2; blocks <= most_blocks(device); blocks *= 2) {
    const int share = wanted.length / blocks;
    if (wanted.length % (blocks * blocks) != 0 || share < (wanted.wide ? 1024 : 2048) || !fits_one_pass(share, wanted.wide, device))
      continue;
    for (const int limit : {8, 16}) {
      tuned_line one = split_for_cluster(wanted.length, blocks, wanted.wide, limit);
      if (one.radices.empty()) continue;
      for (const int held : {8, 16, 32}) {
        if (held < limit || held > (wanted.wide ? 16 : 32)) continue;
        one.threads = choose_threads(share, one.radices, held);
        if (one.threads < 64 || one.threads > 1024) continue;
        const std::int64_t room = make_policy(wanted, one).shared_bytes() + 1024;
        const int most =
            std::min({static_cast<int>(device.shared_per_multiprocessor / room), device.threads_per_multiprocessor / one.threads, 8});
        for (one.min_blocks = most; one.min_blocks >= std::max(1, most / 2); --one.min_blocks) {
          if (std::ranges::find(made, one) == made.end()) made.push_back(one);
        }
      }
    }
  }
}

}  // namespace

std::vector<tuned_line> candidates(const line_request& wanted, const ballast::cuda::capabilities& device) {
  std::vector<tuned_line> made;
  const int n = wanted.length;
  if (!wanted.in_columns && !wanted.out_columns && wanted.check != check_form::composite && wanted.clusterable)
    add_clusters(made, wanted, device);
  if (!fits_one_pass(n, wanted.wide, device)) return made;
  const bool columns = wanted.in_columns || wanted.out_columns;
  const auto prime = n == 1 ? 1 : static_cast<int>(prime_factors(n).back());
  for (const int limit : {4, 8, 16, 32}) {
    if (wanted.wide ? limit >= 16 && n > 16 : limit == 4 && n > 64) continue;
    if (limit == 32 && !std::has_single_bit(static_cast<unsigned>(n))) continue;
    const std::vector<int> radices = split_into_radices(n, std::max(limit, prime));
    if (radices.empty() || radices.size() > k_max_stages) continue;
    for (const int held : {limit, 2 * limit}) {
      if (held > (wanted.wide ? 16 : 32)) continue;
      // Sums over a power of two of lanes, or whole warps, take fewer shuffles.
      const int fewest = radices.size() == 1 ? 1 : choose_threads(n, radices, held);
      const int even = fewest < 32 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(fewest))) : ceil_divide(fewest, 32) * 32;
      for (const auto& [threads, block] : blocks_of(fewest, wanted.check == check_form::none ? fewest : even)) {
        const int lines = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, block / threads))));
        if (threads * lines < 32 || threads * lines > 1024 || (block > 64 && threads * lines * 2 <= block)) continue;
        if (columns && lines < (wanted.wide ? 4 : 8)) continue;
        if (lines > std::max(64, 2048 / n)) continue;
        for (const bool split : {false, true}) {
          for (const int registers : {40, 64, 80, 96, 112, 128, 168}) {
            int own = 0;
            for (const int r : radices) own = std::max(own, ceil_divide(n / r, threads) * r);
            const int least = own * (wanted.wide ? 4 : 2) + (wanted.check == check_form::none ? 12 : 24);
            if (registers < least || registers > 3 * least) continue;
            const int rounded = ceil_divide(threads * lines, 32) * 32;
            const int blocks = std::min(device.threads_per_multiprocessor / rounded,
                                        static_cast<int>(device.registers_per_multiprocessor) / (registers * rounded));
            if (blocks < 1) continue;
            tuned_line one{radices, threads, lines, split, blocks};
            const line_policy p = make_policy(wanted, one);
            const auto fitting = static_cast<int>(device.shared_per_multiprocessor / (p.shared_bytes() + 1024));
            if (p.shared_bytes() > device.shared_per_block || fitting < 1) continue;
            // A split exchange pays only where shared memory limits the blocks.
            const line_policy whole = make_policy(wanted, {radices, threads, lines, false, blocks});
            const std::int64_t room = whole.shared_bytes() + (wanted.stageable ? whole.tile_bytes() : 0) + 1024;
            if (split && device.shared_per_multiprocessor / room >= blocks) continue;
            one.min_blocks = std::min(blocks, fitting);
            if (std::ranges::find(made, one) == made.end()) made.push_back(one);
            if (!wanted.stageable || device.major < 9 || one.radices.size() < 2) continue;
            one.staged = true;
            const line_policy staged = make_policy(wanted, one);
            one.min_blocks = std::min(blocks, static_cast<int>(device.shared_per_multiprocessor / (staged.shared_bytes() + 1024)));
            if (staged.shared_bytes() > device.shared_per_block || one.min_blocks < 1) continue;
            if (std::ranges::find(made, one) == made.end()) made.push_back(one);
          }
        }
      }
    }
  }
  return made;
}

namespace {

void append(std::string& text, bool value) { text += value ? "true" : "false"; }
void append(std::string& text, int value) { text += std::to_string(value); }

std::string policy_expression(const line_policy& p) {
  std::string text = "ballast::fft::cuda::line_policy{";
  for (const bool flag : {p.wide, p.inverse, p.scaled, p.in_columns, p.out_columns, p.staged, p.split}) {
    append(text, flag);
    text += ',';
  }
  const auto form = [&](const char* type, int value) {
    text += std::string("ballast::fft::cuda::") + type + "(" + std::to_string(value) + "),";
  };
  form("load_form", static_cast<int>(p.load));
  form("store_form", static_cast<int>(p.store));
  form("factor_form", static_cast<int>(p.load_factor));
  form("factor_form", static_cast<int>(p.store_factor));
  form("check_form", static_cast<int>(p.check));
  for (const bool flag : {p.source_unit, p.target_unit, p.flat, p.padded}) {
    append(text, flag);
    text += ',';
  }
  for (const bool flag : {p.truncated, p.shared_source}) {
    append(text, flag);
    text += ',';
  }
  append(text, p.shared_target);
  for (const int number :
       {p.transactions, p.length, p.lines, p.threads, p.min_blocks, p.stages, p.cluster, p.cluster_after, p.source_step, p.target_step}) {
    text += ',';
    append(text, number);
  }
  text += ",{";
  for (int s = 0; s < k_max_stages; ++s) {
    if (s != 0) text += ',';
    append(text, p.radix[s]);
  }
  text += "},{";
  for (int s = 0; s < k_max_stages; ++s) {
    const exchange_layout& e = p.exchange[s];
    text += s == 0 ? "{" : ",{";
    append(text, e.columns);
    text += ",{" + std::to_string(e.shift[0]) + "," + std::to_string(e.shift[1]) + "},{" + std::to_string(e.mask[0]) + "," +
            std::to_string(e.mask[1]) + "}," + std::to_string(e.run) + "," + std::to_string(e.pad) + "}";
  }
  return text + "}}";
}

const char* injector_expression(bool instrumented) {
  return instrumented ? ",ballast::inject::device_injector>" : ",ballast::inject::no_device_injector>";
}

}  // namespace

std::string kernel_expression(const line_policy& p, bool instrumented) {
  const char* const name = p.check == check_form::composite ? "composite_kernel<" : "line_kernel<";
  return std::string("ballast::fft::cuda::") + name + policy_expression(p) + injector_expression(instrumented);
}

ballast::cuda::kernel_request kernel_for(const line_policy& policy, bool instrumented) {
  ballast::cuda::kernel_request made;
  made.header = policy.check == check_form::composite ? "fft/cuda/composite.cuh" : "fft/cuda/line.cuh";
  made.expression = kernel_expression(policy, instrumented);
  made.threads = policy.block();
  made.shared = policy.shared_bytes();
  made.blocks = policy.min_blocks;
  made.cluster = policy.cluster;
  made.overlaps = true;
  // Strikes are calls, around which what a thread holds is kept in memory. Other kernels have no room for that.
  made.spills = instrumented ? 4096 : 0;
  return made;
}

ballast::cuda::kernel_request kernel_for_pair(const line_policy& first, const line_policy& second, bool instrumented) {
  ballast::cuda::kernel_request made = kernel_for(first, instrumented);
  made.header = "fft/cuda/pair.cuh";
  made.expression =
      "ballast::fft::cuda::pair_kernel<" + policy_expression(first) + "," + policy_expression(second) + injector_expression(instrumented);
  made.shared = ticket_offset(first, second) + k_ticket_bytes;
  return made;
}

ballast::cuda::kernel_request kernel_for(const schedule& made, std::size_t i, bool instrumented) {
  const pass& one = made.passes[i];
  return one.pair ? kernel_for_pair(one.policy, made.passes[i + 1].policy, instrumented) : kernel_for(one.policy, instrumented);
}

}  // namespace ballast::fft::cuda
