// The layout of a volume, its tables and its workspace; and its signals, whose passes are in volume_run.cpp.
#include "fft/cpu/volume.hpp"

#include <algorithm>
#include <limits>

#include "core/parallel.hpp"
#include "fft/cpu/volume_run.hpp"

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

volume_layout::volume_layout(const geometry& shape, std::optional<line_split> split, std::int64_t lanes_of, std::int64_t scalar)
    : lanes(lanes_of),
      long_line(split.has_value()),
      rows_first(!long_line && (shape.kind == kind::r2c || (shape.kind == kind::c2c && shape.n[0] > 1))) {
  if (split) {
    // Element j₁ n₂ + j₂ of the input, k₁ + n₁ k₂ of the output.
    n[1] = split->n1;
    n[2] = split->n2;
    in[1] = n[2] * shape.input.stride[2];
    in[2] = shape.input.stride[2];
    out[1] = shape.output.stride[2];
    out[2] = n[1] * shape.output.stride[2];
    width = n[2];
  } else {
    std::ranges::copy(shape.n, n);
    std::ranges::copy(shape.input.stride, in);
    std::ranges::copy(shape.output.stride, out);
    width = shape.kind == kind::c2r ? shape.input.length[2] : shape.output.length[2];
  }
  plane_lanes = rows_first ? n[1] : width;
  plane_rows = rows_first ? width : n[1];
  columns = ceil_div(plane_lanes, lanes);
  groups = ceil_div(plane_rows, lanes);
  outer_columns = ceil_div(width, lanes);
  outer_tiles = n[0] > 1 ? outer_columns * n[1] : 0;
  turning_tiles = n[0] * columns;
  turned_tiles = n[0] * groups;
  // The rows that the outer pass takes from many planes, or gives to them, begin in different sets of a cache.
  const std::int64_t row = 2 * lanes;
  const std::int64_t apart = n[0] > 1 ? row : 0;
  const std::int64_t plane = core::checked_product(core::checked_product(columns, plane_rows), row);
  plane_scalars = plane + apart;
  (void)core::checked_product(n[0], plane_scalars);
  if (outer_last()) held_scalars = core::checked_product(core::checked_product(groups, n[1]), row) + apart;
  planes_fit = n[0] > 1 && plane * scalar <= k_plane_bytes;
}

std::int64_t volume_layout::groups_after(std::int64_t first) const { return first == 0 ? groups : 1 + ceil_div(plane_rows - first, lanes); }

template <class T>
volume<T>::volume(const geometry& shape, std::optional<line_split> split, bool protect, sharing share)
    : shape_(shape), lanes_(kernels<T>().lanes), layout_(shape, split, lanes_, sizeof(T)), share_(share) {
  make_lines(protect);
  if (!split) return;
  make_factors(factors_[0]);
  if (protect) make_factors(factors_[1]);
}

template <class T>
void volume<T>::make_lines(bool protect) {
  if (layout_.n[0] > 1) axis_[0] = std::make_unique<line<T>>(form::complex, layout_.n[0], 0, protect);
  axis_[1] = std::make_unique<line<T>>(form::complex, layout_.n[1], 1, protect);
  const bool pairs = layout_.n[2] % 2 == 0 || real_radix(layout_.n[2]) > 1;
  const bool half = shape_.kind == kind::c2r && !layout_.long_line;
  const bool spectrum = shape_.kind == kind::r2c && !layout_.long_line;
  const form last = spectrum && pairs ? form::real_forward : half && pairs ? form::real_inverse : form::complex;
  axis_[2] = std::make_unique<line<T>>(last, layout_.n[2], 2, protect, half && !pairs);
  for (const auto& each : axis_) {
    if (each) scratch_scalars_ = std::max(scratch_scalars_, core::checked_product(each->rows_scratch(), 2 * lanes_));
  }
}

template <class T>
void volume<T>::make_factors(factor_tables& made) const {
  // Tables of about 2 √n₁ rows stay in the first-level cache.
  while (std::int64_t{4} << 2 * made.shift <= layout_.n[1]) ++made.shift;
  made.near = std::int64_t{1} << made.shift;
  made.far = ceil_div(layout_.n[1], made.near);
  made.rows = core::large_buffer<T>(layout_.columns * (made.far + made.near) * 2 * lanes_);
  T* next = made.rows.data();
  for (std::int64_t first = 0; first < layout_.columns * lanes_; first += lanes_) {
    for (std::int64_t row = 0; row < made.far + made.near; ++row, next += 2 * lanes_) {
      const std::int64_t k = row < made.far ? row * made.near : row - made.far;
      for (int l = 0; l < lanes_; ++l) {
        const auto w = root_of_unity<wide<T>>(k * (first + l), shape_.n[2]);
        next[l] = static_cast<T>(w.real());
        next[lanes_ + l] = static_cast<T>(w.imag());
      }
    }
  }
}

