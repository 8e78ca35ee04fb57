// Statuses, error objects, and what all C functions check.
// Layer: interface.
#include <cstdlib>
#include <cstring>
#include <new>

#include "c/handles.hpp"
#include "core/format.hpp"

namespace ballast::c {

namespace {

std::int32_t store(ballast_error* error, const frame& where, std::int32_t status, const char* message, std::string_view problem) noexcept {
  if (error == nullptr) return status;
  error->status = status;
  try {
    error->message = message;
    error->problem = problem.empty() ? where.problem : problem;
  } catch (...) {
    error->message.clear();  // no memory for a text: the status says enough
  }
  return status;
}

}  // namespace

std::int32_t failed(ballast_error* error, const frame& where) noexcept {
  try {
    throw;
  } catch (const uncorrectable_error& fault) {
    const std::int32_t status = store(error, where, BALLAST_UNCORRECTABLE, fault.what(), fault.report().problem.view());
    try {
      if (where.report != nullptr) where.report->value = fault.report();
    } catch (...) {
      where.report->value.reset();
    }
    return status;
  } catch (const invalid_argument_error& wrong) {
    return store(error, where, BALLAST_INVALID_ARGUMENT, wrong.what(), {});
  } catch (const rank_deficient_error& wrong) {
    return store(error, where, BALLAST_RANK_DEFICIENT, wrong.what(), {});
  } catch (const unsupported_error& wrong) {
    return store(error, where, BALLAST_UNSUPPORTED, wrong.what(), {});
  } catch (const device_error& wrong) {
    return store(error, where, BALLAST_DEVICE_ERROR, wrong.what(), {});
  } catch (const rank_lost_error& wrong) {
    return store(error, where, BALLAST_RANK_LOST, wrong.what(), {});
  } catch (const out_of_memory_error& wrong) {
    return store(error, where, BALLAST_OUT_OF_MEMORY, wrong.what(), {});
  } catch (const std::bad_alloc&) {
    return store(error, where, BALLAST_OUT_OF_MEMORY, "expected enough memory, got none from the system", {});
  } catch (const cancelled&) {
    return store(error, where, BALLAST_CANCELLED, "the progress callback ended the call", {});
  } catch (const std::exception& other) {
    return store(error, where, BALLAST_INTERNAL_ERROR, other.what(), {});
  } catch (...) {
    return store(error, where, BALLAST_INTERNAL_ERROR, "an exception of an unknown type", {});
  }
}

void refuse_handle(std::string_view name, bool null) {
  throw invalid_argument_error(
      fmt::format("{}: expected the address of an object, got {}", name, null ? "null" : "that of another object"));
}

std::string_view text(const char* given, std::string_view name) {
  if (given == nullptr) throw invalid_argument_error(fmt::format("{}: expected a text, got null", name));
  return given;
}

char* copy_of(std::string_view text) {
  auto* const made = static_cast<char*>(std::malloc(text.size() + 1));
  if (made == nullptr) throw std::bad_alloc();
  std::memcpy(made, text.data(), text.size());
  made[text.size()] = '\0';
  return made;
}

void read_struct(const void* given, std::size_t size, std::string_view name, void* to, std::size_t known) {
  if (size < sizeof(std::size_t))
    throw invalid_argument_error(fmt::format("{}: size: expected sizeof of the struct, {} here, got {}", name, known, size));
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] != 0)
      throw unsupported_error(fmt::format(
          "{}: size: expected members up to byte {}, got one at byte {}: the header is newer than the library", name, known, i));
  }
  std::memcpy(to, given, size < known ? size : known);
}

void write_struct(const void* from, std::size_t known, std::string_view name, void* to, std::size_t size) {
  if (size < sizeof(std::size_t))
    throw invalid_argument_error(fmt::format("{}: size: expected sizeof of the struct, {} here, got {}", name, known, size));
  std::memcpy(to, from, size < known ? size : known);
}

}  // namespace ballast::c

using namespace ballast::c;

const char* ballast_status_name(int32_t status) {
  switch (status) {
    case BALLAST_OK: return "ok";
    case BALLAST_INVALID_ARGUMENT: return "invalid_argument";
    case BALLAST_RANK_DEFICIENT: return "rank_deficient";
    case BALLAST_UNSUPPORTED: return "unsupported";
    case BALLAST_DEVICE_ERROR: return "device_error";
    case BALLAST_OUT_OF_MEMORY: return "out_of_memory";
    case BALLAST_UNCORRECTABLE: return "uncorrectable";
    case BALLAST_CANCELLED: return "cancelled";
    case BALLAST_INTERNAL_ERROR: return "internal_error";
    case BALLAST_RANK_LOST: return "rank_lost";
    default: return "unknown";
  }
}

int32_t ballast_error_create(ballast_error** error) {
  if (error == nullptr) return BALLAST_INVALID_ARGUMENT;
  *error = new (std::nothrow) ballast_error;
  return *error == nullptr ? BALLAST_OUT_OF_MEMORY : BALLAST_OK;
}

void ballast_error_destroy(ballast_error* error) { destroy(error); }

int32_t ballast_error_status(const ballast_error* error) {
  if (error == nullptr) return BALLAST_OK;
  return error->mark == kind::error ? error->status : BALLAST_INVALID_ARGUMENT;
}

const char* ballast_error_message(const ballast_error* error) {
  return error == nullptr || error->mark != kind::error ? "" : error->message.c_str();
}

const char* ballast_error_problem(const ballast_error* error) {
  return error == nullptr || error->mark != kind::error ? "" : error->problem.c_str();
}

void ballast_free(void* memory) { std::free(memory); }
