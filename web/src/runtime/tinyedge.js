// tinyedge: replays a bundle (see bundle.md, format version 1) on WebGPU. No dependencies, no eval.
//
//   const model = await load("./model.tinyedge/");
//   const out = await model.run({image: new Float32Array(3 * 224 * 224)});
//   out.scores.data, out.scores.shape;
//   model.dispose();
//
// Bundles carry the modules of this folder as one compressed file: see build.js.

import {Model, extras} from "./model.js";

export {TinyedgeError} from "./errors.js";

/** Of a model with all calls. @type {import("../tinyedge.js").load} */
export const load = /** @type {any} */ (Model.load);

/** @type {import("../tinyedge.js").requirements} */
export const requirements = async (...given) => (await extras()).requirements(...given);
