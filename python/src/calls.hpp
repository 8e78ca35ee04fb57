// NumPy's C interface, and tables by which a repeated call finds its plan: for the short roads of calls on NumPy's arrays.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL ballast_python_numpy
#ifndef BALLAST_LOADS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include "core.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace ballast_python {

constexpr int k_most_axes = 4;

// Returns whether NumPy's C interface is there; the first call loads it. If not, no Python error is left set. Defined in calls_numpy.cpp.
bool numpy_is_loaded();

inline PyArrayObject* as_array(nb::handle a) { return reinterpret_cast<PyArrayObject*>(a.ptr()); }

// Calls of one plan share these. `settings` is ballast.protection's object, of which equal ones are the same.
struct call_key {
  int type = 0;
  int axes = 0;
  std::array<npy_intp, k_most_axes> shape = {};
  PyObject* settings = nullptr;

  bool operator==(const call_key&) const = default;
};

struct hash_of_call_key {
  std::size_t operator()(const call_key& of) const noexcept {
    std::size_t mixed = std::bit_cast<std::size_t>(of.settings) + static_cast<std::size_t>(of.type);
    for (int i = 0; i < of.axes; ++i)
      mixed = (mixed ^ static_cast<std::size_t>(of.shape[static_cast<std::size_t>(i)])) * 0x9E3779B97F4A7C15U;
    return mixed ^ (mixed >> 32);
  }
};

// An entry for the calls of one key. It must own the settings of its key, so that no other object takes their address.
template <class Prepared>
class call_table {
 public:
  // Null where there is none.
  std::shared_ptr<const Prepared> find(const call_key& of) {
    const std::lock_guard lock(mutex_);
    const auto at = calls_.find(of);
    return at != calls_.end() ? at->second : nullptr;
  }

  void keep(const call_key& of, Prepared entry) {
    auto made = std::make_shared<const Prepared>(std::move(entry));
    table gone;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    if (calls_.size() >= k_most_calls) gone.swap(calls_);
    calls_[of].swap(made);
  }

  void clear() {
    table gone;
    const std::lock_guard lock(mutex_);
    gone.swap(calls_);
  }

 private:
  static constexpr std::size_t k_most_calls = 512;
  using table = std::unordered_map<call_key, std::shared_ptr<const Prepared>, hash_of_call_key>;

  std::mutex mutex_;
  table calls_;
};

}  // namespace ballast_python
