// Transforms on the ranks of a group: the plans of their lines, and a call of one rank. See include/ballast/fft_group.hpp.
// Layer: algorithm, over fft::plan, rank_exchange.hpp and group/session.hpp.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft_group.hpp>

#include "abft/seal.hpp"
#include "core/aligned_buffer.hpp"
#include "core/format.hpp"
#include "core/idle_pool.hpp"
#include "fft/api/group_plan.hpp"
#include "fft/api/part_of_array.hpp"
#include "fft/api/rank_exchange.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "group/session.hpp"
#include "run/attempt.hpp"

namespace ballast::fft {

namespace {

// The factors e^{−2πi a b / N} of the elements (a, b) of a box, in the order of its memory.
template <class T>
std::vector<std::complex<T>> factors_of(const box& part, std::int64_t n) {
  std::vector<std::complex<T>> made(static_cast<std::size_t>(part.size()));
  const places at(part);
  for (std::int64_t a = 0; a < part.count[0]; ++a)
    for (std::int64_t b = 0; b < part.count[1]; ++b)
      made[static_cast<std::size_t>(a * at.stride(0) + b * at.stride(1))] =
          std::complex<T>(root_of_unity<wide<T>>((part.first[0] + a) * (part.first[1] + b), n));
  return made;
}

// y = x w, or x conj(w). One function for the product and its check, so that both round alike.
template <class T>
[[gnu::noinline]] void multiply_by(const std::complex<T>* x, const std::complex<T>* w, bool conjugate, std::size_t count,
                                   std::complex<T>* y) {
  for (std::size_t e = 0; e < count; ++e) y[e] = multiply(x[e], conjugate ? std::conj(w[e]) : w[e]);
}

template <class T>
bool same_bits(const std::complex<T>& a, const std::complex<T>& b) {
  return abft::hashed_word(a.real()) == abft::hashed_word(b.real()) && abft::hashed_word(a.imag()) == abft::hashed_word(b.imag());
}

// So much of a buffer, which grows if it has to.
template <class Element>
Element* memory_of(core::aligned_buffer<std::byte>& buffer, std::int64_t elements) {
  const std::int64_t bytes = core::checked_product(elements, sizeof(Element));
  if (buffer.size() < bytes) {
    buffer = {};
    buffer = core::large_buffer<std::byte>(bytes);
  }
  return reinterpret_cast<Element*>(buffer.data());
}

bool goes_along(const group_step& step, int axis) { return std::ranges::find(step.axes, axis) != step.axes.end(); }

box first_of(box part, int cut, std::int64_t count) {
  part.count[static_cast<std::size_t>(cut)] = count;
  return part;
}

}  // namespace

inline namespace abi_1 {

// The plan of the lines of `count` elements along the cut of a part. `real`: one side is. They are read where they lie in the part; if they
// travel, they are stored without gaps, and otherwise at their place in the result.
template <class T>
fft::plan group_plan<T>::implementation::plan_of(const rank_lines& which, const group_step& step, std::int64_t count, bool real,
                                                 bool forward) const {
  const places from(which.from, which.pad), to(which.turn ? first_of(which.to, which.cut, count) : which.to);
  fft::problem lines{.kind = !real ? kind::c2c : forward ? kind::r2c : kind::c2r, .precision = precision_of<T>, .norm = how.norm};
  const box& longer = real && !forward ? which.to : which.from;
  for (const int axis : step.axes) {
    lines.shape.push_back(longer.count[static_cast<std::size_t>(axis)]);
    lines.input.strides.push_back(from.stride(axis));
    lines.output.strides.push_back(to.stride(axis));
  }
  const box part = first_of(which.from, which.cut, count);
  for (const int axis : loops_of(part))
    if (!goes_along(step, axis)) lines.loops.push_back({part.count[static_cast<std::size_t>(axis)], from.stride(axis), to.stride(axis)});
  const loop last = lines.loops.back();
  lines.loops.pop_back();
  lines.batch = last.count;
  lines.input.distance = last.input;
  lines.output.distance = last.output;
  execution alone = where;
  alone.group = {};
  return fft::plan(lines, alone);
}

// The lines of a step in one direction, and what follows. `turned`: the data come from an exchange.
template <class T>
rank_lines group_plan<T>::implementation::lines_of(std::size_t step, bool forward, bool turned, std::int64_t block_bytes) const {
  const group_step& lines = steps[step];
  const bool real = how.real && step == 0;
  const division_of_array& complex_from = forward ? lines.divided : lines.stored;
  const division_of_array& complex_to = forward ? lines.stored : lines.divided;
  const division_of_array& to = real && !forward ? of_real : complex_to;
  rank_lines made;
  made.from = (real && forward ? of_real : complex_from).of(place);
  made.to = to.of(place);
  if (turned && goes_along(lines, made.from.order[0]))
    made.pad = real && forward ? pad_of<T>(made.from) : pad_of<std::complex<T>>(made.from);
  made.cut = goes_along(lines, 0) ? 1 : 0;
  const division_of_array* next = nullptr;
  if (forward)
    next = step + 1 < steps.size() ? &steps[step + 1].divided : natural ? &*natural : nullptr;
  else
    next = step > 0 ? &steps[step - 1].stored : one_dimension ? &of_data : nullptr;
  const auto width = static_cast<std::int64_t>(real && !forward ? sizeof(T) : sizeof(std::complex<T>));
  if (next != nullptr) made.turn = turn_between(to, *next, made.cut, ranks, width, block_bytes);
  const std::int64_t rows = made.from.count[static_cast<std::size_t>(made.cut)];
  made.piece = made.turn ? made.turn->length : rows;
  if (made.from.size() == 0) return made;
  made.piece_elements = first_of(made.to, made.cut, std::min(made.piece, rows)).size();
  if (rows >= made.piece) made.of_piece.emplace(plan_of(made, lines, made.piece, real, forward));
  if (rows % made.piece != 0) made.of_rest.emplace(plan_of(made, lines, rows % made.piece, real, forward));
  return made;
}

template <class T>
void group_plan<T>::implementation::plan_ways(std::int64_t block_bytes) {
  const auto turn = [&](const division_of_array& was, const division_of_array& becomes, bool real) {
    const auto width = static_cast<std::int64_t>(real ? sizeof(T) : sizeof(std::complex<T>));
    return turn_between(was, becomes, was.order[0], ranks, width, block_bytes);
  };
  for (const bool forward : {true, false}) {
    rank_way& way = ways[forward ? 0 : 1];
    if (forward && one_dimension)
      way.first = turn(of_data, how.real ? of_real : steps[0].divided, how.real);
    else if (!forward && natural)
      way.first = turn(*natural, steps.back().stored, false);
    for (std::size_t i = 0; i < steps.size(); ++i)
      way.steps.push_back(lines_of(forward ? i : steps.size() - 1 - i, forward, i > 0 || way.first, block_bytes));
  }
  if (!one_dimension) return;
  const box part = steps[0].stored.of(place);
  factors = factors_of<T>(part, shape[0] * shape[1]);
  twin = factors_of<T>(part, shape[0] * shape[1]);
}

}  // namespace abi_1

namespace {

// A call on one rank: the data between two steps, and what moves them on.
template <class T>
class call_of_plan {
 public:
  using implementation = typename group_plan<T>::implementation;
  using complex = std::complex<T>;
  call_of_plan(const implementation& of, bool forward, const void* in, void* out, rank_memory& memory, wire::exchange& over,
               run::recorder& seen, protection wanted, inject::active_injector& injector)
      : of_(of),
        way_(of.ways[forward ? 0 : 1]),
        forward_(forward),
        from_(in),
        out_(out),
        memory_(memory),
        over_(over),
        seen_(seen),
        wanted_(wanted),
        injector_(injector) {}

