// The table of the sites of QR, in the order in which a computation reaches them.
#include "qr/sites.hpp"

#include "inject/sites.hpp"

namespace ballast::qr::site {

namespace {

using inject::site_role;

constexpr inject::site_row k_rows[] = {
    {transfer, site_role::data, "qr.transfer",
     "a panel as it arrives on the host, and what comes back from there: V and R, T (scheme hybrid)"},
    {panel, site_role::data, "qr.panel",
     "the panel before it is factored, after its entry check; of a tall one on cuda also its Gram matrices and triangular factors"},
    {reflector, site_role::data, "qr.reflector",
     "the vectors V: of a panel as it was factored, after it was verified, or when all is done"},
    {tau, site_role::data, "qr.tau", "the scalars tau of a factored panel"},
    {t, site_role::data, "qr.t", "the triangular factor T of a block reflector, before or after it was verified"},
    {product, site_role::data, "qr.product", "the product VᵀC of a trailing update or of an application of Q"},
    {trailing, site_role::data, "qr.trailing", "a block of the trailing matrix after its update"},
    {r, site_role::data, "qr.r", "the finished rows of R, before the final check"},
    {q, site_role::data, "qr.q", "a block of C while Q is applied to it (ormqr, orgqr, gels)"},
    {store, site_role::data, "qr.store",
     "a copied operand or result: of ormqr, orgqr and gels, of geqrf for views that it cannot work on, and of R and X in a solve on ranks"},
    {column_norm, site_role::data, "qr.column_norm", "the norms of the remaining columns that decide on the next pivot (geqp3, gelsy)"},
    {pivot, site_role::data, "qr.pivot",
     "the number of the chosen column (geqp3, gelsy); R's diagonal as its owner looks for a missing pivot (solve of block columns)"},
    {permutation, site_role::data, "qr.permutation", "the stored numbers of the columns in their new order (geqp3, gelsy)"},
    {checksum, site_role::checker, "qr.checksum", "the checksum columns of a block before they are compared"},
    {threshold, site_role::checker, "qr.threshold", "the threshold of a comparison"},
    {comparison, site_role::checker, "qr.comparison", "the outcome of a comparison"},
    {corrector, site_role::repair, "qr.corrector", "a rebuilt element, before it is verified"},
};

constexpr inject::site_table k_table = {"qr", trailing, k_rows};

const inject::registration k_registered(k_table);

}  // namespace

const inject::site_table& table() noexcept { return k_table; }

}  // namespace ballast::qr::site
