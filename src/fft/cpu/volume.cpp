// The passes over a volume: their tiles, the loads and stores of these, and the attempts at a signal whose workspace was damaged.
#include "fft/cpu/volume.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "run/attempt.hpp"

namespace ballast::fft::cpu {
namespace {

// Planes of the workspace up to this size are turned in the cache of one core: half of the second-level caches of today.
constexpr std::int64_t k_plane_bytes = std::int64_t{1} << 19;

}  // namespace

std::optional<line_split> split_line(std::int64_t n) {
  std::optional<line_split> best;
  std::int64_t best_cost = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t p = 2; p * p <= n; ++p) {
    if (n % p != 0) continue;
    const std::int64_t q = n / p;
    if (q > (is_direct(q) ? k_longest_split_line : k_longest_convolved_line)) continue;
    // A convolution costs about five transforms.
    const std::int64_t cost = (is_direct(p) ? p : 5 * p) + (is_direct(q) ? q : 5 * q);
    if (cost < best_cost) {
      best_cost = cost;
      best = {q, p};
    }
  }
  return best;
}

geometry line_of(std::int64_t n) {
  geometry made;
  made.n = {1, 1, n};
  made.input.length = made.input.stride = {1, 1, 1};
  made.input.length[2] = made.input.distance = made.input.extent = n;
  made.output = made.input;
  return made;
}

template <class T>
volume<T>::volume(const geometry& shape, std::optional<line_split> split, bool protect)
    : shape_(shape),
      lanes_(kernels<T>().lanes),
      long_line_(split.has_value()),
      rows_first_(!long_line_ && (shape.kind == kind::r2c || (shape.kind == kind::c2c && shape.n[0] > 1))) {
  if (split) {
    // Element j₁ n₂ + j₂ of the input, k₁ + n₁ k₂ of the output.
    n_[1] = split->n1;
    n_[2] = split->n2;
    in_[1] = n_[2] * shape_.input.stride[2];
    in_[2] = shape_.input.stride[2];
    out_[1] = shape_.output.stride[2];
    out_[2] = n_[1] * shape_.output.stride[2];
    width_ = n_[2];
    make_factors(factors_[0]);
    if (protect) make_factors(factors_[1]);
  } else {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      n_[axis] = shape_.n[axis];
      in_[axis] = shape_.input.stride[axis];
      out_[axis] = shape_.output.stride[axis];
    }
    width_ = shape_.kind == kind::c2r ? shape_.input.length[2] : shape_.output.length[2];
  }
  make_lines(protect);
  plane_lanes_ = rows_first_ ? n_[1] : width_;
  plane_rows_ = rows_first_ ? width_ : n_[1];
  columns_ = ceil_div(plane_lanes_, lanes_);
  groups_ = ceil_div(plane_rows_, lanes_);
  outer_columns_ = ceil_div(width_, lanes_);
  outer_tiles_ = n_[0] > 1 ? outer_columns_ * n_[1] : 0;
  turning_tiles_ = n_[0] * columns_;
  turned_tiles_ = n_[0] * groups_;
  // The rows that the outer pass takes from many planes, or gives to them, begin in different sets of a cache.
  const std::int64_t row = 2 * lanes_;
  const std::int64_t apart = n_[0] > 1 ? row : 0;
  const std::int64_t plane = core::checked_product(core::checked_product(columns_, plane_rows_), row);
  plane_scalars_ = plane + apart;
  signal_scalars_ = core::checked_product(n_[0], plane_scalars_);
  if (outer_last()) held_scalars_ = core::checked_product(core::checked_product(groups_, n_[1]), row) + apart;
  planes_fit_ = n_[0] > 1 && plane * static_cast<std::int64_t>(sizeof(T)) <= k_plane_bytes;
}

