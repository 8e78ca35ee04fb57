// The whole of Ballast: protected FFT, K-Means and QR.
#pragma once

#include <ballast/convolve.hpp>
#include <ballast/error.hpp>
#include <ballast/execution.hpp>
#include <ballast/fft.hpp>
#include <ballast/fft_group.hpp>
#include <ballast/group.hpp>
#include <ballast/info.hpp>
#include <ballast/kmeans.hpp>
#include <ballast/mini_batch.hpp>
#include <ballast/pending_report.hpp>
#include <ballast/qr.hpp>
#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>
#include <ballast/qr_grid.hpp>
#include <ballast/qr_rows.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>
#include <ballast/version.hpp>
#include <ballast/view.hpp>
