// Applies Q, given by stored reflectors in device memory, to blocks of columns.
// Layer: backend "cuda" of QR. Implements applier<S>.
#pragma once

#include <memory>
#include <vector>

#include "qr/contract.hpp"
#include "qr/cuda/engine/session.hpp"

namespace ballast::qr::cuda {

template <class S>
class device_applier final : public applier<S> {
 public:
  device_applier(session<S>& on, const matrix_view<const S>& V, const S* tau);

  ~device_applier() override { on_.settle(); }

  void wait() override { on_.wait(); }
  void scan(bool* finite) override;
  void form() override;
  void encode(bool transposed, bool few) override;
  std::unique_ptr<applied_block<S>> open(bool transposed, const operand<S>& X, index task, index tasks, index first, index width,
                                         matrix_view<S> result) override;
  void each(index count, core::function_ref<void(index)> body) override;

 private:
  template <class>
  friend class block_of_columns;
  using buffer = ballast::cuda::device_buffer;

  index width_of(index k) const { return std::min(this->panel_width, V_.columns - k * this->panel_width); }
  buffer make_t() const;
  // Computes op(Q)ᴴa on the update stream. It shares only V and tau with the products.
  buffer under_q(bool transposed) const;
  // V of panel k, formed in scratch_.
  void draw();  // a
  const S* form_v(index k) const;
  S* T_of(const buffer& T, index k) const { return static_cast<S*>(T.data()) + k * this->panel_width * this->panel_width; }

  session<S>& on_;
  const index m_;
  const matrix_view<const S> V_;
  const S* const tau_;
  buffer T_;
  buffer scratch_;  // V of a panel with its ones and zeros
  buffer image_;    // the image of scratch_
  buffer a_, b_;    // m × k_vectors of wide_of<S>: random real a, and op(Q)ᴴa
  buffer chain_parts_;
};

}  // namespace ballast::qr::cuda
