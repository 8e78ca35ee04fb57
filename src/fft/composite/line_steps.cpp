// Sparse maps of many lines at once, and the transforms between them.
#include "fft/composite/line_steps.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/at.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::composite {

using core::at;

namespace {

cpu::row_place place_of(const memory_layout& in, std::int64_t i, bool paired) {
  if (in.side_by_side && paired) return {(i - i % 2) * in.lines + i % 2, 2};
  return {i * in.lines, 1};
}

}  // namespace

index_map::index_map(const line_map& map, const memory_layout& from, const memory_layout& to_memory, bool within)
    : begin(map.begin), from_outer(from.outer), to_outer(to_memory.outer), to(map.to) {
  for (const auto& each : map.terms) {
    index.push_back(each.index);
    source.push_back(place_of(from, each.index, each.paired));
  }
  for (std::int64_t i = 0; i < rows(); ++i) target.push_back(place_of(to_memory, map.to + i, map.paired));
  // The other part of a complex number is computed with the first one if it needs no result of that.
  for (std::int64_t i = 0; i < rows(); ++i) {
    const bool first = map.paired && (map.to + i) % 2 == 0 && target[at(i)].stride == 2 && i + 1 < rows();
    const auto apart = [&](std::int64_t t) { return !within || source[at(t)].offset != target[at(i)].offset; };
    bool both = first;
    for (std::int64_t t = begin[at(i)]; both && t < begin[at(i + 2)]; ++t) both = apart(t);
    paired.push_back(both ? 1 : 0);
  }
  const auto terms = [&](std::int64_t row) {
    return std::span(index).subspan(at(begin[at(row)]), at(begin[at(row + 1)] - begin[at(row)]));
  };
  for (std::int64_t row = 0; row < rows();) {
    const auto own = terms(row);
    index_run made{row, row + 1, {own.begin(), own.end()}, std::vector<std::int64_t>(own.size(), 0)};
    if (made.last < rows() && terms(made.last).size() == own.size()) {
      for (std::size_t t = 0; t < own.size(); ++t) made.step[t] = terms(made.last)[t] - own[t];
    }
    const auto goes_on = [&] {
      if (made.last >= rows() || terms(made.last).size() != own.size()) return false;
      for (std::size_t t = 0; t < own.size(); ++t) {
        if (terms(made.last)[t] != own[t] + (made.last - row) * made.step[t]) return false;
      }
      return true;
    };
    while (goes_on()) ++made.last;
    row = made.last;
    runs.push_back(std::move(made));
  }
}

namespace {

// Lines one after the other: run by run.
template <class T>
void apply_to_lines(const index_map& map, const T* factors, const line_places& where, const T* from, T* to) {
  for (std::int64_t o = 0; o < where.outer; ++o) {
    const T* const x = from + o * map.from_outer;
    for (const index_run& run : map.runs) {
      T* const y = to + o * map.to_outer + map.to + run.first;
      const T* const f = factors + map.begin[at(run.first)];
      const std::int64_t count = run.last - run.first;
      const auto terms = std::ssize(run.index);
      if (terms == 1) {
        const T* const s = x + run.index[0];
        const std::int64_t step = run.step[0];
        for (std::int64_t r = 0; r < count; ++r) y[r] = f[r] * s[r * step];
      } else if (terms == 2) {
        const T *const s0 = x + run.index[0], *const s1 = x + run.index[1];
        const std::int64_t step0 = run.step[0], step1 = run.step[1];
        for (std::int64_t r = 0; r < count; ++r) y[r] = f[2 * r] * s0[r * step0] + f[2 * r + 1] * s1[r * step1];
      } else {
        for (std::int64_t r = 0; r < count; ++r) {
          T sum = 0;
          for (std::int64_t t = 0; t < terms; ++t) sum += f[r * terms + t] * x[run.index[at(t)] + r * run.step[at(t)]];
          y[r] = sum;
        }
      }
    }
  }
}

std::int64_t even(std::int64_t size) { return size + size % 2; }

// The lines of one part: side by side, or one after the other.
geometry lines_of(const line_part& what, std::int64_t lines, bool side_by_side, std::int64_t u_size, std::int64_t v_size) {
  geometry made;
  made.kind = what.kind;
  made.n = {1, 1, what.points};
  made.batch = lines;
  const auto place = [&](side& of, bool real, bool half, std::int64_t size) {
    of.real = real;
    of.length = {1, 1, half ? what.points / 2 + 1 : what.points};
    of.stride = {1, 1, side_by_side ? lines : 1};
    of.distance = side_by_side ? 1 : real ? size : size / 2;
    of.extent = (of.length[2] - 1) * of.stride[2] + (lines - 1) * of.distance + 1;
  };
  place(made.input, what.kind == kind::r2c, what.kind == kind::c2r, u_size);
  place(made.output, what.kind == kind::c2r, what.kind == kind::r2c, v_size);
  return made;
}

}  // namespace

