// One call of QR on a device: three streams with their BLAS, memory, launches, strikes, and results on their way to the host.
// Layer: backend "cuda" of QR. Work is ordered on the main stream. Long updates run on the update stream, and checks on the check stream;
// events order these two with the main stream.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/idle_pool.hpp"
#include "core/memory.hpp"
#include "cuda/call/faults.hpp"
#include "cuda/device/blas.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "qr/contract.hpp"
#include "qr/cuda/engine/device_tables.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/cuda/layout/rotations.hpp"

namespace ballast::qr::cuda {

// The transposition of BLAS that is the adjoint.
template <class S>
inline constexpr char k_adjoint = is_complex<S> ? 'C' : 'T';

// A block reflector H = I − V T Vᴴ as an operand of products.
template <class S>
struct formed_reflector {
  const S* V;  // rows × width, contiguous, with its ones and zeros
  std::int64_t rows, width;
  const S* T;                // width × width, upper triangular, zero below the diagonal
  const S* image = nullptr;  // V's image, from make_image(); null: cuBLAS computes all products
};

// Columns of a matrix, as an operand of products.
template <class S>
struct some_columns {
  const S* data = nullptr;
  std::int64_t ld = 0, count = 0;
};

// VᵀC as sums over chunks of rows. Without data, VᵀC is complete.
struct product_parts {
  double* data = nullptr;
  std::int64_t chunks = 0;
};

// A function that is called later, in the memory of the call.
class deferred {
 public:
  deferred() = default;
  deferred(std::nullptr_t) {}
  template <class Body>
  requires(!std::is_same_v<Body, deferred>) deferred(Body body) : body_(new holder<Body>(std::move(body))) {}
  explicit operator bool() const noexcept { return body_ != nullptr; }
  void operator()() const { body_->call(); }

 private:
  struct base : core::pooled {
    virtual ~base() = default;
    virtual void call() = 0;
  };
  template <class Body>
  struct holder final : base {
    explicit holder(Body body) : body_(std::move(body)) {}
    void call() override { body_(); }
    Body body_;
  };
  std::unique_ptr<base> body_;
};

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
  stream update_stream() const;  // for long work
  stream check_stream() const;   // for work that the main stream waits for soon
  ballast::cuda::blas& blas(stream on) const;

  // Later work on `to` waits for the work that `from` has now. fork(), join(): from and to the main stream.
  void follow(stream to, stream from);
  void fork(stream to) { follow(to, main()); }
  void join(stream from) { follow(main(), from); }
  // As join(), but the main stream waits only for the work that the stream had at its last mark.
  void mark(stream from);
  void join_mark(stream from);
  // Ends the work that an exception may have left on the other streams. Called before memory is released, which is ordered on the main
  // stream.
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

