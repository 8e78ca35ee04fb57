// Applies Q, given by stored reflectors in host memory, to blocks of columns.
// Layer: backend (host), over kernels<S> of reference/ or cpu/. Implements applier<S>.
#pragma once

#include <memory>

#include "core/aligned_buffer.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/contract.hpp"

namespace ballast::qr::host {

// Reflectors in panels: V1 with its ones and zeros written out, and the factors T.
template <class S>
struct panel_set {
  core::aligned_buffer<S> V1, T;
  core::vector<block_reflector<S>> all;
};

template <class S>
class panel_applier final : public applier<S> {
 public:
  panel_applier(const context& run, const kernels<S>& arithmetic, index panel_width, const matrix_view<const S>& V, const S* tau);

  void scan(bool* finite) override;
  void form() override;
  void encode(bool transposed, bool few) override;
  std::unique_ptr<applied_block<S>> open(bool transposed, const operand<S>& X, index task, index tasks, index first, index width,
                                         matrix_view<S> result) override;
  void each(index count, core::function_ref<void(index)> body) override;

 private:
  template <class>
  friend class block_of_columns;

  panel_set<S> make_panels() const;
  using wide = wide_of<S>;
  core::aligned_buffer<wide> under_q(bool transposed) const;

  const context& run_;
  const kernels<S>& kernels_;
  const index m_;
  const matrix_view<const S> V_;
  const S* const tau_;
  panel_set<S> shared_;
  core::aligned_buffer<wide> a_, b_;  // m × k_vectors: random real a, and op(Q)ᴴa
};

}  // namespace ballast::qr::host
