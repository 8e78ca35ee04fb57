// How the cpu backend computes a problem: the choice, its candidates, the rule, and an estimate of their times.
// Layer: backend "cpu". `ballast tune` measures candidates (tune.hpp) and keeps the fastest (tuning.hpp).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fft/contract.hpp"

namespace ballast::fft::cpu {

// tile: whole lines in tiles, one pass over memory. matrix: a long line of n₁ n₂ points in two passes. half_matrix: a long line of reals
// as a matrix of n₁ n₂ = n/2 pairs. volume: two or three axes. convolution: a long line of awkward length. signal_pairs: lines of reals of
// odd length, two as a complex line, in tiles or (n₁, n₂ not zero) as a matrix.
enum class method : std::uint8_t { tile, matrix, half_matrix, volume, convolution, signal_pairs };

// The work of a thread: whole signals, or tiles of one signal, which all threads share. by_size: signals if they fit into the cache of a
// core and there are enough. Lines in tiles are always shared by tiles, each with signals of its own.
enum class sharing : std::uint8_t { by_size, signals, tiles };

struct choice {
  method how = method::tile;
  std::int64_t n1 = 0, n2 = 0;  // matrix, half_matrix and signal_pairs
  sharing share = sharing::by_size;
  int threads = 0;  // at most so many; 0: all of the plan's

  bool operator==(const choice&) const = default;
};

std::string_view to_string(method value) noexcept;
std::string_view to_string(sharing value) noexcept;

// Axes of length 1 waste lanes: returns the problem with its other axes last. Real kinds keep their last axis.
geometry with_short_axes_first(geometry shape);

// Returns the choice by rule, and every choice for a call with so many threads, the one by rule first.
choice choose_by_rule(const geometry& shape, precision type);
std::vector<choice> candidates(const geometry& shape, precision type, int threads);

// Returns the estimated seconds of a call. For each pass the larger of two times counts: that of its operations on the threads that have
// tasks, and that of its bytes through the level of memory where they lie. The constants are in choice.cpp, with how they were found.
double estimated_seconds(const geometry& shape, precision type, const choice& by, int threads, bool protect);

}  // namespace ballast::fft::cpu
