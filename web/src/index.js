// The model as a package, for bundlers: each file is named, so that they bring it along. From "./model.tinyedge/index.js", or by
// the name in package.json:
//
//   import {load} from "model";
//   const model = await load();

import {load as open, requirements as of} from "./tinyedge.js";

const files = {
  // <files>
};

export {TinyedgeError} from "./tinyedge.js";

/** Load this model. */
export const load = (options) => open(files["manifest.json"], {files, ...options});

/** What this model needs of a device, and how large it is. */
export const requirements = (options) => of(files["manifest.json"], {files, ...options});
