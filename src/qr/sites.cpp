// The table of the sites of QR, in the order in which a computation reaches them.
#include "qr/sites.hpp"

#include "inject/sites.hpp"

namespace ballast::qr::site {

namespace {

using inject::site_role;

constexpr inject::site_row k_rows[] = {
    {transfer, "qr.transfer", site_role::data,
     "a panel as it arrives on the host, and what comes back from there: V and R, T (scheme hybrid)"},
    {panel, "qr.panel", site_role::data,
     "the panel before it is factored, after its entry check; of a tall one on cuda also its Gram matrices and triangular factors"},
    {reflector, "qr.reflector", site_role::data,
     "the vectors V: of a panel as it was factored, after it was verified, or when all is done"},
    {tau, "qr.tau", site_role::data, "the scalars tau of a factored panel"},
    {t, "qr.t", site_role::data, "the triangular factor T of a block reflector, before or after it was verified"},
    {product, "qr.product", site_role::data, "the product VᵀC of a trailing update or of an application of Q"},
    {trailing, "qr.trailing", site_role::data, "a block of the trailing matrix after its update"},
    {r, "qr.r", site_role::data, "the finished rows of R, before the final check"},
    {q, "qr.q", site_role::data, "a block of C while Q is applied to it (ormqr, orgqr, gels)"},
    {checksum, "qr.checksum", site_role::checker, "the checksum columns of a block before they are compared"},
    {threshold, "qr.threshold", site_role::checker, "the threshold of a comparison"},
    {comparison, "qr.comparison", site_role::checker, "the outcome of a comparison"},
    {corrector, "qr.corrector", site_role::repair, "a rebuilt element, before it is verified"},
};

constexpr inject::site_table k_table = {"qr", trailing, k_rows};

const inject::registration k_registered(k_table);

}  // namespace

const inject::site_table& table() noexcept { return k_table; }

}  // namespace ballast::qr::site
