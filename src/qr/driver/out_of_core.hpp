// Matrices that a backend cannot hold: their columns pass through its memory in pieces.
// Layer: algorithm (driver). Backend-free.
// Left-looking: a piece is loaded once, has the reflectors of all pieces in front of it applied, one piece of them after the other, is
// factored and goes back. Each step is the protected one of matrices that fit. What is copied between steps, and factored pieces, which lie
// in the caller's memory meanwhile, are compared with a hash that was made where they were verified.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "qr/contract.hpp"

namespace ballast::qr {

template <class S>
class pieces {
 public:
  // width: columns of a piece. The engine can hold three of them, with m rows, and what factoring and applying takes besides.
  pieces(const context& run, engine<S>& on, index m, index width) : run_(run), on_(on), m_(m), width_(width) {}

  // A ← its factors; A in the caller's memory, tau where the engine works. Check run.seen.uncorrectable() before they are used; A is not
  // what it was then.
  void factor(std::string_view scheme, const matrix_view<S>& A, S* tau);

  // to ← op(Q) X, or op(Q)'s first columns; Q of V's first `count` columns. V, X and `to` in the caller's memory; `to` may be X.
  void apply(bool transposed, const matrix_view<const S>& V, index count, const S* tau, const operand<S>& X, const matrix_view<S>& to);

 private:
  // A matrix of the engine, m × width.
  struct room {
    std::shared_ptr<S> memory;
    matrix_view<S> view;
  };
  room make_room() const;
  bool lost() const { return run_.seen.uncorrectable() && run_.how.protection == protection::correct; }
  index parts(index columns) const { return (columns + width_ - 1) / width_; }
  std::uint64_t seal_of(const matrix_view<const S>& X) { return run_.how.protection == protection::off ? 0 : on_.hash(X); }
  // to ← from, again until its hash is `seal`, unless that is 0; in the caller's memory, until it is what comes `back` from there. `first`:
  // of the piece's columns.
  void copy(const matrix_view<const S>& from, const matrix_view<S>& to, std::uint64_t seal, index first,
            const matrix_view<S>* back = nullptr);
  // Reflectors of piece q of V's first `count` columns, in `to`: verified against the seal, if there is one.
  matrix_view<const S> load(const matrix_view<const S>& V, index count, index q, const room& to);
  // X's rows from piece q's first on ← op(Q_q) times them; `spare` has room for them.
  void apply_piece(bool transposed, const matrix_view<const S>& reflectors, index q, const S* tau, const matrix_view<S>& X,
                   const room& spare);

  const context& run_;
  engine<S>& on_;
  const index m_, width_;
  std::vector<std::uint64_t> seals_;  // of the pieces that were factored here
};

}  // namespace ballast::qr
