// How the points of a call come to the kernels: resident on the device as they were given and in the frame, or in pieces that pass through
// two buffers while kernels work on the piece before.
// Layer: backend "cuda" of K-Means, host.
#pragma once

#include <cstdint>
#include <memory>

#include <ballast/view.hpp>

#include "core/function_ref.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/device_staging.hpp"
#include "kmeans/cuda/layout/setup_args.hpp"

namespace ballast::kmeans::cuda {

// What stays on the device for the whole call. The facts about each row, weights, labels: always.
enum class residence {
  all,     // the points as they were given and in the frame
  placed,  // in the frame; as they were given they pass
  none     // both pass
};

// Which of a piece is asked for.
enum class part { given, placed, both };

// Rows `first` to `first` + given.m of the points: what kernels take, with row 0 at `first`.
template <class T>
struct point_piece {
  std::int64_t first;
  given_points<T> given;
  placed_points<T> placed;
};

// The first residence that fits into `available` bytes, beside `working` bytes; and the rows of a piece: a multiple of `unit`. Points that
// lie on the device already stay there. Throws std::bad_alloc if not even two pieces of `unit` rows fit.
struct residence_choice {
  residence kept = residence::all;
  std::int64_t rows = 0;
};
struct residence_problem {
  std::int64_t m = 0;
  std::int64_t given_bytes = 0;   // of all points, if they are copied; 0: they lie on the device
  std::int64_t given_row = 0;     // bytes of a row as it passes
  std::int64_t placed_row = 0;    // bytes of a row in the frame, as it is and as tensor cores take it
  std::int64_t resident_row = 0;  // bytes of a row that always stay: facts, labels, what seeding keeps, weights
  std::int64_t working = 0;       // bytes beside the points: centroids, sums, what waits for the host
  std::int64_t unit = 1;
};
residence_choice choose_residence(const residence_problem& what, std::int64_t available);

// What the memory of a device must hold for `points` and `clusters`.
template <class T>
residence_problem needs_of(matrix_view<const T> points, bool weighted, std::int64_t clusters, const ballast::cuda::device& on);

template <class T>
class point_supply {
 public:
  // `points` in host or device memory. `choice`: choose_residence. Copies are made by up to `threads` threads of the host.
  point_supply(std::shared_ptr<ballast::cuda::device> on, ballast::cuda::device_staging& staging, matrix_view<const T> points,
               const residence_choice& choice, int threads, ballast::cuda::stream order);
  ~point_supply();
  point_supply(const point_supply&) = delete;
  point_supply& operator=(const point_supply&) = delete;

  residence kept() const { return choice_.kept; }
  // Whether what was asked for comes in pieces.
  bool passes(part wanted) const {
    return choice_.kept == residence::none || (choice_.kept == residence::placed && wanted != part::placed);
  }
  // The points as they were given, where they stay on the device; null elsewhere.
  const T* resident() const { return resident_; }

  // Calls use(piece) for the pieces in order of rows, each ordered on the stream of the call. `given`, `placed`: what the pieces are cut
  // from. Where a piece is not in the frame yet, start(piece) brings it there, and arrived() says whether it is what it was at the first
  // load: if not, it is copied again, until arrived() is content. The next piece is copied while the kernels work on this one.
  using for_piece = core::function_ref<void(const point_piece<T>&)>;
  void each(part wanted, const given_points<T>& given, const placed_points<T>& placed, for_piece start, core::function_ref<bool()> arrived,
            for_piece use);

 private:
  struct slot {
    ballast::cuda::device_buffer given, placed, operand;
    ballast::cuda::pinned_buffer pinned;
    ballast::cuda::device_stream stream;
    std::unique_ptr<ballast::cuda::stream_event> copied, used;
    bool waits = false;  // for what uses it
    explicit slot(const std::shared_ptr<ballast::cuda::device>& on)
        : stream(on), copied(on->make_event(false)), used(on->make_event(false)) {}
  };
  void make_slots(const placed_points<T>& placed);
  void copy(slot& to, std::int64_t first, std::int64_t count);

  std::shared_ptr<ballast::cuda::device> device_;
  matrix_view<const T> points_;
  residence_choice choice_;
  int threads_;
  ballast::cuda::stream order_;
  const T* resident_ = nullptr;
  std::unique_ptr<slot> slots_[2];
};

}  // namespace ballast::kmeans::cuda
