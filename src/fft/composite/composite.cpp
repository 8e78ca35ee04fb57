// The chunks of a transform: gather, encode, transform, verify, scatter.
#include "fft/composite/composite.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/at.hpp"
#include "core/memory.hpp"
#include "fft/composite/signal_check.hpp"
#include "fft/composite/strided_array.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"
#if defined(BALLAST_HAS_CPU)
#include "core/parallel.hpp"
#endif

namespace ballast::fft::composite {

using core::at;

namespace {

// A Fourier transform of up to three neighbouring axes of a dense array, repeated for the blocks of the axes before them.
struct axes_step {
  std::unique_ptr<transform> work;
  std::int64_t blocks = 1, in_block_scalars = 0, block_scalars = 0;
  bool in_place = false;
};

template <class T>
class composite_transform final : public transform {
 public:
  composite_transform(const array_problem& shape, bool protect, transform_maker make, const cpu::chunk_kernels<T>* kernels)
      : kernels_(kernels), shape_(shape), lanes_(lanes_of(shape)), chunks_((shape.signals() + lanes_ - 1) / lanes_) {
    for (const axis& each : shape.axes) {
      in_lengths_.push_back(each.in_length);
      in_strides_.push_back(each.in_stride);
      out_lengths_.push_back(each.out_length);
      out_strides_.push_back(each.out_stride);
      in_scalars_ *= each.in_length;
      out_scalars_ *= each.out_length;
    }
    in_scalars_ *= lanes_ * (shape.input.real ? 1 : 2);
    out_scalars_ *= lanes_ * (shape.output.real ? 1 : 2);
    for (const direction way : {direction::forward, direction::inverse}) {
      if (shape.kind != kind::c2c && shape.kind != kind::r2r && way != natural_direction(shape.kind)) continue;
      if (protect) check_[index(way)].emplace(shape, way, kernels);
      if (shape.kind == kind::r2r) add_lines(way, make);
    }
    if (shape.kind != kind::r2r) add_axes(make);
  }

  void run(const void* in, void* out, const transform_args& how) const override {
#if defined(BALLAST_HAS_CPU)
    if (how.threads > 1 && chunks_ > 1) {
      transform_args one = how;
      one.threads = 1;
      core::vector<memory> each(at(how.threads));
      core::parallel_for(how.threads, chunks_, [&](std::int64_t chunk, int slot) { run_chunk(in, out, one, chunk, slot, each[at(slot)]); });
      return;
    }
#endif
    memory only;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) run_chunk(in, out, how, chunk, 0, only);
  }

 private:
  // The memory of the chunks of one thread.
  struct memory {
    core::vector<T> x, y, u, v;
    core::vector<std::int64_t> in_offsets, out_offsets;
  };
  // One chunk of an execution.
  struct item {
    const transform_args& how;
    std::int64_t chunk, first, used;  // signals
    chunk_view<const T> from;
    chunk_view<T> to;
    inject::position here(std::int64_t step = 0, std::int64_t steps = 1) const { return {chunk, chunks, step, steps}; }
    std::int64_t chunks;
  };

  static std::size_t index(direction way) { return way == direction::forward ? 0 : 1; }

  // Signals side by side: as many as make a chunk of about 2^14 scalars, whose four memories stay in the second-level cache, but whole
  // vectors as long as 2^16 scalars hold them. It does not depend on the number of threads, nor do the results.
  static std::int64_t lanes_of(const array_problem& shape) {
    constexpr std::int64_t k_wanted = std::int64_t{1} << 14, k_most = std::int64_t{1} << 16, k_vector = 16;
    const std::int64_t points = std::max<std::int64_t>(shape.points(), 64);
    const std::int64_t fitting = std::max(k_wanted / points, std::min(k_vector, k_most / points));
    const std::int64_t whole = fitting >= k_vector ? fitting / k_vector * k_vector : std::max<std::int64_t>(fitting, 1);
    const std::int64_t signals = shape.signals();
    if (whole < k_vector || signals < k_vector) return std::min(whole, signals);
    // As many chunks, of equal size.
    const std::int64_t chunks = (signals + whole - 1) / whole, each = (signals + chunks - 1) / chunks;
    return (each + k_vector - 1) / k_vector * k_vector;
  }

  void add_lines(direction way, transform_maker make) {
    std::int64_t outer = 1;
    for (const axis& each : shape_.axes) {
      const real_kind what = way == direction::forward ? each.what : inverse_of(each.what);
      const line_places where{outer, shape_.points() / outer / each.n * lanes_};
      if (kernels_ == nullptr)
        definitions_[index(way)].emplace_back(what, each.n, where);
      else
        lines_[index(way)].emplace_back(what, each.n, where, make, *kernels_);
      outer *= each.n;
    }
  }

