// The passes over one signal, its sums, its verdict and its store.
#include <hwy/cache_control.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "fft/cpu/along.hpp"
#include "fft/cpu/strike_rows.hpp"
#include "fft/cpu/whole_volume.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::cpu {
namespace {

// Adds the lanes of folded sums to those of a signal: number 2i + j to number `first` + i · of_i + j · of_j.
template <class T>
void reduce(const folded_sums& of, volume_sums& to, int first, int of_i, int of_j) {
  const int lanes = kernels<T>().lanes;
  for (int i = 0; i < 4; ++i) {
    const int at = first + i / 2 * of_i + i % 2 * of_j;
    for (int l = 0; l < lanes; ++l) {
      to.re[at].add(of.high[2 * i][l]);
      to.im[at].add(of.high[2 * i + 1][l]);
      if constexpr (sizeof(T) == 8) {
        to.re[at].low += of.low[2 * i][l];
        to.im[at].low += of.low[2 * i + 1][l];
      }
    }
  }
}

lane_weights weights_at(const axis_vectors& of, std::int64_t first, bool conjugate, bool same) {
  return {{of.re[0].data() + first, of.re[1].data() + first}, {of.im[0].data() + first, of.im[1].data() + first}, conjugate, same};
}

}  // namespace

// One signal of a call. It has many members because it keeps what its steps share.
template <class T>
class whole_volume<T>::signal {
 public:
  signal(const whole_volume& of, const T* in, T* out, const transform_args& how, workspace& memory, signal_memory& mine,
         std::int64_t number, int threads, int slot)
      : v_(of),
        in_(in),
        out_(out),
        how_(how),
        memory_(memory),
        mine_(mine),
        number_(number),
        threads_(threads),
        slot_(slot),
        kernel_(kernels<T>()),
        inverse_(how.direction == direction::inverse),
        protect_(how.protection != protection::off),
        n0_(of.shape_.n[0]),
        n1_(of.shape_.n[1]),
        n2_(of.shape_.n[2]),
        width_(of.shape_.output.length[2]),
        unit_(of.shape_.input.real ? 1 : 2),
        row_(2 * of.lanes_),
        first_unit_(number * of.units_of_signal()),
        units_(of.shape_.batch * of.units_of_signal()) {
    const side& to = of.shape_.output;
    stream_ = may_stream(to, out, how, 2 * to.stride[1]) && 2 * to.stride[0] % of.lanes_ == 0;
  }

  void run() {
    if (!protect_) {
      rows();
      columns();
      return;
    }
    const auto once = [&](int number) -> std::optional<abft::finding> {
      rows();
      needs_care_ = !is_plain();
      if (needs_care_) return abft::finding{};
      columns();
      abft::finding now = judge();
      if (number > 0 || !now.judged || now.word != abft::k_pass) now.bits = hash();
      return now;
    };
    const abft::outcome ended = run::attempt(how_.seen, how_.protection, "fft.signal", std::max(slot_, 0), once);
    if (ended == abft::outcome::uncorrectable) return;
    if (needs_care_) return with_care();
    if (store()) return;
    // Either the stored copy is wrong or the parity computed with the sums. Verify the signal again, which also computes new parities.
    const auto again = [&](int number) -> std::optional<abft::finding> {
      const abft::finding failed{.word = abft::k_fail, .residual = 1, .index = number_};
      if (number == 0) return failed;
      each_column_part([](std::int64_t, scratch<T>&) {});
      const abft::finding now = judge();
      if (now.word != abft::k_pass) return now;
      return now.judged && store() ? abft::finding{} : failed;
    };
    (void)run::attempt(how_.seen, how_.protection, "fft.output", std::max(slot_, 0), again);
  }

 private:
  template <class Body>
  void each(std::int64_t tasks, Body&& body) {
    const auto one = [&](std::int64_t task, int slot) { body(task, memory_.slots.at(slot)); };
    if (slot_ >= 0 || threads_ == 1) {
      for (std::int64_t task = 0; task < tasks; ++task) one(task, std::max(slot_, 0));
    } else {
      core::parallel_for(threads_, tasks, one);
    }
  }

