// onnxruntime-web takes numbers: a page draws the video on a canvas, and scales the pixels.
import {start} from "/pages/camera.js";
import {readInputs} from "/pages/case.js";
import {open} from "/pages/onnxruntime.js";

const MEAN = [0.485, 0.456, 0.406],
  DEVIATION = [0.229, 0.224, 0.225];

start(async (video) => {
  const {ort, session} = await open("webgpu"),
    [[name, {shape}]] = Object.entries(await readInputs()),
    last = shape[3] === 3, // channels
    [height, width] = last ? shape.slice(1) : shape.slice(2),
    area = height * width,
    [pixel, plane] = last ? [3, 1] : [1, area],
    context = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  return {
    run() {
      context.drawImage(video, 0, 0, width, height);
      const {data} = context.getImageData(0, 0, width, height),
        values = new Float32Array(3 * area);
      for (let i = 0; i < area; i++)
        for (let c = 0; c < 3; c++)
          values[c * plane + i * pixel] = (data[4 * i + c] / 255 - MEAN[c]) / DEVIATION[c];
      return session.run({[name]: new ort.Tensor("float32", values, shape)});
    },
  };
});
