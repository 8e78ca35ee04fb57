// One call of QR on a device: two streams with their BLAS, memory, launches, strikes, and numbers on their way to the host.
// Layer: backend "cuda" of QR. Everything is ordered on the stream `main`, but for what is put on `beside`, which waits and is waited for
// by events.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "cuda/call/faults.hpp"
#include "cuda/device/blas.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "qr/contract.hpp"
#include "qr/cuda/kernels/kernels.hpp"

namespace ballast::qr::cuda {

// Streams and BLAS, which take long to make: a device keeps those of past calls for the next ones.
struct lane;

// The kernels of floats or doubles, loaded.
template <class S>
struct kernel_table;

// A block reflector H = I − V T Vᵀ as products take it.
template <class S>
struct formed_reflector {
  const S* V;  // rows × width, with its ones and zeros, without gaps
  std::int64_t rows, width;
  const S* T;                // width × width, upper triangular, zero below the diagonal
  const S* image = nullptr;  // of V, by make_image(); null: all products are cuBLAS's
};

// Columns of a matrix that products are taken of.
template <class S>
struct some_columns {
  const S* data = nullptr;
  std::int64_t ld = 0, count = 0;
};

// VᵀC as the sums of chunks of rows. None: it lies whole in its place.
struct product_parts {
  double* data = nullptr;
  std::int64_t chunks = 0;
};

inline constexpr int k_places = 3;

template <class S>
class session {
 public:
  using buffer = ballast::cuda::device_buffer;
  using stream = ballast::cuda::stream;

  explicit session(const context& run);
  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  const context& run() const { return run_; }
  const std::shared_ptr<ballast::cuda::device>& device() const { return device_; }
  stream main() const;
  stream beside() const;  // for long work
  stream aside() const;   // for what `main` waits for soon
  ballast::cuda::blas& blas(stream on) const;

  // What is enqueued on `to` from now on waits for what `from` has now. fork(), join(): from, and to, the main stream.
  void follow(stream to, stream from);
  void fork(stream to) { follow(to, main()); }
  void join(stream from) { follow(main(), from); }
  // The same, but `main` waits only for what the stream had at its last mark.
  void mark(stream from);
  void join_mark(stream from);
  // Before memory is given back, which is ordered on `main`: what an exception may have left beside it ends first.
  void settle() noexcept;

  buffer allocate(std::int64_t bytes) const { return {device_, bytes, main()}; }
  template <class T>
  buffer allocate_of(std::int64_t count) const {
    return allocate(core::checked_product(count, static_cast<std::int64_t>(sizeof(T))));
  }
  template <class T>
  buffer upload(const T* values, std::int64_t count) const {
    buffer made = allocate_of<T>(std::max<std::int64_t>(count, 1));
    if (count > 0) device_->copy(made.data(), values, count * static_cast<std::int64_t>(sizeof(T)), main());
    return made;
  }
  void copy(void* to, const void* from, std::int64_t bytes) const { device_->copy(to, from, bytes, main()); }

  // `count` numbers are on their way to the host; use() gets them when they are waited for, in the order of the calls.
  template <class T, class Use>
  void fetch(const void* from, std::int64_t count, Use&& use) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    void* const there = landing(bytes);
    device_->copy(there, from, bytes, main());
    pending_.push_back([there, use = std::forward<Use>(use)] { use(static_cast<const T*>(there)); });
  }
  void wait();

