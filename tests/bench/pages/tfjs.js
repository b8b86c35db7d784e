// The same step by TensorFlow.js, on the backend that case/options.json names: by its lowest level, which costs least.
// Images have their channels last, as it wants them.
import {readInputs} from "/pages/case.js";
import {serveSteps} from "/pages/steps.js";

const script = (src) => new Promise((resolve, reject) => {
  document.head.append(Object.assign(document.createElement("script"),
    {src, onload: resolve, onerror: () => reject(new Error(`${src} cannot be loaded`))}));
});

serveSteps(async () => {
  const options = await (await fetch("/case/options.json")).json();
  await script("/tfjs/tfjs/dist/tf.es2017.min.js");
  for (const name of ["wasm", "webgpu"]) {
    if (options.backend === name) await script(`/tfjs/tfjs-backend-${name}/dist/tf-backend-${name}.es2017.min.js`);
  }
  const {tf} = globalThis;
  if (options.backend === "wasm") tf.wasm.setWasmPaths("/tfjs/tfjs-backend-wasm/dist/");
  if (!await tf.setBackend(options.backend)) throw new Error(`no backend ${options.backend}`);
  await tf.ready();
  const [{image, target}, given] = await Promise.all([readInputs("/case/tfjs.json"), readInputs("/case/weights.json")]);
  const weights = Object.values(given).map(({data, shape}) => tf.variable(tf.tensor(data, shape)));
  const [first, firstBias, second, secondBias, wide, wideBias, last, lastBias] = weights;
  const logits = (x) => {
    x = tf.conv2d(x, first, 1, "same").add(firstBias).maxPool(2, 2, "valid").relu();
    x = tf.conv2d(x, second, 1, "valid").add(secondBias).maxPool(2, 2, "valid").relu();
    x = x.reshape([image.shape[0], -1]).matMul(wide).add(wideBias).relu();
    return x.matMul(last).add(lastBias);
  };
  const adam = tf.train.adam(options.rates[0], 0.9, 0.999, 1e-8);
  let steps = 0;
  return async () => {
    adam.learningRate = options.rates[Math.min(steps++, options.rates.length - 1)];
    const cost = tf.tidy(() => adam.minimize(() => {
      const wanted = tf.oneHot(tf.tensor1d(target.data, "int32"), 10);
      return tf.losses.softmaxCrossEntropy(wanted, logits(tf.tensor(image.data, image.shape)));
    }, true, weights));
    const [loss] = await cost.data();
    cost.dispose();
    return loss;
  };
});
