// Transforms on the ranks of a group, and on its devices, each of which is the rank of a thread. See include/ballast/fft_group.hpp.
// Layer: algorithm, over fft::plan, group/session.hpp and group/device_threads.hpp.
#include <ballast/fft_group.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "fft/api/group_plan.hpp"
#include "fft/api/part_of_array.hpp"
#include "fft/problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "group/device_threads.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "run/attempt.hpp"
#include "run/call_scope.hpp"
#include "run/sampling.hpp"

namespace ballast::fft {

namespace {

// The divisor of n next to √n, and not above it.
std::int64_t divisor_near_root(std::int64_t n) {
  std::int64_t best = 1;
  for (std::int64_t a = 1; a <= n / a; ++a)
    if (n % a == 0) best = a;
  return best;
}

// The number of rows of the most square grid of so many ranks.
int rows_of_grid(std::size_t ranks) { return static_cast<int>(divisor_near_root(static_cast<std::int64_t>(ranks))); }

// The elements of the slowest axis of a part that are transformed before they travel: about `bytes` of the part, and one of 16 pieces at
// least. Each runs over a multiple of 16 elements of that axis if it can, so that stores along it in the new division fill 128 bytes.
template <class T>
std::int64_t piece_of(const box& part, std::int64_t bytes) {
  const std::int64_t rows = part.count[static_cast<std::size_t>(part.order[0])];
  if (bytes <= 0) return rows;
  const std::int64_t pieces = std::clamp<std::int64_t>(part.size() * static_cast<std::int64_t>(sizeof(std::complex<T>)) / bytes, 1, 16);
  const std::int64_t made = (rows + pieces - 1) / pieces;
  return std::min(rows, made < 8 ? made : (made + 15) / 16 * 16);
}

// The factors e^{−2πi a b / N} of the elements (a, b) of a box, in the order of its memory.
template <class T>
std::vector<std::complex<T>> factors_of(const box& part, std::int64_t n) {
  std::vector<std::complex<T>> made;
  made.reserve(static_cast<std::size_t>(part.size()));
  for (std::int64_t b = part.first[1]; b < part.first[1] + part.count[1]; ++b)
    for (std::int64_t a = 0; a < part.count[0]; ++a) made.push_back(std::complex<T>(root_of_unity<wide<T>>(a * b, n)));
  return made;
}

// y = x w, or x conj(w). One function for the product and its check, so that both round alike.
template <class T>
[[gnu::noinline]] void multiply_by(const std::complex<T>* x, const std::complex<T>* w, bool conjugate, std::size_t count,
                                   std::complex<T>* y) {
  for (std::size_t e = 0; e < count; ++e) y[e] = multiply(x[e], conjugate ? std::conj(w[e]) : w[e]);
}

}  // namespace

inline namespace abi_1 {

// The grid of pencils, for as many ranks.
template <class T>
void group_plan<T>::implementation::choose_grid() {
  std::array<int, 2>& grid = how.grid;
  if (how.division == division::pencils) {
    if (shape.size() != 3)
      throw invalid_argument_error(
          fmt::format("{}: division: expected three dimensions for pencils, got {}", token, one_dimension ? 1 : shape.size()));
    if (grid == std::array<int, 2>{}) grid = {rows_of_grid(ranks), static_cast<int>(ranks) / rows_of_grid(ranks)};
    if (grid[0] < 1 || grid[1] < 1 || static_cast<std::int64_t>(grid[0]) * grid[1] != static_cast<std::int64_t>(ranks))
      throw invalid_argument_error(
          fmt::format("{}: grid: expected rows times columns to be {} ranks, got {} and {}", token, ranks, grid[0], grid[1]));
  } else if (grid != std::array<int, 2>{}) {
    throw invalid_argument_error(fmt::format("{}: grid: expected none for slabs, got {} × {}", token, grid[0], grid[1]));
  }
}

// The steps of a forward transform, and the boxes.
template <class T>
void group_plan<T>::implementation::divide() {
  lengths all = {1, 1, 1};
  std::ranges::copy(shape, all.begin());
  const auto parts = static_cast<std::int64_t>(ranks);
  lengths half = all;
  const std::size_t halved = one_dimension ? 0 : shape.size() - 1;
  if (how.real) half[halved] = half[halved] / 2 + 1;
  if (one_dimension) {
    const auto rows = [&](const lengths& of) { return division_of_array{.shape = of, .order = {0, 1, 2}, .rows_axis = 0, .rows = parts}; };
    const auto columns = [&](const lengths& of) {
      return division_of_array{.shape = of, .order = {1, 0, 2}, .rows_axis = 1, .rows = parts};
    };
    steps = {{columns(half), {0}}, {rows(half), {1}}};
    if (how.order == result_order::natural) natural = columns(half);
    of_data = rows(all);
    of_real = columns(all);
    data = of_data.of(place);
    spectrum = natural ? natural->of(place) : steps[1].divided.of(place);
    return;
  }
  const auto divided = [&](std::array<int, 3> order, int rows_axis, int columns_axis, std::int64_t grid_rows, std::int64_t grid_columns) {
    return division_of_array{half, order, rows_axis, columns_axis, grid_rows, grid_columns};
  };
  const std::array<int, 3> row_major = {0, 1, 2}, turned = {1, 2, 0};
  if (shape.size() == 2) {
    steps = {{divided(row_major, 0, -1, parts, 1), {1}}, {divided({1, 0, 2}, 1, -1, parts, 1), {0}}};
  } else if (how.division == division::slabs) {
    steps = {{divided(row_major, 0, -1, parts, 1), {1, 2}}, {divided(turned, 1, -1, parts, 1), {0}}};
  } else {
    const std::int64_t r = how.grid[0], c = how.grid[1];
    steps = {{divided(row_major, 0, 1, r, c), {2}}, {divided({0, 2, 1}, 0, 2, r, c), {1}}, {divided(turned, 1, 2, r, c), {0}}};
  }
  if (how.order == result_order::natural) natural = steps[0].divided;
  of_data = steps[0].divided;
  of_data.shape = all;
  of_real = of_data;
  data = of_data.of(place);
  spectrum = natural ? natural->of(place) : steps.back().divided.of(place);
}

template <class T>
void group_plan<T>::implementation::plan_lines(std::int64_t piece_bytes) {
  execution alone = where;
  alone.group = {};
  for (std::size_t s = 0; s < steps.size(); ++s) {
    group_step& each = steps[s];
    const box part = each.divided.of(place);
    if (part.size() == 0) continue;
    const bool real = how.real && s == 0;
    fft::problem lines{.kind = real ? kind::r2c : kind::c2c, .precision = precision_of<T>, .norm = how.norm};
    std::int64_t points = 1;
    for (const int axis : each.axes) {
      points *= part.count[static_cast<std::size_t>(axis)];
      lines.shape.push_back(real ? shape[static_cast<std::size_t>(axis)] : part.count[static_cast<std::size_t>(axis)]);
    }
    each.rows = part.count[static_cast<std::size_t>(part.order[0])];
    each.piece = piece_of<T>(part, piece_bytes);
    const auto plan = [&](std::int64_t rows, line_plans& to) {
      lines.batch = part.size() / each.rows * rows / points;
      lines.kind = real ? kind::r2c : kind::c2c;
      to.lines.emplace(lines, alone);
      if (!real) return;
      lines.kind = kind::c2r;
      to.spectra.emplace(lines, alone);
    };
    plan(each.rows, each.all);
    if (each.piece == each.rows) continue;
    plan(each.piece, each.of_piece);
    if (each.rows % each.piece != 0) plan(each.rows % each.piece, each.of_rest);
  }
  if (!one_dimension || streams != nullptr) return;  // devices have tables of their own
  const box part = steps[0].divided.of(place);
  factors = factors_of<T>(part, shape[0] * shape[1]);
  twin = factors_of<T>(part, shape[0] * shape[1]);
}

template <class T>
pending_report group_plan<T>::implementation::enqueue_lines(const group_step& which, const line_plans& by, std::int64_t first,
                                                            std::int64_t count, bool forward, const void* in, void* out,
                                                            void* stream) const {
  const call now{.stream = stream, .throw_on_uncorrectable = false};
  const auto part = [&]<class Number>(Number* all, const box& of) {
    const std::int64_t row = of.size() / which.rows;
    return std::span(all + first * row, static_cast<std::size_t>(count * row));
  };
  const box complex_box = which.divided.of(place), real_box = of_real.of(place);
  if (by.spectra && forward)
    return by.lines->enqueue_forward(part(static_cast<const T*>(in), real_box), part(static_cast<std::complex<T>*>(out), complex_box), now);
  const auto from = part(static_cast<const std::complex<T>*>(in), complex_box);
  if (by.spectra) return by.spectra->enqueue_inverse(from, part(static_cast<T*>(out), real_box), now);
  const auto to = part(static_cast<std::complex<T>*>(out), complex_box);
  return forward ? by.lines->enqueue_forward(from, to, now) : by.lines->enqueue_inverse(from, to, now);
}

// Transforms the lines of a step; of the first one of real data real numbers into complex ones, or back.
template <class T>
report group_plan<T>::implementation::run_lines(const group_step& which, bool forward, const void* in, void* out) const {
  const box part = which.divided.of(place);
  const call silent = {.throw_on_uncorrectable = false};
  const auto complex_size = static_cast<std::size_t>(part.size());
  const auto real_size = static_cast<std::size_t>(of_real.of(place).size());
  const auto& [lines, spectra] = which.all;
  if (spectra && forward)
    return lines->forward(std::span(static_cast<const T*>(in), real_size), std::span(static_cast<std::complex<T>*>(out), complex_size),
                          silent);
  const std::span from(static_cast<const std::complex<T>*>(in), complex_size);
  if (spectra) return spectra->inverse(from, std::span(static_cast<T*>(out), real_size), silent);
  const std::span to(static_cast<std::complex<T>*>(out), complex_size);
  return forward ? lines->forward(from, to, silent) : lines->inverse(from, to, silent);
}

// A hash of the arguments that all ranks must have alike.
template <class T>
std::uint64_t group_plan<T>::implementation::digest(bool forward) const {
  abft::result_hash made;
  for (const std::int64_t each : shape) made.add(each);
  for (const int each :
       {one_dimension ? 1 : 0, forward ? 1 : 0, how.real ? 1 : 0, static_cast<int>(how.division), static_cast<int>(how.order),
        static_cast<int>(how.norm), how.grid[0], how.grid[1], static_cast<int>(sizeof(T)), static_cast<int>(where.protection)})
    made.add(static_cast<std::int64_t>(each));
  return made.bits();
}

}  // namespace abi_1

namespace {

// A call on one rank: the data between two steps, and what moves them on.
template <class T>
class call_of_plan {
 public:
  using implementation = typename group_plan<T>::implementation;
  call_of_plan(const implementation& of, bool forward, const void* in, wire::exchange& over, run::recorder& seen, protection wanted,
               inject::active_injector& injector)
      : of_(of), forward_(forward), from_(in), over_(over), seen_(seen), wanted_(wanted), injector_(injector) {}