template <class T>
void volume<T>::make_lines(bool protect) {
  if (n_[0] > 1) axis_[0] = std::make_unique<line<T>>(form::complex, n_[0], 0, protect);
  axis_[1] = std::make_unique<line<T>>(form::complex, n_[1], 1, protect);
  const bool even = n_[2] % 2 == 0;
  const bool half = shape_.kind == kind::c2r && !long_line_;
  const bool spectrum = shape_.kind == kind::r2c && !long_line_;
  const form last = spectrum && even ? form::real_forward : half && even ? form::real_inverse : form::complex;
  axis_[2] = std::make_unique<line<T>>(last, n_[2], 2, protect, half && !even);
  for (const auto& each : axis_) {
    if (each) scratch_scalars_ = std::max(scratch_scalars_, core::checked_product(each->rows_scratch(), 2 * lanes_));
  }
}

template <class T>
void volume<T>::make_factors(factor_tables& made) const {
  const std::int64_t n = shape_.n[2];
  made.fine = core::aligned_buffer<T>(n_[1] * 2 * lanes_);
  for (std::int64_t k = 0; k < n_[1]; ++k) {
    for (int l = 0; l < lanes_; ++l) {
      const auto w = root_of_unity<wide<T>>(k * l, n);
      made.fine[(2 * k) * lanes_ + l] = static_cast<T>(w.real());
      made.fine[(2 * k + 1) * lanes_ + l] = static_cast<T>(w.imag());
    }
  }
  for (std::int64_t first = 0; first < width_; first += lanes_) {
    for (std::int64_t k = 0; k < n_[1]; ++k) {
      const auto w = root_of_unity<wide<T>>(first * k, n);
      made.coarse.push_back(static_cast<T>(w.real()));
      made.coarse.push_back(static_cast<T>(w.imag()));
    }
  }
}

// Returns the planes that the workspace of one signal holds, if so many signals are transformed at the same time.
template <class T>
std::int64_t volume<T>::planes_of(const transform_args& how, int signals) const {
  if (!outer_last()) return n_[0];
  return planes_fit_ && signals == 1 ? how.threads : 1;
}

// Pages that no thread touches take no memory.
template <class T>
void volume<T>::prepare(workspace& memory, const transform_args& how, int signals) const {
  const bool protect = how.protection != protection::off;
  memory.slots.prepare(how.threads, scratch_scalars_, protect);
  while (memory.signals.size() < static_cast<std::size_t>(signals)) {
    auto made = std::make_unique<signal_memory>();
    made->data = core::large_buffer<T>(planes_of(how, signals) * plane_scalars_);
    if (outer_last()) made->held = core::large_buffer<T>(n_[0] * held_scalars_);
    if (protect) {
      made->seals = core::aligned_buffer<T>(turning_tiles_ * groups_);
      if (n_[0] > 1) made->outer_seals = core::aligned_buffer<T>(outer_columns_ * n_[0] * lanes_);
      if (outer_last()) made->running = core::aligned_buffer<T>(2 * outer_columns_ * n_[0] * lanes_);
    }
    memory.signals.push_back(std::move(made));
  }
  if (!how.in_place) return;
  const side& to = shape_.output;
  for (auto& each : memory.signals) {
    if (each->staging.size() == 0) each->staging = core::aligned_buffer<T>(to.length[0] * to.length[1] * to.length[2] * (to.real ? 1 : 2));
  }
}

// ---- One signal ----

template <class T>
class volume<T>::signal_run {
 public:
  signal_run(const volume& plan, const T* in, T* out, const crew<T>& workers, signal_memory& mine, const numbering& where,
             std::int64_t signal);
  bool run();
  void seal_result(bool wanted) { seal_result_ = wanted; }
  std::uint64_t seal() const { return seal_; }

 private:
  void passes();
  void plane_passes();

  // The tiles of a pass. They return whether the pass continues.
  bool outer_column(std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common);
  bool turning_tile(std::int64_t plane, std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common);
  bool turned_tile(std::int64_t plane, std::int64_t group, tile_worker<T>& worker, const tile_job<T>& common);
  std::int64_t place_of(std::int64_t plane, const tile_worker<T>& worker) const;

