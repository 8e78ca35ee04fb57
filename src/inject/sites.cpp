// The register of sites, see sites.hpp.
#include "inject/sites.hpp"

#include <algorithm>
#include <mutex>
#include <string>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast::inject {

namespace {

constexpr site_row k_common[] = {{k_event_log, site_role::repair, "event_log", "an event while it waits in the log"}};

// Tables of other sources are registered before this source's own objects are made, so the register is made at its first use.
struct site_register {
  std::mutex mutex;
  std::vector<const site_table*> tables;
};
site_register& all() {
  static site_register made;
  return made;
}

// Returns the row of a site among the common ones and in `tables`; null if there is none.
const site_row* row_in(const std::vector<const site_table*>& tables, site wanted) {
  for (const site_row& row : k_common) {
    if (row.site == wanted) return &row;
  }
  for (const site_table* const table : tables) {
    const auto found = std::ranges::find(table->rows, wanted, &site_row::site);
    if (found != table->rows.end()) return &*found;
  }
  return nullptr;
}

[[noreturn]] void refuse(const site_row& row, std::string_view expected) {
  throw invalid_argument_error(fmt::format("inject: site {}: expected {}", row.name, expected));
}

}  // namespace

void register_sites(const site_table& table) {
  site_register& in = all();
  const std::scoped_lock lock(in.mutex);
  if (std::ranges::find(in.tables, table.operation, &site_table::operation) != in.tables.end())
    throw invalid_argument_error(fmt::format("inject: operation: expected one that is not registered yet, got {}", table.operation));
  for (auto row = table.rows.begin(); row != table.rows.end(); ++row) {
    if (row->operation().empty() || row->operation() != table.operation)
      refuse(*row, fmt::format("a name that begins with \"{}.\"", table.operation));
    if (row->site != site_of(std::string(row->name).c_str())) refuse(*row, "site_of of the same name");
    const auto same = std::find_if(table.rows.begin(), row, [&](const site_row& other) { return other.site == row->site; });
    const site_row* const other = same != row ? &*same : row_in(in.tables, row->site);
    if (other != nullptr) refuse(*row, fmt::format("an identity of its own, got that of {}", other->name));
  }
  const auto carrier = std::ranges::find(table.rows, table.carrier, &site_row::site);
  if (carrier == table.rows.end() || carrier->role != site_role::data)
    throw invalid_argument_error(fmt::format("inject: operation {}: expected a data site of its own as carrier", table.operation));
  in.tables.insert(std::ranges::upper_bound(in.tables, table.operation, {}, &site_table::operation), &table);
}

std::vector<const site_table*> site_tables() {
  site_register& in = all();
  const std::scoped_lock lock(in.mutex);
  return in.tables;
}

std::span<const site_row> common_sites() noexcept { return k_common; }

std::vector<site_row> sites() {
  std::vector<site_row> made;
  for (const site_table* const table : site_tables()) made.insert(made.end(), table->rows.begin(), table->rows.end());
  made.insert(made.end(), std::begin(k_common), std::end(k_common));
  return made;
}

const site_row& row_of(site wanted) {
  if (const site_row* const found = row_in(site_tables(), wanted)) return *found;
  throw invalid_argument_error(
      fmt::format("inject: site: expected one that an operation has registered, got number {:#010x}", static_cast<std::uint32_t>(wanted)));
}

}  // namespace ballast::inject
