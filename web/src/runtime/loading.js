// What a load uses beside tinyedge.js, which fetches this along with the manifest.

export {again} from "./network.js";
export {deviceFor, neededLimits, openDevice} from "./opening.js";
export {start} from "./start.js";
