// Searches over the divisors of a length.
#include "fft/cuda/policy/radices.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::cuda {

namespace {

constexpr int k_largest_power = 32;  // the largest radix that is a power of 2

}  // namespace

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

int numbers_held(int length, const std::vector<int>& radices, int threads) {
  int held = 0;
  for (const int r : radices) held = std::max(held, ceil_divide(length / r, threads) * r);
  return held;
}

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
    // The cost counts idle work, and holding more numbers than the limit or far fewer.
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

int largest_prime(bool wide) { return wide ? 23 : 31; }

bool is_defined(std::int64_t prime, bool wide) { return prime > largest_prime(wide) && prime <= k_largest_defined; }

int radix_before_definition(std::int64_t n, bool wide) {
  const auto primes = prime_factors(n);
  if (primes.empty() || !is_defined(primes.back(), wide)) return 0;
  const std::int64_t rest = n / primes.back();
  return rest <= (wide ? 8 : k_largest_product) ? static_cast<int>(rest) : 0;
}

bool fits_one_pass(std::int64_t length, bool wide, const ballast::cuda::capabilities& device) {
  if (length > (wide ? 8192 : 16384)) return false;
  if (length * (wide ? 8 : 4) + 8192 > device.shared_per_block) return false;
  if (radix_before_definition(length, wide) != 0) return true;
  for (const std::int64_t prime : prime_factors(length)) {
    // Each thread of a large radix holds one whole butterfly, so a block has room for few threads.
    if (prime > largest_prime(wide) || (prime > k_largest_product && length / prime > 256)) return false;
  }
  return true;
}

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

int most_blocks(const ballast::cuda::capabilities& device) { return device.major < 9 ? 1 : device.major <= 10 ? k_most_cluster : 8; }

namespace {

// Limits on the elements per block of a cluster: the first limit leaves room for four blocks on a multiprocessor; the second is twice as
// large, for lines that 16 blocks of the first size cannot hold.
std::array<std::int64_t, 2> share_limits(bool wide) {
  if (wide) return {2048, 4096};
  return {4096, 8192};
}

}  // namespace

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

int blocks_of_line(std::int64_t length, bool wide, const ballast::cuda::capabilities& device) {
  const tuned_line found = smallest_cluster(length, wide, device);
  return found.radices.empty() ? 0 : found.cluster;
}

}  // namespace ballast::fft::cuda
