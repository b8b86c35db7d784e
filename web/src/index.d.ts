// Types of index.js: those of tinyedge.js, but `load` needs no address.

import type {LoadOptions, Model, Requirements} from "./tinyedge.js";

export * from "./tinyedge.js";

/** Load this model. */
export declare function load(options?: LoadOptions): Promise<Model>;

/** What this model needs of a device, and how large it is. */
export declare function requirements(
  options?: Pick<LoadOptions, "fetch" | "files" | "integrity" | "signal">,
): Promise<Requirements>;
