// The model as a package, for bundlers: each file is named, so that they bring it along. From "./model.tinyedge/index.js", or by
// the name in package.json:
//
//   import {load} from "model";
//   const model = await load();

import {load as open} from "./tinyedge.js";

const files = {
  // <files>
};

export {TinyedgeError} from "./tinyedge.js";

/** Load this model. */
export const load = (options) => open(files["manifest.json"], {files, ...options});
