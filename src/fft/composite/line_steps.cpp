// Sparse maps of many lines at once, and the transforms between them.
#include "fft/composite/line_steps.hpp"

#include <algorithm>

#include "core/at.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::composite {

using core::at;

index_map::index_map(const line_map& from) : begin(from.begin), to_pairs(from.paired), to(from.to) {
  for (const auto& each : from.terms) {
    index.push_back(each.index);
    paired.push_back(each.paired ? 1 : 0);
  }
}

namespace {

// The place of scalar i of lines (o, 0), (o, 1), …; stride: 2 for the parts of complex numbers of lines side by side.
struct row_place {
  std::int64_t offset, stride;
};

// The addresses of one array or memory.
struct addresses {
  std::int64_t per_outer, per_scalar;
  bool side_by_side;  // a memory whose lines lie so

  row_place operator()(std::int64_t o, std::int64_t i, bool paired) const {
    if (side_by_side && paired) return {(i - i % 2) * per_scalar + i % 2 + 2 * o * per_outer, 2};
    return {i * per_scalar + o * per_outer, 1};
  }
};

// d = f s or d += f s for `count` numbers.
template <int To, int From, bool First, class T>
void add_scaled(T* d, const T* s, T f, std::int64_t count) {
  for (std::int64_t l = 0; l < count; ++l) {
    if constexpr (First)
      d[l * To] = f * s[l * From];
    else
      d[l * To] += f * s[l * From];
  }
}

template <bool First, class T>
void add_term(T* d, std::int64_t to, const T* s, std::int64_t from, T f, std::int64_t count) {
  if (to == 1)
    from == 1 ? add_scaled<1, 1, First>(d, s, f, count) : add_scaled<1, 2, First>(d, s, f, count);
  else
    from == 1 ? add_scaled<2, 1, First>(d, s, f, count) : add_scaled<2, 2, First>(d, s, f, count);
}

template <class T>
void apply(const index_map& map, const T* factors, const line_places& where, const T* from, const addresses& from_at, T* to,
           const addresses& to_at) {
  for (std::int64_t o = 0; o < where.outer; ++o) {
    for (std::int64_t i = 0; i < map.rows(); ++i) {
      const row_place d = to_at(o, map.to + i, map.to_pairs);
      std::int64_t t = map.begin[at(i)];
      const std::int64_t end = map.begin[at(i + 1)];
      if (where.inner == 1) {
        T sum = 0;
        for (; t < end; ++t) sum += factors[t] * from[from_at(o, map.index[at(t)], map.paired[at(t)] != 0).offset];
        to[d.offset] = sum;
        continue;
      }
      if (t == end) {
        for (std::int64_t l = 0; l < where.inner; ++l) to[d.offset + l * d.stride] = 0;
        continue;
      }
      for (bool first = true; t < end; ++t, first = false) {
        const row_place s = from_at(o, map.index[at(t)], map.paired[at(t)] != 0);
        if (first)
          add_term<true>(to + d.offset, d.stride, from + s.offset, s.stride, factors[t], where.inner);
        else
          add_term<false>(to + d.offset, d.stride, from + s.offset, s.stride, factors[t], where.inner);
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
line_steps<T>::line_steps(real_kind what, std::int64_t n, const line_places& where, transform_maker make)
    : n_(n), where_(where), before_(line_map{}) {
  const line_program program = real_line_program(what, n);
  u_size_ = even(program.u_size);
  v_size_ = even(program.v_size);
  const auto add_factors = [&](const line_map& of) {
    for (const auto& each : of.terms) factors_.push_back(static_cast<T>(each.factor));
  };
  before_ = index_map(program.before);
  add_factors(program.before);
  for (const line_map& each : program.after) {
    after_.emplace_back(each);
    add_factors(each);
  }
  for (const line_part& each : program.parts)
    parts_.push_back({each, make(lines_of(each, where.lines(), side_by_side(), u_size_, v_size_),
                                 sizeof(T) == 4 ? precision::f32 : precision::f64, false)});
}

template <class T>
void line_steps<T>::before(const T* x, T* u, const T* factors) const {
  const addresses dense{n_ * where_.inner, where_.inner, false};
  const addresses memory{side_by_side() ? where_.inner : u_size_, side_by_side() ? where_.lines() : 1, side_by_side()};
  apply(before_, factors, where_, x, dense, u, memory);
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
  const addresses dense{n_ * where_.inner, where_.inner, false};
  const addresses memory{side_by_side() ? where_.inner : v_size_, side_by_side() ? where_.lines() : 1, side_by_side()};
  factors += before_.index.size();
  for (std::size_t i = 0; i < after_.size(); ++i) {
    const bool last = i + 1 == after_.size();
    apply(after_[i], factors, where_, v, memory, last ? y : v, last ? dense : memory);
    factors += after_[i].index.size();
  }
}

template <class T>
std::int64_t line_steps<T>::line_in_u(std::int64_t at) const {
  if (!side_by_side()) return at / u_size_;
  const std::int64_t lines = where_.lines();
  return before_.to_pairs ? at % (2 * lines) / 2 : at % lines;
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
