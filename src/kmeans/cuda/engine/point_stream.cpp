// Pieces of the points, and the choice of the data that stay on the device. See point_stream.hpp.
#include "kmeans/cuda/engine/point_stream.hpp"

#include <algorithm>
#include <new>
#include <numeric>

#include <ballast/error.hpp>

#include "core/extent.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/residence.hpp"

namespace ballast::kmeans::cuda {

bool fits_whole(const kept_points_problem& what, std::int64_t available) {
  const std::int64_t rows = padded_rows(what.m);
  return rows * what.resident_row + what.working + what.given_bytes + rows * what.normalized_row <= available;
}

kept_points_choice choose_kept_points(const kept_points_problem& what, std::int64_t available) {
  if (what.given_bytes == 0) return {kept_points::all, what.m};
  const std::int64_t rows = padded_rows(what.m), kept = rows * what.resident_row + what.working;
  if (fits_whole(what, available)) return {kept_points::all, what.m};
  // Pieces of 64 MB hide the latency of starting a copy; larger pieces gain nothing.
  constexpr std::int64_t most = std::int64_t{64} << 20;
  const auto rows_for = [&](std::int64_t bytes, std::int64_t row) {
    const std::int64_t wanted = std::min(bytes / (2 * row), most / row) / what.unit * what.unit;
    return std::clamp(wanted, bytes >= 2 * row * what.unit ? what.unit : 0, (what.m + what.unit - 1) / what.unit * what.unit);
  };
  const std::int64_t beside = available - kept;
  const std::int64_t normalized = rows_for(beside - rows * what.normalized_row, what.given_row);
  if (normalized > 0) return {kept_points::normalized, normalized};
  const std::int64_t none = rows_for(beside, what.given_row + what.normalized_row);
  if (none > 0) return {kept_points::none, none};
  if (what.m <= 2 * what.unit) return {kept_points::all, what.m};  // two pieces would not be smaller
  throw std::bad_alloc();
}

template <class T>
kept_points_problem needs_of(matrix_view<const T> points, std::int64_t all, bool weighted, std::int64_t clusters,
                             const ballast::cuda::device& on, const half_points& half) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t m = points.rows, n = points.columns, stride = padded_features<T>(n);
  const column_shape shape = column_shape_of(all, 1);
  kept_points_problem made;
  made.m = m;
  made.given_row = n * (half.present() ? static_cast<std::int64_t>(sizeof(std::uint16_t)) : size);
  made.normalized_row = stride * (size + operand_bytes<T>);
  // Three row statistics, a signature, two arrays of labels; distances and candidates of seeding; exact distances; weights twice; sums of
  // blocks, and twice those of their columns.
  made.resident_row = 3 * size + 8 + 2 * 4 + size + 4 + 8 + (weighted ? 2 * size : 0) + 1 +
                      2 * (n + 1) * static_cast<std::int64_t>(sizeof(column_sums)) / k_row_threads + 1;
  // A piece has whole blocks and whole strips.
  made.unit = std::lcm(k_row_block, shape.strip_rows);
  // Two copies of the centroids and two of the packed centroids, their sums twice with two words; sums by strip; distances on their way to
  // the host; candidates of k-means‖ with an engine of their own.
  made.working = clusters * stride * (6 * size + 4 * 8) + shape.strips * n * 64 + 16 * clusters * k_row_threads +
                 16 * clusters * (n * size + made.normalized_row + made.resident_row) + (std::int64_t{1} << 20);
  const auto given_bytes = [&](const auto& given) { return on.accessible(given.data) ? 0 : core::extent_of(given).bytes(); };
  made.given_bytes = half.present() ? given_bytes(half.bits(m, n)) : given_bytes(points);
  return made;
}

template <class T>
point_stream<T>::point_stream(std::shared_ptr<ballast::cuda::device> on, ballast::cuda::device_staging& staging,
                              matrix_view<const T> points, const half_points& half, const kept_points_choice& choice, int threads,
                              ballast::cuda::stream order)
    : device_(std::move(on)),
      points_(points),
      half_(half.bits(points.rows, points.columns)),
      choice_(choice),
      threads_(threads),
      order_(order) {
  if (choice_.kept != kept_points::none && points.rows > k_most_rows)
    throw unsupported_error(fmt::format("points: expected up to {} that stay on a device, got {}", k_most_rows, points.rows));
  if (choice_.kept != kept_points::all) {
    const void* const data = half.present() ? static_cast<const void*>(half_.data) : points.data;
    if (ballast::cuda::residence_of(data) == ballast::cuda::residence::device)
      throw unsupported_error("points: expected room for them beside their copy, got points in the memory of another device");
    return;
  }
  resident_ = half.present() ? static_cast<const void*>(staging.read(half_).data) : staging.read(points).data;
}

// Copies and kernels in flight must not outlive the buffers.
template <class T>
point_stream<T>::~point_stream() {
  for (const auto& each : slots_) {
    if (each == nullptr) continue;
    try {
      device_->synchronize(each->stream.get());
      device_->synchronize(order_);
    } catch (...) {  // a device that fails here does not copy any more
    }
  }
}

