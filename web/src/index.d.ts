// Types of index.js: those of tinyedge.js, but `load` needs no address.

import type {LoadOptions, Model} from "./tinyedge.js";

export * from "./tinyedge.js";

/** Load this model. */
export declare function load(options?: LoadOptions): Promise<Model>;