  // Runs the steps. Lines that no exchange follows store to the result. It ends early, on all ranks, if something is uncorrectable on one.
  void run() {
    const std::size_t steps = way_.steps.size();
    const auto pad_before = [&](std::size_t step) { return step < steps ? way_.steps[step].pad : 0; };
    const bool real_lines = of_.how.real;
    if (way_.first) {
      if (real_lines && forward_)
        travel_as_it_lies<T>(*way_.first, pad_before(0));
      else
        travel_as_it_lies<complex>(*way_.first, pad_before(0));
    }
    for (std::size_t i = 0; i < steps && !stopped_; ++i) {
      const rank_lines& lines = way_.steps[i];
      const bool last = i + 1 == steps;
      const bool from_real = real_lines && forward_ && i == 0, to_real = real_lines && !forward_ && last;
      if (of_.one_dimension && !forward_ && last) multiply_array(lines);
      const auto transform = [&](std::int64_t piece, std::int64_t count, void* to) {
        if (from_real)
          transform_lines<T, complex>(lines, piece, count, to);
        else if (to_real)
          transform_lines<complex, T>(lines, piece, count, to);
        else
          transform_lines<complex, complex>(lines, piece, count, to);
      };
      if (!lines.turn) {
        transform(0, lines.piece, out_);
        stored_ = true;
      } else if (to_real) {
        travel_from_lines<T>(lines, pad_before(i + 1), transform, false);
      } else {
        travel_from_lines<complex>(lines, pad_before(i + 1), transform, of_.one_dimension && forward_ && i == 0);
      }
    }
  }

