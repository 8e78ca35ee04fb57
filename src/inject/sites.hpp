// The register of the places where faults can be injected. Each operation adds the table of its sites; `ballast info` prints the register,
// --inject takes names from it, and the tests iterate over it.
// Layer: foundation. A kernel strikes its sites through inject/injector.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inject/site.hpp"

namespace ballast::inject {

// data: a fault here reaches the output if protection is off. checker: it strikes the protection itself.
// repair: as checker, but the struck code runs only after a fault was detected, so the injector adds a fault at site_table::carrier.
enum class site_role : std::uint8_t { data, checker, repair };

struct site_row {
  inject::site site;  // site_of(name)
  site_role role;
  std::string_view name;  // "fft.input": the operation, a dot, the place. A site of every operation has no dot
  std::string_view description;

  // Returns the part of the name before the dot; "" for a site of every operation.
  constexpr std::string_view operation() const {
    const auto dot = name.find('.');
    return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
  }
};

// The sites of one operation, in the order in which a computation reaches them. `carrier`: the data site at which the injector adds a fault
// that makes the code of a site of role repair run.
struct site_table {
  std::string_view operation;
  site carrier;
  std::span<const site_row> rows;
};

// Adds a table, which must outlive all other uses of this file. Thread-safe. Throws invalid_argument_error if the operation is registered
// already, if two sites have the same identity, if a row's site is not that of its name, if its name does not begin with the operation, or
// if the carrier is not a data site of the table.
void register_sites(const site_table& table);

// Registers a table when the program or library that defines it is loaded: a constant beside the table, in the source of the function that
// returns it. A linker that takes the function from a static library takes the constant, too.
struct registration {
  explicit registration(const site_table& table) { register_sites(table); }
};

// Return the registered tables in the alphabetical order of their operations, and all sites: those of each table, then those of every
// operation.
std::vector<const site_table*> site_tables();
std::vector<site_row> sites();

// Returns the sites of every operation.
std::span<const site_row> common_sites() noexcept;

// Returns the row of a site. Throws invalid_argument_error if no registered table has it.
const site_row& row_of(site wanted);

}  // namespace ballast::inject