  // ---- Rows ----

  void rows() {
    // In an outer pass's planes the lines of axis 1 follow. They end in the work: those with an odd number of stages begin in scratch.
    const bool aside = v_.has_outer_ && v_.axis_[1]->stages() % 2 == 1;
    each(v_.parts_, [&](std::int64_t part, scratch<T>& mine) {
      T* const plane = mine_.work.data() + (n0_ > 1 ? part : 0) * v_.plane_rows_ * row_;
      const std::int64_t apart = (aside ? n1_ : v_.column_rows_) * row_;
      folded_sums folded;
      if (protect_) std::memset(&folded, 0, sizeof folded);
      double squares = 0;
      for (std::int64_t group = part * v_.groups_ / v_.parts_; group < (part + 1) * v_.groups_ / v_.parts_; ++group) {
        row_group(group, aside ? mine.spare.data() : plane, apart, mine);
        if (!protect_) continue;
        kernel_.fold_sums(mine.input, weights_at(v_.input_[1], group % v_.groups_of_plane_ * v_.lanes_, inverse_, false), folded);
        for (int l = 0; l < v_.lanes_; ++l) squares += mine.input.squares[l];
      }
      for (std::int64_t column = 0; column < (v_.has_outer_ ? v_.columns_ : 0); ++column) {
        const line<T>& transform = *v_.axis_[1];
        T* const to = plane + column * v_.column_rows_ * row_;
        const std::int64_t before = part * transform.stages(), twiddles = part * transform.twiddle_steps();
        run_line(transform, aside ? mine.spare.data() + column * apart : to, aside ? to : mine.y.data(), column_unit(column),
                 lanes_of(column), {before, twiddles, stages_of_column(), twiddles_of_column()});
      }
      if (!protect_) return;
      volume_sums& to = mine_.rows[static_cast<std::size_t>(part)] = {};
      reduce<T>(folded, to, 0, 1, 2);
      mine_.squares[static_cast<std::size_t>(part)] = squares;
    });
  }

  // Transforms W rows, in the order of memory or side by side in a tile, and puts them into columns, `apart` scalars from one to the next.
  void row_group(std::int64_t group, T* plane, std::int64_t apart, scratch<T>& mine) {
    const std::int64_t first = group % v_.groups_of_plane_ * v_.lanes_;
    const auto used = static_cast<int>(std::min<std::int64_t>(v_.lanes_, n1_ - first));
    const std::int64_t stride = unit_ * v_.shape_.input.stride[1], unit = first_unit_ + group;
    const signals_of<T> from{in_ + unit_ * (group / v_.groups_of_plane_) * v_.shape_.input.stride[0] + first * stride, stride, used, n2_};
    T* const to = plane + first * row_;
    if (v_.axis_[2]->along() != nullptr) {
      const T* const done = rows_along(from, unit, mine);
      for (std::int64_t column = 0; column < v_.columns_; ++column)
        kernel_.load_columns(done + column * row_, 2 * n2_, lanes_of(column), used, to + column * apart, {.parity = false});
    } else {
      const T* const done = rows_of_tile(from, unit, mine);
      for (std::int64_t column = 0; column < v_.columns_; ++column)
        kernel_.load_blocks(done + column * v_.lanes_ * row_, row_, lanes_of(column), used, to + column * apart, nullptr, 0,
                            {.parity = false});
    }
  }

