// The transform of one line: its stages and tables, and its run on a tile, W lines side by side. Large prime factors come after the stages
// of the other factors, as a convolution of all s transforms of p points at once: element j of transform q is in row q + s·j.
// Layer: backend "cpu".
// Source: T. Stockham, 1966; L. Bluestein, 1970; C. Rader, 1968; J. Cooley, P. Lewis, P. Welch, 1970 (real data by half-length complex
// transforms).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fft/contract.hpp"
#include "fft/cpu/along.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/striker.hpp"
#include "fft/sites.hpp"
#include "fft/tables/checks.hpp"

namespace ballast::fft::cpu {

// Limits on the lines that a tile holds. Lines with a large prime factor are convolutions, which need more than twice the rows.
inline constexpr std::int64_t k_longest_line = 32768;
inline constexpr std::int64_t k_longest_convolved_line = 8192;
// Limit on each of the two factors of a line of up to 2^40 points. Those above k_longest_line do not fit into the second-level cache.
inline constexpr std::int64_t k_longest_split_line = std::int64_t{1} << 20;

// Returns whether a line of n points is transformed by stages alone, without a convolution.
bool is_direct(std::int64_t n);

template <class T>
class line {
 public:
  // fft/tables/weights.hpp defines the rows of a tile for each `kind`. `stream` makes the weights of the lines of one problem independent.
  // Without `protect` there are no weights. half_spectrum: the input is the n/2 + 1 rows of a complex line of odd length n; expand_spectrum
  // computes the other rows in the tile, after the n/2 + 1 rows were encoded. Without has_along there is no `along`. together: a tile has
  // so many complex lines without convolutions; element j of line i is its row j · together + i. Such tiles have no weights and no `along`.
  // inputs: the least response of the inputs.
  line(form kind, std::int64_t n, std::uint64_t stream, bool protect, bool half_spectrum = false, bool has_along = true,
       std::int64_t together = 1, double inputs = k_least_response);

  // Transforms the tile x (rows_in rows), with y as scratch; both have rows_scratch rows. Returns the one that holds the result (rows_out
  // rows). Prefetches `ahead` meanwhile. `swapped` exchanges the roles of the halves of the rows: the inverse transform. Real forms have a
  // fixed direction and ignore it. strikes_factors: factors are shown to `strike`, in a copy. tiles: x and y are so many tiles, one after
  // the other, each stage of which is run on all; for complex lines without convolutions.
  T* run(T* x, T* y, bool swapped, read_ahead ahead, const striker<T>& strike, bool strikes_factors = true, std::int64_t tiles = 1) const;
  // The same for one tile, whose results are multiplied by `factors` on their way to `to`, if multiplies_at_last.
  T* run_to(T* x, T* y, bool swapped, read_ahead ahead, const striker<T>& strike, bool strikes_factors, const row_factors<T>& factors,
            T* to) const;
  bool multiplies_at_last(const row_factors<T>& factors) const;

  std::int64_t rows_in() const { return rows_in_; }
  std::int64_t rows_encoded() const { return half_spectrum_ ? rows_in_ / 2 + 1 : rows_in_; }
  std::int64_t rows_out() const { return rows_out_; }
  std::int64_t rows_scratch() const { return rows_scratch_; }
  std::int64_t stages() const { return stages_; }           // steps of site::stage
  std::int64_t twiddle_steps() const { return twiddled_; }  // steps of site::twiddle
  bool is_real_inverse() const { return form_ == form::real_inverse; }
  // Returns whether its reals are pairs of which the last one has one number alone: real forms of odd length.
  bool has_odd_reals() const { return real_.radix > 1; }
  // The same line with vectors along the signal, for signals whose elements are contiguous on both sides; null if there is no such code.
  const along_line<T>* along() const { return along_ ? &*along_ : nullptr; }
  double points() const { return points_; }
  double sensitivity() const { return limits_.sensitivity; }  // factor of κ for this kind of line
  // Returns the parts of thresholds::residual and ::output_underflow for lines whose results are multiplied by `scale`.
  lane_limits limits(double scale) const;