template <class T>
memory_layout line_steps<T>::memory_of(std::int64_t size) const {
  if (!side_by_side()) return {1, size, false};
  return {where_.lines(), where_.inner, true};
}

template <class T>
void line_steps<T>::apply(const index_map& map, const T* factors, const T* from, T* to) const {
  if (!side_by_side()) return apply_to_lines(map, factors, where_, from, to);
  kernels_.map({map.begin.data(), map.source.data(), map.target.data(), map.paired.data(), map.rows(), where_.inner, where_.outer,
                map.from_outer, map.to_outer, factors, from, to});
}

template <class T>
line_steps<T>::line_steps(real_kind what, std::int64_t n, const line_places& where, transform_maker make,
                          const cpu::chunk_kernels<T>& kernels)
    : kernels_(kernels), n_(n), where_(where) {
  const line_program program = real_line_program(what, n);
  u_size_ = even(program.u_size);
  v_size_ = even(program.v_size);
  const memory_layout dense{where.inner, n * where.inner, false}, u = memory_of(u_size_), v = memory_of(v_size_);
  const auto add = [&](const line_map& map, const memory_layout& from, const memory_layout& to, bool within) {
    maps_.emplace_back(map, from, to, within);
    for (const auto& each : map.terms) factors_.push_back(static_cast<T>(each.factor));
  };
  add(program.before, dense, u, false);
  for (std::size_t i = 0; i < program.after.size(); ++i) {
    const bool last = i + 1 == program.after.size();
    add(program.after[i], v, last ? dense : v, !last);
  }
  pairs_ = program.before.paired;
  for (const line_part& each : program.parts)
    parts_.push_back({each, make(lines_of(each, where.lines(), side_by_side(), u_size_, v_size_),
                                 sizeof(T) == 4 ? precision::f32 : precision::f64, false)});
}

template <class T>
void line_steps<T>::before(const T* x, T* u, const T* factors) const {
  apply(maps_.front(), factors, x, u);
}

template <class T>
void line_steps<T>::transform_lines(const T* u, T* v, const transform_args& how) const {
  transform_args part = how;
  part.protection = protection::off;  // the check from end to end covers every step
  part.scale = part.check_scale = 1;
  part.in_place = false;
  const std::int64_t scalars = side_by_side() ? where_.lines() : 1;
  for (const auto& each : parts_) {
    part.direction = each.what.kind == kind::c2r ? direction::inverse : direction::forward;
    each.work->run(u + each.what.from * scalars, v + each.what.to * scalars, part);
  }
}

template <class T>
void line_steps<T>::after(T* v, T* y, const T* factors) const {
  for (std::size_t i = 1; i < maps_.size(); ++i) {
    factors += maps_[i - 1].index.size();
    apply(maps_[i], factors, v, i + 1 == maps_.size() ? y : v);
  }
}

template <class T>
std::int64_t line_steps<T>::line_in_u(std::int64_t at) const {
  if (!side_by_side()) return at / u_size_;
  const std::int64_t lines = where_.lines();
  return pairs_ ? at % (2 * lines) / 2 : at % lines;
}

template <class T>
line_definition<T>::line_definition(real_kind what, std::int64_t n, const line_places& where) : what_(what), n_(n), where_(where) {
  const std::int64_t circle = circle_of(what, n);
  for (std::int64_t m = 0; m < circle; ++m) roots_.emplace_back(root_of_unity<wide<T>>(m, circle));
}

template <class T>
void line_definition<T>::run(const T* x, T* y, const std::vector<std::complex<T>>& roots) const {
  for (std::int64_t o = 0; o < where_.outer; ++o) {
    for (std::int64_t k = 0; k < n_; ++k) {
      for (std::int64_t l = 0; l < where_.inner; ++l) {
        wide<T> sum = 0;
        for (std::int64_t j = 0; j < n_; ++j)
          sum += wide<T>(real_element(what_, n_, k, j, roots)) * wide<T>(x[(o * n_ + j) * where_.inner + l]);
        y[(o * n_ + k) * where_.inner + l] = static_cast<T>(sum);
      }
    }
  }
}

template class line_steps<float>;
template class line_steps<double>;
template class line_definition<float>;
template class line_definition<double>;

}  // namespace ballast::fft::composite
