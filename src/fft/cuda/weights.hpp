// Weights of the outputs of a line: a(o) = α(t) i^e(n), where thread t of the line holds output o as number n of its own.
// Layer: fft/cuda; device and host.
// α and α′ are random phases, one of each a thread; the exponents are known when a kernel is compiled. So aᵀy is additions, one product at
// the end, and no table of the length of the line. Powers of i alone have blind spots (docs/protection.md), but only where a fault is seen
// through them alone: where all outputs that it reaches are one thread's. These are every d-th of the thread's numbers with the powers of a
// root of unity, d a divisor of how many there are, or a pair of a butterfly of odd order. The exponents are the best that a search found
// for just these: the larger response of both vectors to any of them is at least 0.35 of what independent phases give on the average, at
// least 0.66 up to 16 numbers a thread.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::fft::cuda {

// Two bits for each number of a thread that holds 1, 2, … 52 of them: of 32, and of what is beyond.
inline constexpr int k_weight_patterns = 52;
// clang-format off
inline constexpr std::uint64_t k_weight_pattern[k_weight_patterns][2] = {
    {0x0, 0x0}, {0x4, 0x0}, {0x30, 0x0}, {0x20, 0x0}, {0x200, 0x0}, {0x34c, 0x0}, {0x19a0, 0x0}, {0x2fd0, 0x0}, {0x8530, 0x0},
    {0xb7854, 0x0}, {0x19e180, 0x0}, {0xf289e8, 0x0}, {0x2880080, 0x0}, {0x7b53810, 0x0}, {0x333307d0, 0x0}, {0xd0704a40, 0x0},
    {0xecc8dc58, 0x0}, {0x1c9697078, 0x0}, {0x1491fd0dbc, 0x0}, {0x35e43b1508, 0x0}, {0xdd541be1a4, 0x0}, {0xd46b694d870, 0x0},
    {0x1ece7b2cbc50, 0x0}, {0x579708eb33ec, 0x0}, {0x33009f5cb3fa4, 0x0}, {0x45f2dbf780a8, 0x0}, {0x26f38e42c92ffc, 0x0},
    {0x5b5e7a0e8a2120, 0x0}, {0xd3ae5a822e6f28, 0x0}, {0xc8eaf1e5d2abf4, 0x0}, {0xacf39460efbb79c, 0x0}, {0xdb7864cebfcca124, 0x0},
    {0xca7e18ff2366d704, 0x3}, {0x60d14422c529bdd0, 0xf}, {0x19c6d0efe83b8e60, 0x3c}, {0x2b820ffdcab1c154, 0xd2},
    {0x55541edb31498ef4, 0x274}, {0xc2fbe14e627a66c0, 0xb1a}, {0x20d3053390c22030, 0x3941}, {0xc2c7bc2817eae68, 0xb0d9},
    {0x38f13d8744e185b4, 0x1d255}, {0x1c603921ebe11d54, 0x9defc}, {0x5619bdfd538a9a68, 0x225af7}, {0x71c29bcb52c2f318, 0x3c8e0c},
    {0x2eba30777a221bf4, 0x5bfa3f}, {0xd379c87b4e455c0, 0x91b63ff}, {0xbb787d8c50ee6fcc, 0x14d6f6e7}, {0xb15f1f91d1ecb500, 0x662a59d0},
    {0xb88366eb16b9e604, 0x34010f2bf}, {0xe297c541ce0e8cf8, 0xc77ddd424}, {0xb8b2d447bd362e04, 0x33b7ba556b},
    {0x4316dc33f7b439f0, 0xaf2731f57e},
};
// clang-format on

// The second vector: α′ for α, and the other sign in the second half of a thread's numbers.
BALLAST_HD constexpr int weight_half(int count) { return (count + 1) / 2; }

// e(n) of `count` numbers.
BALLAST_HD constexpr int weight_quarters(int count, int n) {
  return static_cast<int>(k_weight_pattern[count - 1][n / 32] >> 2 * (n % 32) & 3);
}

}  // namespace ballast::fft::cuda
