// ballast._core: the C++ interface for the Python package, which alone imports it. Loading it starts neither threads nor a CUDA context.
#include "core.hpp"

namespace ballast_python {

void add_everything(nb::module_& m) {
  add_errors(m);
  add_groups(m);
  add_reports(m);
  add_information(m);
  add_device(m);
  add_fft(m);
  add_numpy_calls(m);
  add_qr(m);
  add_qr_groups(m);
  add_numpy_linalg(m);
  add_kmeans(m);
#ifdef BALLAST_PYTHON_JAX
  add_jax(m);
#endif
}

}  // namespace ballast_python

NB_MODULE(_core, m) { ballast_python::add_everything(m); }
