// The loads and stores of the tiles of each pass, and the attempts at a signal.
#include "fft/cpu/volume_run.hpp"

#include <algorithm>
#include <cstring>

#include "run/attempt.hpp"

namespace ballast::fft::cpu {

template <class T>
volume_run<T>::volume_run(const volume<T>& plan, const T* in, T* out, const crew<T>& workers, signal_memory& mine, const numbering& where,
                          std::int64_t signal, std::int64_t first)
    : v_(plan),
      at_(plan.layout_),
      from_(plan.shape_.input),
      to_(plan.shape_.output),
      in_(in),
      out_(out),
      workers_(workers),
      mine_(mine),
      where_(where),
      signal_(signal),
      first_(first),
      protect_(workers.how.protection != protection::off),
      in_unit_(from_.real ? 1 : 2),
      out_unit_(to_.real ? 1 : 2),
      result_(out) {
  std::copy_n(at_.out, 3, stride_);
  if (!workers.how.in_place) return;
  // In place, the input must survive until every check of the waiting data has passed: the result is staged contiguously.
  result_ = mine.staging.data();
  stride_[0] = to_.length[1] * to_.length[2];
  stride_[1] = at_.long_line ? 1 : to_.length[2];
  stride_[2] = at_.long_line ? at_.n[1] : 1;
}

template <class T>
bool volume_run<T>::run() {
  const transform_args& how = workers_.how;
  if (!protect_) {
    passes();
  } else {
    const auto once = [&](int) -> std::optional<abft::finding> {
      passes();
      how.seen.checked(static_cast<std::uint64_t>(at_.turning_tiles * groups()));
      if (fatal_) return std::nullopt;
      return abft::finding{.word = damaged_ ? abft::k_fail : abft::k_pass, .residual = 1, .index = signal_};
    };
    if (run::attempt(how.seen, how.protection, "fft.intermediate", std::max(workers_.slot, 0), once) == abft::outcome::uncorrectable)
      return false;
  }
  if (how.in_place) copy_staged();
  return true;
}

template <class T>
void volume_run<T>::passes() {
  damaged_ = false;
  seal_ = 0;
  const auto sound = [&] { return !fatal_ && !damaged_; };
  const auto outer_pass = [&] {
    const tile_job<T> common = outer_job();
    workers_.for_tiles(at_.outer_columns, common.transform->rows_scratch() * at_.n[1],
                       [&](std::int64_t column, tile_worker<T>& worker) { return outer_column(column, worker, common); });
  };
  if (at_.n[0] > 1 && !at_.outer_last()) outer_pass();
  if (sound()) plane_passes();
  if (sound() && at_.outer_last()) outer_pass();
}

// Transforms axes 1 and 2 of all planes.
template <class T>
void volume_run<T>::plane_passes() {
  const tile_job<T> turning = turning_job(), turned = turned_job();
  // Each plane in the cache of one thread.
  if (at_.planes_fit) {
    workers_.for_tiles(at_.n[0], at_.columns * turning.transform->rows_scratch(), [&](std::int64_t plane, tile_worker<T>& worker) {
      for (std::int64_t column = 0; column < at_.columns; ++column) {
        if (!turning_tile(plane, column, worker, turning)) return false;
      }
      for (std::int64_t group = 0; group < groups(); ++group) {
        if (!turned_tile(plane, group, worker, turned)) return false;
      }
      return true;
    });
    return;
  }
  // All threads in one plane after the other, or, with a place for each plane, in all of them.
  const std::int64_t together = at_.outer_last() ? 1 : at_.n[0];
  for (std::int64_t first = 0; first < at_.n[0] && !fatal_ && !damaged_; first += together) {
    workers_.for_tiles(together * at_.columns, turning.transform->rows_scratch(), [&](std::int64_t tile, tile_worker<T>& worker) {
      return turning_tile(first + tile / at_.columns, tile % at_.columns, worker, turning);
    });
    if (fatal_ || damaged_) return;
    workers_.for_tiles(together * groups(), turned.transform->rows_scratch(), [&](std::int64_t tile, tile_worker<T>& worker) {
      return turned_tile(first + tile / groups(), tile % groups(), worker, turned);
    });
  }
}

// Returns the place of a plane in the workspace.
template <class T>
std::int64_t volume_run<T>::place_of(std::int64_t plane, const tile_worker<T>& worker) const {
  if (!at_.outer_last()) return plane;
  return at_.planes_fit && workers_.slot < 0 ? worker.slot() : 0;
}

template <class T>
bool volume_run<T>::settle(tile_result seen) {
  if (seen == tile_result::damaged_input) damaged_ = true;
  if (seen == tile_result::uncorrectable) fatal_ = true;
  return !damaged_ && !fatal_;
}

template <class T>
tile_job<T> volume_run<T>::job_for(std::size_t axis) const {
  tile_job<T> job;
  job.transform = v_.axis_[axis].get();
  job.inverse = workers_.how.direction == direction::inverse;
  job.rows_stored = job.transform->rows_out();
  job.index = signal_;
  job.index_lane = 0;
  return job;
}

// Numbers a job among all tiles of the signal. The results of all passes but the last wait in memory.
template <class T>
void volume_run<T>::number(tile_job<T>& job, std::int64_t tile) const {
  job.interval = where_.tile + tile;
  if (tile < v_.waiting_of_signal()) job.waiting = where_.waiting + tile;
}

// Returns the location in the input of lines of `axis` (0 or 1) that start at i₀ = 0, i₁, for W neighbours of axis 2 from `column` on.
template <class T>
tile_view<const T> volume_run<T>::source(std::size_t axis, std::int64_t i1, std::int64_t column) const {
  tile_view<const T> made;
  const std::int64_t first = column * v_.lanes_;
  made.base = in_ + (i1 * at_.in[1] + first * at_.in[2]) * in_unit_;
  made.lane = at_.in[2] * in_unit_;
  made.element = at_.in[axis] * in_unit_;
  if (from_.real) {
    made.how = access::real;
  } else if (at_.long_line && v_.shape_.kind == kind::c2r) {
    made.how = access::hermitian;
    made.base = in_;
    made.lane = 0;
    made.element = from_.stride[2] * 2;
    made.index_first = first;
    made.index_lane = 1;
    made.index_element = at_.n[2];
    made.length = v_.shape_.n[2];
  } else {
    made.how = at_.in[2] == 1 ? access::columns : access::complex;
  }
  return made;
}

// Returns the location in the input of the lines of axis 2 in plane i₀, for W neighbours of axis 1 from `column` on.
template <class T>
tile_view<const T> volume_run<T>::source_of_lines(std::int64_t i0, std::int64_t column) const {
  tile_view<const T> made;
  made.base = in_ + (i0 * at_.in[0] + column * v_.lanes_ * at_.in[1]) * in_unit_;
  made.lane = at_.in[1] * in_unit_;
  made.element = at_.in[2] * in_unit_;
  made.odd = v_.axis_[2]->has_odd_reals();
  if (from_.real && at_.n[2] % 2 == 1 && !made.odd)
    made.how = access::real;
  else
    made.how = at_.in[2] == 1 ? access::rows : from_.real ? access::scalars : access::complex;
  return made;
}

// Returns the prefetch for the read after `column`: the next column, or after the last one the first column of the next signal.
template <class T>
read_ahead volume_run<T>::next_columns(const tile_view<const T>& from, std::int64_t column) const {
  const std::int64_t next_signal = signal_ + 1 < v_.shape_.batch ? from_.distance * in_unit_ : 0;
  const std::int64_t row = 2 * v_.lanes_;
  const std::int64_t across = column + 1 < at_.columns ? row : next_signal == 0 ? 0 : next_signal - column * row;
  if (from.how != access::columns || across == 0) return {};
  const std::int64_t width = sizeof(T);
  return read_ahead(from.base + across, at_.n[1], std::min<std::int64_t>(v_.lanes_, at_.width) * 2 * width, from.element * width);
}

// Returns the prefetch of the lines of the same plane after `column`.
template <class T>
read_ahead volume_run<T>::next_lines(const tile_view<const T>& from, std::int64_t column) const {
  const std::int64_t left = std::min<std::int64_t>(v_.lanes_, at_.n[1] - (column + 1) * v_.lanes_);
  if (from.how != access::rows || left <= 0) return {};
  const std::int64_t width = sizeof(T);
  return read_ahead(from.base + v_.lanes_ * from.lane, left, at_.n[2] * in_unit_ * width, from.lane * width);
}

// Sets where the last pass stores: its lanes lie along one axis of the result, its elements along another.
template <class T>
void volume_run<T>::to_result(tile_job<T>& job, std::size_t lanes, std::size_t elements) const {
  job.scale = workers_.how.scale;
  job.check_scale = workers_.how.check_scale;
  job.to.lane = stride_[lanes] * out_unit_;
  job.to.element = stride_[elements] * out_unit_;
  const bool real_inverse = job.transform->is_real_inverse();
  if (to_.real) {
    job.to.how = real_inverse ? (stride_[elements] == 1 ? access::rows : access::scalars) : access::real;
    job.expand = !at_.long_line && !real_inverse;
    job.to.odd = job.transform->has_odd_reals();
  } else if (from_.real && at_.long_line) {
    job.to.how = access::complex;
    job.to.index_lane = 1;
    job.to.index_element = at_.n[1];
    job.to.length = to_.length[2];
  } else {
    job.to.how = stride_[lanes] == 1 && at_.n[lanes] > 1 ? access::columns : stride_[elements] == 1 ? access::rows : access::complex;
  }
  const std::int64_t run = job.to.how == access::columns ? job.to.element : job.to.lane;
  const T* const whole = result_ + first_ * out_unit_;  // the first of the stores that are whole vectors
  job.stream = (job.to.how == access::columns || job.to.how == access::rows) && may_stream(to_, whole, workers_.how, run) &&
               (stride_[3 - lanes - elements] * out_unit_) % v_.lanes_ == 0;
}

template <class T>
tile_job<T> volume_run<T>::outer_job() const {
  tile_job<T> job = job_for(0);
  if (at_.outer_last()) {
    job.from.how = access::other_rows;
    job.from.element = at_.held_scalars;
    to_result(job, 2, 0);
  } else {
    job.to.how = access::own_rows;
    job.to.element = at_.plane_scalars;
  }
  return job;
}

// Transforms axis 0 at W elements of axis 2 and all of axis 1: the tiles that share seals.
template <class T>
bool volume_run<T>::outer_column(std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common) {
  const std::int64_t n1 = at_.n[1], row = 2 * v_.lanes_, words = at_.n[0] * v_.lanes_;
  const bool last = at_.outer_last();
  T* const seals = outer_seals_at(column, 0);
  T* running[2] = {};
  if (protect_ && last) {
    running[0] = mine_.running.data() + 2 * column * words;
    running[1] = running[0] + words;
  }
  if (protect_) std::fill_n(last ? running[0] : seals, words, T(0));
  for (std::int64_t i1 = 0; i1 < n1; ++i1) {
    tile_job<T> job = common;
    job.used = lanes_at(at_.width, column);
    if (last) {
      job.from.base = held_at(0, column) + i1 * row;
      job.from.running = running[i1 % 2];
      job.from.extended = running[1 - i1 % 2];
      job.from.seals = i1 + 1 == n1 ? seals : nullptr;
      job.to.base = result_ + (i1 * stride_[1] + column * v_.lanes_ * stride_[2]) * out_unit_;
      job.stream = common.stream && job.used == v_.lanes_;
      const std::int64_t width = sizeof(T), n0 = at_.n[0];
      if (i1 + 1 < n1) job.ahead = read_ahead(job.from.base + row, n0, row * width, at_.held_scalars * width);
      if (job.to.how == access::columns && !job.stream)
        job.ahead.then = read_ahead::of(job.to.base, n0, 2 * job.used * width, job.to.element * width);
    } else {
      job.from = source(0, i1, column);
      job.to.base = rows_at(0, column) + i1 * row;
      job.to.seals = seals;
    }
    number(job, (last ? at_.turning_tiles + at_.turned_tiles : 0) + column * n1 + i1);
    if (!settle(worker.process(job))) return false;
  }
  return true;
}

template <class T>
tile_job<T> volume_run<T>::turning_job() const {
  tile_job<T> job = job_for(at_.rows_first ? 2 : 1);
  job.to.how = access::blocks;
  job.rows_stored = at_.plane_rows;
  return job;
}

template <class T>
bool volume_run<T>::turning_tile(std::int64_t plane, std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common) {
  tile_job<T> job = common;
  if (at_.rows_first) {
    job.from = source_of_lines(plane, column);
    job.ahead = next_lines(job.from, column);
  } else if (at_.n[0] > 1) {
    job.from.how = access::own_rows;
    job.from.base = rows_at(plane, column);
    job.from.seals = outer_seals_at(column, plane);
  } else {
    job.from = source(1, 0, column);
    // The columns of a long line lie a power of two apart more often than not. Brought ahead they displace each other, and the tile that is
    // computed (docs/notebook/fft.md, "Long lines").
    if (!at_.long_line) job.ahead = next_columns(job.from, column);
  }
  job.to.base = rows_at(place_of(plane, worker), column);
  job.to.seals = seals_at(plane, column, 0);
  job.to.first_sealed = first_;
  job.used = lanes_at(at_.plane_lanes, column);
  if (at_.long_line) {
    job.factors = v_.factors_[0].of(column, v_.lanes_);
    if (protect_) job.check = v_.factors_[1].of(column, v_.lanes_);
  }
  number(job, (at_.outer_last() ? 0 : at_.outer_tiles) + plane * at_.columns + column);
  return settle(worker.process(job));
}

template <class T>
tile_job<T> volume_run<T>::turned_job() const {
  const std::int64_t row = 2 * v_.lanes_;
  tile_job<T> job = job_for(at_.rows_first ? 1 : 2);
  job.from.how = access::blocks;
  job.from.element = at_.plane_rows * row;
  job.from.seal_stride = groups();
  if (at_.outer_last()) {
    job.to.how = access::other_rows;
    job.to.element = row;
  } else if (at_.rows_first) {
    to_result(job, 2, 1);
  } else {
    to_result(job, 1, 2);
  }
  return job;
}

template <class T>
bool volume_run<T>::turned_tile(std::int64_t plane, std::int64_t group, tile_worker<T>& worker, const tile_job<T>& common) {
  const std::int64_t first = first_ == 0 ? group * v_.lanes_ : group == 0 ? 0 : first_ + (group - 1) * v_.lanes_;
  tile_job<T> job = common;
  job.from.base = rows_at(place_of(plane, worker), 0) + first * 2 * v_.lanes_;
  job.from.seals = seals_at(plane, 0, group);
  if (at_.outer_last()) {
    job.to.base = held_at(plane, group);
    job.to.seals = outer_seals_at(group, plane);
  } else {
    job.to.base = result_ + (plane * stride_[0] + first * stride_[at_.rows_first ? 2 : 1]) * out_unit_;
  }
  if (job.to.length > 0) job.to.index_first = first;
  job.used = first_ > 0 && group == 0 ? static_cast<int>(first_) : lanes_at(at_.plane_rows - first, 0);
  job.stream = common.stream && job.used == v_.lanes_;
  number(job, (at_.outer_last() ? 0 : at_.outer_tiles) + at_.turning_tiles + plane * groups() + group);
  const tile_result seen = worker.process(job);
  if (protect_ && seal_result_ && seen == tile_result::done)
    seal_ += kernels<T>().seal_tile(worker.done(), job.rows_stored, job.used, first, at_.n[1]);
  return settle(seen);
}

template <class T>
void volume_run<T>::copy_staged() const {
  const T* next = result_;
  const std::int64_t length = to_.length[2];
  for (std::int64_t i = 0; i < to_.length[0]; ++i) {
    for (std::int64_t j = 0; j < to_.length[1]; ++j, next += length * out_unit_) {
      T* line_out = out_ + (i * to_.stride[0] + j * to_.stride[1]) * out_unit_;
      if (to_.stride[2] == 1) {
        std::memcpy(line_out, next, static_cast<std::size_t>(length * out_unit_) * sizeof(T));
      } else {
        for (std::int64_t k = 0; k < length; ++k) std::copy_n(next + k * out_unit_, out_unit_, line_out + k * to_.stride[2] * out_unit_);
      }
    }
  }
}

template class volume_run<float>;
template class volume_run<double>;

}  // namespace ballast::fft::cpu
