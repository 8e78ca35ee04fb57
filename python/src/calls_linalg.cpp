// QR factorization and least squares of one matrix of NumPy in host memory by one call from Python: the copies by columns, R's triangle,
// the operations of the library and the results, through NumPy's C interface. Other calls take the road of ballast/linalg.py.
#include <algorithm>
#include <variant>

#include "calls.hpp"

namespace ballast_python {

namespace {

namespace qr = ballast::qr;

template <class T>
struct of_type;
template <>
struct of_type<float> {
  static constexpr int number = NPY_FLOAT, of_parts = NPY_FLOAT;
};
template <>
struct of_type<double> {
  static constexpr int number = NPY_DOUBLE, of_parts = NPY_DOUBLE;
};
template <>
struct of_type<std::complex<float>> {
  static constexpr int number = NPY_CFLOAT, of_parts = NPY_FLOAT;
};
template <>
struct of_type<std::complex<double>> {
  static constexpr int number = NPY_CDOUBLE, of_parts = NPY_DOUBLE;
};

template <class T>
T* numbers_of(const nb::object& array) {
  return static_cast<T*>(PyArray_DATA(as_array(array)));
}

// A new array; `by_column`: in Fortran's order.
nb::object empty(std::initializer_list<npy_intp> shape, int type, bool by_column) {
  std::array<npy_intp, 2> lengths = {};
  std::copy(shape.begin(), shape.end(), lengths.begin());
  nb::object made = nb::steal(PyArray_EMPTY(static_cast<int>(shape.size()), lengths.data(), type, by_column ? 1 : 0));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

// The first `columns` columns of `whole`, a matrix in Fortran's order, over its memory.
nb::object first_columns(nb::object whole, npy_intp columns) {
  PyArrayObject* const of = as_array(whole);
  npy_intp* const steps = PyArray_STRIDES(of);
  std::array<npy_intp, 2> shape = {PyArray_DIM(of, 0), columns};
  nb::object made = nb::steal(PyArray_New(&PyArray_Type, 2, shape.data(), PyArray_TYPE(of), steps, PyArray_DATA(of), 0,
                                          NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED, nullptr));
  if (!made.is_valid() || PyArray_SetBaseObject(as_array(made), whole.release().ptr()) != 0) throw nb::python_error();
  return made;
}

// Matrices and vectors of NumPy have strides in bytes, which need not be multiples of an element.
struct bytes_of_matrix {
  const char* data = nullptr;
  npy_intp rows = 0, columns = 0, row_step = 0, column_step = 0;

  explicit bytes_of_matrix(PyArrayObject* a) : data(PyArray_BYTES(a)), rows(PyArray_DIM(a, 0)), columns(1), row_step(PyArray_STRIDE(a, 0)) {
    if (PyArray_NDIM(a) < 2) return;
    columns = PyArray_DIM(a, 1);
    column_step = PyArray_STRIDE(a, 1);
  }
  template <class T>
  T at(npy_intp i, npy_intp j) const {
    return *reinterpret_cast<const T*>(data + i * row_step + j * column_step);
  }
};

// to(i, j) ← from(i, j) for all elements of `to`, in blocks, so that rows and columns stay in the cache whichever of them is contiguous.
template <class T, class From>
void copy(const ballast::matrix_view<T>& to, From&& from) {
  constexpr std::int64_t side = 32;
  for (std::int64_t top = 0; top < to.rows; top += side) {
    for (std::int64_t left = 0; left < to.columns; left += side) {
      for (std::int64_t j = left; j < std::min(left + side, to.columns); ++j) {
        for (std::int64_t i = top; i < std::min(top + side, to.rows); ++i) to(i, j) = from(i, j);
      }
    }
  }
}

// The upper triangle of `from`, and zeros below.
template <class T>
void copy_upper(const ballast::matrix_view<T>& to, const ballast::matrix_view<T>& from) {
  copy(to, [&](std::int64_t i, std::int64_t j) { return i <= j ? from(i, j) : T(0); });
}

enum class wanted : int { reduced, complete, r };

// The calls of ballast.linalg.
class numpy_linalg {
 public:
  // (Q, R, report) for the wanted modes "reduced" and "complete", (None, R, report) for "r"; None where the call is not a usual one, or its
  // plans are not here.
  nb::object factor(nb::handle a, int mode, nb::handle settings) {
    if (!is_usual(a, 2)) return nb::none();
    const npy_intp m = PyArray_DIM(as_array(a), 0), n = PyArray_DIM(as_array(a), 1);
    const auto found = plans_.find(key_of(PyArray_TYPE(as_array(a)), m, n, settings));
    const bool wider = static_cast<wanted>(mode) == wanted::complete && m > n;
    const auto of_q = wider ? plans_.find(key_of(PyArray_TYPE(as_array(a)), m, m, settings)) : found;
    if (!found || !of_q) return nb::none();
    return std::visit(
        [&]<class T>(const qr::plan<T>& plan) {
          return factored<T>(plan, std::get<qr::plan<T>>(of_q->plan), as_array(a), static_cast<wanted>(mode));
        },
        found->plan);
  }

  // (x, residuals, triangle, report); the triangle has the singular values of a. None as for factor().
  nb::object solve(nb::handle a, nb::handle b, nb::handle settings) {
    if (!is_usual(a, 2) || !(is_usual(b, 1) || is_usual(b, 2))) return nb::none();
    PyArrayObject *const left = as_array(a), *const right = as_array(b);
    const npy_intp m = PyArray_DIM(left, 0);
    if (PyArray_TYPE(left) != PyArray_TYPE(right) || PyArray_DIM(right, 0) != m) return nb::none();
    const auto found = plans_.find(key_of(PyArray_TYPE(left), m, PyArray_DIM(left, 1), settings));
    if (!found) return nb::none();
    return std::visit([&]<class T>(const qr::plan<T>& plan) { return solved<T>(plan, left, right); }, found->plan);
  }

  // Keeps the plan of later calls of this shape.
  template <class T>
  void keep(npy_intp rows, npy_intp columns, nb::object settings, const qr::plan<T>& plan) {
    const call_key of = key_of(of_type<T>::number, rows, columns, settings);
    plans_.keep(of, {plan, std::move(settings)});
  }

  void clear() { plans_.clear(); }

 private:
  struct prepared {
    std::variant<qr::plan<float>, qr::plan<double>, qr::plan<std::complex<float>>, qr::plan<std::complex<double>>> plan;
    nb::object settings;
  };

  // Returns whether `a` is an aligned array, not empty, of so many axes in the machine's order of bytes; its type is looked for with its
  // plan.
  static bool is_usual(nb::handle a, int axes) {
    return numpy_is_loaded() && PyArray_CheckExact(a.ptr()) && PyArray_NDIM(as_array(a)) == axes && PyArray_ISBEHAVED_RO(as_array(a)) &&
           PyArray_SIZE(as_array(a)) > 0;
  }

  static call_key key_of(int type, npy_intp rows, npy_intp columns, nb::handle settings) {
    return {.type = type, .axes = 2, .shape = {rows, columns}, .settings = settings.ptr()};
  }

  template <class T>
  static nb::object factored(const qr::plan<T>& plan, const qr::plan<T>& of_q, PyArrayObject* a, wanted mode) {
    const bytes_of_matrix given(a);
    const npy_intp m = given.rows, n = given.columns, k = std::min(m, n);
    const npy_intp rows = mode == wanted::complete ? m : k;  // R has so many rows, and Q columns
    nb::object stored = empty({m, std::max(n, rows)}, of_type<T>::number, true);
    const nb::object r = empty({rows, n}, of_type<T>::number, false);
    T* const numbers = numbers_of<T>(stored);
    const auto to = ballast::row_major(numbers_of<T>(r), rows, n);
    ballast::report seen = unlocked([&] {
      std::vector<T> tau(static_cast<std::size_t>(k));
      const auto A = ballast::column_major(numbers, m, n);
      copy(A, [&](npy_intp i, npy_intp j) { return given.at<T>(i, j); });
      ballast::report all = plan.geqrf(A, tau);
      copy_upper(to, ballast::column_major(numbers, rows, n, m));
      if (mode == wanted::r) return all;
      if (rows > n) std::fill(numbers + m * n, numbers + m * rows, T(0));
      add(all, of_q.orgqr(ballast::column_major(numbers, m, rows), tau));
      return all;
    });
    const nb::object q = mode == wanted::r ? nb::none() : n > rows ? first_columns(std::move(stored), rows) : std::move(stored);
    return nb::make_tuple(q, r, nb::cast(std::move(seen)));
  }

  template <class T>
  static nb::object solved(const qr::plan<T>& plan, PyArrayObject* a, PyArrayObject* b) {
    const bytes_of_matrix given(a), sides(b);
    const npy_intp m = given.rows, n = given.columns, k = sides.columns, most = std::max(m, n), least = std::min(m, n);
    const nb::object triangle = empty({least, least}, of_type<T>::number, false);
    const nb::object residuals = empty({m > n ? k : 0}, of_type<T>::of_parts, false);
    const nb::object x = PyArray_NDIM(b) == 1 ? empty({n}, of_type<T>::number, false) : empty({n, k}, of_type<T>::number, false);
    const auto R = ballast::row_major(numbers_of<T>(triangle), least, least), X = ballast::row_major(numbers_of<T>(x), n, k);
    using real = decltype(std::abs(T()));
    real* const squares = numbers_of<real>(residuals);
    ballast::report seen = unlocked([&] {
      const auto work = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(m * n + most * k));
      const auto A = ballast::column_major(work.get(), m, n), B = ballast::column_major(work.get() + m * n, most, k);
      copy(A, [&](npy_intp i, npy_intp j) { return given.at<T>(i, j); });
      copy(B, [&](npy_intp i, npy_intp j) { return i < m ? sides.at<T>(i, j) : T(0); });
      ballast::report made = plan.gels(A, B);
      copy_upper(R, (m >= n ? A : A.transposed()).block(0, 0, least, least));  // the factors are those of a, or of its transpose
      copy(X, [&](npy_intp i, npy_intp j) { return B(i, j); });
      for (npy_intp j = 0; j < k && m > n; ++j) {
        double sum = 0;
        for (npy_intp i = n; i < m; ++i) sum += std::norm(std::complex<double>(B(i, j)));
        squares[j] = static_cast<real>(sum);
      }
      return made;
    });
    return nb::make_tuple(x, residuals, triangle, nb::cast(std::move(seen)));
  }

  call_table<prepared> plans_;
};

}  // namespace

void add_numpy_linalg(nb::module_& m) {
  nb::class_<numpy_linalg>(m, "NumpyLinalg")
      .def(nb::init<>())
      .def("factor", &numpy_linalg::factor)
      .def("solve", &numpy_linalg::solve)
      .def("keep", &numpy_linalg::keep<float>)
      .def("keep", &numpy_linalg::keep<double>)
      .def("keep", &numpy_linalg::keep<std::complex<float>>)
      .def("keep", &numpy_linalg::keep<std::complex<double>>)
      .def("clear", &numpy_linalg::clear);
}

}  // namespace ballast_python