  // The data after the last step, unless they have been stored.
  const void* result() const { return stored_ ? nullptr : from_; }
  // The report of the lines.
  const report& lines() const { return lines_; }

 private:
  // Transforms `count` elements along the cut of the part, those of piece `piece`.
  template <class In, class Out>
  void transform_lines(const rank_lines& lines, std::int64_t piece, std::int64_t count, void* to) {
    const std::optional<fft::plan>& plan = count == lines.piece ? lines.of_piece : lines.of_rest;
    if (!plan) return;  // nothing lies here
    const places source(lines.from, lines.pad), target(lines.turn ? first_of(lines.to, lines.cut, count) : lines.to);
    const std::int64_t begin = piece * lines.piece * source.stride(lines.cut);
    const std::span in(static_cast<const In*>(from_) + begin, static_cast<std::size_t>(source.extent() - begin));
    const std::span out(static_cast<Out*>(to), static_cast<std::size_t>(target.extent()));
    const call silent = {.throw_on_uncorrectable = false};
    report part;
    if constexpr (std::is_same_v<In, T>)
      part = plan->forward(in, out, silent);
    else if constexpr (std::is_same_v<Out, T>)
      part = plan->inverse(in, out, silent);
    else
      part = forward_ ? plan->forward(in, out, silent) : plan->inverse(in, out, silent);
    lines_.backend = part.backend;
    lines_.scheme = part.scheme;
    lines_.merge(part);
  }

  // Exchanges the data into another division. source(number, piece) returns where a piece lies.
  template <class Element, class Source>
  void travel(const turn_of_array& turn, std::int64_t pad, Source&& source) {
    const places there(turn.becomes.of(of_.place), pad);
    auto* const to = memory_of<Element>(memory_.arrays[free_], there.extent());
    const bool verify = wanted_ != protection::off;
    const auto once = [&](int) -> std::optional<abft::finding> {
      exchange_of_boxes<Element> running(turn, over_, to, there, verify, injector_);
      for (std::int64_t number = 0; number < turn.pieces; ++number) {
        const auto [from, at] = source(number, turn.piece(of_.place, number));
        running.send(number, from, at);
      }
      abft::finding found;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.word = running.finish() ? abft::k_pass : abft::k_fail;
      if (!verify) return found;
      seen_.checked(over_.size() * static_cast<std::uint64_t>(turn.pieces));
      const bool lost = seen_.uncorrectable() || lines_.verdict == verdict::uncorrectable;
      const std::int64_t own[] = {found.word == abft::k_pass ? 0 : 1, lost ? 1 : 0};
      for (const auto& each : over_.gather(std::span<const std::int64_t>(own))) {
        if (each[0] != 0) found.word = abft::k_fail;
        stopped_ = stopped_ || each[1] != 0;
      }
      if (stopped_) return std::nullopt;
      return found;
    };
    if (!verify)
      (void)once(0);
    else if (run::attempt(seen_, wanted_, "group.transpose", 0, once) == abft::outcome::uncorrectable)
      stopped_ = true;
    from_ = to;
    free_ = 1 - free_;
  }

