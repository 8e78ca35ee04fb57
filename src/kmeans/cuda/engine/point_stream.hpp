// The point stream: supplies the points of a call to kernels. They stay on the device, as given and normalized; or they pass in pieces
// through two buffers, so that a piece is copied while kernels process the piece before.
// Layer: backend "cuda" of K-Means, host.
#pragma once

#include <cstdint>
#include <memory>

#include <ballast/view.hpp>

#include "core/function_ref.hpp"
#include "core/memory.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/device_staging.hpp"
#include "kmeans/cuda/layout/setup_args.hpp"
#include "kmeans/half_points.hpp"

namespace ballast::kmeans::cuda {

// The data that stay on the device for the whole call. The row statistics, weights and labels always do.
enum class kept_points {
  all,         // the given points and the normalized points
  normalized,  // the normalized points; the given points pass in pieces
  none         // both pass in pieces
};

// The part of a piece that is requested.
enum class part { given, normalized, both };

// Rows `first` to `first` + given.m of the points, as kernel arguments in which `first` is row 0.
template <class T>
struct point_piece {
  std::int64_t first;
  given_points<T> given;
  normalized_points<T> normalized;
};

// choose_kept_points() returns the first kept_points that fits into `available` bytes together with `working` bytes, and the rows of a
// piece, a multiple of `unit`. Points that already lie on the device stay there. Throws std::bad_alloc if not even two pieces of `unit`
// rows fit.
struct kept_points_choice {
  kept_points kept = kept_points::all;
  std::int64_t rows = 0;
};
struct kept_points_problem {
  std::int64_t m = 0;
  std::int64_t given_bytes = 0;     // bytes of all given points, if they are copied; 0: they lie on the device
  std::int64_t given_row = 0;       // bytes of a given row in a piece
  std::int64_t normalized_row = 0;  // bytes of a normalized row, including its operand format
  std::int64_t resident_row = 0;    // bytes per row that always stay: row statistics, labels, data of seeding, weights
  std::int64_t working = 0;         // other bytes: centroids, sums, results on their way to the host
  std::int64_t unit = 1;
};
// Returns whether the given points and the normalized points fit into `available` bytes together.
bool fits_whole(const kept_points_problem& problem, std::int64_t available);
kept_points_choice choose_kept_points(const kept_points_problem& problem, std::int64_t available);

// Devices of a group divide the points at multiples of these rows, whole strips and at most k_most_segments of them: so no sum that is
// made by strips, blocks or segments depends on the division.
inline constexpr std::int64_t k_most_segments = 256;
inline std::int64_t rows_of_segment(std::int64_t m) {
  const column_shape shape = column_shape_of(m, 1);
  return (shape.strips + k_most_segments - 1) / k_most_segments * shape.strip_rows;
}

// Returns the memory that the device needs for `points`, which are all or some of `all`, and `clusters`. `half`: the points, if it is
// present; `points` has their shape.
template <class T>
kept_points_problem needs_of(matrix_view<const T> points, std::int64_t all, bool weighted, std::int64_t clusters,
                             const ballast::cuda::device& on, const half_points& half = {});

template <class T>
class point_stream {
 public:
  // `points`, or `half` as in needs_of, may lie in host or device memory. `choice`: from choose_kept_points. Up to `threads` threads of the
  // host gather the pieces.
  point_stream(std::shared_ptr<ballast::cuda::device> on, ballast::cuda::device_staging& staging, matrix_view<const T> points,
               const half_points& half, const kept_points_choice& choice, int threads, ballast::cuda::stream order);
  ~point_stream();
  point_stream(const point_stream&) = delete;
  point_stream& operator=(const point_stream&) = delete;

  kept_points kept() const { return choice_.kept; }
  // Returns whether the wanted part comes in pieces.
  bool passes(part wanted) const {
    return choice_.kept == kept_points::none || (choice_.kept == kept_points::normalized && wanted != part::normalized);
  }
  // Returns the given points if they stay on the device, else null.
  const void* resident() const { return resident_; }

  // Calls use(piece) for the pieces in order of rows; each is ordered on the stream of the call. `given`, `normalized`: the whole points,
  // from which the pieces are cut. If a piece is not normalized yet, start(piece) normalizes it, and arrived() returns whether it equals
  // the first load; if not, it is copied again until arrived() returns true. The next piece is copied while kernels process this one.
  using for_piece = core::function_ref<void(const point_piece<T>&)>;
  void each(part wanted, const given_points<T>& given, const normalized_points<T>& normalized, for_piece start,
            core::function_ref<bool()> arrived, for_piece use);

 private:
  struct slot : core::pooled {
    ballast::cuda::device_buffer given, normalized, operand;
    ballast::cuda::pinned_buffer pinned;
    ballast::cuda::device_stream stream;
    std::unique_ptr<ballast::cuda::stream_event> copied, used;
    bool waits = false;  // true if a copy must wait for `used`
    explicit slot(const std::shared_ptr<ballast::cuda::device>& on)
        : stream(on), copied(on->make_event(false)), used(on->make_event(false)) {}
  };
  std::int64_t given_row_bytes() const {
    return points_.columns * static_cast<std::int64_t>(half_.data != nullptr ? sizeof(std::uint16_t) : sizeof(T));
  }
  void make_slots(const normalized_points<T>& normalized);
  template <class Number>
  void gather(const matrix_view<const Number>& from, std::int64_t first, std::int64_t count, Number* to) const;
  void copy(slot& to, std::int64_t first, std::int64_t count);

  std::shared_ptr<ballast::cuda::device> device_;
  matrix_view<const T> points_;
  matrix_view<const std::uint16_t> half_;  // the bits of the points, if they have 16
  kept_points_choice choice_;
  int threads_;
  ballast::cuda::stream order_;
  const void* resident_ = nullptr;
  std::unique_ptr<slot> slots_[2];
};

}  // namespace ballast::kmeans::cuda
