// The same model by onnxruntime-web, on its WASM provider.
import {start} from "/pages/onnxruntime.js";

start("wasm");
