// The same model by onnxruntime-web, on its WebGPU provider.
import {start} from "/pages/onnxruntime.js";

start("webgpu");