  // Copies `count` numbers to the host. wait() calls use() with them, in the order of the calls.
  template <class T, class Use>
  void fetch(const void* from, std::int64_t count, Use&& use) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    void* const there = landing(bytes);
    device_->copy(there, from, bytes, main());
    pending_.push_back([there, use = std::forward<Use>(use)] { use(static_cast<const T*>(there)); });
  }
  void wait();

  // Copies the norms of n columns. wait() stores them to `sizes`.
  void fetch_sizes(const column_result* from, std::int64_t n, column_size* sizes) {
    fetch<column_result>(from, n, [sizes, n](const column_result* made) {
      for (std::int64_t j = 0; j < n; ++j) sizes[j] = {made[j].norm, made[j].exponent, made[j].finite != 0};
    });
  }

  // Copies numbers to the host in the order of stream `on`. await_brought() waits for them, and not for later work. They are valid until
  // the next wait(). One call at a time.
  template <class T>
  const T* bring(const void* from, std::int64_t count, stream on) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    void* const there = landing(bytes);
    bring(there, from, bytes, on);
    return static_cast<const T*>(there);
  }
  void await_brought() { (void)await(k_send_slots); }

  // send() copies up to 256 bytes from `from`, which must not change before await(). The host waits for them while the streams go on.
  // `slot`: one of k_send_slots, for one copy at a time.
  void send(int slot, const void* from, std::int64_t bytes, stream on);
  const void* await(int slot);

  // `work` is enqueued when the host next waits, or in catch_up(): until then the host has time for other launches. Null: drops the work.
  void put_off(deferred work);
  void catch_up();

  template <class Arguments>
  void launch(work what, std::int64_t blocks, const Arguments& given) const {
    launch(what, blocks, given, main());
  }
  template <class Arguments>
  void launch(work what, std::int64_t blocks, const Arguments& given, stream on) const {
    device_->launch(kernel_of(what), blocks, &given, sizeof given, on);
  }
  // Computes the norms of so many columns of numbers of type S, or of the same in double.
  template <class T>
  void scan(scan_arguments<T> given, std::int64_t columns, stream on) const;
  void launch_match(const match_arguments<real_of<S>>& given, std::int64_t blocks) const {
    device_->launch(tables_.kernels->match(*device_), blocks, &given, sizeof given, main());
  }
  void launch_panel(int cluster, const panel_arguments<S>& given) const;
  // `parts`: from chain_parts() for the same V, until the work on the stream is done.
  void launch_chain(const chain_arguments<S>& given, const buffer& parts, stream on) const;
  // Returns the memory for passes of all multiprocessors over such a V; none: one cluster makes them. `few`: as in applier::encode.
  buffer chain_parts(std::int64_t rows, std::int64_t count, bool few) const;
  // The cluster for a panel of so many rows and columns, and the rows of each of its blocks. `resident`: they fit into shared memory.
  struct panel_plan {
    int cluster = 0;
    std::int64_t slab = 0;
    bool resident = false;
  };
  panel_plan plan_panel(std::int64_t rows, int width) const;
  const launch_choices& choices() const { return tables_.kernels->choices; }
  // Returns whether passes of the whole device over its rows compute a panel (cholesky_qr.cuh), and not clusters, which take 8 µs for each
  // column, and longer if their slabs do not fit into shared memory. A prediction: docs/design/qr-cuda.md.
  bool uses_cholesky_qr(std::int64_t rows, std::int64_t width) const;

  // Returns a hash of a matrix, as abft::finding::bits. Waits.
  std::uint64_t hash(const S* X, std::int64_t ld, std::int64_t rows, std::int64_t columns);

  // --- Block reflectors. All work is ordered on stream `on`.

  // Writes V of stored reflectors with its ones and zeros, contiguous. `checked`, `state`: as in form_v_arguments.
  void form_v(const reflectors<S>& h, S* V, stream on, bool checked, const cholesky_qr_state* state = nullptr) const;
  // Computes T of stored reflectors in blocks of `width`, from VᵀV and tau, on the main stream. Each block has width² numbers.
  void make_t(const matrix_view<const S>& V, std::int64_t width, const S* tau, S* T) const;
  // Computes the QR of a small matrix by one thread block, one reflector after the other, on the main stream. Returns false, and does
  // nothing, if no kernel holds the matrix.
  bool factor_small(const matrix_view<S>& A, S* tau) const;
  // Returns whether Ballast's own kernels (product.cuh) compute the products of H with n columns. They need an image of V.
  bool multiplies(const formed_reflector<S>& H, std::int64_t n) const;
  static std::int64_t image_bytes(std::int64_t rows, std::int64_t width);
  void make_image(formed_reflector<S>& H, void* to, stream on) const;
  // Computes W = VᴴC for n columns C. W has room for twice as many numbers, which update() needs.
  void product(const formed_reflector<S>& H, std::int64_t n, const S* C, std::int64_t ldc, S* W, stream on) const;
  // C ← H C, or HᴴC where `transposed`, with W from product().
  void update(const formed_reflector<S>& H, bool transposed, std::int64_t n, S* W, S* C, std::int64_t ldc, stream on) const;
  // The two steps of update(): the second half of W ← T W, or Tᴴ W; then C ← C − V times that half, TW.
  void apply_t(const formed_reflector<S>& H, bool transposed, std::int64_t n, S* W, stream on, const product_parts& parts = {}) const;
  void subtract(const formed_reflector<S>& H, std::int64_t n, const S* TW, S* C, std::int64_t ldc, stream on) const;
  // Returns whether Ballast's own kernels (narrow.cuh) compute the products of so few columns. product_in_parts(): the product of some
  // columns and of others after them, for apply_t(), in one buffer for each stream. Its bits do not depend on the number of columns.
  bool narrow(const formed_reflector<S>& H, std::int64_t n) const;
  product_parts product_in_parts(const formed_reflector<S>& H, const some_columns<S>& C, const some_columns<S>& more, stream on);

  // Shows data to the injector of the call, as inject::fault_injector::strike does, on stream `on`.
  template <class T>
  void strike(inject::site where, const inject::position& here, T* data, std::int64_t count, stream on) const {
    if constexpr (inject::active_injector::enabled) {
      if (count > 0 && run_.injector.armed(where)) strike_armed(where, here, data, count, on);
    }
  }
  template <class T>
  void strike(inject::site where, const inject::position& here, T* data, std::int64_t count) const {
    strike(where, here, data, count, main());
  }
  // The faults of the call, for kernels that are instrumented themselves.
  const ballast::cuda::fault_list& faults() const { return faults_; }
  bool armed(inject::site where) const {
    if constexpr (inject::active_injector::enabled) return run_.injector.armed(where);
    return false;
  }

 private:
  const ballast::cuda::kernel& kernel_of(work step) const;
  ballast::cuda::stream_event& reached(stream by) const;
  // Returns host memory for numbers on their way, until wait(): pinned memory while there is room.
  void* landing(std::int64_t bytes);
  void bring(void* there, const void* from, std::int64_t bytes, stream on);
  template <class T>
  void strike_armed(inject::site where, const inject::position& here, T* data, std::int64_t count, stream on) const;

  const context& run_;
  std::shared_ptr<ballast::cuda::device> device_;
  device_tables<S> tables_;
  // Everything below may own memory whose release is ordered on the streams. It is destroyed before the streams go back or, if enough
  // sets are idle, are destroyed.
  core::lent<std::unique_ptr<stream_set>> stream_set_;
  ballast::cuda::fault_list faults_;
  buffer parts_[3];  // products on the main, the update and the check stream
  core::vector<deferred> pending_;
  deferred put_off_;
  std::int64_t landed_ = 0;           // used bytes of the stream set's pinned memory
  bool sent_[k_send_slots + 1] = {};  // the last one belongs to bring()
  core::vector<core::aligned_buffer<std::byte>> more_;
};

}  // namespace ballast::qr::cuda