template <class T>
void point_stream<T>::make_slots(const normalized_points<T>& normalized) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const bool with_normalized = choice_.kept == kept_points::none && normalized.stride > 0;
  for (auto& each : slots_) {
    if (each == nullptr) {
      each = std::make_unique<slot>(device_);
      each->given = {device_, choice_.rows * given_row_bytes(), order_};
      each->pinned = {device_, choice_.rows * given_row_bytes()};
      device_->synchronize(order_);  // makes the memory usable on the other stream, too
    }
    if (!with_normalized || each->normalized.bytes() != 0) continue;
    each->normalized = {device_, padded_rows(choice_.rows) * normalized.stride * size, order_};
    each->operand = {device_, padded_rows(choice_.rows) * normalized.stride * operand_bytes<T>, order_};
  }
}

// Copies rows densely to memory of the host.
template <class T>
template <class Number>
void point_stream<T>::gather(const matrix_view<const Number>& from, std::int64_t first, std::int64_t count, Number* to) const {
  constexpr std::int64_t rows_at_once = 1024;
  core::parallel_for(threads_, (count + rows_at_once - 1) / rows_at_once, [&](std::int64_t task, int) {
    const std::int64_t end = std::min(count, (task + 1) * rows_at_once);
    for (std::int64_t i = task * rows_at_once; i < end; ++i) {
      Number* const row = to + i * from.columns;
      if (from.column_stride == 1) {
        std::copy_n(from.data + (first + i) * from.row_stride, from.columns, row);
      } else {
        for (std::int64_t f = 0; f < from.columns; ++f) row[f] = from(first + i, f);
      }
    }
  });
}

// Copies rows of the points, densely, through pinned memory. The copy starts when the previous user of the buffer has finished; the host
// does not wait for that.
template <class T>
void point_stream<T>::copy(slot& to, std::int64_t first, std::int64_t count) {
  device_->synchronize(to.stream.get());  // the pinned memory is free
  if (half_.data != nullptr) {
    gather(half_, first, count, static_cast<std::uint16_t*>(to.pinned.data()));
  } else {
    gather(points_, first, count, static_cast<T*>(to.pinned.data()));
  }
  if (to.waits) device_->wait(*to.used, to.stream.get());
  device_->copy(to.given.data(), to.pinned.data(), count * given_row_bytes(), to.stream.get());
  device_->record(*to.copied, to.stream.get());
}

template <class T>
void point_stream<T>::each(part wanted, const given_points<T>& given, const normalized_points<T>& normalized, for_piece start,
                           core::function_ref<bool()> arrived, for_piece use) {
  const std::int64_t m = points_.rows;
  if (!passes(wanted)) return use({0, given, normalized});
  make_slots(normalized);
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const bool brings = choice_.kept == kept_points::none && wanted != part::given;
  const std::int64_t pieces = (m + choice_.rows - 1) / choice_.rows;
  const auto count_of = [&](std::int64_t number) { return std::min(choice_.rows, m - number * choice_.rows); };
  copy(*slots_[0], 0, count_of(0));
  for (std::int64_t number = 0; number < pieces; ++number) {
    slot& here = *slots_[number % 2];
    const std::int64_t first = number * choice_.rows, count = count_of(number);
    point_piece<T> piece{first, given, normalized};
    piece.given.points = here.given.data();
    piece.given.row_stride = points_.columns;
    piece.given.column_stride = 1;
    piece.given.m = count;
    if (given.weights != nullptr) piece.given.weights = given.weights + first;
    normalized_points<T>& p = piece.normalized;
    p.m = count;
    p.first = normalized.first + first;
    if (choice_.kept == kept_points::none) {
      p.x = static_cast<const T*>(here.normalized.data());
      p.operand = static_cast<const operand_of<T>*>(here.operand.data());
    } else if (normalized.x != nullptr) {
      p.x = normalized.x + first * normalized.stride;
      if (normalized.operand != nullptr) p.operand = normalized.operand + first * normalized.stride;
    }
    if (normalized.weight != nullptr) p.weight = normalized.weight + first;
    if (normalized.norm != nullptr) {
      p.norm = normalized.norm + first;
      p.rounding = normalized.rounding + first;
      p.projection = normalized.projection + first;
      p.signature = normalized.signature + first;
    }
    device_->wait(*here.copied, order_);
    if (brings) {
      // Rows after the last point are 0.
      const std::int64_t whole = whole_block_rows(count), rest = (padded_rows(count) - whole) * normalized.stride;
      device_->zero(static_cast<T*>(here.normalized.data()) + whole * normalized.stride, rest * size, order_);
      if constexpr (sizeof(T) == 4)
        device_->zero(static_cast<unsigned char*>(here.operand.data()) + whole * normalized.stride * operand_bytes<T>,
                      rest * operand_bytes<T>, order_);
    }
    const auto copy_next = [&] {
      if (number + 1 < pieces) copy(*slots_[(number + 1) % 2], first + choice_.rows, count_of(number + 1));
    };
    // The next piece is gathered while the device works: before the host waits for arrived(), or after it has enqueued use().
    if (brings) {
      start(piece);
      copy_next();
      while (!arrived()) {
        copy(here, first, count);
        device_->wait(*here.copied, order_);
        start(piece);
      }
    }
    use(piece);
    device_->record(*here.used, order_);
    here.waits = true;
    if (!brings) copy_next();
  }
}

template kept_points_problem needs_of(matrix_view<const float>, std::int64_t, bool, std::int64_t, const ballast::cuda::device&,
                                      const half_points&);
template kept_points_problem needs_of(matrix_view<const double>, std::int64_t, bool, std::int64_t, const ballast::cuda::device&,
                                      const half_points&);
template class point_stream<float>;
template class point_stream<double>;

}  // namespace ballast::kmeans::cuda