  template <class Element>
  void travel_as_it_lies(const turn_of_array& turn, std::int64_t pad) {
    const places at(turn.was.of(of_.place));
    travel<Element>(turn, pad, [&](std::int64_t, const box& piece) {
      return std::pair(static_cast<const Element*>(from_) + (piece.size() == 0 ? 0 : at.of(piece)), at.from(piece));
    });
  }

  // The lines of a piece are transformed, and multiplied by their factors, before it travels.
  template <class Element, class Transform>
  void travel_from_lines(const rank_lines& lines, std::int64_t pad, const Transform& transform, bool with_factors) {
    auto* const made = memory_of<Element>(memory_.pieces[0], lines.piece_elements);
    [[maybe_unused]] Element* const products = with_factors ? memory_of<Element>(memory_.pieces[1], lines.piece_elements) : nullptr;
    travel<Element>(*lines.turn, pad, [&](std::int64_t number, const box& piece) {
      const places at(piece);
      if (piece.size() == 0) return std::pair(static_cast<const Element*>(made), at);
      transform(number, piece.count[static_cast<std::size_t>(lines.cut)], made);
      if constexpr (std::is_same_v<Element, complex>) {
        if (with_factors) {
          multiply_part(made, products, at, piece);
          return std::pair(static_cast<const Element*>(products), at);
        }
      }
      return std::pair(static_cast<const Element*>(made), at);
    });
  }

  // The inverse of one dimension: the factors come before the lines.
  void multiply_array(const rank_lines& lines) {
    const places at(lines.from, lines.pad);
    auto* const to = memory_of<complex>(memory_.arrays[free_], at.extent());
    multiply_part(static_cast<const complex*>(from_), to, at, lines.from);
    from_ = to;
    free_ = 1 - free_;
  }

  void multiply_part(const complex* x, complex* y, const places& at, const box& part);