  // The sums and the transform each load the input.
  const T* rows_along(const signals_of<T>& from, std::int64_t unit, scratch<T>& mine) {
    const along_line<T>& along = *v_.axis_[2]->along();
    if (protect_) {
      kernel_.encode_signals(from, along.input_weights(inverse_), mine.input, {});
      strike_sums(mine.input, from.used, unit);
    }
    T* const done = mine.y.data();
    short_call<T> call;
    call.from = from;
    call.to = done;
    call.to_stride = 2 * n2_;
    call.work = mine.x.data();
    call.swapped = inverse_;
    bool strikes = false;
    const auto strike = [&](inject::site where, std::int64_t step, T* data, std::int64_t scalars) {
      if (where == site::intermediate) return;
      how_.injector.strike(where, position(unit, step, where == site::stage ? along.stages() : along.twiddle_steps()), data, scalars);
    };
    core::vector<T> struck;
    if constexpr (inject::active_injector::enabled) {
      strikes = how_.injector.armed(site::twiddle) || how_.injector.armed(site::stage);
      if (how_.injector.armed(site::input)) {
        for (int l = 0; l < from.used; ++l) struck.insert(struck.end(), from.base + l * from.stride, from.base + l * from.stride + 2 * n2_);
        how_.injector.strike(site::input, position(unit), struck.data(), from.used * 2 * n2_);
        call.from.base = struck.data();
        call.from.stride = 2 * n2_;
      }
    }
    along.run(call, strikes, strike);
    how_.injector.strike(site::output, position(unit), done, from.used * 2 * n2_);
    return done;
  }

  const T* rows_of_tile(const signals_of<T>& from, std::int64_t unit, scratch<T>& mine) {
    const line<T>& transform = *v_.axis_[2];
    const encoder<T> encode = protect_ ? transform.input_weights(inverse_, &mine.input) : encoder<T>{.parity = false};
    const std::uint64_t source = kernel_.load_rows(from.base, from.stride, from.used, unit_ * n2_, mine.x.data(), encode);
    if (protect_) {
      // A sum that is NaN fails: the encoded numbers differ from the source.
      if (source != parity_of(mine.input)) std::fill_n(mine.input.high[0], v_.lanes_, std::numeric_limits<double>::quiet_NaN());
      strike_sums(mine.input, from.used, unit);
    }
    strike_rows(how_.injector, site::input, position(unit), mine.x.data(), row_, transform.rows_in(), from.used);
    T* const done =
        run_line(transform, mine.x.data(), mine.y.data(), unit, from.used, {0, 0, transform.stages(), transform.twiddle_steps()});
    strike_rows(how_.injector, site::output, position(unit), done, row_, width_, from.used);
    return done;
  }

  // ---- Columns ----

  void columns() {
    each_column_part([&](std::int64_t column, scratch<T>& mine) {
      strike_work(column);
      v_.has_outer_ ? outer_column(column, mine) : inner_column(column, mine);
      if (!protect_ && stream_) hwy::FlushStream();
    });
  }

  // Strikes the numbers that wait in a column, plane by plane.
  void strike_work(std::int64_t column) {
    for (std::int64_t plane = 0; plane < n0_; ++plane) {
      T* const from = work_of(column) + plane * v_.plane_rows_ * row_;
      strike_rows(how_.injector, site::intermediate, {number_ * v_.columns_ + column, v_.shape_.batch * v_.columns_, plane, n0_}, from,
                  row_, n1_, lanes_of(column));
      strike_rows(how_.injector, site::input, position(column_unit(column), plane, n0_), from, row_, n1_, lanes_of(column));
    }
  }

  // The steps of a unit that come before a line, and those of the whole unit.
  struct steps {
    std::int64_t stage, twiddle, stages, twiddles;
  };
  T* run_line(const line<T>& transform, T* x, T* y, std::int64_t unit, int used, steps at, std::int64_t tiles = 1, read_ahead ahead = {}) {
    const auto strike = [&](inject::site where, std::int64_t step, T* data, std::int64_t scalars) {
      if (where == site::stage)
        strike_rows(how_.injector, where, position(unit, at.stage + step, at.stages), data, row_, scalars / row_, used);
      else if (where == site::twiddle)
        how_.injector.strike(where, position(unit, at.twiddle + step, at.twiddles), data, scalars);
    };
    return transform.run(x, y, inverse_, ahead, strike, how_.injector.armed(site::twiddle), tiles);
  }

