// Exceptions of the library become those of ballast._errors.
#include "core.hpp"

namespace ballast_python {

namespace {

void raise(const char* name, const std::exception& seen) {
  const nb::object kind = nb::module_::import_("ballast._errors").attr(name);
  PyErr_SetString(kind.ptr(), seen.what());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ballast::uncorrectable_error& seen) {
    const nb::object kind = nb::module_::import_("ballast._errors").attr("FaultError");
    const nb::object made = kind(seen.what(), nb::cast(seen.report()));
    PyErr_SetObject(kind.ptr(), made.ptr());
  } catch (const ballast::invalid_argument_error& seen) {
    raise("InvalidArgumentError", seen);
  } catch (const ballast::rank_deficient_error& seen) {
    raise("RankDeficientError", seen);
  } catch (const ballast::unsupported_error& seen) {
    raise("UnsupportedError", seen);
  } catch (const ballast::rank_lost_error& seen) {
    const nb::object kind = nb::module_::import_("ballast._errors").attr("RankLostError");
    const nb::object made = kind(seen.what(), nb::cast(seen.ranks()));
    PyErr_SetObject(kind.ptr(), made.ptr());
  } catch (const ballast::device_error& seen) {
    raise("DeviceError", seen);
  } catch (const ballast::out_of_memory_error& seen) {
    raise("OutOfMemoryError", seen);
  } catch (const std::bad_alloc& seen) {
    raise("OutOfMemoryError", seen);
  } catch (const ballast::error& seen) {
    raise("Error", seen);
  }
}

}  // namespace

void add_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace ballast_python
