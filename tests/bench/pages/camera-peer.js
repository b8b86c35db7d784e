// onnxruntime-web takes numbers: a page draws the video on a canvas, and scales the pixels.
import {start} from "/pages/camera.js";
import {readInputs} from "/pages/case.js";
import {open} from "/pages/onnxruntime.js";

const MEAN = [0.485, 0.456, 0.406],
  DEVIATION = [0.229, 0.224, 0.225];

start(async (video) => {
  const {ort, session} = await open("webgpu"),
    [[name, {shape}]] = Object.entries(await readInputs()),
    [, channels, height, width] = shape,
    area = height * width,
    context = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  return {
    run() {
      context.drawImage(video, 0, 0, width, height);
      const {data} = context.getImageData(0, 0, width, height),
        values = new Float32Array(channels * area);
      for (let i = 0; i < area; i++)
        for (let c = 0; c < channels; c++)
          values[c * area + i] = (data[4 * i + c] / 255 - MEAN[c]) / DEVIATION[c];
      return session.run({[name]: new ort.Tensor("float32", values, shape)});
    },
  };
});