  // Runs the steps of the forward transform, or of the inverse: the same the other way round.
  void run() {
    const std::vector<group_step>& steps = of_.steps;
    if (forward_) {
      if (of_.one_dimension && of_.how.real)
        turn(of_.of_data, of_.of_real, real_, other_real_);
      else if (of_.one_dimension)
        turn(of_.of_data, steps[0].divided, here_, there_);
      for (std::size_t s = 0; s < steps.size(); ++s) {
        if (s > 0) turn(steps[s - 1].divided, steps[s].divided, here_, there_);
        along(steps[s]);
        if (of_.one_dimension && s == 0) multiply_factors();
      }
      if (of_.natural) turn(steps.back().divided, *of_.natural, here_, there_);
      return;
    }
    if (of_.natural) turn(*of_.natural, steps.back().divided, here_, there_);
    for (std::size_t s = steps.size(); s-- > 0;) {
      if (of_.one_dimension && s == 0) multiply_factors();
      along(steps[s]);
      if (s > 0) turn(steps[s].divided, steps[s - 1].divided, here_, there_);
    }
    if (of_.one_dimension && of_.how.real)
      turn(of_.of_real, of_.of_data, real_, other_real_);
    else if (of_.one_dimension)
      turn(steps[0].divided, of_.of_data, here_, there_);
  }