  const implementation& of_;
  const rank_way& way_;
  bool forward_;
  const void* from_;
  void* out_;
  rank_memory& memory_;
  wire::exchange& over_;
  run::recorder& seen_;
  protection wanted_;
  inject::active_injector& injector_;
  std::size_t free_ = 0;  // the array that has nothing
  bool stored_ = false, stopped_ = false;
  report lines_;
};

// Multiplies by the factors between the two steps of one dimension. The product is made again with the other table and must have the same
// bits. A repetition makes both tables anew: one of them may be damaged.
template <class T>
void call_of_plan<T>::multiply_part(const complex* x, complex* y, const places& at, const box& part) {
  if (part.size() == 0) return;
  constexpr std::int64_t chunk = 512;
  const box all = of_.steps[0].stored.of(of_.place);
  const int slow = part.order[0], fast = part.order[1];
  const std::int64_t rows = part.count[static_cast<std::size_t>(slow)], columns = part.count[static_cast<std::size_t>(fast)];
  const bool conjugate = !forward_;
  std::vector<complex> first, second;
  const auto once = [&](int number) {
    if (number > 0) {
      first = factors_of<T>(part, of_.shape[0] * of_.shape[1]);
      second = factors_of<T>(part, of_.shape[0] * of_.shape[1]);
    }
    const places in_table(number > 0 ? part : all);
    const std::int64_t begin = in_table.of(part);
    const complex* const w = (number > 0 ? first.data() : of_.factors.data()) + begin;
    const complex* const again = (number > 0 ? second.data() : of_.twin.data()) + begin;
    const std::int64_t row = at.stride(slow), table_row = in_table.stride(slow);
    for (std::int64_t i = 0; i < rows; ++i)
      multiply_by(x + i * row, w + i * table_row, conjugate, static_cast<std::size_t>(columns), y + i * row);
    if constexpr (inject::active_injector::enabled)
      (void)injector_.strike(site::product, {}, reinterpret_cast<T*>(y + rows / 2 * row), 2 * columns);
    abft::finding found;
    found.residual = std::numeric_limits<double>::quiet_NaN();
    if (wanted_ == protection::off) return found;
    complex expected[chunk];
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; j += chunk) {
        const std::int64_t count = std::min(chunk, columns - j);
        multiply_by(x + i * row + j, again + i * table_row + j, conjugate, static_cast<std::size_t>(count), expected);
        for (std::int64_t e = 0; e < count; ++e) {
          if (same_bits(y[i * row + j + e], expected[e])) continue;
          found.word = abft::k_fail;
          found.index = i * columns + j + e;
        }
      }
    }
    seen_.checked(static_cast<std::uint64_t>(part.size()));
    return found;
  };
  if (wanted_ == protection::off)
    (void)once(0);
  else
    (void)run::attempt(seen_, wanted_, "group.twiddle", 0, once);
}

}  // namespace

inline namespace abi_1 {

// A call of one rank. `given` has the faults of the call.
template <class T>
template <class In, class Out>
report group_plan<T>::implementation::transform_own(bool forward, std::span<const In> in, std::span<Out> out, const run::settings& given,
                                                    wire::exchange& over) const {
  inject::plan mine, of_lines;
  split_faults(given.faults, mine, of_lines);
  const inject::scope inner(given.faults == nullptr ? nullptr : &of_lines);
  inject::active_injector injector(given.faults == nullptr ? nullptr : &mine, site::group_table());
  run::recorder seen(token, ballast::backend::automatic, "", given, injector);
  try {
    return wire::in_group(over, seen, token, [&] {
      if (over.size() != ranks)
        throw invalid_argument_error(fmt::format("{}: group: expected the {} ranks that made the plan, got {}", token, ranks, over.size()));
      check_operands(forward, in, out);
      over.expect_alike(digest(forward));
      over.check_alike();
      core::lent<rank_memory> lent(memory, [] { return rank_memory(); });
      call_of_plan<T> running(*this, forward, in.data(), out.data(), lent.get(), over, seen, given.protection, injector);
      running.run();
      report all = seen.collect();
      all.merge(running.lines());
      all.backend = running.lines().backend;
      all.scheme = running.lines().scheme;
      report joined = wire::joined(over, all);
      // All ranks know the verdict now.
      if (joined.verdict == verdict::uncorrectable || out.empty() || running.result() == nullptr) return joined;
      if (given.protection == protection::off)
        std::memcpy(out.data(), running.result(), out.size_bytes());
      else if (!copies_alike(out.data(), running.result(), out.size_bytes()))
        throw error(fmt::format("{}: expected the result's bits after it was copied to the caller, got others three times", token));
      return joined;
    });
  } catch (const wire::ranks_lost&) {
    over.regroup();
    throw rank_lost_error(wire::lost_message(over, token), over.lost());
  }
}

template void group_plan<float>::implementation::plan_ways(std::int64_t);
template void group_plan<double>::implementation::plan_ways(std::int64_t);
#define BALLAST_CALLS(T, In, Out)                                                                                               \
  template report group_plan<T>::implementation::transform_own(bool, std::span<const In>, std::span<Out>, const run::settings&, \
                                                               wire::exchange&) const;
BALLAST_EACH_PAIR_OF_OPERANDS(BALLAST_CALLS)
#undef BALLAST_CALLS

}  // namespace abi_1
}  // namespace ballast::fft
