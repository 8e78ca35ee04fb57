// The checkpoint of V: three weighted sums and the squared norm of every column.
// Layer: backend (host). See factorizer.hpp.
// Source: P. Du et al., 2011, §6.
#include <algorithm>
#include <limits>

#include "abft/attempt.hpp"
#include "core/parallel.hpp"
#include "qr/checkpoint_repair.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/largest.hpp"

namespace ballast::qr::host {

namespace {

std::size_t at(index i) { return static_cast<std::size_t>(i); }

}  // namespace

// c1, c2, c3 and ‖v‖² of each column of V (4 × width) over one slab.
template <class S>
void blocked_factorizer<S>::checkpoint_slab(index k, const slab<S>& part, double* sums) const {
  const layout::block& b = shape_[k];
  std::fill_n(sums, 4 * b.width, 0.0);
  kernels_.moments(part.rows, b.width, part.X, part.ld, row_weights_.data() + b.first + part.top, sums, b.width);
}

// The same over all of V.
template <class S>
void blocked_factorizer<S>::checkpoint(index k, std::vector<double>& sums) const {
  const block_reflector<S> H = reflector(k);
  const index size = 4 * H.width;
  const index tasks = slabs(H);
  std::vector<double> partial(at(tasks * size));
  core::parallel_for(run_.threads, tasks, [&](index t, int) { checkpoint_slab(k, slab_of(H, t), partial.data() + t * size); });
  sums.assign(at(size), 0.0);
  for (std::size_t i = 0; i < partial.size(); ++i) sums[i % at(size)] += partial[i];
}

// V is summed over as it is stored now, its triangle included. The same sums in the same order agree to the bit, or V has changed.
template <class S>
double blocked_factorizer<S>::change_of_v(index k, std::vector<double>& sums) {
  copy_v1(k);
  checkpoint(k, sums);
  const std::vector<double>& kept = checkpoints_[at(k)];
  largest worst;
  for (std::size_t i = 0; i < sums.size(); ++i) worst.add(sums[i] == kept[i] ? 0 : sums[i] - kept[i]);
  return worst.value();
}

// T and tau to the bit.
template <class S>
double blocked_factorizer<S>::change_of_t(index k) const {
  abft::result_hash seal;
  for (index i = 0; i < shape_[k].width * shape_[k].width; ++i) seal.add(t(k)[i]);
  return seal.bits() != T_seal_[at(k)] ? std::numeric_limits<double>::quiet_NaN() : taus_differ(k);
}

template <class S>
bool blocked_factorizer<S>::repair_v(index k, index* column) {
  const layout::block& b = shape_[k];
  const std::vector<double>& kept = checkpoints_[at(k)];
  std::vector<double> sums;
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

}  // namespace ballast::qr::host
