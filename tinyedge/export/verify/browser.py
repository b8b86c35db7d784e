"""Running bundles in a real browser: Chromium, by playwright, on its software WebGPU adapter.

`Browser` starts Chromium once; `Browser.run` replays a bundle in a fresh page and brings the
outputs back as numpy arrays. `tinyedge verify --browser` and the tests use it. playwright is
imported only when a browser is opened.

Chromium is looked for as `executable`, then on the PATH, then as playwright's own download.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tinyedge.core.dtype import codes
from tinyedge.core.errors import DeviceError, TinyedgeError
from tinyedge.export.bundle.dtypes import held
from tinyedge.export.package.web import MODULES, web_file
from tinyedge.serve import Server

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
SOFTWARE = "--use-webgpu-adapter=swiftshader"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

BLANK = "tinyedge-blank.html"
_PAGES = {BLANK: ("text/html; charset=utf-8", "<!doctype html><title>tinyedge</title>")}

# Arrays travel as base64 inside the JSON that playwright exchanges with the page.
_PRELUDE = """
const types = {
  bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  float16: Uint16Array, uint32: Uint32Array, int32: Int32Array, uint64: BigUint64Array,
  int64: BigInt64Array, float32: Float32Array, float64: Float64Array,
};
function decode(value) {
  const bytes = Uint8Array.from(atob(value.data), (c) => c.charCodeAt(0));
  return {data: new types[value.dtype](bytes.buffer), shape: value.shape};
}
function encode(output) {
  const bytes = new Uint8Array(output.data.buffer, output.data.byteOffset, output.data.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) {
    text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  }
  return {dtype: output.dtype, shape: output.shape, data: btoa(text)};
}
function failure(error) {
  return {error: {
    id: String(error.id ?? ""), subject: String(error.subject ?? ""),
    because: String(error.because ?? ""), next: String(error.next ?? ""),
    message: String(error.message ?? error),
  }};
}
"""

_RUN = (
    "async ({url, folder, cases, entries, options}) => {"
    + _PRELUDE
    + """
  try {
    const {load} = await import(url);
    const started = performance.now();
    const model = await load(folder, options);
    const loadTime = performance.now() - started;
    const results = [], times = [];
    for (const [i, inputs] of cases.entries()) {
      const given = Object.fromEntries(inputs.map(([name, value]) => [name, decode(value)]));
      const before = performance.now();
      const outputs = await model.run(given, {entry: entries[i] || undefined});
      times.push(performance.now() - before);
      results.push(Object.entries(outputs).map(([name, value]) => [name, encode(value)]));
    }
    const states = [];
    for (const {name} of model.states) states.push([name, encode(await model.getState(name))]);
    const stats = {...model.stats, loadTime, times, states};
    model.dispose();
    return {results, stats};
  } catch (error) { return failure(error); }
}"""
)

_VERIFY = (
    "async ({url, folder, options, nodes}) => {"
    + _PRELUDE
    + """
  try {
    const {load} = await import(url);
    const model = await load(folder, options);
    const report = nodes ? await model.compare() : await model.verify();
    model.dispose();
    return {report};
  } catch (error) { return failure(error); }
}"""
)


class BrowserRunError(TinyedgeError):
    """An error the JS runtime raised in the page, with the id it gave."""


@dataclass
class Browser:
    """A running Chromium. Use `open_browser()`; close with `close()`."""

    playwright: Any
    chromium: Any
    violations: list[str] = field(default_factory=list)

    def close(self) -> None:
        self.chromium.close()
        self.playwright.stop()

    @contextmanager
    def page(
        self,
        folder: str | Path,
        start: str = BLANK,
        pages: Mapping[str, tuple[str, str]] | None = None,
    ) -> Iterator[Any]:
        """A page at `start` of a loopback server for `folder`, in its own context.

        pages: what else is served, see `serve.application`. Where they bring tinyedge.js they bring
        what it fetches. Messages of the console that name the content policy are collected in
        `violations`.
        """
        served = {**_PAGES, **(pages or {})}
        if "tinyedge.js" in served:
            for name in MODULES:
                text = web_file(f"src/{name}").read_text(encoding="utf-8")
                served[name] = ("text/javascript; charset=utf-8", text)
        with Server(folder, pages=served) as server:
            context = self.chromium.new_context()
            try:
                page = context.new_page()
                page.on("console", self._console)
                page.goto(server.url + start)
                yield page
            finally:
                context.close()

    def run_in_page(
        self,
        bundle: str | Path,
        inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        entry: str | Sequence[str] = "",
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Load `bundle` in a fresh page and run it once for each mapping of input arrays.

        entry: which entry runs, or one for each run. Returns (outputs, stats): outputs is a dict of
        numpy arrays by name, or a list of them where `inputs` is a sequence; stats are the
        runtime's counters with `loadTime` and `times` in milliseconds, and `states`, their values
        at the end. Raises BrowserRunError with the runtime's error id.
        """
        cases = [inputs] if isinstance(inputs, Mapping) else list(inputs)
        entries = [entry] * len(cases) if isinstance(entry, str) else list(entry)
        answer = self._ask(
            _RUN,
            bundle,
            {
                "cases": [[[n, encode(value)] for n, value in case.items()] for case in cases],
                "entries": entries,
                "options": dict(options or {}),
            },
        )
        results = [{name: decode(value) for name, value in result} for result in answer["results"]]
        stats = answer["stats"]
        stats["states"] = {name: decode(value) for name, value in stats["states"]}
        return (results[0] if isinstance(inputs, Mapping) else results), stats

    def verify(
        self, bundle: str | Path, options: Mapping[str, Any] | None = None, nodes: bool = False
    ) -> dict[str, Any]:
        """The report of the bundle's goldens, as the JS runtime's `verify()` gives it; with `nodes`
        that of `compare()`.
        """
        answer = self._ask(_VERIFY, bundle, {"options": dict(options or {}), "nodes": nodes})
        report: dict[str, Any] = answer["report"]
        return report

    def _ask(self, script: str, bundle: str | Path, arguments: dict[str, Any]) -> Any:
        folder = Path(bundle)
        if not (folder / "tinyedge.js").is_file():
            pages = {"tinyedge.js": ("text/javascript; charset=utf-8", runtime_source())}
        else:
            pages = {}
        with self.page(folder, pages=pages) as page:
            answer = page.evaluate(script, {"url": "/tinyedge.js", "folder": "/", **arguments})
        if "error" in answer:
            error = answer["error"]
            raise BrowserRunError(
                error["subject"] or str(bundle),
                error["because"] or error["message"],
                id=error["id"] or "browser.script",
                next=error["next"],
            )
        return answer

    def _console(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.violations.append(message.text)


def open_browser(executable: str = "", *, software: bool = True) -> Browser:
    """Start headless Chromium. Raises DeviceError when playwright or a browser is missing.

    software: use the software adapter (the same everywhere) rather than the machine's GPU.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise DeviceError(
            "the browser",
            "the package playwright, which drives Chromium, is not installed",
            id="browser.package",
            next="pip install '.[browser]' in a checkout of tinyedge",
        ) from error
    found = executable or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    try:
        playwright = sync_playwright().start()
    except Error as error:
        raise DeviceError(
            "the browser",
            f"playwright did not start: {str(error).splitlines()[0]}",
            id="browser.start",
            next="in a notebook or other asynchronous code, do this in a thread of its own",
        ) from error
    try:
        chromium = playwright.chromium.launch(
            executable_path=found,
            headless=True,
            args=[*FLAGS, *([SOFTWARE] if software else [])],
        )
    except Error as error:
        playwright.stop()
        raise DeviceError(
            "the browser",
            f"Chromium did not start: {str(error).splitlines()[0]}",
            id="browser.start",
            next="install Chromium (the package chromium, or `playwright install chromium`)",
        ) from error
    return Browser(playwright, chromium)


def runtime_source() -> str:
    """The text of the JS runtime as bundles carry it."""
    return web_file("src/tinyedge.js").read_text(encoding="utf-8")


def encode(value: Any) -> dict[str, Any]:
    """An array as the page's scripts take it."""
    array = codes(value)
    # ascontiguousarray makes a scalar one-dimensional, so the shape is taken first.
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "data": base64.b64encode(data.tobytes()).decode("ascii"),
    }


def decode(value: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """An array as the page's scripts give it."""
    flat = np.frombuffer(base64.b64decode(value["data"]), dtype=held(value["dtype"]).numpy)
    array: np.ndarray[Any, Any] = flat.reshape(value["shape"]).copy()
    return array
