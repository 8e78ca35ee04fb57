"""Protected Fourier transforms with the functions of numpy.fft.

Arguments and results are those of numpy.fft, with these additions from scipy.fft, as keywords: `workers` (the number of threads; -1 is
every core), `overwrite_x` (the input may be used as working memory), and the functions hfft2, ihfft2, hfftn, ihfftn, next_fast_len and
prev_fast_len; and scipy.fft's cosine and sine transforms dct, dst, dctn, dstn and their inverses. float32 stays float32, float16 becomes it; long double raises UnsupportedTypeError (a TypeError).

Each call leaves a report: ballast.last_report(). Plans are kept for the next call: clear_plans() frees them.
"""

from ._helper import fftfreq, fftshift, ifftshift, next_fast_len, prev_fast_len, rfftfreq
from ._real import dct, dctn, dst, dstn, idct, idctn, idst, idstn
from ._transforms import (clear_plans, fft, fft2, fftn, hfft, hfft2, hfftn, ifft, ifft2, ifftn, ihfft, ihfft2, ihfftn, irfft, irfft2,
                          irfftn, rfft, rfft2, rfftn)

__all__ = ["clear_plans", "dct", "dctn", "dst", "dstn", "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "idct", "idctn",
           "idst", "idstn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "next_fast_len",
           "prev_fast_len", "rfft", "rfft2", "rfftfreq", "rfftn"]
