// One factorization on a device and the processor beside it, as in the paper: the matrix and all updates on the device, panels on all cores
// of the host, checkpoints of V by the host while the panel is on its way back. Layer: backend "cuda" of QR, over kernels<S> of cpu/ for
// the panels. What is not here is device_factorizer's. Source: P. Du et al., 2011, §3 (schedule), §6.2 (when V is checkpointed), §7 (the
// original kept during the first panel).
#pragma once

#include <memory>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/cuda/engine/factorizer.hpp"

namespace ballast::qr::cuda {

// A stream for the copy of the input, events, and pinned memory. A device keeps those of past calls: pinned memory takes long to make.
struct host_side;

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
  bool goes_ahead(index) const override { return false; }  // the host makes them
  bool repair_v(index k, index* column) override;
  void recover_column(index j) override;

 protected:
  // The checkpoint of V of panel k, from what lies in host memory.
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
  S* panel() const;  // rows × width, without gaps
  S* T_here() const;
  S* tau_here() const;

  const kernels<S>& kernels_;
  std::unique_ptr<host_side> host_;
  const std::shared_ptr<const void> quiet_;  // while it lives, the BLAS runs on the calling thread: Ballast's own threads take pieces
  core::aligned_buffer<S> V1_;
  std::vector<double> row_weights_;               // of the checkpoint: those that the device has
  std::vector<std::vector<double>> checkpoints_;  // by panel, as the host made them before it sent the panel
  index held_ = -1;                               // the panel that lies in host memory
  seal sent_;
  ballast::cuda::device_buffer received_;                                // the hashes of what the device has received
  enum class copy { none, wanted, under_way, done } copy_ = copy::none;  // of the input
};

}  // namespace ballast::qr::cuda