  // Return the weights for the sums of a tile before and after the transform; the sums go to `sums`.
  encoder<T> input_weights(bool swapped, lane_sums* sums) const;
  output_sum<T> output_weights(bool swapped, lane_sums* sums) const;

 private:
  struct stage {
    int radix;
    std::int64_t rows;  // rows of all transforms
    std::int64_t s;
    std::int64_t twiddles;  // offset into twiddles_, −1 for none
    std::int64_t roots;     // offset into roots_, −1 for none
    std::int64_t count;     // scalars of the twiddle factors
    std::int64_t trivial;   // number of leading scalars that belong to factors of 1
  };
  // Counters of the injection sites while a line runs.
  struct steps {
    std::int64_t stage = 0, twiddle = 0;
    bool strikes_factors = true;
    std::int64_t tiles = 1;
    // The last stage multiplies by `factors` and stores to `to`, if that is not null.
    row_factors<T> factors = {};
    T* to = nullptr;
  };
  void make_stages(const std::vector<std::int64_t>& coprime, std::int64_t rows, std::int64_t s, std::vector<stage>& to);
  void append_roots(std::int64_t radix);
  void make_real_stage(std::int64_t n);
  void make_convolution(std::int64_t p);
  void make_convolution_of_prime(std::int64_t p);
  void make_weights(std::int64_t n, std::uint64_t stream, double inputs);
  T* run_all(T* x, T* y, bool swapped, read_ahead ahead, const striker<T>& strike, steps& at) const;
  template <class Run>
  void run_stage(const stage& now, T* x, std::int64_t rows_in, T* y, std::int64_t rows_out, steps& at, const striker<T>& strike,
                 const Run& run) const;
  T* run_stages(const std::vector<stage>& stages, T* x, T* y, bool swapped, steps& at, read_ahead& ahead, const striker<T>& strike) const;
  T* convolve(T* x, T* y, bool swapped, steps& at, read_ahead& ahead, const striker<T>& strike) const;
  T* convolve_cyclically(T* x, T* y, bool swapped, steps& at, read_ahead& ahead, const striker<T>& strike) const;

  form form_;
  std::int64_t length_ = 1;  // points of the complex transforms
  struct {
    std::int64_t radix = 1, transforms = 1;  // transforms: the complex ones of n/radix points, side by side
    stage of{};
    std::vector<std::int64_t> order;  // mirror_rows: from the transforms to the spectrum, or back
  } real_;                            // real forms of odd length
  struct {
    std::int64_t together = 1;                      // number of simultaneous convolutions
    std::int64_t padded = 0;                        // rows of all their inner transforms; 0 without convolutions
    std::vector<stage> inner[2];                    // the stages of these transforms, forward and back
    std::vector<T> chirp, filter;                   // tables: fft/tables/extended_precision_dft.hpp
    std::vector<std::int64_t> order_in, order_out;  // row orders of a cyclic convolution, which has no chirp: fft/tables/cyclic.hpp
  } convolution_;
  std::vector<stage> plan_;  // the stages before the convolutions
  std::vector<T> twiddles_, roots_;
  std::vector<T> split_;                                 // e^{−2πi k/n} of the real forms
  std::vector<T> input_weights_[2], output_weights_[2];  // [swapped]
  std::optional<along_line<T>> along_;
  bool half_spectrum_ = false;
  std::int64_t rows_in_ = 1, rows_out_ = 1, rows_scratch_ = 1, stages_ = 0, twiddled_ = 0, butterflies_ = 0;
  double points_ = 1;
  // Two copies of the parts of a threshold: (factor · norm + underflow) · scale + output_underflow.
  struct {
    double sensitivity = 1;
    struct {
      double factor = 0, underflow = 0, output_underflow = 0;
    } copies[2];
  } limits_;
};

extern template class line<float>;
extern template class line<double>;

}  // namespace ballast::fft::cpu
