// The table of the sites of the sum, in the order in which a computation reaches them.
#include "skeleton/sites.hpp"

#include "inject/sites.hpp"

namespace ballast::skeleton::site {

namespace {

using inject::site_role;

constexpr inject::site_row k_rows[] = {
    {partial, site_role::data, "skeleton.partial", "a sum over all numbers of one row that a thread has loaded"},
    {checksum, site_role::checker, "skeleton.checksum", "the same from the other loads, and the sum of absolute values"},
    {comparison, site_role::checker, "skeleton.comparison", "the outcome of the comparison"},
};

constexpr inject::site_table k_table = {"skeleton", partial, k_rows};

const inject::registration k_registered(k_table);

}  // namespace

const inject::site_table& table() noexcept { return k_table; }

}  // namespace ballast::skeleton::site