// Returns the planes that the workspace of one signal holds, if so many signals are transformed at the same time.
template <class T>
std::int64_t volume<T>::planes_of(const transform_args& how, int signals) const {
  if (!layout_.outer_last()) return layout_.n[0];
  return layout_.planes_fit && signals == 1 ? how.threads : 1;
}

// Pages that no thread touches take no memory.
template <class T>
void volume<T>::prepare(workspace& memory, const transform_args& how, int signals) const {
  const bool protect = how.protection != protection::off;
  memory.slots.prepare(how.threads, scratch_scalars_, protect);
  while (memory.signals.size() < static_cast<std::size_t>(signals)) {
    auto made = std::make_unique<signal_memory>();
    made->data = core::large_buffer<T>(planes_of(how, signals) * layout_.plane_scalars);
    if (layout_.outer_last()) made->held = core::large_buffer<T>(layout_.n[0] * layout_.held_scalars);
    if (protect) {
      made->seals = core::aligned_buffer<T>(layout_.turning_tiles * (layout_.groups + 1));
      if (layout_.n[0] > 1) made->outer_seals = core::aligned_buffer<T>(layout_.outer_columns * layout_.n[0] * lanes_);
      if (layout_.outer_last()) made->running = core::aligned_buffer<T>(2 * layout_.outer_columns * layout_.n[0] * lanes_);
    }
    memory.signals.push_back(std::move(made));
  }
  if (!how.in_place) return;
  const side& to = shape_.output;
  for (auto& each : memory.signals) {
    if (each->staging.size() == 0) each->staging = core::aligned_buffer<T>(to.length[0] * to.length[1] * to.length[2] * (to.real ? 1 : 2));
  }
}

template <class T>
bool volume<T>::takes_whole_signals(std::int64_t batch, int threads) const {
  if (share_ != sharing::by_size) return share_ == sharing::signals && batch > 1;
  return batch >= 2 * threads && layout_.signal_scalars() * static_cast<std::int64_t>(sizeof(T)) <= (std::int64_t{1} << 20);
}

// Returns the numbers of a long line before the first cache line of the output, if all its rows begin alike: a tile of its own for them
// makes the stores of all others whole cache lines. Results do not depend on it, since lanes do not.
template <class T>
std::int64_t volume<T>::lanes_before_line(const T* out, const transform_args& how) const {
  constexpr std::int64_t number = 2 * sizeof(T);
  const std::int64_t line = std::min(read_ahead::k_line, lanes_ * number);
  const auto before = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(out) % static_cast<std::uintptr_t>(line));
  const bool alike = layout_.n[1] * number % line == 0 && (shape_.batch == 1 || shape_.output.distance * number % line == 0);
  const bool dense = layout_.long_line && shape_.kind == kind::c2c && shape_.output.stride[2] == 1 && !how.in_place;
  return dense && alike && before % number == 0 ? before / number : 0;
}

template <class T>
void volume<T>::run(const void* in, void* out, const transform_args& how) const {
  const std::int64_t first = lanes_before_line(static_cast<const T*>(out), how);
  const strike_counts all{shape_.batch * tiles_of_signal(first), shape_.batch * waiting_of_signal()};
  memory_.lend([&](workspace& memory) {
    // Large signals are shared by all threads.
    const bool whole = takes_whole_signals(shape_.batch, how.threads);
    prepare(memory, how, whole ? how.threads : 1);
    const auto one = [&](std::int64_t b, int threads, int slot) {
      const T* from = static_cast<const T*>(in) + b * shape_.input.distance * (shape_.input.real ? 1 : 2);
      T* to = static_cast<T*>(out) + b * shape_.output.distance * (shape_.output.real ? 1 : 2);
      const numbering where{all, b * tiles_of_signal(first), b * waiting_of_signal()};
      const crew<T> workers{how, all, memory.slots, threads, slot};
      (void)volume_run<T>(*this, from, to, workers, *memory.signals[static_cast<std::size_t>(std::max(slot, 0))], where, b, first).run();
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
  volume_run<T> now(*this, one.in, one.out, workers, *memory.signals[static_cast<std::size_t>(std::max(one.slot, 0))], one.where,
                    one.signal);
  now.seal_result(one.sealed);
  const bool sound = now.run();
  return {sound, now.seal()};
}

template class volume<float>;
template class volume<double>;

}  // namespace ballast::fft::cpu
