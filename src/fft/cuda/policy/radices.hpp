// The division of a line: radices of its stages, threads, blocks of a cluster.
// Layer: fft/cuda, host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// The largest radix that is a product of several primes. Prime radices, and 32 for powers of two, may be larger if a caller allows them.
inline constexpr int k_largest_product = 16;

constexpr int ceil_divide(int a, int b) { return (a + b - 1) / b; }

// Returns radices of at most `limit` with product n, as few and as equal as possible, the largest first; empty if there are none.
std::vector<int> split_into_radices(std::int64_t n, int limit);

// Returns the maximum number of complex numbers that a thread holds, if `threads` threads share `length` elements.
int numbers_held(int length, const std::vector<int>& radices, int threads);

// Returns the number of threads of a line for given radices: few idle butterflies, at most `limit` complex numbers per thread.
int choose_threads(int length, const std::vector<int>& radices, int limit);

// Returns the largest prime that may be a radix: its butterfly needs registers for twice as many complex numbers.
int largest_prime(bool wide);

// Larger primes up to this one are transformed by the definition (kernel/line_definition.cuh). By Bluestein's convolution they take two
// passes over more than twice as many points, and round up to 1.5 times as much. Lengths with larger prime factors use convolutions.
inline constexpr std::int64_t k_largest_defined = 127;
bool is_defined(std::int64_t prime, bool wide);
// Returns r if lines of n = r · p points, p such a prime, are one pass with r as its first radix; otherwise 0.
int radix_before_definition(std::int64_t n, bool wide);

// Returns whether one block can transform lines of this length in one pass.
bool fits_one_pass(std::int64_t length, bool wide, const ballast::cuda::capabilities& device);

// Returns the largest cluster size in blocks. Sizes above 8 are not portable: data-centre devices have them. 1: the device has no clusters.
int most_blocks(const ballast::cuda::capabilities& device);

// Returns radices of at most `limit`, and the stage whose results go to other blocks, for a line of n in a cluster of `blocks`. Makes the
// shorter of the runs that blocks load and store as long as possible, up to 128 bytes; uses radices below `limit` only if runs would
// otherwise be shorter than 64 bytes. Returns no radices if there is no such division.
tuned_line split_for_cluster(std::int64_t n, int blocks, bool wide, int limit);

// Returns the smallest cluster for lines of n by rule; without radices if there is none.
tuned_line smallest_cluster(std::int64_t n, bool wide, const ballast::cuda::capabilities& device);

// Returns the number of blocks that, as a cluster, transform one such line in one pass if its elements are contiguous; 0 if none can.
int blocks_of_line(std::int64_t length, bool wide, const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
