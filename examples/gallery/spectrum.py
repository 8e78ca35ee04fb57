"""The spectrum of two tones in noise, struck by one flipped bit, without protection and with it.

Usage: spectrum.py FOLDER     writes FOLDER/spectrum.svg
Exit status 1 unless the fault puts a line into the first spectrum that is not in the signal, and the second equals the clean one bit by bit.
"""

import struck  # first: it chooses the extension

import matplotlib.pyplot as plt
import numpy as np

import ballast

SAMPLES = 2048  # of one second
TONES = {50: 1.0, 120: 0.5}  # Hz: amplitude
# Bit 54 is one of a double's exponent: the flip multiplies or divides one number of a stage by 2^4. The processor's vectors decide which
# number a seed strikes; one that is nearly zero shows nowhere, then the next seed.
FAULTS = [f"site=fft.stage,model=bit_flip,bit=54,seed={seed}" for seed in range(1, 33)]


def main():
    folder = struck.folder()
    time = np.arange(SAMPLES) / SAMPLES
    signal = sum(size * np.sin(2 * np.pi * tone * time) for tone, size in TONES.items())
    signal += 0.3 * np.random.default_rng(0).standard_normal(SAMPLES)

    def amplitude(spectrum):
        return 2 * np.abs(spectrum) / SAMPLES

    for fault in FAULTS:
        clean, off, on, report = struck.three_runs(lambda: ballast.fft.rfft(signal), fault)
        false = int(np.argmax(np.abs(off - clean)))
        wrong = amplitude(off)[false] > 5 * amplitude(clean)[false]
        if wrong:
            break
    right = np.array_equal(on, clean)
    print(f"protection off: the amplitude at {false} Hz is {amplitude(off)[false]:.3f} instead of {amplitude(clean)[false]:.3f}; on: "
          f"{report.verdict}, {'the same bits as the clean run' if right else 'NOT the same bits as the clean run'}")

    figure, axes = plt.subplots(3, 1, figsize=(8, 5.6), sharex=True)
    rows = ((clean, "clean run", struck.GREY), (off, f"struck, protection off: a line at {false} Hz that is not in the signal", struck.RED),
            (on, f"struck, protection on: {report.verdict}, the same bits as the clean run", struck.GREEN))
    for place, (spectrum, title, colour) in zip(axes, rows):
        place.semilogy(amplitude(spectrum), color=colour, linewidth=0.7)
        place.set_title(title, loc="left", color=colour, fontweight="bold")
        place.set(ylim=(1e-4, 2), xlim=(0, SAMPLES / 2), ylabel="amplitude")
    axes[1].annotate("", (false, amplitude(off)[false]), xytext=(false, 1.2), arrowprops={"arrowstyle": "->", "color": struck.RED})
    axes[-1].set_xlabel("frequency, Hz")
    figure.tight_layout()
    struck.save(figure, folder / "spectrum.svg")
    return 0 if wrong and right else 1


if __name__ == "__main__":
    raise SystemExit(main())