  // The data after the last step.
  const void* result() const { return from_; }
  // The report of the lines.
  const report& lines() const { return lines_; }

 private:
  // The next step reads the data in there_.
  void move_on() {
    here_.swap(there_);
    from_ = here_.data();
  }

  // Exchanges the data into another division; they are in `here` then.
  template <class Element>
  void turn(const division_of_array& was, const division_of_array& becomes, std::vector<Element>& here, std::vector<Element>& there) {
    there.resize(static_cast<std::size_t>(becomes.of(of_.place).size()));
    exchange_of_boxes<Element>(was, becomes, over_).run(static_cast<const Element*>(from_), there.data(), seen_, wanted_, injector_);
    here.swap(there);
    from_ = here.data();
  }

  void along(const group_step& which) {
    const bool to_real = which.all.spectra && !forward_;
    if (to_real) {
      real_.resize(static_cast<std::size_t>(of_.of_real.of(of_.place).size()));
    } else {
      there_.resize(static_cast<std::size_t>(which.divided.of(of_.place).size()));
    }
    if (which.all.lines) {
      const report part = of_.run_lines(which, forward_, from_, to_real ? static_cast<void*>(real_.data()) : there_.data());
      lines_.backend = part.backend;
      lines_.scheme = part.scheme;
      lines_.merge(part);
    }
    if (to_real) {
      from_ = real_.data();
    } else {
      move_on();
    }
  }