  // The last axes first, at most three; for c2r last. The others in groups of three, in place.
  void add_axes(transform_maker make) {
    const auto rank = static_cast<std::int64_t>(shape_.axes.size());
    const std::int64_t lead = std::max<std::int64_t>(rank - 3, 0);
    const bool whole_last = shape_.kind == kind::c2r;
    axes_.push_back(make_axes(lead, rank, shape_.kind, make, false));
    for (std::int64_t end = lead; end > 0; end -= 3)
      axes_.push_back(make_axes(std::max<std::int64_t>(end - 3, 0), end, kind::c2c, make, true));
    if (whole_last) std::ranges::reverse(axes_);
  }

  axes_step make_axes(std::int64_t begin, std::int64_t end, kind what, transform_maker make, bool in_place) const {
    axes_step made;
    made.in_place = in_place;
    // c2r transforms its other axes before the last ones, so their inner elements are those of the half spectrum; r2c after them.
    const bool inner_is_input = shape_.kind == kind::c2r;
    std::int64_t inner = lanes_;
    for (auto i = end; i < std::ssize(shape_.axes); ++i)
      inner *= inner_is_input ? shape_.axes[at(i)].in_length : shape_.axes[at(i)].out_length;
    geometry g;
    g.kind = what;
    g.batch = inner;
    for (side* const each : {&g.input, &g.output}) {
      each->length = {1, 1, 1};
      each->stride = {1, 1, 1};
      each->real = what == (each == &g.input ? kind::r2c : kind::c2r);
      each->distance = 1;
      std::int64_t stride = inner;
      for (std::int64_t i = end; i-- > begin;) {
        const std::size_t place = at(3 - (end - i));
        const axis& of = shape_.axes[at(i)];
        g.n[place] = of.n;
        each->length[place] = what == kind::c2c ? of.n : each == &g.input ? of.in_length : of.out_length;
        each->stride[place] = stride;
        stride *= each->length[place];
      }
      for (std::int64_t i = 3 - (end - begin); i-- > 0;) each->stride[at(i)] = stride;
      each->extent = stride;
      if (inner == 1) each->distance = stride;
    }
    made.block_scalars = g.output.extent * (g.output.real ? 1 : 2);
    for (std::int64_t i = 0; i < begin; ++i) made.blocks *= shape_.axes[at(i)].n;
    made.work = make(g, sizeof(T) == 4 ? precision::f32 : precision::f64, false);
    made.in_block_scalars = g.input.extent * (g.input.real ? 1 : 2);
    return made;
  }

  void run_chunk(const void* in, void* out, const transform_args& how, std::int64_t chunk, int slot, memory& mine) const {
    mine.x.resize(at(std::max(in_scalars_, out_scalars_)));
    mine.y.resize(mine.x.size());
    std::int64_t u = 0, v = 0;
    for (const auto& each : lines_[index(how.direction)]) {
      u = std::max(u, each.u_scalars());
      v = std::max(v, each.v_scalars());
    }
    mine.u.resize(at(u));
    mine.v.resize(at(v));
    const std::int64_t first = chunk * lanes_, used = std::min(lanes_, shape_.signals() - first);
    mine.in_offsets.clear();
    mine.out_offsets.clear();
    for (std::int64_t b = first; b < first + used; ++b) {
      std::int64_t rest = b, from = shape_.input.first, to = shape_.output.first;
      for (std::size_t i = shape_.loops.size(); i-- > 0; rest /= shape_.loops[i].count) {
        from += rest % shape_.loops[i].count * shape_.loops[i].input;
        to += rest % shape_.loops[i].count * shape_.loops[i].output;
      }
      mine.in_offsets.push_back(from);
      mine.out_offsets.push_back(to);
    }
    const auto view = [&]<class U>(U* real, U* imaginary, const array_side& of, const auto& lengths, const auto& strides,
                                   const auto& offsets) {
      const bool split = imaginary != nullptr;
      return chunk_view<U>{
          lengths, strides, {real, of.real ? nullptr : split ? imaginary : real + 1}, of.real ? 1 : 2, of.real || split ? 1 : 2, lanes_,
          used,    offsets};
    };
    const item one{
        how,
        chunk,
        first,
        used,
        view(static_cast<const T*>(in), static_cast<const T*>(how.in_imaginary), shape_.input, in_lengths_, in_strides_, mine.in_offsets),
        view(static_cast<T*>(out), static_cast<T*>(how.out_imaginary), shape_.output, out_lengths_, out_strides_, mine.out_offsets),
        chunks_};
    const T* done = nullptr;
    if (how.protection == protection::off) {
      gather(one, mine);
      done = compute(one, mine);
      scatter(one, done);
      return;
    }
    const signal_check<T>& check = *check_[index(how.direction)];
    std::uint64_t parity = 0;
    encoded input;
    abft::finding judged;  // the last computation's
    const auto once = [&](int number) {
      gather(one, mine);
      input = check.encode(mine.x.data(), lanes_, used);
      how.injector.strike(site::checksum, one.here(), input.sums.high.data(), static_cast<std::int64_t>(input.sums.high.size()));
      const bool same = one.from.parity() == input.sums.parity;
      done = compute(one, mine);
      abft::finding now = check.verify(input, done, lanes_, used, first, one.here(), how, parity);
      if (!same) {
        now.word = abft::k_fail;
        now.judged = true;
        now.index = first;
        now.residual = 1;
      }
      how.seen.checked(static_cast<std::uint64_t>(k_vectors * used));
      if (number > 0 || !now.judged || now.word != abft::k_pass) now.bits = hash(one, done);
      judged = now;
      return now;
    };
    if (run::attempt(how.seen, how.protection, "fft.end_to_end", slot, once) == abft::outcome::uncorrectable) return;
    // The stored signals must have the parity of the verified ones, or they are stored again. That parity may itself be wrong: the signals
    // are verified once more, which makes it again.
    const auto store = [&](int number) {
      bool right = true;
      if (number > 0) {
        const abft::finding again = check.verify(input, done, lanes_, used, first, one.here(), how, parity);
        right = again.judged ? again.word == abft::k_pass : hash(one, done) == judged.bits;
      }
      scatter(one, done);
      return abft::finding{.word = right && one.to.parity() == parity ? abft::k_pass : abft::k_fail, .residual = 1, .index = first};
    };
    (void)run::attempt(how.seen, how.protection, "fft.output", slot, store);
  }

