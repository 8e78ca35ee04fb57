// Compares V, T and tau with their checkpoint and seals.
// Layer: backend (host). See factorizer.hpp.
// Source: P. Du et al., 2011, §6.
#include <algorithm>
#include <limits>

#include "abft/attempt.hpp"
#include "core/at.hpp"
#include "qr/checks/checkpoint_repair.hpp"
#include "qr/checks/largest.hpp"
#include "qr/host/factorizer.hpp"

namespace ballast::qr::host {

using core::at;

// Sums over V as it is stored now, including its triangle. The same sums in the same order agree to the bit, unless V has changed.
template <class S>
double blocked_factorizer<S>::change_of_v(index k, core::vector<double>& sums) {
  copy_v1(k);
  checkpoint_of(kernels_, run_.threads, reflector(k), row_weights_.data() + k_reals<S> * shape_[k].first, sums);
  const core::vector<double>& kept = checkpoints_[at(k)];
  largest worst;
  for (std::size_t i = 0; i < sums.size(); ++i) worst.add(sums[i] == kept[i] ? 0 : sums[i] - kept[i]);
  return worst.value();
}

// Compares T and tau to the bit.
template <class S>
double blocked_factorizer<S>::change_of_t(index k) const {
  abft::result_hash seal;
  add_numbers(seal, t(k), shape_[k].width * shape_[k].width);
  return seal.bits() != seals_.T[at(k)] ? std::numeric_limits<double>::quiet_NaN() : taus_differ(k);
}

template <class S>
bool blocked_factorizer<S>::repair_v(index k, index* column) {
  const layout::block& b = shape_[k];
  const core::vector<double>& kept = checkpoints_[at(k)];
  core::vector<double> sums;
  change_of_v(k, sums);
  checkpoint_repair<S> repair(shape_.m, row_weights_.data());
  for (index l = 0; l < b.width; ++l) {
    if (!repair.column(A_ + (b.first + l) * lda_, b.first + l, kept.data() + l, sums.data() + l, b.width, column)) return false;
  }
  copy_v1(k);
  return true;
}

template class blocked_factorizer<float>;
template class blocked_factorizer<double>;
template class blocked_factorizer<std::complex<float>>;
template class blocked_factorizer<std::complex<double>>;

}  // namespace ballast::qr::host
