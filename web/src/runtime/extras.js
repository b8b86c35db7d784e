// What tinyedge.js fetches when it is first asked for.

export {toCanvas} from "./canvas.js";
export {compare, example, profile, requirements, verify} from "./diagnostics.js";
export {keepStates, reopen} from "./recover.js";
export {loadStates, saveStates} from "./states.js";
export {deliver, inputBuffer} from "./stream.js";
