// The library's versions, and its description as JSON.
// Layer: interface.
#include <nlohmann/json.hpp>

#include "c/handles.hpp"

using namespace ballast::c;

int32_t ballast_abi_version(void) { return BALLAST_ABI_VERSION; }

const char* ballast_version(void) { return BALLAST_VERSION_TEXT; }

int32_t ballast_info_json(char** text, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(text, "text") = nullptr;
    const ballast::library_information info = ballast::information();
    using json = nlohmann::ordered_json;
    json backends = json::array(), devices = json::array(), sites = json::object(), details = json::array();
    for (const ballast::backend each : info.backends) backends.push_back(to_string(each));
    for (const ballast::device_information& each : info.devices)
      devices.push_back({{"name", each.name},
                         {"compute_capability", each.compute_capability},
                         {"multiprocessors", each.multiprocessors},
                         {"memory", each.memory}});
    for (const ballast::site_information& each : info.sites) {
      sites[each.operation].push_back(each.name);
      details.push_back({{"operation", each.operation}, {"name", each.name}, {"data", each.data}, {"description", each.description}});
    }
    const ballast::cuda_information& cuda = info.cuda;
    const json accelerator = {{"available", cuda.unavailable.empty()},
                              {"unavailable", cuda.unavailable},
                              {"driver", cuda.driver},
                              {"compiler", cuda.compiler},
                              {"without_compiler", cuda.without_compiler},
                              {"bundle", cuda.bundle},
                              {"bundle_kernels", cuda.bundle_kernels},
                              {"without_bundle", cuda.without_bundle},
                              {"cache", cuda.cache},
                              {"cache_state", cuda.cache_state}};
    const json all = {{"version", info.version},
                      {"abi_version", BALLAST_ABI_VERSION},
                      {"backends", backends},
                      {"devices", devices},
                      {"cuda", accelerator},
                      {"simd", info.simd},
                      {"blas", info.blas},
                      {"threads", info.threads},
                      {"instrumented", info.instrumented},
                      {"sites", sites},
                      {"site_details", details},
                      {"models", info.models}};
    // Names of files may be no UTF-8.
    *text = copy_of(all.dump(-1, ' ', false, json::error_handler_t::replace));
  });
}

int32_t ballast_better_blas_kernels(char** text, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(text, "text") = nullptr;
    *text = copy_of(ballast::better_blas_kernels());
  });
}
