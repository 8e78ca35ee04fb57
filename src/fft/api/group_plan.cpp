// Plans of transforms on the ranks of a group, and on its devices, each of which is the rank of a thread: divisions and steps. See
// include/ballast/fft_group.hpp.
// Layer: algorithm, over fft::plan, group/session.hpp and group/device_threads.hpp.
#include <ballast/fft_group.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "fft/api/group_plan.hpp"
#include "fft/problem.hpp"
#include "group/device_threads.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
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

// The steps of a forward transform, and the boxes. On devices an exchange stores each element at its place in the next order, so that lines
// are contiguous. On ranks an exchange copies what is contiguous on both sides: the order stays that of the data, lines are read along any
// axis, and the last ones are stored in the order of the spectrum.
template <class T>
void group_plan<T>::implementation::divide() {
  lengths all = {1, 1, 1};
  std::ranges::copy(shape, all.begin());
  const auto parts = static_cast<std::int64_t>(ranks);
  lengths half = all;
  const std::size_t halved = one_dimension ? 0 : shape.size() - 1;
  if (how.real) half[halved] = half[halved] / 2 + 1;
  const bool is_natural = how.order == result_order::natural;
  const std::array<int, 3> row_major = {0, 1, 2}, columns_first = {1, 0, 2}, turned = {1, 2, 0};
  const auto step = [&](division_of_array divided, std::vector<int> axes, const std::array<int, 3>& to) {
    division_of_array stored = divided;
    if (on_ranks) stored.order = to;
    steps.push_back({std::move(divided), std::move(axes), std::move(stored)});
  };
  if (one_dimension) {
    const auto divided = [&](const lengths& of, int axis, const std::array<int, 3>& order) {
      return division_of_array{.shape = of, .order = order, .rows_axis = axis, .rows = parts};
    };
    const std::array<int, 3>& lines = on_ranks && !how.real ? row_major : columns_first;
    step(divided(half, 1, lines), {0}, row_major);
    step(divided(half, 0, row_major), {1}, is_natural ? columns_first : row_major);
    if (is_natural) natural = divided(half, 1, columns_first);
    of_data = divided(all, 0, row_major);
    of_real = divided(all, 1, columns_first);
    data = of_data.of(place);
    spectrum = natural ? natural->of(place) : steps[1].stored.of(place);
    return;
  }
  const auto divided = [&](const std::array<int, 3>& order, int rows_axis, int columns_axis, std::int64_t grid_rows,
                           std::int64_t grid_columns) {
    return division_of_array{half, on_ranks ? row_major : order, rows_axis, columns_axis, grid_rows, grid_columns};
  };
  if (shape.size() == 2) {
    step(divided(row_major, 0, -1, parts, 1), {1}, row_major);
    step(divided(columns_first, 1, -1, parts, 1), {0}, is_natural ? row_major : columns_first);
  } else if (how.division == division::slabs) {
    step(divided(row_major, 0, -1, parts, 1), {1, 2}, row_major);
    step(divided(turned, 1, -1, parts, 1), {0}, is_natural ? row_major : turned);
  } else {
    const std::int64_t r = how.grid[0], c = how.grid[1];
    step(divided(row_major, 0, 1, r, c), {2}, row_major);
    step(divided({0, 2, 1}, 0, 2, r, c), {1}, row_major);
    step(divided(turned, 1, 2, r, c), {0}, is_natural ? row_major : turned);
  }
  if (is_natural) natural = steps[0].divided;
  of_data = steps[0].divided;
  of_data.shape = all;
  of_real = of_data;
  data = of_data.of(place);
  spectrum = natural ? natural->of(place) : steps.back().stored.of(place);
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

// A hash of the arguments that all ranks must have alike.
template <class T>
std::uint64_t group_plan<T>::implementation::digest(bool forward) const {
  abft::result_hash made;
  for (const std::int64_t each : shape) made.add(each);
  for (const int each :
       {one_dimension ? 1 : 0, forward ? 1 : 0, how.real ? 1 : 0, static_cast<int>(how.division), static_cast<int>(how.order),
        static_cast<int>(how.norm), how.grid[0], how.grid[1], static_cast<int>(sizeof(T)), static_cast<int>(where.protection)})
    made.add(static_cast<std::int64_t>(each));
  for (const rank_lines& each : ways[forward ? 0 : 1].steps)
    if (each.turn) made.add(each.turn->length);
  return made.bits();
}

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
  made->on_ranks = !wire::on_devices(where) && where.group.internal()->link == nullptr;
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
  if (made->on_ranks)
    made->plan_ways(where.group.internal()->block_bytes);
  else if (made->devices.empty())
    made->plan_lines(0);
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
#define BALLAST_CALLS(T, In, Out)                                           \
  template void group_plan<T>::implementation::check_kind<In, Out>() const; \
  template void group_plan<T>::implementation::check_operands(bool, std::span<const In>, std::span<Out>) const;
BALLAST_EACH_PAIR_OF_OPERANDS(BALLAST_CALLS)
#undef BALLAST_CALLS

}  // namespace abi_1
}  // namespace ballast::fft
