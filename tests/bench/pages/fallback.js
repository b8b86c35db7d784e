// A bundle, by its program for WebAssembly.
import {start} from "/pages/bundle.js";

start("fallback", {backend: "wasm"});
