// Messages along the rows and columns of a grid of ranks, and a rank's columns with their checksums.
// Layer: algorithm, over columns.hpp and group/exchange.hpp. docs/design/distributed.md, "QR on a grid".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "qr/api/columns.hpp"
#include "qr/api/grid_layout.hpp"
#include "qr/host/columns.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/kernels.hpp"

namespace ballast::qr {

using core::at;

// A message of a grid: numbers.
class grid_message {
 public:
  template <class Number>
  void put(const Number* from, index count) {
    if (count == 0) return;
    const auto* const bytes = reinterpret_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + at(count) * sizeof(Number));
  }
  template <class S>
  void put(const matrix_view<const S>& of) {
    bytes_.reserve(bytes_.size() + at(of.rows * of.columns) * sizeof(S));
    for (index j = 0; j < of.columns && of.rows > 0; ++j) put(&of(0, j), of.rows);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A message that came.
class grid_reader {
 public:
  grid_reader() = default;
  explicit grid_reader(wire::bytes of) : bytes_(std::move(of)) {}
  // Takes the whole message.
  wire::bytes take() { return std::move(bytes_); }
  template <class Number>
  void take(Number* to, index count) {
    const std::size_t size = at(count) * sizeof(Number);
    if (bytes_.size() - next_ < size) throw error("qr: a message on the grid has another size than expected");
    if (size > 0) std::memcpy(to, bytes_.data() + next_, size);
    next_ += size;
  }
  template <class S>
  void take(const matrix_view<S>& to) {
    for (index j = 0; j < to.columns && to.rows > 0; ++j) take(&to(0, j), to.rows);
  }

 private:
  wire::bytes bytes_;
  std::size_t next_ = 0;
};

// Numbers of which every rank of a line has a part, and then their sums: numbers of double precision, then others. They lie in the message
// that brings them to the other ranks, and are added in those that come, so that none is copied.
template <class S>
class grid_sums {
 public:
  using wide = wide_of<S>;
  grid_sums(index wides, index count) : wides_(wides), count_(count), bytes_(at(wides) * sizeof(wide) + at(count) * sizeof(S)) {}
  wide* wides() { return reinterpret_cast<wide*>(bytes_.data()); }
  S* numbers() { return reinterpret_cast<S*>(bytes_.data() + at(wides_) * sizeof(wide)); }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Adds the parts that came, that of place p in came[p], and the own one, in the order of the places.
  void add(std::vector<grid_reader>& came, int own_place) {
    came[at(own_place)] = grid_reader(std::exchange(bytes_, {}));
    for (int p = 0; p < static_cast<int>(came.size()); ++p) {
      wire::bytes part = came[at(p)].take();
      if (part.size() != at(wides_) * sizeof(wide) + at(count_) * sizeof(S))
        throw error("qr: sums on the grid have another size than expected");
      if (p == 0) {
        bytes_ = std::move(part);
        continue;
      }
      add(reals(wides()), part.data(), wides_ * k_reals<S>);
      add(reals(numbers()), part.data() + at(wides_) * sizeof(wide), count_ * k_reals<S>);
    }
  }

 private:
  template <class Real>
  static void add(Real* to, const std::byte* from, index count) {
    const auto* const numbers = reinterpret_cast<const Real*>(from);
    for (index i = 0; i < count; ++i) to[i] += numbers[i];
  }
  index wides_, count_;
  wire::bytes bytes_;
};

enum class grid_line : std::uint8_t { column, row };  // the ranks of a process column, or row

// The exchanges of a grid. All ranks make each, so that its number is the same on all; messages go only between ranks of one line that have
// something for each other. A rank may compute between the two halves of one. A line of one rank exchanges nothing.
class grid_lines {
 public:
  grid_lines(wire::exchange& over, const grid_seat& seat) : over_(over), seat_(seat) {}

  const grid_seat& seat() const { return seat_; }
  int size(grid_line of) const { return of == grid_line::column ? seat_.layout.grid.rows : seat_.layout.grid.columns; }
  int place(grid_line of) const { return of == grid_line::column ? seat_.row() : seat_.column(); }
  int rank_of(grid_line of, int place) const {
    return of == grid_line::column ? seat_.layout.rank_at(place, seat_.column()) : seat_.layout.rank_at(seat_.row(), place);
  }

  // Places of a line whose messages are awaited: those for which sends(place) holds, all, one or none. The own one does not count.
  template <class Sends>
  std::vector<bool> those(grid_line of, const Sends& sends) const {
    std::vector<bool> made(at(size(of)));
    for (int p = 0; p < size(of); ++p) made[at(p)] = p != place(of) && sends(p);
    return made;
  }
  std::vector<bool> everyone(grid_line of) const {
    return those(of, [](int) { return true; });
  }
  std::vector<bool> only(grid_line of, int sender) const {
    return those(of, [&](int p) { return p == sender; });
  }
  std::vector<bool> nobody(grid_line of) const { return std::vector<bool>(at(size(of))); }

  // Sends block p to the rank in place p of its line, or the only one to all, unless it is empty. awaited[p]: the rank in place p sends one
  // that is not empty. end() returns those that came; the others are empty.
  void begin(grid_line along, std::span<const grid_message> blocks, const std::vector<bool>& awaited) {
    std::vector<std::span<const std::byte>> parts;
    for (const grid_message& each : blocks) parts.push_back(each.bytes());
    send(along, parts, awaited);
  }
  // All ranks of the line have sums of the same size, of other lines others.
  template <class S>
  void begin(grid_line along, const grid_sums<S>& own) {
    const std::span<const std::byte> block = own.bytes();
    send(along, std::span(&block, 1), block.empty() ? nobody(along) : everyone(along));
  }
  std::vector<grid_reader> end(grid_line along) {
    std::vector<grid_reader> made(at(size(along)));
    if (made.size() == 1) return made;
    std::vector<wire::bytes> came = over_.end_some_to_some();
    for (int p = 0; p < size(along); ++p)
      if (p != place(along)) made[at(p)] = grid_reader(std::move(came[at(rank_of(along, p))]));
    return made;
  }
  template <class S>
  void end(grid_line along, grid_sums<S>& own) {
    if (size(along) == 1) return;
    std::vector<grid_reader> came = end(along);
    own.add(came, place(along));
  }
  // One block to all, and those of `awaited`.
  std::vector<grid_reader> exchange(grid_line along, const grid_message& block, const std::vector<bool>& awaited) {
    begin(along, std::span(&block, 1), awaited);
    return end(along);
  }
  // The blocks of all ranks of the line, which have the same size.
  std::vector<grid_reader> exchange(grid_line along, const grid_message& block) {
    return exchange(along, block, block.bytes().empty() ? nobody(along) : everyone(along));
  }
  // Sums arrays of all ranks of the line in the order of their places, each into itself.
  template <class... Number>
  void sum(grid_line along, std::vector<Number>&... of) {
    if (size(along) == 1) return;
    grid_message block;
    (block.put(of.data(), static_cast<index>(of.size())), ...);
    std::vector<grid_reader> came = exchange(along, block);
    const auto add = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    const std::tuple<std::vector<Number>...> own(of...);
    for (int p = 0; p < size(along); ++p) {
      std::tuple<std::vector<Number>...> part = own;
      if (p != place(along))
        std::apply([&](auto&... each) { (came[at(p)].take(each.data(), static_cast<index>(each.size())), ...); }, part);
      if (p == 0)
        std::tie(of...) = std::move(part);
      else
        std::apply([&](const auto&... each) { (add(of, each), ...); }, part);
    }
  }

  // Returns whether any rank has found a fault for which all begin again: the same on all ranks, which all call it. `own`: this one has.
  bool any_has(bool own) {
    std::int64_t found = own ? 1 : 0;
    over_.add(std::span(&found, 1));
    return found != 0;
  }

 private:
  void send(grid_line along, std::span<const std::span<const std::byte>> blocks, const std::vector<bool>& awaited) {
    if (size(along) == 1) return;
    std::vector<std::span<const std::byte>> all(over_.size());
    std::vector<bool> from(over_.size(), false);
    for (int p = 0; p < size(along); ++p) {
      if (p == place(along)) continue;
      all[at(rank_of(along, p))] = blocks.size() == 1 ? blocks[0] : blocks[at(p)];
      from[at(rank_of(along, p))] = awaited[at(p)];
    }
    over_.begin_some_to_some(all, from);
  }

  wire::exchange& over_;
  const grid_seat seat_;
};

// A rank's rows of the columns of its process column, divided into pieces with a checksum column each. They are worked on where the caller
// wants them.
template <class S>
class grid_columns {
 public:
  struct piece {
    index first = 0, width = 0;  // this rank's columns
    index number = 0;            // the piece in events
    index weights = 0;           // the number of its first weight
  };

  // m: the rows of all ranks; steps: the reflectors that are applied; home: where the columns lie.
  grid_columns(rank_call<S>& here, grid_lines& lines, index m, index steps, const matrix_view<S>& home, std::vector<piece> pieces)
      : here_(here),
        lines_(lines),
        pieces_(std::move(pieces)),
        m_(m),
        steps_(steps),
        rows_(lines.seat().rows()),
        home_(home),
        of_checksums_(here.allocate(rows_, this->pieces())),
        weights_(at(home.columns)),
        norms_(pieces_.size()),
        seals_(pieces_.size()) {}

  index pieces() const { return static_cast<index>(pieces_.size()); }
  const piece& operator[](index i) const { return pieces_[at(i)]; }
  index count() const { return home_.columns; }
  matrix_view<S> all() const { return home_; }
  matrix_view<S> block(index i) const { return home_.block(0, pieces_[at(i)].first, rows_, pieces_[at(i)].width); }
  // The checksums of the pieces from number `from` up to, and without, `to`; none without protection.
  matrix_view<S> checksums(index from, index to) const {
    const matrix_view<S> made = column_major(of_checksums_.get(), rows_, pieces(), std::max<index>(rows_, 1));
    return made.block(0, from, rows_, here_.is_protected() ? to - from : 0);
  }

  // Copies the input and makes its checksums from it. `odd`: other data of the call hold Inf or NaN. One exchange of all ranks, and two
  // along columns.
  void load(const matrix_view<const S>& from, bool odd) {
    // Columns of the host: the sizes are taken while a column is in the cache.
    std::vector<column_size> sizes(at(count()));
    for (index j = 0; j < count() && rows_ > 0; ++j) {
      here_.copy(from.block(0, j, rows_, 1), home_.block(0, j, rows_, 1));
      if (here_.is_protected()) sizes[at(j)] = host::size_of(host::kernels_of<S>(here_.run()), rows_, &from(0, j));
    }
    finite_ = true;
    if (!here_.is_protected()) return;
    weigh(sizes);
    std::vector<double> squares(at(pieces()), 0.0);
    for (index i = 0; i < pieces(); ++i) {
      const piece& own = pieces_[at(i)];
      const matrix_view<S> c = checksums(i, i + 1);
      std::vector<wide_of<S>> sum(at(rows_), wide_of<S>(0));
      if (rows_ > 0 && std::isfinite(norms_[at(i)]))
        host::kernels_of<S>(here_.run())
            .subtract_weighted(rows_, own.width, &from(0, own.first), from.column_stride, 1, weights_.data() + own.first, own.width,
                               sum.data(), rows_);
      for (index r = 0; r < rows_; ++r) {
        c(r, 0) = static_cast<S>(-sum[at(r)]);
        squares[at(i)] += square_of(sum[at(r)]);
      }
      odd = odd || std::isinf(norms_[at(i)]);
    }
    lines_.sum(grid_line::column, squares);
    for (index i = 0; i < pieces(); ++i) norms_[at(i)] = std::sqrt(norms_[at(i)]) + std::sqrt(squares[at(i)]);
    for (const std::int64_t each : here_.gather(odd ? 1 : 0)) finite_ = finite_ && each == 0;
  }
  // No rank has Inf or NaN in the input.
  bool is_finite() const { return finite_; }
  bool is_checked(index i) const { return here_.is_protected() && finite_ && std::isfinite(norms_[at(i)]); }

  // Compares a piece with its checksum, and seals it. Its first `whole` rows count, then `triangle` rows on and above a diagonal; those
  // below are zero in A.
  abft::finding judge(index i, index whole, index triangle) {
    abft::finding found;
    const matrix_view<S> A = block(i), c = checksums(i, i + 1);
    const piece& own = pieces_[at(i)];
    if (is_checked(i)) {
      double residual = 0;
      const index end = whole + triangle;
      if (end > 0)
        residual =
            here_.on().residual_of_columns(A.block(0, 0, end, A.columns), triangle > 0 ? whole : -1, weights_.data() + own.first, c.data);
      double squares = residual * residual;
      for (index r = end; r < rows_; ++r) squares += square_of(static_cast<wide_of<S>>(c(r, 0)));
      const abft::tiers limits = thresholds::residual<real_of<S>>(norms_[at(i)], k_reals<S> * m_, own.width, k_reals<S> * steps_);
      found = compare(here_.run(), {i, pieces(), 0, 1}, std::sqrt(squares), limits.wrong, "qr.grid", own.number);
    }
    seals_[at(i)] = here_.is_protected() ? here_.on().hash(A) : 0;
    if (whole + triangle > 0) here_.strike(site::r, {i, pieces(), 0, 1}, A.block(0, 0, whole + triangle, 1));
    return found;
  }
  // Compares a judged piece with its seal.
  abft::finding compare_seal(index i) {
    return here_.is_protected() ? alike(here_.on().hash(block(i)) == seals_[at(i)], pieces_[at(i)].number) : abft::finding{};
  }
  // The finding of a comparison of seals.
  abft::finding alike(bool same, index number) {
    here_.run().seen.checked(1);
    abft::finding found;
    if (same) return found;
    found.word = abft::k_fail;
    found.residual = std::numeric_limits<double>::quiet_NaN();
    found.index = number;
    found.check = "qr.grid";
    return found;
  }
  // A hash of all seals.
  std::uint64_t bits() const {
    std::uint64_t made = abft::k_seal_of_nothing;
    for (const std::uint64_t each : seals_) made = abft::chained(made, each) | 1;
    return made;
  }

 private:
  // Draws the weights from the sizes of the whole columns, given those of the rank's rows; norms_: ‖A diag(d)‖² of the whole columns of
  // each piece.
  void weigh(std::vector<column_size>& sizes) {
    const int places = lines_.size(grid_line::column);
    std::vector<double> own(at(3 * count()));
    for (index j = 0; j < count(); ++j) {
      own[at(3 * j)] = sizes[at(j)].norm;
      own[at(3 * j + 1)] = sizes[at(j)].exponent;
      own[at(3 * j + 2)] = sizes[at(j)].finite ? 1 : 0;
    }
    std::vector<std::vector<double>> parts(at(places), own);
    grid_message block;
    block.put(own.data(), 3 * count());
    std::vector<grid_reader> came = lines_.exchange(grid_line::column, block);
    for (int p = 0; p < places; ++p)
      if (p != lines_.place(grid_line::column)) came[at(p)].take(parts[at(p)].data(), 3 * count());
    for (index j = 0; j < count(); ++j) {
      column_size& size = sizes[at(j)];
      size = {};
      bool first = true;
      for (const auto& part : parts) {
        if (part[at(3 * j + 2)] == 0) size.finite = false;
        if (part[at(3 * j)] == 0) continue;
        const int exponent = static_cast<int>(part[at(3 * j + 1)]);
        size.exponent = first ? exponent : std::max(size.exponent, exponent);
        first = false;
      }
      double squares = 0;
      for (const auto& part : parts)
        if (size.finite) squares += square_of(std::ldexp(part[at(3 * j)], static_cast<int>(part[at(3 * j + 1)]) - size.exponent));
      size.norm = std::sqrt(squares);
    }
    for (index i = 0; i < pieces(); ++i) {
      const piece& of = pieces_[at(i)];
      norms_[at(i)] = host::weights_of_columns<S>(std::span<const column_size>(sizes).subspan(at(of.first), at(of.width)), of.weights,
                                                  weights_.data() + of.first);
    }
  }

  rank_call<S>& here_;
  grid_lines& lines_;
  const std::vector<piece> pieces_;
  const index m_, steps_, rows_;
  const matrix_view<S> home_;
  const std::shared_ptr<S> of_checksums_;
  std::vector<double> weights_, norms_;
  std::vector<std::uint64_t> seals_;
  bool finite_ = true;
};

}  // namespace ballast::qr
