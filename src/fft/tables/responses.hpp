// A line as a chain of steps; each step computes all numbers of an array from those of the previous array. Following the chain backwards
// gives the response of both checksums to every number; following it forwards gives the change of the weights that raises a weak response.
// Layer: algorithm, backend-free. For weights.cpp.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/at.hpp"
#include "fft/tables/weights.hpp"

namespace ballast::fft::responses {

using core::at;

using number = std::complex<double>;
using numbers = std::vector<number>;

inline constexpr number k_i(0, 1);

// For each number z of an array, two complex numbers for each half v of the outputs. Backwards: a change δ of z changes the half's sum by
// direct·δ + conj(turned·δ). Forwards: the array carries direct·z and, if the line is not complex-linear, conj(turned)·conj(z).
// NOLINTNEXTLINE(bugprone-reserved-identifier): of the implicit copy.
struct array {
  numbers direct[2], turned[2];
  std::vector<double> effect;  // ‖e‖² is effect · |δ|² + Re(skew · δ²)
  numbers skew;                // nonzero: the real and the imaginary part have different effects, as before real numbers

  array(std::int64_t size, bool real) : effect(at(size), 0.0), skew(at(size), 0.0) {
    for (int v = 0; v < 2; ++v) {
      direct[v].assign(at(size), 0);
      if (real) turned[v].assign(at(size), 0);
    }
  }
  bool real() const { return !turned[0].empty(); }
  std::int64_t size() const { return static_cast<std::int64_t>(effect.size()); }
  // Returns ‖e‖² for a change of the real or of the imaginary part by 1.
  double effect_of_part(std::size_t k, bool imaginary) const { return effect[k] + (imaginary ? -skew[k].real() : skew[k].real()); }
  // Sets that only the real part has an effect.
  void set_real(std::size_t k, double of) {
    effect[k] = 0.5 * of;
    skew[k] = 0.5 * of;
  }
  // Replaces the responses to z by those to its conjugate.
  void conjugate(std::int64_t k) {
    skew[at(k)] = std::conj(skew[at(k)]);
    for (int v = 0; v < 2 && real(); ++v) {
      const number before = direct[v][at(k)];
      direct[v][at(k)] = std::conj(turned[v][at(k)]);
      turned[v][at(k)] = std::conj(before);
    }
  }
};

struct step;  // defined in responses.cpp

// The steps of a line. Array i is the input of step i; the last one is the output of the line.
class line_steps {
 public:
  line_steps(form kind, std::int64_t n);
  ~line_steps();
  line_steps(const line_steps&) = delete;
  line_steps& operator=(const line_steps&) = delete;

  std::size_t count() const;
  bool real() const { return form_ != form::complex; }
  std::int64_t inputs() const { return inputs_; }  // for real_forward of odd length n, each real is a number
  std::int64_t outputs() const { return outputs_; }
  // The size of an array whose first and last number are real: a half spectrum of even length. 0: there is none.
  std::int64_t real_ends() const { return real_ends_; }

  // Follows step i backwards: returns the responses to its inputs. `out`: those to its outputs.
  array follow_back(std::size_t i, const array& out) const;
  // Follows step i forwards: returns the array of its outputs.
  array follow_on(std::size_t i, array in) const;

 private:
  form form_;
  std::int64_t inputs_ = 0, outputs_ = 0, real_ends_ = 0;
  std::vector<step> all_;
};

}  // namespace ballast::fft::responses
