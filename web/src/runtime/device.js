// Finding a GPU, what a bundle needs of it, and the loss of a device.

/** @typedef {Record<string, any>} Json */

import {TinyedgeError, fail} from "./errors.js";

/**
 * The error of each device, once it is lost. Nothing here holds a model: a shared device may outlive many.
 * `told`: what to call then; `final`: it was destroyed on purpose.
 * @typedef {{cause?: Error, final?: boolean, told: Set<() => void>}} Loss
 * @type {WeakMap<GPUDevice, Loss>}
 */
const LOST = new WeakMap();

/** @param {GPUDevice} device */
export function lossOf(device) {
  let loss = /** @type {Loss} */ (LOST.get(device));
  if (!loss) {
    LOST.set(device, (loss = {told: new Set()}));
    device.lost.then(({message, reason}) => {
      loss.final = reason === "destroyed";
      loss.cause = new TinyedgeError(
        "device.lost",
        "the device",
        `it was lost: ${message}`,
        loss.final ? "load the model again" : "run again",
      );
      for (const tell of loss.told) tell();
    });
  }
  return loss;
}

/** A size in whole vectors of 16 bytes. @param {number} bytes */
export const whole = (bytes) => Math.ceil(bytes / 16) * 16;

/** @param {GPUPowerPreference} [powerPreference] @returns {Promise<GPUAdapter>} */
export async function findAdapter(powerPreference = "high-performance") {
  const gpu = globalThis.navigator?.gpu,
    subject = "WebGPU";
  if (!gpu) {
    fail(
      "device.webgpu",
      subject,
      globalThis.isSecureContext == false ? "only https and localhost have it" : "it is not here",
      "use a newer browser",
    );
  }
  const adapter =
      (await gpu.requestAdapter({powerPreference})) ??
      // Of older devices and of OpenGL ES; what a bundle needs of it is compared all the same.
      (await gpu.requestAdapter({powerPreference, featureLevel: "compatibility"}));
  return adapter ?? fail("device.adapter", subject, "there is no GPU", "turn on hardware acceleration");
}

/** Whether an adapter computes on the processor. Chromium before 136 says so beside `info`; Safari 26 does not, it has GPUs alone. */
export const isSoftware = (adapter) => adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter;
