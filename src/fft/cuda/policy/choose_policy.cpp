// Chooses policies by rule: radices, threads, lines of a tile, blocks per multiprocessor.
#include "fft/cuda/policy/choose_policy.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <vector>

#include "cuda/device/occupancy.hpp"
#include "fft/cuda/policy/exchange.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::blocks_by_registers;
using ballast::cuda::blocks_by_shared;
using ballast::cuda::registers_of_thread;

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
  if (product != p.length && !(p.by_definition() && radix_before_definition(p.length, p.wide) == p.radix[0]))
    throw std::logic_error("radices: expected the length as their product");
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
    if (!wanted.plain && !p.by_definition()) p.exchange[s] = choose_exchange(p, s);
  }
  return p;
}

namespace {

// Estimates the registers that a thread needs.
int registers_of(const line_request& wanted, const tuned_line& value) {
  int held = 0;
  int beside = 0;  // complex numbers for the sums and differences in the butterfly of a large prime
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
  // Room for the factors of the next pass. Checked lines already have it: their sums need these registers at other times.
  if (wanted.check == check_form::none && wanted.in_columns && wanted.out_columns) registers += 8;
  if (wanted.check != check_form::none && (wanted.wide || !wanted.in_columns)) registers += wanted.wide ? 16 : 8;
  if (wanted.check == check_form::composite) registers += held * scalars + 8 * scalars + 80;
  if (wanted.check == check_form::thread) registers += held * scalars + 24;
  return std::min(255, registers);
}

// Returns whether there are fewer tiles of this many lines than multiprocessors.
bool too_few_tiles(const line_request& wanted, int lines, const ballast::cuda::capabilities& device) {
  return (wanted.count + lines - 1) / lines < device.multiprocessors;
}

// Returns the plain policy: radices of 4, one butterfly per thread and blocks of 256 threads, as closely as length and shared memory allow.
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

// Each thread computes four pairs of outputs, so the pairs of a line give its threads. Small blocks were fastest on an H200.
line_policy definition_policy(const line_request& wanted, const ballast::cuda::capabilities& device) {
  const int first = radix_before_definition(wanted.length, wanted.wide);
  const int groups = wanted.length / first / 2 / k_definition_pairs + 1;
  tuned_line value{{first, 1}, first * groups, 1};
  const int enough = wanted.in_columns || wanted.out_columns ? (wanted.wide ? 8 : 16) : 4;
  while (value.lines < enough || 2 * value.lines * value.threads <= (wanted.wide ? 128 : 160)) value.lines *= 2;
  const auto halves = [&] { return value.lines > 1 && value.threads * value.lines / 2 >= 32; };
  while (halves() && (value.threads * value.lines > 512 || value.lines / 2 >= wanted.columns || too_few_tiles(wanted, value.lines, device)))
    value.lines /= 2;
  while (value.threads * value.lines < 32) value.lines *= 2;
  while (halves() && make_policy(wanted, value).shared_bytes() > device.shared_per_block) value.lines /= 2;
  line_policy p = make_policy(wanted, value);
  // Two sums of four numbers, each with its part, beside a sum and a difference of elements and four factors.
  const int registers = std::max(wanted.wide ? 144 : 88, registers_of(wanted, value));
  p.min_blocks = std::max(1, std::min(blocks_by_registers(registers, p.block(), device), blocks_by_shared(p.shared_bytes(), device)));
  return p;
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
    const int fitting = blocks_by_shared(p.shared_bytes(), device);
    // Register counts that were measured not to spill: 64 for threads that hold 16 complex floats or 8 complex doubles, more if there are
    // sums; 128 for threads that hold twice as many; 255 if each butterfly is kept until it has been verified.
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
  if (radix_before_definition(n, wanted.wide) != 0) return definition_policy(wanted, device);
  // The table was measured with other registers than those of real lines.
  if (const auto entry = tuned.find(wanted, device.major);
      entry && !wanted.reals && (entry->cluster == 1 || (wanted.clusterable && wanted.check != check_form::composite))) {
    tuned_line value = *entry;
    const int least = wanted.in_columns || wanted.out_columns ? (wanted.wide ? 2 : 4) : 1;
    while (value.lines / 2 >= least && value.lines % 2 == 0 && value.threads * value.lines / 2 >= 32 &&
           (value.lines / 2 >= wanted.columns || too_few_tiles(wanted, value.lines, device)))
      value.lines /= 2;
    const int held = numbers_held(n / value.cluster, value.radices, value.threads);
    // The kernels of the table were measured holding half as many numbers.
    const bool twice = wanted.check == check_form::composite || wanted.check == check_form::thread;
    const bool fits = !twice || held <= (wanted.wide ? 8 : 16);
    if (twice) {
      const int threads = value.threads * value.lines;
      value.min_blocks = std::min(value.min_blocks, blocks_by_registers(registers_of(wanted, value), threads, device));
    }
    if (fits) {
      line_policy p = make_policy(wanted, value);
      if (p.shared_bytes() <= device.shared_per_block) return p;
    }
  }
  if (!fits_one_pass(n, wanted.wide, device)) return cluster_policy(wanted, device);
  const int limit = wanted.wide || wanted.reals ? 8 : 16;  // complex numbers per thread to aim for
  const auto prime = n == 1 ? 1 : static_cast<int>(prime_factors(n).back());
  std::vector<int> radices = split_into_radices(n, n <= 16 ? 16 : std::max({limit, 13, prime}));
  if (std::has_single_bit(static_cast<unsigned>(n)) && n > 16) radices = split_into_radices(n, limit);
  if (radices.empty()) throw std::logic_error("length: expected small prime factors");
  // A few threads share each short line in rows, so that neighbouring threads read neighbouring elements. With one line per thread their
  // addresses would be a whole line apart.
  int most = limit;
  if (n >= 8 && n <= 32 && (wanted.reals || !(wanted.in_columns && wanted.out_columns))) {
    most = n <= 16 ? 4 : 8;
    radices = split_into_radices(n, std::max(most, prime));
  }
  int threads = radices.size() == 1 ? 1 : choose_threads(n, radices, most);
  // A thread has 64 registers in a block of 1024 threads, too few for the sums of a checked line, and 128 in a block of 512, too few for
  // sums and 16 complex doubles.
  const int most_threads = wanted.check == check_form::none ? 1024 : wanted.wide && n > 4096 ? 256 : 512;
  const auto numbers_of = [&](int tried) { return numbers_held(n, radices, tried) * (wanted.wide ? 4 : 2); };
  while (threads > most_threads && numbers_of(ceil_divide(threads, 2)) <= 128) threads = ceil_divide(threads, 2);
  const int sector_lines = wanted.wide ? 8 : 16;  // 128 bytes of neighbouring lines
  const bool columns = wanted.in_columns || wanted.out_columns;
  // Checked lines use small blocks, so that one more block per multiprocessor costs each thread only a few registers.
  int lines = std::max(1, (wanted.check == check_form::none && !wanted.reals ? 256 : 128) / threads);
  if (columns) lines = std::max(lines, n >= 1024 ? sector_lines / 2 : sector_lines);
  lines = static_cast<int>(std::bit_floor(static_cast<unsigned>(lines)));
  while (lines > 1 && (lines / 2 >= wanted.columns || (!columns && too_few_tiles(wanted, lines, device))) && threads * lines / 2 >= 32)
    lines /= 2;
  while (threads * lines > (wanted.check == check_form::none ? 1024 : 512) && lines > 1) lines /= 2;
  while (threads * lines < 32) lines *= 2;
  int registers = registers_of(wanted, {radices, threads});
  if (device.major < 9 && wanted.check != check_form::none && wanted.wide && columns) registers = std::min(255, registers + 40);
  while (lines > (wanted.wide ? 2 : 4) && threads * lines / 2 >= 32 && registers_of_thread(threads * lines, 1, device) < registers)
    lines /= 2;
  const auto blocks_for = [&](int threads_of_block) { return blocks_by_registers(registers, threads_of_block, device); };
  for (bool split : {false, true}) {
    for (int side = lines; side >= 1 && threads * side >= 32; side /= 2) {
      if (!split && columns && side < (wanted.wide ? 2 : 4) && side < wanted.columns) break;
      line_policy p = make_policy(wanted, {radices, threads, side, split, 1});
      if (p.shared_bytes() > device.shared_per_block) continue;
      p.min_blocks = std::max(1, std::min(blocks_for(p.block()), blocks_by_shared(p.shared_bytes(), device)));
      // On sm_80 the compiler needs more registers for these.
      if (device.major < 9 && wanted.check != check_form::none && !wanted.wide) p.min_blocks = std::max(1, p.min_blocks - 1);
      return p;
    }
  }
  throw std::logic_error("length: expected one that fits into shared memory");
}

line_policy with_room_for_reals(const line_request& wanted, const line_policy& policy, const ballast::cuda::capabilities& device) {
  line_policy p = policy;
  while (p.shared_bytes() > device.shared_per_block && p.lines % 2 == 0 && p.threads * p.lines / 2 >= 32) {
    const tuned_line fewer{std::vector<int>(p.radix, p.radix + p.stages), p.threads, p.lines / 2, p.split, p.min_blocks};
    const line_policy half = make_policy(wanted, fewer);
    p.lines = half.lines;
    std::ranges::copy(half.exchange, p.exchange);
  }
  if (p.shared_bytes() > device.shared_per_block) throw std::logic_error("length: expected one whose reals fit into shared memory");
  p.min_blocks = std::clamp(blocks_by_shared(p.shared_bytes(), device), 1, p.min_blocks);
  return p;
}

void limit_registers(line_policy& p, const ballast::cuda::capabilities& device) {
  if (p.of_reals()) {
    // Registers that a thread was measured to need for its numbers and the steps around the transform.
    const bool mixed = !std::has_single_bit(static_cast<unsigned>(p.length));
    int needed = p.held() * (p.wide ? 4 : 2) + p.reals_held() * (p.wide ? 2 : 1) + (p.wide ? 96 : p.sums() ? 64 : 56);
    if (mixed) needed += 16;
    if (device.major < 9) needed += 16;
    needed = std::min(needed, 255);
    while (p.min_blocks > 1 && registers_of_thread(p.block(), p.min_blocks, device) < needed) --p.min_blocks;
    return;
  }
  const bool tables = p.load_factor == factor_form::table || p.store_factor == factor_form::table;
  // Lines with a small last radix were measured with separated factors or without factors.
  const bool looked_up = p.store_factor == factor_form::twiddle && p.radix[p.stages - 1] <= 8;
  const bool mixed = !std::has_single_bit(static_cast<unsigned>(p.length));
  const bool divided = mixed && p.store_factor == factor_form::separated;
  const bool formed =
      p.load == load_form::half ||
      (p.sums() && (tables || looked_up || divided || p.store == store_form::real || (p.load == load_form::real && p.twiddles()))) ||
      (p.wide && mixed && looked_up) || (p.wide && p.inverse && p.twiddles());
  if (formed && p.min_blocks > 1) p.min_blocks -= std::max(1, p.min_blocks / (mixed && p.load == load_form::half ? 2 : 3));
  if (p.mirrors() || p.load == load_form::spectrum) {
    // Registers that a thread was measured to need for its numbers and their mirror images.
    int needed = p.held() * (p.wide ? 8 : 2) + (mixed || (p.wide && p.sums()) ? 48 : 32) + (p.sums() ? 16 : 0);
    if (p.wide && p.load == load_form::spectrum) needed += 8;
    while (p.min_blocks > 1 && registers_of_thread(p.block(), p.min_blocks, device) < needed) --p.min_blocks;
  }
}

}  // namespace ballast::fft::cuda