  // The parts of a job that the tiles of a pass share.
  tile_job<T> job_for(std::size_t axis) const;
  tile_job<T> outer_job() const;
  tile_job<T> turning_job() const;
  tile_job<T> turned_job() const;
  void to_result(tile_job<T>& job, std::size_t lanes, std::size_t elements) const;

  void number(tile_job<T>& job, std::int64_t tile) const;
  tile_view<const T> source(std::size_t axis, std::int64_t i1, std::int64_t column) const;
  tile_view<const T> source_of_lines(std::int64_t i0, std::int64_t column) const;
  read_ahead next_columns(const tile_view<const T>& from, std::int64_t column) const;
  read_ahead next_lines(const tile_view<const T>& from, std::int64_t column) const;
  bool settle(tile_result seen);
  void copy_staged() const;

  int lanes_at(std::int64_t count, std::int64_t tile) const {
    return static_cast<int>(std::min<std::int64_t>(v_.lanes_, count - tile * v_.lanes_));
  }
  // Return what a turning tile leaves in a place of the workspace, and its seals, from group `group` on.
  T* rows_at(std::int64_t place, std::int64_t column) const {
    return mine_.data.data() + place * v_.plane_scalars_ + column * v_.plane_rows_ * 2 * v_.lanes_;
  }
  T* seals_at(std::int64_t plane, std::int64_t column, std::int64_t group) const {
    return protect_ ? mine_.seals.data() + (plane * v_.columns_ + column) * v_.groups_ + group : nullptr;
  }
  // Return what a turned tile leaves for an outer pass that comes last, and the seals beside any outer pass.
  T* held_at(std::int64_t plane, std::int64_t column) const {
    return mine_.held.data() + plane * v_.held_scalars_ + column * v_.n_[1] * 2 * v_.lanes_;
  }
  T* outer_seals_at(std::int64_t column, std::int64_t plane) const {
    return protect_ ? mine_.outer_seals.data() + (column * v_.n_[0] + plane) * v_.lanes_ : nullptr;
  }

  const volume& v_;
  const side& from_;
  const side& to_;
  const T* in_;
  T* out_;
  const crew<T>& workers_;
  signal_memory& mine_;
  const numbering& where_;
  std::int64_t signal_;
  bool protect_;
  std::int64_t in_unit_, out_unit_;  // scalars of an element
  T* result_;                        // destination of the last pass
  std::int64_t stride_[3];           // strides of the result
  std::atomic<bool> damaged_{false}, fatal_{false};
  bool seal_result_ = false;
  std::atomic<std::uint64_t> seal_{0};
};

template <class T>
volume<T>::signal_run::signal_run(const volume& plan, const T* in, T* out, const crew<T>& workers, signal_memory& mine,
                                  const numbering& where, std::int64_t signal)
    : v_(plan),
      from_(plan.shape_.input),
      to_(plan.shape_.output),
      in_(in),
      out_(out),
      workers_(workers),
      mine_(mine),
      where_(where),
      signal_(signal),
      protect_(workers.how.protection != protection::off),
      in_unit_(from_.real ? 1 : 2),
      out_unit_(to_.real ? 1 : 2),
      result_(out) {
  std::copy_n(v_.out_, 3, stride_);
  if (!workers.how.in_place) return;
  // In place, the input must survive until every check of the waiting data has passed: the result is staged contiguously.
  result_ = mine.staging.data();
  stride_[0] = to_.length[1] * to_.length[2];
  stride_[1] = v_.long_line_ ? 1 : to_.length[2];
  stride_[2] = v_.long_line_ ? v_.n_[1] : 1;
}

