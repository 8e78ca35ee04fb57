// The phases of the weights of checksums. They are drawn until every number that a line computes changes one of both checksums enough.
// Layer: fft/cuda. tables.cpp makes the tables of kernels from them; policy/weights.hpp explains the weights.
#pragma once

#include <array>
#include <complex>
#include <vector>

#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

using numbers = std::vector<std::complex<double>>;
// Numbers for both weight vectors.
using vector_phases = std::array<numbers, 2>;

// Returns i^quarters, quarters < 4.
std::complex<double> quarter_turn(int quarters);
// Returns ω^power for the first radix of a line (policy/weights.hpp).
template <class W>
std::complex<W> series_turn(int radix, int power);
// Returns s_k ω^k, the weight of result k of the first butterflies relative to that of result 0.
template <class W>
std::complex<W> first_weight(int radix, int k);
// Returns ±i^e(k), the weights of the results of the last butterflies of a line, for vector v.
std::complex<double> last_weight(const line_policy& p, int k, int v);

// Returns β for a line that is checked by itself: one phase for every first-th output of its last butterflies.
vector_phases chosen_phases(const line_policy& p);

// The phases of a line of several passes with one check from end to end. Output k₁ + n₁k₂ (+ n₁n₂k₃) has the weight α₁(k₁) α₂(k₂) (α₃(k₃)),
// so input c + jN/n₁ has the weight A₁(c + jN/n₁) B(c), where A₁ is the polynomial with the coefficients α₁ at powers of w_N, and B the
// transform of α₂ (α₃). A₁ and, in three passes, α₂ are evaluated between the points of their transforms, so their polynomials must be flat
// around the whole unit circle.
//   first:  α₁(o) = s_{o mod r} ω^{o mod r} phase_{⌊o/r⌋}, r the first radix: the larger of both vectors is flat
//   middle: α₂(o) = phase_o: each vector is flat
//   last:   α(o) = ±i^e phase_j for result k of last butterfly j: each vector has a flat transform
vector_phases first_pass_phases(const line_policy& p);
vector_phases middle_pass_phases(const line_policy& p);
vector_phases last_pass_phases(const line_policy& p);
// Return the weights of all outputs of the pass. Those of a middle pass are its phases.
vector_phases first_pass_weights(const line_policy& p, const vector_phases& phases);
vector_phases last_pass_weights(const line_policy& p, const vector_phases& phases);

}  // namespace ballast::fft::cuda
