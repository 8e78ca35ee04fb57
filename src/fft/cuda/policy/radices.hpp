// How a line is divided: radices of its stages, threads, blocks of a cluster.
// Layer: fft/cuda, host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// The largest radix that is a product of several primes. Prime radices, and 32 for powers of two, are larger where they are asked for.
inline constexpr int k_largest_product = 16;

constexpr int ceil_divide(int a, int b) { return (a + b - 1) / b; }

// Radices of at most `limit` whose product is n, as few and as equal as possible, the largest first; empty if there are none.
std::vector<int> split_into_radices(std::int64_t n, int limit);

// Complex numbers that a thread holds at most, of `threads` threads that share `length` elements.
int numbers_held(int length, const std::vector<int>& radices, int threads);

// Threads of a line for given radices: few idle butterflies, at most `limit` complex numbers in each thread.
int choose_threads(int length, const std::vector<int>& radices, int limit);

// The largest prime that is a radix: its butterfly needs registers for twice as many complex numbers. Lengths with larger ones are
// convolutions.
int largest_prime(bool wide);

// Whether one block can transform lines of this length in one pass.
bool fits_one_pass(std::int64_t length, bool wide, const ballast::cuda::capabilities& device);

// The largest cluster, in blocks. More than 8 are not portable: data-centre devices have them. 1: the device has no clusters.
int most_blocks(const ballast::cuda::capabilities& device);

// Radices of at most `limit`, and the stage whose results change blocks, for a line of n in a cluster of `blocks`. The shorter of the runs
// that blocks load and store is as long as it can be, up to 128 bytes; radices are smaller than `limit` allows only where runs would
// otherwise have less than 64 bytes. Without radices if there are none.
tuned_line split_for_cluster(std::int64_t n, int blocks, bool wide, int limit);

// The smallest cluster for lines of n, by rule; without radices if there is none.
tuned_line smallest_cluster(std::int64_t n, bool wide, const ballast::cuda::capabilities& device);

// How many blocks, as a cluster, can transform one such line in one pass if its elements lie side by side in memory; 0: none can.
int blocks_of_line(std::int64_t length, bool wide, const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