  // Transforms axes 1 and 0 of a column.
  void inner_column(std::int64_t column, scratch<T>& mine) {
    const int used = lanes_of(column);
    const std::int64_t unit = column_unit(column);
    T* const work = work_of(column);
    T* const other = mine.y.data();
    const line<T>& second = *v_.axis_[1];
    steps at{0, 0, stages_of_column(), twiddles_of_column()};
    T* done = work;
    for (std::int64_t plane = 0; plane < n0_; plane += v_.planes_together_) {
      const std::int64_t tiles = std::min(v_.planes_together_, n0_ - plane), first = plane * n1_ * row_;
      done = run_line(second, work + first, other + first, unit, used, at, tiles) - first;
      at.stage += second.stages();
      at.twiddle += second.twiddle_steps();
    }
    if (n0_ > 1) done = run_line(*v_.axis_[0], done, done == work ? other : work, unit, used, at);
    finish(done, v_.rows_, unit, 0, 1, used);
    if (!protect_)
      for (std::int64_t piece = 0; piece < v_.pieces_; ++piece) (void)store_piece(column, piece, done + piece * n1_ * row_);
    else if (done != work)
      std::memcpy(work, done, static_cast<std::size_t>(v_.rows_ * row_) * sizeof(T));
  }

  // Transforms axis 0 of a column, a row of each plane at a time.
  void outer_column(std::int64_t column, scratch<T>& mine) {
    const int used = lanes_of(column);
    const line<T>& transform = *v_.axis_[0];
    const std::int64_t unit = column_unit(column);
    steps at{n0_ * v_.axis_[1]->stages(), n0_ * v_.axis_[1]->twiddle_steps(), stages_of_column(), twiddles_of_column()};
    // Verified results wait in their place: the line ends there.
    const bool odd = transform.stages() % 2 == 1;
    const std::int64_t width = row_ * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t piece = 0; piece < n1_; ++piece) {
      const T* const from = work_of(column) + piece * row_;
      T* const kept = protect_ ? piece_of(column, piece) : mine.y.data();
      T* const x = odd ? mine.x.data() : kept;
      kernel_.permute_rows(from, x, n0_, 1, v_.planes_.data());
      read_ahead ahead;
      if (piece + 1 < n1_) ahead = read_ahead(from + row_, n0_, width, v_.plane_rows_ * width);
      if (!protect_ && !stream_)
        ahead.then = read_ahead::of(place_of(column, piece), n0_, 2 * used * static_cast<std::int64_t>(sizeof(T)),
                                    2 * v_.shape_.output.stride[0] * static_cast<std::int64_t>(sizeof(T)));
      T* const done = run_line(transform, x, odd ? kept : mine.x.data(), unit, used, at, 1, ahead);
      at.stage += transform.stages();
      at.twiddle += transform.twiddle_steps();
      finish(done, n0_, unit, piece, n1_, used);
      if (!protect_) (void)store_piece(column, piece, done);
    }
  }

  void finish(T* done, std::int64_t rows, std::int64_t unit, std::int64_t step, std::int64_t of, int used) {
    if (how_.scale != 1) kernel_.scale_rows(done, rows, static_cast<T>(how_.scale));
    strike_rows(how_.injector, site::output, position(unit, step, of), done, row_, rows, used);
  }

  std::int64_t stages_of_column() const {
    if (v_.has_outer_) return n0_ * v_.axis_[1]->stages() + n1_ * v_.axis_[0]->stages();
    return ceil_div(n0_, v_.planes_together_) * v_.axis_[1]->stages() + (n0_ > 1 ? v_.axis_[0]->stages() : 0);
  }
  std::int64_t twiddles_of_column() const {
    if (v_.has_outer_) return n0_ * v_.axis_[1]->twiddle_steps() + n1_ * v_.axis_[0]->twiddle_steps();
    return ceil_div(n0_, v_.planes_together_) * v_.axis_[1]->twiddle_steps() + (n0_ > 1 ? v_.axis_[0]->twiddle_steps() : 0);
  }
  std::int64_t column_unit(std::int64_t column) const { return first_unit_ + v_.groups_ + column; }
  T* work_of(std::int64_t column) const { return mine_.work.data() + column * v_.column_rows_ * row_; }
  // A piece of a column as it waits for its store, and its rows.
  T* piece_of(std::int64_t column, std::int64_t piece) const {
    return (v_.has_outer_ ? mine_.done.data() + column * v_.rows_ * row_ : work_of(column)) + piece * piece_rows() * row_;
  }
  std::int64_t piece_rows() const { return v_.has_outer_ ? n0_ : n1_; }

  // Transforms or reads the columns of each part, and sums them.
  template <class Body>
  void each_column_part(Body&& body) {
    each(v_.column_parts_, [&](std::int64_t part, scratch<T>& mine) {
      folded_sums folded[2];
      if (protect_) std::memset(folded, 0, sizeof folded);
      for (std::int64_t column = part * v_.columns_ / v_.column_parts_; column < (part + 1) * v_.columns_ / v_.column_parts_; ++column) {
        body(column, mine);
        if (protect_) sum_column(column, mine, folded);
      }
      if (!protect_) return;
      volume_sums& to = mine_.columns[static_cast<std::size_t>(part)] = {};
      const int of_inner = v_.has_outer_ ? 4 : 2;
      for (int i = 0; i < (n0_ > 1 ? 2 : 1); ++i) reduce<T>(folded[i], to, i * (6 - of_inner), of_inner, 1);
    });
  }

  // Sums the pieces of a column and folds their sums with the weights of axis 2. A piece is a plane, whose sums are those of both vectors
  // of axis 1, or has axis 0 alone; folded[i] is that of vector i of the other axis.
  void sum_column(std::int64_t column, scratch<T>& mine, folded_sums (&folded)[2]) {
    const std::size_t inner = v_.has_outer_ ? 0 : 1;
    const output_sum<T> sum = v_.axis_[inner]->output_weights(inverse_, &mine.output);
    folded_sums pieces;
    if (n0_ > 1) std::memset(&pieces, 0, sizeof pieces);
    for (std::int64_t piece = 0; piece < v_.pieces_; ++piece) {
      kernel_.sum_outputs(piece_of(column, piece), piece_rows(), sum);
      mine_.parities[static_cast<std::size_t>(column * v_.pieces_ + piece)] = parity_of(mine.output);
      if (piece == 0) strike_sums(mine.output, lanes_of(column), column_unit(column));
      if (n0_ > 1) kernel_.fold_sums(mine.output, weights_at(v_.output_[1 - inner], piece, inverse_, true), pieces);
    }
    const lane_weights last = weights_at(v_.output_[2], column * v_.lanes_, inverse_, false);
    if (n0_ == 1) return kernel_.fold_sums(mine.output, last, folded[0]);
    for (int i = 0; i < 2; ++i) {
      for (int part = 0; part < 4; ++part) {
        const int from = 2 * (part / 2 * 2 + i) + part % 2;
        std::memcpy(mine.output.high[part], pieces.high[from], sizeof pieces.high[from]);
        std::memcpy(mine.output.low[part], pieces.low[from], sizeof pieces.low[from]);
      }
      kernel_.fold_sums(mine.output, last, folded[i]);
    }
  }

  // ---- Verdict ----

  bool is_plain() const {
    double squares = 0;
    for (const double each : mine_.squares) squares += each;
    return squares > abft::k_squares<T>.low && squares < abft::k_squares<T>.high;
  }

  abft::finding judge() {
    double squares = 0;
    volume_sums input, output;
    const int count = n0_ > 1 ? 8 : 4;
    for (std::int64_t part = 0; part < v_.parts_; ++part) {
      const auto at = static_cast<std::size_t>(part);
      squares += mine_.squares[at];
      const volume_sums& sums = mine_.rows[at];
      for (int i = 0; i < count; ++i) {
        if (n0_ == 1) {
          input.re[i].add(sums.re[i]);
          input.im[i].add(sums.im[i]);
          continue;
        }
        const double wr = v_.input_[0].re[i / 4][at], wi = (inverse_ ? -1 : 1) * v_.input_[0].im[i / 4][at];
        const exact_sum &re = sums.re[i % 4], &im = sums.im[i % 4];
        input.re[i].add({wr * re.high - wi * im.high, wr * re.low - wi * im.low});
        input.im[i].add({wr * im.high + wi * re.high, wr * im.low + wi * re.low});
      }
    }
    for (const volume_sums& sums : mine_.columns) {
      for (int i = 0; i < count; ++i) {
        output.re[i].add(sums.re[i]);
        output.im[i].add(sums.im[i]);
      }
    }
    const auto scale = static_cast<double>(static_cast<T>(how_.check_scale));
    const double norm = std::sqrt(squares);
    double tau[2];
    for (int copy = 0; copy < 2; ++copy)
      tau[copy] = (v_.limits_.factor[copy] * norm + v_.limits_.least[copy]) * scale + v_.output_underflow_[copy];
    how_.injector.strike(site::threshold, {number_, v_.shape_.batch, 0, 1}, tau, 2);
    const bool sound = tau[0] == tau[1] && tau[0] <= abft::k_largest<double>;
    double size[volume_sums::k_most];
    std::uint64_t word[volume_sums::k_most];
    const auto residual = [&](const exact_sum& y, const exact_sum& x) {
      return std::abs(std::fma(-scale, x.high, y.high) + std::fma(-scale, x.low, y.low));
    };
    for (int i = 0; i < count; ++i) {
      size[i] = residual(output.re[i], input.re[i]) + residual(output.im[i], input.im[i]);
      const bool pass = size[i] <= tau[0] && size[i] <= tau[1] && sound;  // false for NaN and Inf
      word[i] = !pass ? ~k_lane_pass : size[i] <= tau[1] * k_repeat_share ? k_lane_pass : k_lane_repeat;
    }
    how_.injector.strike(site::comparison, {number_, v_.shape_.batch, 0, 1}, word, count);
    how_.seen.checked(static_cast<std::uint64_t>(count));
    abft::finding now;
    std::uint64_t wrong = 0;
    for (int i = 0; i < count; ++i) wrong |= word[i] ^ k_lane_pass;
    if (wrong == 0) return now;
    // Report a sum that fails; otherwise one that must repeat with the same bits.
    int found = 0;
    const auto fails = [&](int i) { return word[i] != k_lane_pass && word[i] != k_lane_repeat; };
    while (found < count && !fails(found)) ++found;
    now.judged = found < count;
    now.word = now.judged ? abft::k_fail : abft::k_pass;
    if (!now.judged) {
      for (found = 0; word[found] == k_lane_pass;) ++found;
    }
    now.threshold = now.judged ? tau[0] : tau[0] * k_repeat_share;
    now.index = number_;
    now.residual = size[found];
    return now;
  }

  std::uint64_t hash() const {
    abft::result_hash made;
    for (std::int64_t column = 0; column < v_.columns_; ++column) {
      const T* const done = piece_of(column, 0);
      for (std::int64_t half = 0; half < 2 * v_.rows_; ++half) {
        for (int l = 0; l < lanes_of(column); ++l) made.add(done[half * v_.lanes_ + l]);
      }
    }
    return made.bits();
  }

  // ---- Store ----

  // Returns whether everything was stored and has the parity of what was verified.
  bool store() {
    std::atomic<bool> same{true};
    std::atomic<std::int64_t> stored{0};
    each(v_.columns_, [&](std::int64_t column, scratch<T>&) {
      for (std::int64_t piece = 0; piece < v_.pieces_; ++piece) {
        if (!store_piece(column, piece, piece_of(column, piece))) same = false;
        ++stored;
      }
      if (stream_) hwy::FlushStream();
    });
    return same && stored == v_.columns_ * v_.pieces_;
  }

  T* place_of(std::int64_t column, std::int64_t piece) const {
    return out_ + 2 * piece * v_.shape_.output.stride[v_.has_outer_ ? 1 : 0] + column * row_;
  }

  bool store_piece(std::int64_t column, std::int64_t piece, const T* done) {
    const int used = lanes_of(column);
    const std::uint64_t stored = kernel_.store_columns(done, piece_rows(), used, place_of(column, piece),
                                                       2 * v_.shape_.output.stride[v_.has_outer_ ? 0 : 1], stream_ && used == v_.lanes_);
    return !protect_ || stored == mine_.parities[static_cast<std::size_t>(column * v_.pieces_ + piece)];
  }

  // Transforms a signal whose norm is out of range: those with Inf, NaN, very large or very small numbers alone.
  void with_care() {
    const numbering where{{units_, 0}, first_unit_, 0};
    transform_args how = how_;
    how.threads = slot_ >= 0 ? 1 : threads_;
    (void)v_.passes_->run_part({in_, out_, where, number_, slot_}, how, memory_.passes);
  }

  // ---- Injection ----

  inject::position position(std::int64_t unit, std::int64_t step = 0, std::int64_t of = 1) const { return {unit, units_, step, of}; }

  void strike_sums(lane_sums& sums, int used, std::int64_t unit) {
    if constexpr (inject::active_injector::enabled) {
      double compact[4 * k_max_lanes];
      for (int i = 0; i < 4; ++i) std::copy_n(sums.high[i], used, compact + i * used);
      if (!how_.injector.strike(site::checksum, position(unit), compact, 4 * used)) return;
      for (int i = 0; i < 4; ++i) std::copy_n(compact + i * used, used, sums.high[i]);
    }
  }

  int lanes_of(std::int64_t column) const { return static_cast<int>(std::min<std::int64_t>(v_.lanes_, width_ - column * v_.lanes_)); }

  const whole_volume& v_;
  const T* in_;
  T* out_;
  const transform_args& how_;
  workspace& memory_;
  signal_memory& mine_;
  std::int64_t number_;
  int threads_, slot_;
  const kernel_table<T>& kernel_;
  bool inverse_, protect_;
  std::int64_t n0_, n1_, n2_, width_, unit_;  // width_: of the rows of the output; unit_: scalars of an element of the input
  std::int64_t row_, first_unit_, units_;
  bool stream_ = false, needs_care_ = false;
};

template <class T>
void whole_volume<T>::run(const void* in, void* out, const transform_args& how) const {
  memory_.lend([&](workspace& memory) {
    const bool whole = takes_whole_signals(how.threads);
    prepare(memory, how, whole ? how.threads : 1);
    const auto one = [&](std::int64_t b, int threads, int slot) {
      signal(*this, static_cast<const T*>(in) + b * (shape_.input.real ? 1 : 2) * shape_.input.distance,
             static_cast<T*>(out) + b * 2 * shape_.output.distance, how, memory,
             *memory.signals[static_cast<std::size_t>(std::max(slot, 0))], b, threads, slot)
          .run();
    };
    if (whole) {
      core::parallel_for(how.threads, shape_.batch, [&](std::int64_t b, int slot) { one(b, 1, slot); });
    } else {
      for (std::int64_t b = 0; b < shape_.batch; ++b) one(b, how.threads, -1);
    }
  });
}

template void whole_volume<float>::run(const void*, void*, const transform_args&) const;
template void whole_volume<double>::run(const void*, void*, const transform_args&) const;

}  // namespace ballast::fft::cpu
