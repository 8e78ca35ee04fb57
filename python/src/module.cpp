// ballast._core: the C++ interface for the Python package, which alone imports it. Loading it starts neither threads nor a CUDA context.
#include "core.hpp"

namespace nb = nanobind;

#ifdef BALLAST_INSTRUMENTED
NB_MODULE(_core_instrumented, m) {
#else
NB_MODULE(_core, m) {
#endif
  ballast_python::add_errors(m);
  ballast_python::add_reports(m);
  ballast_python::add_information(m);
  ballast_python::add_fft(m);
  ballast_python::add_qr(m);
  ballast_python::add_kmeans(m);
#ifdef BALLAST_INSTRUMENTED
  ballast_python::add_injection(m);
#endif
}