  // Returns a copy between the signals of a chunk and its dense array if the vector layer makes it: of whole vectors of contiguous reals.
  template <class U>
  std::optional<cpu::chunk_copy<T>> copy_of(const chunk_view<U>& view) const {
    if (kernels_ == nullptr || view.parts != 1 || view.lengths.size() != 1 || view.strides.back() != 1 || view.used != lanes_ ||
        lanes_ % kernels_->lanes != 0)
      return std::nullopt;
    const std::int64_t distance = lanes_ > 1 ? view.offsets[1] - view.offsets[0] : 0;
    for (std::size_t l = 1; l < view.offsets.size(); ++l) {
      if (view.offsets[l] - view.offsets[l - 1] != distance) return std::nullopt;
    }
    return cpu::chunk_copy<T>{.distance = distance, .count = view.lengths.back(), .lanes = lanes_};
  }

  // Lanes without a signal are 0.
  void gather(const item& one, memory& mine) const {
    if (auto copy = copy_of(one.from)) {
      copy->from = one.from.part[0] + one.from.offsets[0];
      copy->to = mine.x.data();
      return kernels_->gather(*copy);
    }
    if (one.used < lanes_) std::fill(mine.x.begin(), mine.x.end(), T(0));
    one.from.for_each([&](const T& value, std::int64_t to, auto...) { mine.x[at(to)] = value; });
  }

  void scatter(const item& one, const T* done) const {
    if (auto copy = copy_of(one.to)) {
      copy->from = done;
      copy->to = one.to.part[0] + one.to.offsets[0];
      return kernels_->scatter(*copy);
    }
    one.to.for_each([&](T& value, std::int64_t from, auto...) { value = done[from]; });
  }

  std::uint64_t hash(const item& one, const T* done) const {
    abft::result_hash made;
    for (std::int64_t row = 0; row < out_scalars_; row += lanes_ * one.to.parts) {
      for (std::int64_t i = 0; i < one.used * one.to.parts; ++i) made.add(done[row + i]);
    }
    return made.bits();
  }

  // Strikes the scalars for which `reaches(number)`: those of lanes that have a signal.
  template <class Reaches>
  void strike(const item& one, inject::site where, const inject::position& here, T* data, std::int64_t scalars,
              const Reaches& reaches) const {
    if constexpr (inject::active_injector::enabled) {
      if (!one.how.injector.armed(where)) return;
      core::vector<T> reaching;
      for (std::int64_t i = 0; i < scalars; ++i) {
        if (reaches(i)) reaching.push_back(data[i]);
      }
      one.how.injector.strike(where, here, reaching.data(), static_cast<std::int64_t>(reaching.size()));
      std::size_t next = 0;
      for (std::int64_t i = 0; i < scalars; ++i) {
        if (reaches(i)) data[i] = reaching[next++];
      }
    }
  }
  void strike_dense(const item& one, inject::site where, const inject::position& here, T* data, std::int64_t scalars, int parts) const {
    strike(one, where, here, data, scalars, [&](std::int64_t i) { return i % (lanes_ * parts) / parts < one.used; });
  }

