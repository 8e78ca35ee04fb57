// The steps of real-to-real transforms along one axis of a dense array: a sparse map, the Fourier transforms of all lines, sparse maps.
// Layer: FFT, over the backends of the host. fft/tables/real_to_real.hpp has the mathematics.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/memory.hpp"
#include "fft/contract.hpp"
#include "fft/cpu/chunks.hpp"
#include "fft/tables/real_to_real.hpp"

namespace ballast::fft::composite {

// How the host backend `reference` or `cpu` makes a transform.
using transform_maker = std::unique_ptr<transform> (*)(const geometry&, precision, bool protect);

// The places of the lines of an array. Element i of line (o, l), l < inner. Dense arrays: (o · n + i) · inner + l. Memories u and v: the
// lines side by side, i · lines + o · inner + l, where both parts of a complex number of a line follow each other; but if inner is 1 the
// lines one after the other.
struct line_places {
  std::int64_t outer = 1, inner = 1;
  std::int64_t lines() const { return outer * inner; }
};

// Rows [first, last) of a map that have as many terms, whose indices grow by `step` from one row to the next.
struct index_run {
  std::int64_t first, last;
  std::vector<std::int64_t> index, step;  // one for each term of row `first`
};

// An array or memory. lines: the numbers of all lines from one scalar of a line to the next, 1 if the lines lie one after the other; outer:
// from one block of `inner` lines to the next.
struct memory_layout {
  std::int64_t lines, outer;
  bool side_by_side;  // both parts of a complex number follow each other
};

// A line_map between two memories whose factors are in another array.
struct index_map {
  std::vector<std::int64_t> begin, index;
  std::vector<index_run> runs;  // all rows in their order
  // The places of each term and of each row in lines (0, 0), (0, 1), …
  std::vector<cpu::row_place> source, target;
  std::vector<std::uint8_t> paired;   // as in cpu::chunk_map
  std::int64_t from_outer, to_outer;  // memory_layout::outer
  std::int64_t to;                    // index of the first result

  // within: both memories are one.
  index_map(const line_map& map, const memory_layout& from, const memory_layout& to, bool within);
  std::int64_t rows() const { return static_cast<std::int64_t>(begin.size()) - 1; }
};

// The transform along one axis.
template <class T>
class line_steps {
 public:
  line_steps(real_kind what, std::int64_t n, const line_places& where, transform_maker make, const cpu::chunk_kernels<T>& kernels);

  std::int64_t u_scalars() const { return u_size_ * where_.lines(); }
  std::int64_t v_scalars() const { return v_size_ * where_.lines(); }
  // All factors of the maps, in the order of their use.
  const std::vector<T>& factors() const { return factors_; }

  // The steps: u from x, v from u, y from v. `factors`: as factors() returns them.
  void before(const T* x, T* u, const T* factors) const;
  void transform_lines(const T* u, T* v, const transform_args& how) const;
  void after(T* v, T* y, const T* factors) const;
  // Returns the number of the line that scalar `at` of u belongs to.
  std::int64_t line_in_u(std::int64_t at) const;

 private:
  struct part {
    line_part what;
    std::unique_ptr<transform> work;
  };
  bool side_by_side() const { return where_.inner > 1; }
  memory_layout memory_of(std::int64_t size) const;
  void apply(const index_map& map, const T* factors, const T* from, T* to) const;

  const cpu::chunk_kernels<T>& kernels_;
  std::int64_t n_;
  line_places where_;
  std::int64_t u_size_, v_size_;  // scalars of one line
  std::vector<index_map> maps_;   // the first one before the transforms
  bool pairs_ = false;            // whose results are complex numbers
  std::vector<T> factors_;
  std::vector<part> parts_;
};

// The same by the definition, one line after the other: y_k = Σ_j L_kj x_j, in more than working precision. For the reference backend.
template <class T>
class line_definition {
 public:
  line_definition(real_kind what, std::int64_t n, const line_places& where);
  const std::vector<std::complex<T>>& roots() const { return roots_; }
  void run(const T* x, T* y, const std::vector<std::complex<T>>& roots) const;

 private:
  real_kind what_;
  std::int64_t n_;
  line_places where_;
  std::vector<std::complex<T>> roots_;
};

extern template class line_steps<float>;
extern template class line_steps<double>;
extern template class line_definition<float>;
extern template class line_definition<double>;

}  // namespace ballast::fft::composite
