// Generates all combinations that a block can hold and that do not obviously waste it.
#include "fft/cuda/tune/candidates.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "cuda/device/occupancy.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::blocks_by_shared;

namespace {

// Returns pairs: threads of a line, and maximum threads of a block.
std::vector<std::pair<int, int>> blocks_of(int threads, int others) {
  std::vector<std::pair<int, int>> made;
  for (const int block : {64, 128, 256, 512, 1024}) {
    made.emplace_back(threads, block);
    if (others != threads) made.emplace_back(others, block);
  }
  return made;
}

// Appends clusters for a line, in blocks of 1024 elements and more.
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
        const int most = std::min(
            {blocks_by_shared(make_policy(wanted, one).shared_bytes(), device), device.threads_per_multiprocessor / one.threads, 8});
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
  if (!fits_one_pass(n, wanted.wide, device) || radix_before_definition(n, wanted.wide) != 0) return made;
  const bool columns = wanted.in_columns || wanted.out_columns;
  const auto prime = n == 1 ? 1 : static_cast<int>(prime_factors(n).back());
  for (const int limit : {4, 8, 16, 32}) {
    // A short chain of instructions pays where latency decides, and threads of few numbers have one.
    if (wanted.wide ? limit >= 16 && n > 16 : limit == 4 && n > 64 && !wanted.few) continue;
    if (limit == 32 && !std::has_single_bit(static_cast<unsigned>(n))) continue;
    const std::vector<int> radices = split_into_radices(n, std::max(limit, prime));
    if (radices.empty() || radices.size() > k_max_stages) continue;
    for (const int held : {limit, 2 * limit}) {
      if (held > (wanted.wide ? 16 : 32)) continue;
      // A power of two of lanes, or whole warps, need fewer shuffles for their sums.
      const int fewest = radices.size() == 1 ? 1 : choose_threads(n, radices, held);
      const int even = fewest < 32 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(fewest))) : ceil_divide(fewest, 32) * 32;
      for (const auto& [threads, block] : blocks_of(fewest, wanted.check == check_form::none ? fewest : even)) {
        const int lines = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, block / threads))));
        if (threads * lines < 32 || threads * lines > 1024 || (block > 64 && threads * lines * 2 <= block)) continue;
        // Four lines of the longest passes fill a multiprocessor.
        const bool half = wanted.few || n >= (wanted.wide ? 2048 : 4096);
        if (columns && lines < (wanted.wide ? 4 : 8) / (half ? 2 : 1)) continue;
        if (lines > std::max(64, 2048 / n)) continue;
        for (const bool split : {false, true}) {
          for (const int registers : {40, 64, 80, 96, 112, 128, 168}) {
            const int least = numbers_held(n, radices, threads) * (wanted.wide ? 4 : 2) + (wanted.check == check_form::none ? 12 : 24);
            if (registers < least || registers > 3 * least) continue;
            const int rounded = ceil_divide(threads * lines, 32) * 32;
            const int blocks = std::min(device.threads_per_multiprocessor / rounded,
                                        static_cast<int>(device.registers_per_multiprocessor) / (registers * rounded));
            if (blocks < 1) continue;
            tuned_line one{radices, threads, lines, split, blocks};
            const line_policy p = make_policy(wanted, one);
            const int fitting = blocks_by_shared(p.shared_bytes(), device);
            if (p.shared_bytes() > device.shared_per_block || fitting < 1) continue;
            // A split exchange pays only if shared memory limits the blocks.
            const line_policy whole = make_policy(wanted, {radices, threads, lines, false, blocks});
            const std::int64_t shared_bytes = whole.shared_bytes() + (wanted.stageable ? whole.tile_bytes() : 0);
            if (split && blocks_by_shared(shared_bytes, device) >= blocks) continue;
            one.min_blocks = std::min(blocks, fitting);
            if (std::ranges::find(made, one) == made.end()) made.push_back(one);
            if (!wanted.stageable || device.major < 9 || one.radices.size() < 2) continue;
            one.staged = true;
            const line_policy staged = make_policy(wanted, one);
            one.min_blocks = std::min(blocks, blocks_by_shared(staged.shared_bytes(), device));
            if (staged.shared_bytes() > device.shared_per_block || one.min_blocks < 1) continue;
            if (std::ranges::find(made, one) == made.end()) made.push_back(one);
          }
        }
      }
    }
  }
  return made;
}

std::vector<std::vector<std::int64_t>> candidate_splits(std::int64_t n, bool wide, const ballast::cuda::capabilities& device) {
  constexpr std::size_t k_most = 12;
  const std::int64_t longest = wide ? 2048 : 4096;  // four lines of them fill the registers of a multiprocessor
  std::vector<std::vector<std::int64_t>> made;
  const auto fits = [&](std::int64_t length) { return length >= 2 && length <= longest && fits_one_pass(length, wide, device); };
  for (std::int64_t a = 2; a <= longest && a <= n / 2; ++a) {
    if (n % a != 0 || !fits(a)) continue;
    const std::int64_t rest = n / a;
    if (fits(rest) && std::max(a, rest) <= 8 * std::min(a, rest)) made.push_back({a, rest});
    for (std::int64_t b = 2; b <= longest && b <= rest / 2; ++b) {
      if (rest % b != 0 || !fits(b) || !fits(rest / b)) continue;
      const auto [low, high] = std::minmax({a, b, rest / b});
      if (high <= 4 * low) made.push_back({a, b, rest / b});
    }
  }
  const auto uneven = [](const std::vector<std::int64_t>& lengths) {
    const auto [low, high] = std::ranges::minmax(lengths);
    return std::pair(lengths.size(), static_cast<double>(high) / static_cast<double>(low));
  };
  std::ranges::stable_sort(made, {}, uneven);
  if (made.size() > k_most) made.resize(k_most);
  return made;
}

}  // namespace ballast::fft::cuda