  // Computes y = scale · L x from mine.x. Returns the array that holds y.
  const T* compute(const item& one, memory& mine) const {
    strike_dense(one, site::input, one.here(), mine.x.data(), in_scalars_, one.from.parts);
    T* done = shape_.kind == kind::r2r ? compute_lines(one, mine) : compute_axes(one, mine);
    if (one.how.scale != 1) {
      for (std::int64_t i = 0; i < out_scalars_; ++i) done[i] *= static_cast<T>(one.how.scale);
    }
    strike_dense(one, site::output, one.here(), done, out_scalars_, one.to.parts);
    return done;
  }

  T* compute_axes(const item& one, memory& mine) const {
    transform_args args = one.how;
    args.protection = protection::off;  // the check from end to end covers every step
    args.scale = args.check_scale = 1;
    T* now = mine.x.data();
    T* next = mine.y.data();
    for (std::size_t step = 0; step < axes_.size(); ++step) {
      const axes_step& each = axes_[step];
      args.in_place = each.in_place;
      T* const to = each.in_place ? now : next;
      for (std::int64_t block = 0; block < each.blocks; ++block)
        each.work->run(now + block * each.in_block_scalars, to + block * each.block_scalars, args);
      if (!each.in_place) std::swap(now, next);
    }
    return now;
  }

  T* compute_lines(const item& one, memory& mine) const {
    const std::size_t way = index(one.how.direction);
    T* now = mine.x.data();
    T* next = mine.y.data();
    const auto steps = static_cast<std::int64_t>(shape_.axes.size());
    for (std::int64_t step = 0; step < steps; ++step) {
      const inject::position here = one.here(step, steps);
      if (definitions_[way].empty())
        compute_line(one, here, lines_[way][at(step)], now, next, mine);
      else
        compute_definition(one, here, definitions_[way][at(step)], now, next);
      strike_dense(one, site::stage, here, next, out_scalars_, 1);
      std::swap(now, next);
    }
    return now;
  }

  void compute_line(const item& one, const inject::position& here, const line_steps<T>& by, const T* x, T* y, memory& mine) const {
    const T* factors = by.factors().data();
    core::vector<T> struck;
    if (one.how.injector.armed(site::twiddle)) {
      struck.assign(by.factors().begin(), by.factors().end());
      one.how.injector.strike(site::twiddle, here, struck.data(), static_cast<std::int64_t>(struck.size()));
      factors = struck.data();
    }
    by.before(x, mine.u.data(), factors);
    strike(one, site::intermediate, here, mine.u.data(), by.u_scalars(),
           [&](std::int64_t i) { return by.line_in_u(i) % lanes_ < one.used; });
    by.transform_lines(mine.u.data(), mine.v.data(), one.how);
    by.after(mine.v.data(), y, factors);
  }

  void compute_definition(const item& one, const inject::position& here, const line_definition<T>& by, T* x, T* y) const {
    strike_dense(one, site::intermediate, here, x, in_scalars_, 1);
    if constexpr (inject::active_injector::enabled) {
      std::vector<std::complex<T>> roots = by.roots();
      one.how.injector.strike(site::twiddle, here, reinterpret_cast<T*>(roots.data()), 2 * static_cast<std::int64_t>(roots.size()));
      by.run(x, y, roots);
    } else {
      by.run(x, y, by.roots());
    }
  }

  const cpu::chunk_kernels<T>* kernels_;  // null: of the reference backend
  array_problem shape_;
  std::int64_t lanes_, chunks_;
  std::vector<std::int64_t> in_lengths_, in_strides_, out_lengths_, out_strides_;
  std::int64_t in_scalars_ = 1, out_scalars_ = 1;  // the size of a chunk
  std::array<std::optional<signal_check<T>>, 2> check_;
  std::array<std::vector<line_steps<T>>, 2> lines_;
  std::array<std::vector<line_definition<T>>, 2> definitions_;
  std::vector<axes_step> axes_;
};

}  // namespace

std::unique_ptr<transform> make_composite(const array_problem& shape, precision type, bool protect, transform_maker make,
                                          bool by_definition) {
  const auto made = [&]<class T>(const cpu::chunk_kernels<T>* kernels) -> std::unique_ptr<transform> {
    return std::make_unique<composite_transform<T>>(shape, protect, make, kernels);
  };
  const auto chosen = [&]<class T>(T) {
#if defined(BALLAST_HAS_CPU)
    if (!by_definition) return made(&cpu::chunks<T>());
#endif
    static_cast<void>(by_definition);
    return made(static_cast<const cpu::chunk_kernels<T>*>(nullptr));
  };
  if (type == precision::f32) return chosen(0.0F);
  return chosen(0.0);
}

}  // namespace ballast::fft::composite
