// Plans of Fourier transforms. A run takes a list of places, so that a batch of more than one loop is one call from Python.
#include <bit>
#include <optional>

#include "core.hpp"

namespace ballast_python {

namespace fft = ballast::fft;

std::optional<fft::real_kind> real_kind_of(std::string_view name) {
  using fft::real_kind;
  for (const real_kind each : {real_kind::dct1, real_kind::dct2, real_kind::dct3, real_kind::dct4, real_kind::dst1, real_kind::dst2,
                               real_kind::dst3, real_kind::dst4})
    if (name == to_string(each)) return each;
  return std::nullopt;
}

fft::kind kind_of(std::string_view name) {
  for (const fft::kind each : {fft::kind::c2c, fft::kind::r2c, fft::kind::c2r})
    if (name == to_string(each)) return each;
  if (real_kind_of(name)) return fft::kind::r2r;
  throw ballast::invalid_argument_error("kind: expected c2c, r2c, c2r, dct1 … dct4 or dst1 … dst4, got \"" + std::string(name) + "\"");
}

fft::norm norm_of(std::string_view name) {
  for (const fft::norm each : {fft::norm::backward, fft::norm::ortho, fft::norm::forward})
    if (name == to_string(each)) return each;
  throw ballast::invalid_argument_error("norm: expected backward, ortho or forward, got \"" + std::string(name) + "\"");
}

namespace {

using lengths = std::vector<std::int64_t>;

// Elements from the first to the last of one side, both counted. `halved`: the last axis of this side has n/2 + 1 elements.
std::size_t reach(const fft::problem& of, const fft::layout& side, bool halved) {
  std::int64_t last = (of.batch - 1) * side.distance;
  for (std::size_t a = 0; a < of.shape.size(); ++a) {
    const bool half = halved && a + 1 == of.shape.size();
    last += ((half ? of.shape[a] / 2 + 1 : of.shape[a]) - 1) * side.strides[a];
  }
  return static_cast<std::size_t>(last + 1);
}

// Calls `one` with the operands of each run, which begin at elements `places` of both sides.
template <class In, class Out, class One>
void each_run(const fft::plan& on, const void* from, void* to, const lengths& places_in, const lengths& places_out, One&& one) {
  const fft::problem& problem = on.problem();
  const std::size_t reach_in = reach(problem, problem.input, problem.kind == fft::kind::c2r);
  const std::size_t reach_out = reach(problem, problem.output, problem.kind == fft::kind::r2c);
  const In* in = static_cast<const In*>(from);
  Out* out = static_cast<Out*>(to);
  unlocked([&] {
    for (std::size_t i = 0; i < places_in.size(); ++i)
      one(std::span<const In>(in + places_in[i], reach_in), std::span<Out>(out + places_out[i], reach_out));
  });
}

template <class In, class Out>
constexpr bool forward_only = std::is_floating_point_v<In> && !std::is_floating_point_v<Out>;
template <class In, class Out>
constexpr bool inverse_only = std::is_floating_point_v<Out> && !std::is_floating_point_v<In>;

ballast::report run_places(const fft::plan& on, const void* from, void* to, bool inverse, const lengths& places_in,
                           const lengths& places_out) {
  std::optional<ballast::report> all;
  const auto one = [&]<class In, class Out>(std::span<const In> x, std::span<Out> y) {
    ballast::report seen;
    if constexpr (forward_only<In, Out>) {
      seen = on.forward(x, y);
    } else if constexpr (inverse_only<In, Out>) {
      seen = on.inverse(x, y);
    } else {
      seen = inverse ? on.inverse(x, y) : on.forward(x, y);
    }
    if (all) {
      add(*all, seen);
    } else {
      all = std::move(seen);
    }
  };
  with_types(on.problem(), [&]<class In, class Out>(In, Out) { each_run<In, Out>(on, from, to, places_in, places_out, one); });
  return std::move(all).value();
}

ballast::report run(const fft::plan& on, const input& from, const output& to, bool inverse, const lengths& places_in,
                    const lengths& places_out) {
  with_types(on.problem(), [&]<class In, class Out>(In, Out) {
    expect_type<In>(from, "input");
    expect_type<Out>(to, "output");
  });
  return run_places(on, from.data(), to.data(), inverse, places_in, places_out);
}

// The same of arrays of the host at these addresses, whose types and strides Python has checked. Nothing, and nothing is computed, where
// an array is not aligned to its numbers.
std::optional<ballast::report> run_at(const fft::plan& on, std::uintptr_t from, std::uintptr_t to, bool inverse, const lengths& places_in,
                                      const lengths& places_out) {
  const std::size_t unit = on.problem().precision == ballast::precision::f64 ? sizeof(double) : sizeof(float);
  if (from % unit != 0 || to % unit != 0) return std::nullopt;
  return run_places(on, std::bit_cast<const void*>(from), std::bit_cast<void*>(to), inverse, places_in, places_out);
}

// The arrays lie in a device's memory at these addresses. Python has checked their types and strides.
pending enqueue(const fft::plan& on, std::uintptr_t from, std::uintptr_t to, bool inverse, const lengths& places_in,
                const lengths& places_out, std::uintptr_t stream) {
  const ballast::call now = on_stream(stream);
  pending all;
  const auto one = [&]<class In, class Out>(std::span<const In> x, std::span<Out> y) {
    if constexpr (forward_only<In, Out>) {
      all.add(on.enqueue_forward(x, y, now));
    } else if constexpr (inverse_only<In, Out>) {
      all.add(on.enqueue_inverse(x, y, now));
    } else {
      all.add(inverse ? on.enqueue_inverse(x, y, now) : on.enqueue_forward(x, y, now));
    }
  };
  with_types(on.problem(), [&]<class In, class Out>(In, Out) {
    each_run<In, Out>(on, std::bit_cast<const void*>(from), std::bit_cast<void*>(to), places_in, places_out, one);
  });
  return all;
}

}  // namespace

void add_fft(nb::module_& m) {
  nb::class_<fft::plan>(m, "FftPlan")
      .def("__init__",
           [](fft::plan* made, const std::string& kind, bool twice, const lengths& shape, std::int64_t batch, const std::string& norm,
              const lengths& strides_in, std::int64_t distance_in, const lengths& strides_out, std::int64_t distance_out,
              const ballast::execution& where) {
             fft::problem of{.kind = kind_of(kind),
                             .precision = twice ? ballast::precision::f64 : ballast::precision::f32,
                             .shape = shape,
                             .batch = batch,
                             .norm = norm_of(norm),
                             .input = {.strides = strides_in, .distance = distance_in},
                             .output = {.strides = strides_out, .distance = distance_out}};
             if (const std::optional<fft::real_kind> real = real_kind_of(kind)) of.real_kinds.assign(shape.size(), *real);
             const nb::gil_scoped_release released;
             new (made) fft::plan(std::move(of), where);
           })
      // A batch that lies at the beginning of both arrays. None, and nothing is computed, where an array is not aligned to its elements.
      .def("run_whole",
           [](const fft::plan& on, const input& from, const output& to, bool inverse) -> nb::object {
             const bool twice = on.problem().precision == ballast::precision::f64;
             const std::size_t unit = twice ? sizeof(double) : sizeof(float);
             if (std::bit_cast<std::uintptr_t>(from.data()) % unit != 0) return nb::none();
             return nb::cast(run(on, from, to, inverse, {0}, {0}));
           })
      .def("run", run)
      .def("run_at", run_at)
      .def("enqueue", enqueue);
}

}  // namespace ballast_python
