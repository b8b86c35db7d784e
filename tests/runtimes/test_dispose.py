"""What models made on a device that the page keeps: all of it is destroyed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.runtimes.site import Site, evaluate

pytestmark = pytest.mark.browser

# `alive`: what a device has made of what only `destroy` gives back for certain.
COUNTING = """
const alive = new Map();
for (const kind of ["Buffer", "Texture", "QuerySet"]) {
  const make = GPUDevice.prototype[`create${kind}`];
  GPUDevice.prototype[`create${kind}`] = function (descriptor) {
    const made = make.call(this, descriptor);
    alive.set(made, `${kind} ${descriptor.label ?? ""}`);
    return made;
  };
  const {prototype} = globalThis[`GPU${kind}`], {destroy} = prototype;
  prototype.destroy = function () {
    alive.delete(this);
    return destroy.call(this);
  };
}
const adapter = await navigator.gpu.requestAdapter(),
  device = await adapter.requestDevice({requiredFeatures: ["timestamp-query"]});
const off = new OffscreenCanvas(12, 10), context = off.getContext("2d");
context.fillRect(2, 3, 5, 4);
"""
USED = """
const models = [], found = {};
for (const kind of ["pictures", "states", "pictures"])
  models.push(await load(`/${kind}/`, {device, recover: "states"}));
const [first, counter, second] = models;
await Promise.all([1, 2, 3].map(() => counter.run({x: [1, 2, 3, 4]})));
await counter.run({x: await counter.inputBuffer("x")});
await counter.profile({x: [1, 2, 3, 4]});
await counter.saveStates();
await counter.verify();
for (const model of [first, second]) {
  const {gray, color} = await model.run({x: off}, {keep: ["gray", "color"]});
  const small = new OffscreenCanvas(3, 3), colors = [[0, 0, 0], [9, 9, 9]];
  await model.toCanvas(gray, small, {range: "auto"});
  await model.toCanvas(color, small);
  await model.toCanvas(gray, small, {colors});
  await model.run({x: {image: off, crop: {width: 6, height: 6}, rotate: 90}});
  await model.profile({x: off});
}
const texture = device.createTexture({size: [8, 8], format: "r32float", usage: 17});
await first.run({x: off}, {into: {gray: texture}});
texture.destroy();
found.before = alive.size;
first.dispose();
found.between = alive.size;
found.goesOn = (await second.run({x: off})).gray.data.length;
counter.dispose();
second.dispose();
found.after = [...alive.values()];
return found;
"""


@pytest.fixture
def place(site: Site) -> Site:
    """With a model of pictures, and one with a state, which has golden runs."""

    def shades(x: Any) -> dict[str, Any]:
        return {"gray": x.mean(0), "color": x * 1}

    def counter(x: Any, sum: Any) -> dict[str, Any]:
        return {"total": x + sum, "next": x + sum}

    zeros = np.zeros((3, 8, 8), np.float32)
    pictures = {"x": "0..1,max:64"}
    tinyedge.export_function(
        shades, {"x": zeros}, target="webgpu", out=site.folder / "pictures", images=pictures
    )
    four = np.zeros(4, np.float32)
    tinyedge.export_function(
        counter,
        {"x": four, "sum": four},
        target="webgpu",
        out=site.folder / "states",
        states={"sum": "next"},
    )
    return site


def test_nothing_is_left_on_a_shared_device(cinema: Any, place: Site) -> None:
    """Of pictures, canvases, textures, inputs, states, profiles and verifications."""
    with cinema.new_context() as context:
        page = context.new_page()
        page.goto(place.url)
        got = evaluate(page, COUNTING + USED)
    assert got["before"] > got["between"] > 0, got
    assert got["goesOn"] == 64
    assert got["after"] == []
