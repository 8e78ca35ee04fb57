// Matrices that exceed a backend's memory: their columns pass through it in pieces.
// Layer: algorithm (driver), backend-free.
// Left-looking: a piece is loaded once; the reflectors of all earlier pieces are applied to it, piece by piece; it is factored and stored.
// Each step is the protected one of matrices that fit. Copies between the steps, and factored pieces, which lie in the caller's memory
// meanwhile, are compared with a hash that was computed when they were verified.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/memory.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

template <class S>
class out_of_core {
 public:
  // `width`: the columns of a piece. The engine can hold three pieces of m rows, and the memory for factoring and applying.
  out_of_core(const context& run, engine<S>& on, index m, index width) : run_(run), on_(on), m_(m), width_(width) {}

  // A ← its factors. A: in the caller's memory; tau: in the engine's. Call run.seen.uncorrectable() before using them; if it returns true,
  // A no longer holds its input.
  void factor(std::string_view scheme, const matrix_view<S>& A, S* tau);

  // to ← op(Q) X, or the first columns of op(Q), for Q of V's first `count` columns. V, X and `to`: in the caller's memory; `to` may be X.
  void apply(bool transposed, const matrix_view<const S>& V, index count, const S* tau, const operand<S>& X, const matrix_view<S>& to);

 private:
  // A matrix in the engine's memory, m × width.
  struct scratch {
    std::shared_ptr<S> memory;
    matrix_view<S> view;
  };
  scratch make_scratch() const;
  bool lost() const { return run_.seen.uncorrectable() && run_.how.protection == protection::correct; }
  index parts(index columns) const { return (columns + width_ - 1) / width_; }
  std::uint64_t seal_of(const matrix_view<const S>& X) { return run_.how.protection == protection::off ? 0 : on_.hash(X); }
  // to ← from, repeated until its hash is `seal`, unless that is 0. If `back` is not null, `to` lies in the caller's memory: it is copied
  // back there, and the hash of that copy counts. `first`: the first column of the piece.
  void copy(const matrix_view<const S>& from, const matrix_view<S>& to, std::uint64_t seal, index first,
            const matrix_view<S>* back = nullptr);
  // Loads the reflectors of piece q of V's first `count` columns to `to`, and verifies them against the seal, if there is one.
  matrix_view<const S> load(const matrix_view<const S>& V, index count, index q, const scratch& to);
  // Multiplies X's rows, from piece q's first row on, by op(Q_q). `spare` has room for them.
  void apply_piece(bool transposed, const matrix_view<const S>& reflectors, index q, const S* tau, const matrix_view<S>& X,
                   const scratch& spare);

  const context& run_;
  engine<S>& on_;
  const index m_, width_;
  core::vector<std::uint64_t> seals_;  // hashes of the pieces that were factored here
};

}  // namespace ballast::qr