template <class T>
bool volume<T>::signal_run::run() {
  const transform_args& how = workers_.how;
  if (!protect_) {
    passes();
  } else {
    const auto once = [&](int) -> std::optional<abft::finding> {
      passes();
      how.seen.checked(static_cast<std::uint64_t>(v_.turning_tiles_ * v_.groups_));
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
void volume<T>::signal_run::passes() {
  damaged_ = false;
  seal_ = 0;
  const auto sound = [&] { return !fatal_ && !damaged_; };
  const auto outer_pass = [&] {
    const tile_job<T> common = outer_job();
    workers_.for_tiles(v_.outer_columns_, common.transform->rows_scratch() * v_.n_[1],
                       [&](std::int64_t column, tile_worker<T>& worker) { return outer_column(column, worker, common); });
  };
  if (v_.n_[0] > 1 && !v_.outer_last()) outer_pass();
  if (sound()) plane_passes();
  if (sound() && v_.outer_last()) outer_pass();
}

// Transforms axes 1 and 2 of all planes.
template <class T>
void volume<T>::signal_run::plane_passes() {
  const tile_job<T> turning = turning_job(), turned = turned_job();
  // Each plane in the cache of one thread.
  if (v_.planes_fit_) {
    workers_.for_tiles(v_.n_[0], v_.columns_ * turning.transform->rows_scratch(), [&](std::int64_t plane, tile_worker<T>& worker) {
      for (std::int64_t column = 0; column < v_.columns_; ++column) {
        if (!turning_tile(plane, column, worker, turning)) return false;
      }
      for (std::int64_t group = 0; group < v_.groups_; ++group) {
        if (!turned_tile(plane, group, worker, turned)) return false;
      }
      return true;
    });
    return;
  }
  // All threads in one plane after the other, or, with a place for each plane, in all of them.
  const std::int64_t together = v_.outer_last() ? 1 : v_.n_[0];
  for (std::int64_t first = 0; first < v_.n_[0] && !fatal_ && !damaged_; first += together) {
    workers_.for_tiles(together * v_.columns_, turning.transform->rows_scratch(), [&](std::int64_t tile, tile_worker<T>& worker) {
      return turning_tile(first + tile / v_.columns_, tile % v_.columns_, worker, turning);
    });
    if (fatal_ || damaged_) return;
    workers_.for_tiles(together * v_.groups_, turned.transform->rows_scratch(), [&](std::int64_t tile, tile_worker<T>& worker) {
      return turned_tile(first + tile / v_.groups_, tile % v_.groups_, worker, turned);
    });
  }
}

// Returns the place of a plane in the workspace.
template <class T>
std::int64_t volume<T>::signal_run::place_of(std::int64_t plane, const tile_worker<T>& worker) const {
  if (!v_.outer_last()) return plane;
  return v_.planes_fit_ && workers_.slot < 0 ? worker.slot() : 0;
}

template <class T>
bool volume<T>::signal_run::settle(tile_result seen) {
  if (seen == tile_result::damaged_input) damaged_ = true;
  if (seen == tile_result::uncorrectable) fatal_ = true;
  return !damaged_ && !fatal_;
}

template <class T>
tile_job<T> volume<T>::signal_run::job_for(std::size_t axis) const {
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
void volume<T>::signal_run::number(tile_job<T>& job, std::int64_t tile) const {
  job.interval = where_.tile + tile;
  if (tile < v_.waiting_of_signal()) job.waiting = where_.waiting + tile;
}

// Returns the location in the input of lines of `axis` (0 or 1) that start at i₀ = 0, i₁, for W neighbours of axis 2 from `column` on.
template <class T>
tile_view<const T> volume<T>::signal_run::source(std::size_t axis, std::int64_t i1, std::int64_t column) const {
  tile_view<const T> made;
  const std::int64_t first = column * v_.lanes_;
  made.base = in_ + (i1 * v_.in_[1] + first * v_.in_[2]) * in_unit_;
  made.lane = v_.in_[2] * in_unit_;
  made.element = v_.in_[axis] * in_unit_;
  if (from_.real) {
    made.how = access::real;
  } else if (v_.long_line_ && v_.shape_.kind == kind::c2r) {
    made.how = access::hermitian;
    made.base = in_;
    made.lane = 0;
    made.element = from_.stride[2] * 2;
    made.index_first = first;
    made.index_lane = 1;
    made.index_element = v_.n_[2];
    made.length = v_.shape_.n[2];
  } else {
    made.how = v_.in_[2] == 1 ? access::columns : access::complex;
  }
  return made;
}

// Returns the location in the input of the lines of axis 2 in plane i₀, for W neighbours of axis 1 from `column` on.
template <class T>
tile_view<const T> volume<T>::signal_run::source_of_lines(std::int64_t i0, std::int64_t column) const {
  tile_view<const T> made;
  made.base = in_ + (i0 * v_.in_[0] + column * v_.lanes_ * v_.in_[1]) * in_unit_;
  made.lane = v_.in_[1] * in_unit_;
  made.element = v_.in_[2] * in_unit_;
  if (from_.real && v_.n_[2] % 2 == 1)
    made.how = access::real;
  else
    made.how = v_.in_[2] == 1 ? access::rows : from_.real ? access::scalars : access::complex;
  return made;
}

// Returns the prefetch for the read after `column`: the next column, or after the last one the first column of the next signal.
template <class T>
read_ahead volume<T>::signal_run::next_columns(const tile_view<const T>& from, std::int64_t column) const {
  const std::int64_t next_signal = signal_ + 1 < v_.shape_.batch ? from_.distance * in_unit_ : 0;
  const std::int64_t row = 2 * v_.lanes_;
  const std::int64_t across = column + 1 < v_.columns_ ? row : next_signal == 0 ? 0 : next_signal - column * row;
  if (from.how != access::columns || across == 0) return {};
  const std::int64_t width = sizeof(T);
  return read_ahead(from.base + across, v_.n_[1], std::min<std::int64_t>(v_.lanes_, v_.width_) * 2 * width, from.element * width);
}

// Returns the prefetch of the lines of the same plane after `column`.
template <class T>
read_ahead volume<T>::signal_run::next_lines(const tile_view<const T>& from, std::int64_t column) const {
  const std::int64_t left = std::min<std::int64_t>(v_.lanes_, v_.n_[1] - (column + 1) * v_.lanes_);
  if (from.how != access::rows || left <= 0) return {};
  const std::int64_t width = sizeof(T);
  return read_ahead(from.base + v_.lanes_ * from.lane, left, v_.n_[2] * in_unit_ * width, from.lane * width);
}

// Sets where the last pass stores: its lanes lie along one axis of the result, its elements along another.
template <class T>
void volume<T>::signal_run::to_result(tile_job<T>& job, std::size_t lanes, std::size_t elements) const {
  job.scale = workers_.how.scale;
  job.check_scale = workers_.how.check_scale;
  job.to.lane = stride_[lanes] * out_unit_;
  job.to.element = stride_[elements] * out_unit_;
  const bool real_inverse = job.transform->is_real_inverse();
  if (to_.real) {
    job.to.how = real_inverse ? (stride_[elements] == 1 ? access::rows : access::scalars) : access::real;
    job.expand = !v_.long_line_ && !real_inverse;
  } else if (from_.real && v_.long_line_) {
    job.to.how = access::complex;
    job.to.index_lane = 1;
    job.to.index_element = v_.n_[1];
    job.to.length = to_.length[2];
  } else {
    job.to.how = stride_[lanes] == 1 && v_.n_[lanes] > 1 ? access::columns : stride_[elements] == 1 ? access::rows : access::complex;
  }
  const std::int64_t run = job.to.how == access::columns ? job.to.element : job.to.lane;
  job.stream = (job.to.how == access::columns || job.to.how == access::rows) && may_stream(to_, result_, workers_.how, run) &&
               (stride_[3 - lanes - elements] * out_unit_) % v_.lanes_ == 0;
}

template <class T>
tile_job<T> volume<T>::signal_run::outer_job() const {
  tile_job<T> job = job_for(0);
  if (v_.outer_last()) {
    job.from.how = access::other_rows;
    job.from.element = v_.held_scalars_;
    to_result(job, 2, 0);
  } else {
    job.to.how = access::own_rows;
    job.to.element = v_.plane_scalars_;
  }
  return job;
}

// Transforms axis 0 at W elements of axis 2 and all of axis 1: the tiles that share seals.
template <class T>
bool volume<T>::signal_run::outer_column(std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common) {
  const std::int64_t n1 = v_.n_[1], row = 2 * v_.lanes_, words = v_.n_[0] * v_.lanes_;
  const bool last = v_.outer_last();
  T* const seals = outer_seals_at(column, 0);
  T* running[2] = {};
  if (protect_ && last) {
    running[0] = mine_.running.data() + 2 * column * words;
    running[1] = running[0] + words;
  }
  if (protect_) std::fill_n(last ? running[0] : seals, words, T(0));
  for (std::int64_t i1 = 0; i1 < n1; ++i1) {
    tile_job<T> job = common;
    job.used = lanes_at(v_.width_, column);
    if (last) {
      job.from.base = held_at(0, column) + i1 * row;
      job.from.running = running[i1 % 2];
      job.from.extended = running[1 - i1 % 2];
      job.from.seals = i1 + 1 == n1 ? seals : nullptr;
      job.to.base = result_ + (i1 * stride_[1] + column * v_.lanes_ * stride_[2]) * out_unit_;
      job.stream = common.stream && job.used == v_.lanes_;
      const std::int64_t width = sizeof(T), n0 = v_.n_[0];
      if (i1 + 1 < n1) job.ahead = read_ahead(job.from.base + row, n0, row * width, v_.held_scalars_ * width);
      if (job.to.how == access::columns && !job.stream)
        job.ahead.then = read_ahead::of(job.to.base, n0, 2 * job.used * width, job.to.element * width);
    } else {
      job.from = source(0, i1, column);
      job.to.base = rows_at(0, column) + i1 * row;
      job.to.seals = seals;
    }
    number(job, (last ? v_.turning_tiles_ + v_.turned_tiles_ : 0) + column * n1 + i1);
    if (!settle(worker.process(job))) return false;
  }
  return true;
}

template <class T>
tile_job<T> volume<T>::signal_run::turning_job() const {
  tile_job<T> job = job_for(v_.rows_first_ ? 2 : 1);
  job.to.how = access::blocks;
  job.rows_stored = v_.plane_rows_;
  return job;
}

template <class T>
bool volume<T>::signal_run::turning_tile(std::int64_t plane, std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common) {
  tile_job<T> job = common;
  if (v_.rows_first_) {
    job.from = source_of_lines(plane, column);
    job.ahead = next_lines(job.from, column);
  } else if (v_.n_[0] > 1) {
    job.from.how = access::own_rows;
    job.from.base = rows_at(plane, column);
    job.from.seals = outer_seals_at(column, plane);
  } else {
    job.from = source(1, 0, column);
    job.ahead = next_columns(job.from, column);
  }
  job.to.base = rows_at(place_of(plane, worker), column);
  job.to.seals = seals_at(plane, column, 0);
  job.used = lanes_at(v_.plane_lanes_, column);
  if (v_.long_line_) {
    const auto of = [&](const factor_tables& tables) {
      return factors_of<T>{tables.coarse.data() + column * 2 * v_.n_[1], tables.fine.data()};
    };
    job.factors = of(v_.factors_[0]);
    if (protect_) job.check = of(v_.factors_[1]);
  }
  number(job, (v_.outer_last() ? 0 : v_.outer_tiles_) + plane * v_.columns_ + column);
  return settle(worker.process(job));
}

template <class T>
tile_job<T> volume<T>::signal_run::turned_job() const {
  const std::int64_t row = 2 * v_.lanes_;
  tile_job<T> job = job_for(v_.rows_first_ ? 1 : 2);
  job.from.how = access::blocks;
  job.from.element = v_.plane_rows_ * row;
  job.from.seal_stride = v_.groups_;
  if (v_.outer_last()) {
    job.to.how = access::other_rows;
    job.to.element = row;
  } else if (v_.rows_first_) {
    to_result(job, 2, 1);
  } else {
    to_result(job, 1, 2);
  }
  return job;
}

template <class T>
bool volume<T>::signal_run::turned_tile(std::int64_t plane, std::int64_t group, tile_worker<T>& worker, const tile_job<T>& common) {
  const std::int64_t first = group * v_.lanes_;
  tile_job<T> job = common;
  job.from.base = rows_at(place_of(plane, worker), 0) + first * 2 * v_.lanes_;
  job.from.seals = seals_at(plane, 0, group);
  if (v_.outer_last()) {
    job.to.base = held_at(plane, group);
    job.to.seals = outer_seals_at(group, plane);
  } else {
    job.to.base = result_ + (plane * stride_[0] + first * stride_[v_.rows_first_ ? 2 : 1]) * out_unit_;
  }
  if (job.to.length > 0) job.to.index_first = first;
  job.used = lanes_at(v_.plane_rows_, group);
  job.stream = common.stream && job.used == v_.lanes_;
  number(job, (v_.outer_last() ? 0 : v_.outer_tiles_) + v_.turning_tiles_ + plane * v_.groups_ + group);
  const tile_result seen = worker.process(job);
  if (protect_ && seal_result_ && seen == tile_result::done)
    seal_ ^= kernels<T>().seal_tile(worker.done(), job.rows_stored, job.used, first, v_.n_[1]);
  return settle(seen);
}

template <class T>
void volume<T>::signal_run::copy_staged() const {
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

// ---- All signals ----

template <class T>
bool volume<T>::takes_whole_signals(std::int64_t batch, int threads) const {
  return batch >= 2 * threads && signal_scalars_ * static_cast<std::int64_t>(sizeof(T)) <= (std::int64_t{1} << 20);
}

template <class T>
void volume<T>::run(const void* in, void* out, const transform_args& how) const {
  const strike_counts all{shape_.batch * tiles_of_signal(), shape_.batch * waiting_of_signal()};
  memory_.lend([&](workspace& memory) {
    // Large signals are shared by all threads.
    const bool whole = takes_whole_signals(shape_.batch, how.threads);
    prepare(memory, how, whole ? how.threads : 1);
    const auto one = [&](std::int64_t b, int threads, int slot) {
      const T* from = static_cast<const T*>(in) + b * shape_.input.distance * (shape_.input.real ? 1 : 2);
      T* to = static_cast<T*>(out) + b * shape_.output.distance * (shape_.output.real ? 1 : 2);
      const numbering where{all, b * tiles_of_signal(), b * waiting_of_signal()};
      const crew<T> workers{how, all, memory.slots, threads, slot};
      (void)signal_run(*this, from, to, workers, *memory.signals[static_cast<std::size_t>(std::max(slot, 0))], where, b).run();
    };
    if (whole) {
      core::parallel_for(how.threads, shape_.batch, [&](std::int64_t b, int slot) { one(b, 1, slot); });
    } else {
      for (std::int64_t b = 0; b < shape_.batch; ++b) one(b, how.threads, -1);
    }
  });
}

template <class T>
typename volume<T>::part_outcome volume<T>::run_part(const part& one, const transform_args& how, workspace& memory) const {
  const crew<T> workers{how, one.where.all, memory.slots, how.threads, one.slot};
  signal_run now(*this, one.in, one.out, workers, *memory.signals[static_cast<std::size_t>(std::max(one.slot, 0))], one.where, one.signal);
  now.seal_result(one.sealed);
  const bool sound = now.run();
  return {sound, now.seal()};
}

template class volume<float>;
template class volume<double>;

}  // namespace ballast::fft::cpu