  // Also numbers on their way to the host, but of stream `on`: await_brought() waits for them and for nothing behind them. They stay until
  // the next wait(). One call at a time.
  template <class T>
  const T* bring(const void* from, std::int64_t count, stream on) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    void* const there = landing(bytes);
    bring(there, from, bytes, on);
    return static_cast<const T*>(there);
  }
  void await_brought() { (void)await(k_places); }

  // Up to 256 bytes that the host waits for by themselves, while the streams go on: send() takes what `on` leaves there, which must stay as
  // it is until await(). `place`: one of k_places, for one at a time.
  void send(int place, const void* from, std::int64_t bytes, stream on);
  const void* await(int place);

  // `work` is enqueued when the host next waits, or at catch_up(): what comes before it takes the host's time first.
  void put_off(std::function<void()> work);  // null: what was put off is dropped
  void catch_up();

  template <class Arguments>
  void launch(work what, std::int64_t blocks, const Arguments& given) const {
    launch(what, blocks, given, main());
  }
  template <class Arguments>
  void launch(work what, std::int64_t blocks, const Arguments& given, stream on) const {
    device_->launch(kernel_of(what), blocks, &given, sizeof given, on);
  }
  // Norms of so many columns of floats, or of doubles.
  template <class T>
  void scan(scan_arguments<T> given, std::int64_t columns, stream on) const;
  void launch_panel(int team, const panel_arguments<S>& given) const;
  void launch_chain(const chain_arguments<S>& given, stream on) const;
  // The cluster for a panel of so many rows and columns, and rows of each of its blocks; `resident`: whether they fit into shared memory.
  struct panel_plan {
    int team = 0;
    std::int64_t slab = 0;
    bool resident = false;
  };
  panel_plan plan_panel(std::int64_t rows, int width) const;
  // Whether a panel is made by passes of the whole device over its rows (tall.cuh), and not by clusters, which take 8 µs for each column
  // and more where their slabs do not fit into shared memory. A prediction: docs/design/qr-cuda.md.
  bool tall(std::int64_t rows, std::int64_t width) const;

  // Hash of a matrix, as abft::finding::bits. Waits.
  std::uint64_t hash(const S* X, std::int64_t ld, std::int64_t rows, std::int64_t columns);

  // --- Block reflectors. Everything on stream `on`.

  // V of stored reflectors with its ones and zeros, without gaps. state: as form_v_arguments'.
  void form_v(const reflectors<S>& h, S* V, stream on, const tall_state* state = nullptr) const;
  // T of stored reflectors in blocks of `width`, from VᵀV and tau, on the main stream. Each block has width² numbers.
  void make_t(const matrix_view<const S>& V, std::int64_t width, const S* tau, S* T) const;
  // QR of a matrix of a few columns and rows, one reflector after the other, by one block of threads, on the main stream. False, and
  // nothing is done, where none holds it.
  bool factor_small(const matrix_view<S>& A, S* tau) const;
  // Whether products of H with n columns take an image of V, by kernels of our own (product.cuh). Its memory, and the image itself.
  bool multiplies(const formed_reflector<S>& H, std::int64_t n) const;
  static std::int64_t image_bytes(std::int64_t rows, std::int64_t width);
  void make_image(formed_reflector<S>& H, void* to, stream on) const;
  // W = VᵀC for n columns C. W has room for twice as many numbers, which update() needs.
  void product(const formed_reflector<S>& H, std::int64_t n, const S* C, std::int64_t ldc, S* W, stream on) const;
  // C ← H C, or HᵀC where `transposed`, with W from product().
  void update(const formed_reflector<S>& H, bool transposed, std::int64_t n, S* W, S* C, std::int64_t ldc, stream on) const;
  // Its halves: W's second half becomes T W, or Tᵀ W; C loses V times that, TW.
  void turn(const formed_reflector<S>& H, bool transposed, std::int64_t n, S* W, stream on, const product_parts& parts = {}) const;
  void subtract(const formed_reflector<S>& H, std::int64_t n, const S* TW, S* C, std::int64_t ldc, stream on) const;
  // Whether n columns are so few that kernels of our own make their products (narrow.cuh). product_in_parts(): product() of some columns,
  // and of others behind them, for turn(), in memory that is one for each stream. Its bits do not depend on how many columns there are.
  bool narrow(const formed_reflector<S>& H, std::int64_t n) const;
  product_parts product_in_parts(const formed_reflector<S>& H, const some_columns<S>& C, const some_columns<S>& more, stream on);

  // Shows data to the injector of the call, as inject::fault_injector::strike does, on stream `on`.
  template <class T>
  void strike(inject::site where, const inject::place& here, T* data, std::int64_t count, stream on) const {
    if constexpr (inject::active_injector::enabled) {
      if (count > 0 && run_.injector.armed(where)) strike_armed(where, here, data, count, on);
    }
  }
  template <class T>
  void strike(inject::site where, const inject::place& here, T* data, std::int64_t count) const {
    strike(where, here, data, count, main());
  }
  bool armed(inject::site where) const {
    if constexpr (inject::active_injector::enabled) return run_.injector.armed(where);
    return false;
  }

 private:
  const ballast::cuda::kernel& kernel_of(work what) const;
  ballast::cuda::stream_event& reached(stream by) const;
  // Host memory for numbers that are fetched, until they are waited for: pinned as long as there is room.
  void* landing(std::int64_t bytes);
  void bring(void* there, const void* from, std::int64_t bytes, stream on);
  template <class T>
  void strike_armed(inject::site where, const inject::place& here, T* data, std::int64_t count, stream on) const;

  const context& run_;
  std::shared_ptr<ballast::cuda::device> device_;
  std::unique_ptr<lane> lane_;
  std::shared_ptr<const kernel_table<S>> kernels_;
  ballast::cuda::fault_list faults_;
  buffer parts_[3];  // of products on `main`, `beside` and `aside`
  std::vector<std::function<void()>> pending_;
  std::function<void()> put_off_;
  std::int64_t landed_ = 0;       // bytes of the lane's pinned memory that are taken
  bool sent_[k_places + 1] = {};  // the last one is bring()'s
  std::vector<core::aligned_buffer<std::byte>> more_;
};

}  // namespace ballast::qr::cuda
