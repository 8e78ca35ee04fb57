// Which problems volumes with one check take, their tables and their memory.
#include "fft/cpu/whole_volume.hpp"

#include <algorithm>

#include "fft/cpu/along.hpp"
#include "fft/thresholds.hpp"

namespace ballast::fft::cpu {
namespace {

// Bytes of the largest plane. Columns of larger ones are stored to lines of memory that left the caches: 512 × 512 in f64 take 1.1
// (protected) and 1.35 of the time of `volume` (one thread of a quiet Zen 4), in f32 0.85 to 0.95 and 1.0.
constexpr std::int64_t k_most_bytes = std::int64_t{3} << 20;

// Bytes of a column beyond which axis 0 has tiles of its own: with the other buffer it fills the second-level cache.
constexpr std::int64_t k_column_bytes = std::int64_t{1} << 18;

// Bytes of the largest signal whose axis 0 has tiles of its own. Larger ones leave the third-level cache, and passes that turn each plane
// in the second-level one are as fast or faster (docs/notebook/fft.md, "One check for several axes").
constexpr std::int64_t k_most_outer_bytes = std::int64_t{4} << 20;

// Points of a part of the rows: the least that is worth a task.
constexpr std::int64_t k_part_points = 8192;

// Bytes of the planes of a column whose axis 1 is transformed at once: with the other buffer they fill the first-level cache.
constexpr std::int64_t k_planes_bytes = 16384;

}  // namespace

template <class T>
bool whole_volume<T>::takes(const geometry& shape) {
  const auto width = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t lanes = kernels<T>().lanes, bytes = shape.points() * 2 * width;
  // The least response of three axes is 1/8, which needs some points for the floor.
  const std::int64_t least = shape.n[0] > 1 ? 2048 : 256;
  const bool has_line = shape.kind == kind::c2c || (shape.kind == kind::r2c && (shape.n[2] % 2 == 0 || real_radix(shape.n[2]) > 1));
  const bool has_outer = shape.n[0] > 1 && shape.n[0] * shape.n[1] * 2 * lanes * width > k_column_bytes;
  return has_line && shape.n[1] > 1 && shape.n[2] >= lanes && shape.input.stride[2] == 1 && shape.output.stride[2] == 1 &&
         std::ranges::all_of(shape.n, is_direct) && shape.points() >= least && shape.n[1] * shape.n[2] >= 256 &&
         bytes <= (has_outer ? k_most_outer_bytes : k_most_bytes);
}

template <class T>
whole_volume<T>::whole_volume(const geometry& shape, bool protect, sharing share)
    : shape_(shape),
      lanes_(kernels<T>().lanes),
      share_(share),
      rows_(shape.n[0] * shape.n[1]),
      groups_of_plane_(ceil_div(shape.n[1], lanes_)),
      groups_(shape.n[0] * groups_of_plane_),
      columns_(ceil_div(shape.output.length[2], lanes_)),
      has_outer_(shape.n[0] > 1 && rows_ * 2 * lanes_ * static_cast<std::int64_t>(sizeof(T)) > k_column_bytes),
      plane_rows_(shape.n[1] + (has_outer_ ? 1 : 0)),
      column_rows_(shape.n[0] * plane_rows_ + (has_outer_ ? shape.n[1] : lanes_)),
      pieces_(has_outer_ ? shape.n[1] : shape.n[0]),
      column_parts_(std::clamp<std::int64_t>(shape.points() / k_part_points, 1, columns_)),
      parts_(shape.n[0] > 1 ? shape.n[0] : std::clamp<std::int64_t>(shape.points() / k_part_points, 1, groups_)),
      planes_together_(
          std::clamp<std::int64_t>(k_planes_bytes / (shape.n[1] * 2 * lanes_ * static_cast<std::int64_t>(sizeof(T))), 1, shape.n[0])) {
  const std::int64_t n0 = shape.n[0], n1 = shape.n[1];
  if (n0 > 1)
    axis_[0] =
        std::make_unique<line<T>>(form::complex, n0, 0, protect && has_outer_, false, false, has_outer_ ? 1 : n1, k_least_joint_input);
  axis_[1] = std::make_unique<line<T>>(form::complex, n1, 1, protect && !has_outer_, false, false, 1, k_least_joint_input);
  const bool reals = shape.kind == kind::r2c;
  axis_[2] = std::make_unique<line<T>>(reals ? form::real_forward : form::complex, shape.n[2], 2, protect, false,
                                       !reals && along_line<T>::exists(shape.n[2], true));
  for (std::int64_t plane = 0; plane < n0; ++plane) planes_.push_back(plane * plane_rows_);
  if (!protect) return;
  make_weights();
  passes_ = std::make_unique<volume<T>>(shape, std::nullopt, true, share);
}

template <class T>
void whole_volume<T>::make_weights() {
  const auto made = [&](std::size_t axis) {
    const form what = axis == 2 && shape_.kind == kind::r2c ? form::real_forward : form::complex;
    const double inputs = axis < 2 ? k_least_joint_input : k_least_response;
    return make_axis_weights<T>(shape_.n[axis], choose_weights(what, shape_.n[axis], axis, inputs), shape_.output.length[axis]);
  };
  const auto set = [&](axis_vectors& to, const auto& from) {
    for (std::size_t v = 0; v < 2; ++v) {
      for (const auto& z : from[v]) {
        to.re[v].push_back(static_cast<double>(z.real()));
        to.im[v].push_back(static_cast<double>(z.imag()));
      }
      const std::size_t padded = to.re[v].size() + k_max_lanes;
      to.re[v].resize(padded);
      to.im[v].resize(padded);
    }
  };
  for (std::size_t axis = shape_.n[0] > 1 ? 0 : 1; axis < 3; ++axis) {
    const auto weights = made(axis);
    if (axis < 2) set(input_[axis], weights.b);
    set(output_[axis], weights.a);
  }
  const auto points = static_cast<double>(shape_.points());
  for (int copy = 0; copy < 2; ++copy) {
    limits_.least[copy] = thresholds::residual<T>(points, 0, k_kappa);
    limits_.factor[copy] = thresholds::residual<T>(points, 1, k_kappa) - limits_.least[copy];
    output_underflow_[copy] = thresholds::output_underflow<T>(points);
  }
}

template <class T>
void whole_volume<T>::prepare(workspace& memory, const transform_args& how, int signals) const {
  const bool protect = how.protection != protection::off;
  // A tile of rows, and a column, or with an outer pass one of its tiles and a plane.
  const std::int64_t row = 2 * lanes_;
  const std::int64_t scratch_rows = std::max(2 * shape_.n[2], has_outer_ ? std::max(shape_.n[0], columns_ * shape_.n[1]) : rows_);
  memory.slots.prepare(how.threads, core::checked_product(scratch_rows, row), false);
  while (memory.signals.size() < static_cast<std::size_t>(signals)) {
    auto made = std::make_unique<signal_memory>();
    made->work = core::large_buffer<T>(core::checked_product(columns_ * column_rows_, row));
    if (protect && has_outer_) made->done = core::large_buffer<T>(columns_ * rows_ * row);
    if (protect) {
      made->rows.resize(static_cast<std::size_t>(parts_));
      made->squares.resize(static_cast<std::size_t>(parts_));
      made->columns.resize(static_cast<std::size_t>(column_parts_));
      made->parities.resize(static_cast<std::size_t>(columns_ * pieces_));
    }
    memory.signals.push_back(std::move(made));
  }
  // Pages that no thread touches take no memory.
  if (protect) passes_->prepare(memory.passes, how, signals);
}

// As those of a volume.
template <class T>
bool whole_volume<T>::takes_whole_signals(int threads) const {
  if (share_ != sharing::by_size) return share_ == sharing::signals && shape_.batch > 1;
  return shape_.batch >= 2 * threads && shape_.points() * 2 * static_cast<std::int64_t>(sizeof(T)) <= (std::int64_t{1} << 20);
}

template class whole_volume<float>;
template class whole_volume<double>;

}  // namespace ballast::fft::cpu