  void multiply_factors();

  const implementation& of_;
  bool forward_;
  const void* from_;
  wire::exchange& over_;
  run::recorder& seen_;
  protection wanted_;
  inject::active_injector& injector_;
  std::vector<std::complex<T>> here_, there_;
  std::vector<T> real_, other_real_;
  report lines_;
};

// Multiplies by the factors between the two steps of one dimension. The product is made again with the other table and must have the same
// bits. A repetition makes both tables anew: one of them may be damaged.
template <class T>
void call_of_plan<T>::multiply_factors() {
  const std::vector<std::complex<T>>& x = here_;
  constexpr std::size_t chunk = 512;
  std::vector<std::complex<T>> first, second;
  there_.resize(x.size());
  std::vector<std::complex<T>>& y = there_;
  const bool conjugate = !forward_;
  const auto once = [&](int number) {
    if (number > 0) {
      const box part = of_.steps[0].divided.of(of_.place);
      first = factors_of<T>(part, of_.shape[0] * of_.shape[1]);
      second = factors_of<T>(part, of_.shape[0] * of_.shape[1]);
    }
    const std::vector<std::complex<T>>& w = number > 0 ? first : of_.factors;
    const std::vector<std::complex<T>>& again = number > 0 ? second : of_.twin;
    multiply_by(x.data(), w.data(), conjugate, x.size(), y.data());
    if constexpr (inject::active_injector::enabled)
      (void)injector_.strike(site::product, {}, reinterpret_cast<T*>(y.data()), 2 * static_cast<std::int64_t>(y.size()));
    abft::finding found;
    found.residual = std::numeric_limits<double>::quiet_NaN();
    if (wanted_ == protection::off) return found;
    std::complex<T> expected[chunk];
    for (std::size_t begin = 0; begin < x.size(); begin += chunk) {
      const std::size_t count = std::min(chunk, x.size() - begin);
      multiply_by(x.data() + begin, again.data() + begin, conjugate, count, expected);
      for (std::size_t e = 0; e < count; ++e) {
        const std::complex<T> a = y[begin + e], b = expected[e];
        if (abft::hashed_word(a.real()) == abft::hashed_word(b.real()) && abft::hashed_word(a.imag()) == abft::hashed_word(b.imag()))
          continue;
        found.word = abft::k_fail;
        found.index = static_cast<std::int64_t>(begin + e);
      }
    }
    seen_.checked(x.size());
    return found;
  };
  if (wanted_ == protection::off) {
    (void)once(0);
  } else {
    (void)run::attempt(seen_, wanted_, "group.twiddle", 0, once);
  }
  move_on();
}

}  // namespace

inline namespace abi_1 {

// The plan of one device.
template <class T>
const typename group_plan<T>::implementation& group_plan<T>::implementation::of_device(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= devices.size())
    throw invalid_argument_error(
        fmt::format("{}: device: expected one of the {} of a group of devices, got {}", token, devices.size(), device));
  return devices[static_cast<std::size_t>(device)];
}

template <class T>
template <class In, class Out>
void group_plan<T>::implementation::check_kind() const {
  constexpr bool takes_real = std::is_same_v<In, T> || std::is_same_v<Out, T>;
  if (how.real != takes_real)
    throw invalid_argument_error(
        fmt::format("{}: expected {} data, got {} ones", token, how.real ? "real" : "complex", takes_real ? "real" : "complex"));
}

template <class T>
template <class In, class Out>
void group_plan<T>::implementation::check_operands(bool forward, std::span<const In> in, std::span<Out> out) const {
  check_kind<In, Out>();
  const auto in_size = static_cast<std::size_t>((forward ? data : spectrum).size());
  const auto out_size = static_cast<std::size_t>((forward ? spectrum : data).size());
  if (in.size() != in_size || out.size() != out_size)
    throw invalid_argument_error(
        fmt::format("{}: expected {} numbers in and {} out, got {} and {}", token, in_size, out_size, in.size(), out.size()));
}

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
      call_of_plan<T> running(*this, forward, in.data(), over, seen, given.protection, injector);
      running.run();
      report all = seen.collect();
      all.merge(running.lines());
      all.backend = running.lines().backend;
      all.scheme = running.lines().scheme;
      report joined = wire::joined(over, all);
      // All ranks know the verdict now.
      if (joined.verdict == verdict::uncorrectable || out.empty()) return joined;
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
template <class T>
template <class In, class Out>
report group_plan<T>::implementation::transform(bool forward, std::span<const In> in, std::span<Out> out, const call& now) const {
  if (!devices.empty()) return transform_on_devices(forward, in, out, now);
  if (where.group.internal()->link != nullptr) return transform_on_own_device(forward, in, out, now);
  return transform_own(forward, in, out, run::settings_of(where, now), wire::exchange_of(where.group, token));
}

template <class T>
group_plan<T>::group_plan(const std::vector<std::int64_t>& shape, const execution& where, const distribution& how) {
  if (!where.group) throw invalid_argument_error("fft: group: expected one whose ranks have the data, got none");
  const fft::problem whole{.kind = how.real ? kind::r2c : kind::c2c, .precision = precision_of<T>, .shape = shape, .norm = how.norm};
  auto made = std::make_shared<implementation>();
  made->token = to_token(whole, direction::forward);
  (void)resolve(whole);
  run::check_protection(where, made->token, false);
  made->one_dimension = shape.size() == 1;
  if (how.real && made->one_dimension && how.order == result_order::natural)
    throw unsupported_error(
        fmt::format("{}: group: expected a transposed spectrum of real data of one dimension, got natural order", made->token));
  made->shape = shape;
  if (made->one_dimension) {
    const std::int64_t a = divisor_near_root(shape[0]);
    made->shape = {a, shape[0] / a};
  }
  made->how = how;
  made->where = where;
  if (wire::on_devices(where)) {
    wire::check_execution_on_devices(where, made->token);
    const std::size_t count = where.group.internal()->devices.size();
    wire::device_threads threads(where.group, count);
    const run::settings given = run::settings_of(where);
    const implementation one = *made;
    const std::int64_t pieces = where.group.internal()->piece_bytes;
    made->devices.resize(count, one);
    threads.run(made->token, [&](std::size_t p) {
      implementation& each = made->devices[p];
      const run::settings own = threads.settings_of(given, p);
      const inject::scope faults(own.faults);
      each.where = own.where();
      each.where.group = {};
      each.place = p;
      each.ranks = count;
      each.choose_grid();
      each.divide();
      const ballast::cuda::device_scope on(threads.device(p));
      each.make_streams();
      each.plan_lines(pieces);
    });
    if (how.division == division::pencils) made->how.grid = {1, 1};
  } else {
    const wire::exchange& over = wire::exchange_of(where.group, made->token);
    made->place = over.place();
    made->ranks = over.size();
    made->choose_grid();
    if (const auto& link = where.group.internal()->link; link != nullptr) {
      wire::check_execution_on_devices(where, made->token);
      made->where.backend = ballast::backend::cuda;
      made->where.device = link->device_number();
      const ballast::cuda::device_scope on(link->device_number());
      made->make_streams();
    }
  }
  made->divide();
  if (made->devices.empty()) made->plan_lines(0);
  implementation_ = std::move(made);
}

template <class T>
std::vector<std::int64_t> group_plan<T>::shape() const {
  return implementation_->shape;
}
template <class T>
box group_plan<T>::data() const {
  return implementation_->data;
}
template <class T>
box group_plan<T>::spectrum() const {
  return implementation_->spectrum;
}
template <class T>
box group_plan<T>::data_of(int device) const {
  return implementation_->of_device(device).data;
}
template <class T>
box group_plan<T>::spectrum_of(int device) const {
  return implementation_->of_device(device).spectrum;
}

template <class T>
report group_plan<T>::forward(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now) const {
  return implementation_->transform(true, in, out, now);
}
template <class T>
report group_plan<T>::forward(std::span<const T> in, std::span<std::complex<T>> out, const call& now) const {
  return implementation_->transform(true, in, out, now);
}
template <class T>
report group_plan<T>::inverse(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now) const {
  return implementation_->transform(false, in, out, now);
}
template <class T>
report group_plan<T>::inverse(std::span<const std::complex<T>> in, std::span<T> out, const call& now) const {
  return implementation_->transform(false, in, out, now);
}

template <class T>
report group_plan<T>::forward_divided(std::span<const std::span<const std::complex<T>>> in, std::span<const std::span<std::complex<T>>> out,
                                      const call& now) const {
  return implementation_->transform_divided(true, in, out, now);
}
template <class T>
report group_plan<T>::forward_divided(std::span<const std::span<const T>> in, std::span<const std::span<std::complex<T>>> out,
                                      const call& now) const {
  return implementation_->transform_divided(true, in, out, now);
}
template <class T>
report group_plan<T>::inverse_divided(std::span<const std::span<const std::complex<T>>> in, std::span<const std::span<std::complex<T>>> out,
                                      const call& now) const {
  return implementation_->transform_divided(false, in, out, now);
}
template <class T>
report group_plan<T>::inverse_divided(std::span<const std::span<const std::complex<T>>> in, std::span<const std::span<T>> out,
                                      const call& now) const {
  return implementation_->transform_divided(false, in, out, now);
}

template class group_plan<float>;
template class group_plan<double>;
#define BALLAST_CALLS(T, In, Out)                                                                                               \
  template void group_plan<T>::implementation::check_kind<In, Out>() const;                                                     \
  template void group_plan<T>::implementation::check_operands(bool, std::span<const In>, std::span<Out>) const;                 \
  template report group_plan<T>::implementation::transform_own(bool, std::span<const In>, std::span<Out>, const run::settings&, \
                                                               wire::exchange&) const;
BALLAST_CALLS(float, std::complex<float>, std::complex<float>)
BALLAST_CALLS(float, float, std::complex<float>)
BALLAST_CALLS(float, std::complex<float>, float)
BALLAST_CALLS(double, std::complex<double>, std::complex<double>)
BALLAST_CALLS(double, double, std::complex<double>)
BALLAST_CALLS(double, std::complex<double>, double)
#undef BALLAST_CALLS

}  // namespace abi_1
}  // namespace ballast::fft
