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
#include "fft/cuda/weights.hpp"
#include "fft/wide.hpp"

namespace ballast::fft::cuda {

namespace {

constexpr std::int64_t k_largest_prime = 13;

// Radices of at most `limit` whose product is n, as few and as equal as possible, the largest first; empty if there are none.
std::vector<int> split_into_radices(std::int64_t n, int limit) {
  if (n == 1) return {1};
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
      if (rest % r != 0) continue;
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
  const auto word = [&](int i, int line) { return e.columns ? i * p.lines + line : line * p.length + i; };
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
  const int before = p.before(s);
  const int next = ends ? r : p.radix[s + 1];
  // Registers of one thread differ by constants, which a permutation of groups of 16 does not see alike: sample a few.
  for (int k = 0; k < r; k += std::max(1, r / 4)) {
    add(s == 0 ? p.in_columns : p.out_columns, [&](int t) {
      if (t >= p.length / r) return -1;
      return (t - t % before) * r + t % before + k * before;
    });
  }
  for (int k = 0; k < next; k += std::max(1, next / 4)) {
    add(p.out_columns, [&](int t) { return t >= p.length / next ? -1 : t + k * (p.length / next); });
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

// The cheapest layout for exchange s: rows or columns, first as the threads that read it run, and at most two shifts into the low bits.
exchange_layout choose_exchange(line_policy p, int s) {
  exchange_layout best;
  best.columns = p.out_columns;
  p.exchange[s] = best;
  const auto seen = patterns(p, s);
  const int width = word_width(p);
  double least = cost_of(seen, best, width);
  const int bits = std::bit_width(static_cast<unsigned>(p.length * p.lines));
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
  if (least > 1.0001 && p.length >= 64 && std::has_single_bit(static_cast<unsigned>(p.length * p.lines))) {
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
  return two;
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
  p.staged = value.staged && wanted.stageable && p.stages > 1 && wanted.check != check_form::composite;
  if (radices.empty() || radices.size() > k_max_stages) throw std::logic_error("radices: expected 1 to 8");
  int product = 1;
  for (std::size_t s = 0; s < radices.size(); ++s) {
    p.radix[s] = radices[s];
    product *= radices[s];
    if (radices[s] < 1 || radices[s] > k_max_radix) throw std::logic_error("radices: expected at most 16");
  }
  if (product != p.length) throw std::logic_error("radices: expected the length as their product");
  const int last = p.stages - 1;
  if (p.butterflies(last) * p.radix[last] > k_weight_patterns)
    throw std::logic_error("radices: expected a thread to hold at most 52 numbers");
  if (p.stages == 1 && threads != 1) throw std::logic_error("threads: expected 1 for a line of one butterfly");
  if (p.block() > 1024 || p.block() < 32) throw std::logic_error("block: expected 32 to 1024 threads");
  const int exchanges = p.exchanges() ? std::max(1, p.stages - 1) : 0;
  for (int s = 0; s < exchanges; ++s) {
    p.exchange[s].columns = p.out_columns;
    if (!wanted.plain) p.exchange[s] = choose_exchange(p, s);
  }
  return p;
}

bool fits_one_pass(std::int64_t length, bool wide, const ballast::cuda::capabilities& device) {
  if (length > (wide ? 8192 : 16384)) return false;
  if (length * (wide ? 8 : 4) + 8192 > device.shared_per_block) return false;
  for (const std::int64_t prime : prime_factors(length)) {
    if (prime > k_largest_prime) return false;
  }
  return true;
}

namespace {

// About how many registers a thread will want.
int registers_of(const line_request& wanted, const tuned_line& value) {
  int held = 0;
  bool ragged = false;
  for (const int r : value.radices) {
    held = std::max(held, ceil_divide(wanted.length / r, value.threads) * r);
    ragged = ragged || wanted.length / r % value.threads != 0;
  }
  const int scalars = wanted.wide ? 4 : 2;
  int registers = 24 + held * scalars + (wanted.check == check_form::none ? 8 : 24) + (wanted.wide ? 16 : 0);
  if (ragged) registers += 8;
  // Factors of the next pass; beside the sums of a checked line the compiler finds room for them.
  if (wanted.check == check_form::none && wanted.in_columns && wanted.out_columns) registers += 8;
  if (wanted.check != check_form::none && (wanted.wide || !wanted.in_columns)) registers += wanted.wide ? 16 : 8;
  if (wanted.check == check_form::composite) registers += held * scalars + 8 * scalars + 80;
  if (wanted.check == check_form::thread) registers += held * scalars + 24;
  return std::min(255, registers);
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

}  // namespace

line_policy choose_policy(const line_request& wanted, const ballast::cuda::capabilities& device, const tuning_table& tuned) {
  const int n = wanted.length;
  if (wanted.plain) return plain_policy(wanted, device);
  if (const auto entry = tuned.find(wanted, device.major)) {
    tuned_line value = *entry;
    const int least = wanted.in_columns || wanted.out_columns ? (wanted.wide ? 2 : 4) : 1;
    while (value.lines / 2 >= least && value.lines % 2 == 0 && value.threads * value.lines / 2 >= 32 &&
           (value.lines / 2 >= wanted.columns || too_few_tiles(wanted, value.lines, device)))
      value.lines /= 2;
    if (wanted.check == check_form::composite || wanted.check == check_form::thread) {
      // The table is for a kernel that holds half as many numbers.
      const int threads = value.threads * value.lines;
      value.min_blocks =
          std::clamp(static_cast<int>(device.registers_per_multiprocessor) / (registers_of(wanted, value) * threads), 1, value.min_blocks);
    }
    line_policy p = make_policy(wanted, value);
    if (p.shared_bytes() <= device.shared_per_block) return p;
  }
  const int limit = wanted.wide ? 8 : 16;  // complex numbers that a thread should hold
  std::vector<int> radices = split_into_radices(n, n <= 16 ? 16 : std::max(limit, 13));
  if (std::has_single_bit(static_cast<unsigned>(n)) && n > 16) radices = split_into_radices(n, limit);
  if (radices.empty()) throw std::logic_error("length: expected prime factors of at most 13");
  int threads = radices.size() == 1 ? 1 : choose_threads(n, radices, limit);
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
  while (threads * lines > 1024 && lines > 1) lines /= 2;
  while (threads * lines < 32) lines *= 2;
  const int registers = registers_of(wanted, {radices, threads});
  const auto blocks_for = [&](int threads_of_block) {
    threads_of_block = ceil_divide(threads_of_block, 32) * 32;
    int blocks = std::clamp(static_cast<int>(device.registers_per_multiprocessor) / (registers * threads_of_block), 1,
                            std::min(16, device.threads_per_multiprocessor / threads_of_block));
    // Each quarter of a multiprocessor has its own registers and runs whole warps.
    const auto fits = [&](int tried) {
      const int warps = ceil_divide(tried * threads_of_block / 32, 4);
      return static_cast<int>(device.registers_per_multiprocessor) / 4 / (32 * warps) / 8 * 8 >= registers;
    };
    while (blocks > 1 && !fits(blocks)) --blocks;
    return blocks;
  };
  for (bool split : {false, true}) {
    for (int side = lines; side >= 1 && threads * side >= 32; side /= 2) {
      if (!split && columns && side < (wanted.wide ? 2 : 4) && side < wanted.columns) break;
      line_policy p = make_policy(wanted, {radices, threads, side, split, 1});
      if (p.shared_bytes() > device.shared_per_block) continue;
      p.min_blocks =
          std::max(1, std::min(blocks_for(p.block()), static_cast<int>(device.shared_per_multiprocessor / (p.shared_bytes() + 1024))));
      return p;
    }
  }
  throw std::logic_error("length: expected one that fits into shared memory");
}

std::vector<tuned_line> candidates(const line_request& wanted, const ballast::cuda::capabilities& device) {
  std::vector<tuned_line> made;
  const int n = wanted.length;
  const bool columns = wanted.in_columns || wanted.out_columns;
  std::int64_t prime = 1;
  for (const std::int64_t each : prime_factors(n)) prime = std::clamp(each, prime, k_largest_prime);
  for (const int limit : {4, 8, 16}) {
    if (wanted.wide ? limit == 16 && n > 16 : limit == 4 && n > 64) continue;
    std::vector<int> radices = split_into_radices(n, n <= 16 ? 16 : std::max(limit, static_cast<int>(prime)));
    if (radices.empty() || radices.size() > k_max_stages) continue;
    for (const int held : {limit, 2 * limit}) {
      if (held > (wanted.wide ? 16 : 32)) continue;
      const int threads = radices.size() == 1 ? 1 : choose_threads(n, radices, held);
      for (const int block : {64, 128, 256, 512, 1024}) {
        const int lines = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, block / threads))));
        if (threads * lines < 32 || threads * lines > 1024 || (block > 64 && threads * lines * 2 <= block)) continue;
        if (columns && lines < (wanted.wide ? 4 : 8)) continue;
        if (lines > 64) continue;
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

}  // namespace

std::string kernel_expression(const line_policy& p, bool instrumented) {
  std::string text = "ballast::fft::cuda::";
  text += p.check == check_form::composite ? "composite_kernel" : "line_kernel";
  text += "<ballast::fft::cuda::line_policy{";
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
  append(text, p.truncated);
  for (const int number : {p.transactions, p.length, p.lines, p.threads, p.min_blocks, p.stages}) {
    text += ',';
    append(text, number);
  }
  text += ",{";
  for (int s = 0; s < k_max_stages; ++s) text += (s == 0 ? "" : ",") + std::to_string(p.radix[s]);
  text += "},{";
  for (int s = 0; s < k_max_stages; ++s) {
    const exchange_layout& e = p.exchange[s];
    text += s == 0 ? "{" : ",{";
    append(text, e.columns);
    text += ",{" + std::to_string(e.shift[0]) + "," + std::to_string(e.shift[1]) + "},{" + std::to_string(e.mask[0]) + "," +
            std::to_string(e.mask[1]) + "}}";
  }
  text += "}},ballast::inject::";
  text += instrumented ? "device_injector>" : "no_device_injector>";
  return text;
}

ballast::cuda::kernel_request kernel_for(const line_policy& policy, bool instrumented) {
  ballast::cuda::kernel_request made;
  made.header = policy.check == check_form::composite ? "fft/cuda/composite.cuh" : "fft/cuda/line.cuh";
  made.expression = kernel_expression(policy, instrumented);
  made.threads = policy.block();
  made.shared = policy.shared_bytes();
  made.blocks = policy.min_blocks;
  made.overlaps = true;
  // Strikes are calls, around which what a thread holds is kept in memory. Other kernels have no room for that.
  made.spills = instrumented ? 4096 : 0;
  return made;
}

}  // namespace ballast::fft::cuda
