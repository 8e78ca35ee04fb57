// Factors and applies pieces of columns one after the other.
// Layer: algorithm (driver). See out_of_core.hpp.
#include "qr/driver/out_of_core.hpp"

#include <algorithm>

#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "qr/driver/application.hpp"
#include "qr/driver/factorization.hpp"
#include "run/attempt.hpp"

namespace ballast::qr {

using core::at;

template <class S>
auto out_of_core<S>::make_scratch() const -> scratch {
  scratch made;
  made.memory = on_.allocate(core::checked_product(m_, width_));
  made.view = column_major(made.memory.get(), m_, width_, m_);
  return made;
}

template <class S>
void out_of_core<S>::copy(const matrix_view<const S>& from, const matrix_view<S>& to, std::uint64_t seal, index first,
                          const matrix_view<S>* back) {
  run::attempt(run_.seen, run_.how.protection, "qr.piece", 0, [&](int) {
    on_.copy(from, to);
    abft::finding seen;
    if (seal == 0 || run_.how.protection == protection::off) return seen;
    if (back != nullptr) on_.copy(to, *back);
    seen.bits = on_.hash(back != nullptr ? *back : to);
    if (seen.bits != seal) {
      seen.word = abft::k_fail;
      seen.residual = 1;
      seen.index = first;
    }
    return seen;
  });
}

template <class S>
matrix_view<const S> out_of_core<S>::load(const matrix_view<const S>& V, index count, index q, const scratch& to) {
  const index first = q * width_, rows = m_ - first, columns = std::min(width_, count - first);
  const matrix_view<S> here = to.view.block(0, 0, rows, columns);
  copy(V.block(first, first, rows, columns), here, at(q) < seals_.size() ? seals_[at(q)] : 0, first);
  return here;
}

template <class S>
void out_of_core<S>::apply_piece(bool transposed, const matrix_view<const S>& reflectors, index q, const S* tau, const matrix_view<S>& X,
                                 const scratch& spare) {
  const index first = q * width_, rows = m_ - first;
  const matrix_view<S> below = X.block(first, 0, rows, X.columns), made = spare.view.block(0, 0, rows, X.columns);
  orthogonal_factor<S>(run_, on_, reflectors, tau + first).apply(transposed, {below}, made);
  copy(made, below, seal_of(made), first);
  on_.wait();
}

template <class S>
void out_of_core<S>::factor(std::string_view scheme, const matrix_view<S>& A, S* tau) {
  const index steps = std::min(m_, A.columns);
  const scratch own = make_scratch(), spare = make_scratch(), loaded = make_scratch();
  // The count of panels goes on from piece to piece; the total is not known.
  index panels = 0, before = 0;
  run::settings how = run_.how;
  if (run_.how.on_progress)
    how.on_progress = [&](const progress& seen) {
      panels = before + seen.done;
      run_.how.on_progress({panels, 0, seen.unit});
    };
  const context piece_context{run_.seen, run_.injector, how, run_.which, run_.threads, run_.hybrid};
  seals_.assign(at(parts(steps)), 0);
  for (index p = 0; p < parts(A.columns); ++p) {
    const index first = p * width_, columns = std::min(width_, A.columns - first);
    const matrix_view<S> X = own.view.block(0, 0, m_, columns), operand = A.block(0, first, m_, columns);
    on_.copy(operand, X);
    for (index q = 0; q < std::min(p, parts(steps)); ++q) {
      apply_piece(true, load(A, steps, q, loaded), q, tau, X, spare);
      if (lost()) return;
    }
    if (first < steps) {
      const matrix_view<S> below = X.block(first, 0, m_ - first, columns), source = spare.view.block(0, 0, m_ - first, columns);
      copy(below, source, seal_of(below), first);
      factorization<S>(piece_context, on_, scheme, below, tau + first, source).run();
      if (lost()) return;
      before = panels;
      seals_[at(p)] = seal_of(below.block(0, 0, m_ - first, std::min(columns, steps - first)));
    }
    const matrix_view<S> back = loaded.view.block(0, 0, m_, columns);
    copy(X, operand, seal_of(X), first, &back);
    on_.wait();
  }
}

template <class S>
void out_of_core<S>::apply(bool transposed, const matrix_view<const S>& V, index count, const S* tau, const operand<S>& X,
                           const matrix_view<S>& to) {
  const scratch own = make_scratch(), spare = make_scratch(), loaded = make_scratch();
  for (index p = 0; p < parts(to.columns); ++p) {
    const index first = p * width_, columns = std::min(width_, to.columns - first);
    const matrix_view<S> here = own.view.block(0, 0, m_, columns), operand = to.block(0, first, m_, columns);
    if (X.identity) {
      for (index j = 0; j < columns; ++j) {
        for (index i = 0; i < m_; ++i) operand(i, j) = S(i == first + j ? 1 : 0);
      }
    }
    on_.copy(X.identity ? matrix_view<const S>(operand) : X.view.block(0, first, m_, columns), here);
    // Pieces that begin below the last of the identity's columns do not change its zeros.
    const index used = X.identity ? std::min(parts(count), parts(first + columns)) : parts(count);
    for (index s = 0; s < used; ++s) {
      const index q = transposed ? s : used - 1 - s;
      apply_piece(transposed, load(V, count, q, loaded), q, tau, here, spare);
      if (lost()) return;
    }
    const matrix_view<S> back = loaded.view.block(0, 0, m_, columns);
    copy(here, operand, seal_of(here), first, &back);
    on_.wait();
  }
}

template class out_of_core<float>;
template class out_of_core<double>;
template class out_of_core<std::complex<float>>;
template class out_of_core<std::complex<double>>;

}  // namespace ballast::qr
