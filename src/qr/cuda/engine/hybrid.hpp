// One factorization on a device and its host processor, as in the paper. The matrix and all updates are on the device; all cores of the
// host factor the panels, and take checkpoints of V while a panel is on its way back. Everything else is inherited from device_factorizer.
// Layer: backend "cuda" of QR, over kernels<S> of cpu/ for the panels.
// Source: P. Du et al., 2011, §3 (schedule), §6.2 (when V is checkpointed), §7 (the original is kept during the first panel).
#pragma once

#include <memory>

#include "core/aligned_buffer.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/cuda/engine/factorizer.hpp"

namespace ballast::qr::cuda {

// A stream for the copy of the input, events, and pinned memory. A device keeps one for the next call, since pinned memory takes long to
// allocate.
struct host_side {
  explicit host_side(const std::shared_ptr<ballast::cuda::device>& on);
  ballast::cuda::device_stream copies;
  std::unique_ptr<ballast::cuda::stream_event> panel_read, first_copied, all_copied;
  ballast::cuda::pinned_buffer panel, source;
};

template <class S>
class hybrid_factorizer : public device_factorizer<S> {
 public:
  hybrid_factorizer(session<S>& on, const layout& shape, const matrix_view<S>& A, S* tau, const matrix_view<const S>& source);
  ~hybrid_factorizer() override;

  void scale(const int* shifts) override;
  void restart() override;
  void give_back() override;
  void reload(index b) override;
  void factor_panel(index k, bool finite) override;
  void measure_panel(index k, panel_sums* seen) override;
  void advance(index k, index first, core::function_ref<void()> ahead) override;
  bool goes_ahead(index) const override { return false; }  // the host factors the panels
  bool repair_v(index k, index* column) override;
  void recover_column(index j) override;

 protected:
  // Computes the checkpoint of V of panel k from the panel in host memory.
  virtual void take_checkpoint(index k);

 private:
  using base = device_factorizer<S>;
  // Hashes of the panel, T and tau.
  struct seal {
    std::uint64_t panel = 0, T = 0, tau = 0;
    bool operator==(const seal&) const = default;
  };

  void keep_source() override;
  void copy_source(ballast::cuda::stream on, index first, index width);
  void start_copy();
  void finish_copy();
  void bring(index k);
  void send(index k);
  block_reflector<S> reflector_of(index k, const S* panel, index ld, const S* T);
  seal seal_of(index k) const;
  S* panel() const;  // rows × width, contiguous
  S* T_here() const;
  S* tau_here() const;

  const kernels<S>& kernels_;
  core::lent<std::unique_ptr<host_side>> lent_host_;
  host_side* const host_;
  // While it lives, BLAS runs on the calling thread: Ballast's own threads divide the work.
  const std::shared_ptr<const void> quiet_;
  core::aligned_buffer<S> V1_;
  core::vector<double> row_weights_;                // weights of the checkpoint: the same as on the device
  core::vector<core::vector<double>> checkpoints_;  // by panel, computed before the panel is sent
  index held_ = -1;                                 // the panel in host memory
  seal sent_;
  ballast::cuda::device_buffer received_;                                // the hashes of the data that the device has received
  enum class copy { none, wanted, under_way, done } copy_ = copy::none;  // the state of the input's copy
};

}  // namespace ballast::qr::cuda
