// The usual transform of an array of NumPy: contiguous, in host memory, the last axes, no other argument. A repeated call finds its plan
// and the shape of its result here by one look-up, and its array is read and made through NumPy's C interface, which is loaded at the first
// call.
#define BALLAST_LOADS_NUMPY
#include "calls.hpp"

#include <span>

namespace ballast_python {

namespace fft = ballast::fft;

bool numpy_is_loaded() {
  static const bool loaded = PyArray_ImportNumPyAPI() == 0;
  if (!loaded) PyErr_Clear();
  return loaded;
}

namespace {

struct prepared {
  fft::plan plan;
  bool inverse = false;
  int type = 0;
  std::array<npy_intp, k_most_axes> shape = {};
  nb::object settings;
};

// The calls of one function of ballast.fft.
class numpy_calls {
 public:
  // The transform of `a` and the report, as a tuple; None where the call is not the usual one, or the first of its kind.
  nb::object run(nb::handle a, nb::handle settings) {
    const std::optional<call_key> of = key_of(a, settings);
    if (!of) return nb::none();
    const std::shared_ptr<const prepared> found = calls_.find(*of);
    if (!found) return nb::none();
    auto* const from = as_array(a);
    std::array<npy_intp, k_most_axes> shape = found->shape;
    const nb::object made = nb::steal(PyArray_SimpleNew(of->axes, shape.data(), found->type));
    if (!made.is_valid()) throw nb::python_error();
    const auto count = [](PyArrayObject* array) { return static_cast<std::size_t>(PyArray_SIZE(array)); };
    ballast::report seen;
    with_types(found->plan.problem(), [&]<class In, class Out>(In, Out) {
      const std::span<const In> x(static_cast<const In*>(PyArray_DATA(from)), count(from));
      const std::span<Out> y(static_cast<Out*>(PyArray_DATA(as_array(made))), count(as_array(made)));
      seen = unlocked([&] { return transformed(found->plan, found->inverse, x, y); });
    });
    return nb::make_tuple(made, nb::cast(std::move(seen)));
  }

  // Keeps the plan of later calls like that on `a`, whose result is like `made`.
  void keep(nb::handle a, nb::handle made, nb::object settings, const fft::plan& plan, bool inverse) {
    const std::optional<call_key> of = key_of(a, settings);
    const std::optional<call_key> result = key_of(made, settings);
    if (of && result) calls_.keep(*of, {plan, inverse, result->type, result->shape, std::move(settings)});
  }

  void clear() { calls_.clear(); }

 private:
  // Nothing where `a` is another object than an aligned array in C order, in the machine's order of bytes.
  static std::optional<call_key> key_of(nb::handle a, nb::handle settings) {
    if (!numpy_is_loaded() || !PyArray_CheckExact(a.ptr())) return std::nullopt;
    PyArrayObject* const array = as_array(a);
    const int axes = PyArray_NDIM(array);
    if (axes > k_most_axes || !PyArray_ISCARRAY_RO(array)) return std::nullopt;
    call_key made{.type = PyArray_TYPE(array), .axes = axes, .settings = settings.ptr()};
    std::copy_n(PyArray_DIMS(array), axes, made.shape.begin());
    return made;
  }

  template <class In, class Out>
  static ballast::report transformed(const fft::plan& plan, bool inverse, std::span<const In> x, std::span<Out> y) {
    if constexpr (std::is_floating_point_v<In> && !std::is_floating_point_v<Out>) {
      return plan.forward(x, y);
    } else if constexpr (std::is_floating_point_v<Out> && !std::is_floating_point_v<In>) {
      return plan.inverse(x, y);
    } else {
      return inverse ? plan.inverse(x, y) : plan.forward(x, y);
    }
  }

  call_table<prepared> calls_;
};

}  // namespace

void add_numpy_calls(nb::module_& m) {
  nb::class_<numpy_calls>(m, "NumpyCalls")
      .def(nb::init<>())
      .def("run", &numpy_calls::run)
      .def("keep", &numpy_calls::keep)
      .def("clear", &numpy_calls::clear);
}

}  // namespace ballast_python
