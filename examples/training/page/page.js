// A page that trains: the bundle's entry `train` is one step, `main` reads digits.

import {load} from "./digits.tinyedge/tinyedge.js";

const SIZE = 28;
const PIXELS = SIZE * SIZE;
const BATCH = 100;
const MOST = 500;  // digits that are read at once
const SHIFT = 2;   // pixels

const $ = id => document.getElementById(id);
const say = text => { $("status").textContent = text; };

/** Digits as bytes: images of 28 x 28, and what each is. */
async function digits(name) {
  const parts = ["images", "labels"].map(async part => {
    const answer = await fetch(`${name}-${part}.bin`);
    if (!answer.ok) throw new Error(`${name}-${part}.bin: ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  });
  const [images, labels] = await Promise.all(parts);
  return {images, labels, count: labels.length};
}

/** Numbers from 0 to count - 1 in any order. */
function shuffled(count) {
  const order = Uint32Array.from({length: count}, (_, n) => n);
  for (let n = count - 1; n > 0; n--) {
    const other = Math.floor(Math.random() * (n + 1));
    [order[n], order[other]] = [order[other], order[n]];
  }
  return order;
}

/** One digit into `to`, from 0 to 1, moved down and to the right; what comes in from outside is 0. */
function put(to, place, images, which, down, right) {
  for (let y = 0; y < SIZE; y++) {
    for (let x = 0; x < SIZE; x++) {
      const [fromY, fromX] = [y - down, x - right];
      const inside = fromY >= 0 && fromY < SIZE && fromX >= 0 && fromX < SIZE;
      to[place * PIXELS + y * SIZE + x] =
        inside ? images[which * PIXELS + fromY * SIZE + fromX] / 255 : 0;
    }
  }
}

const shift = () => Math.floor(Math.random() * (2 * SHIFT + 1)) - SHIFT;

/** One epoch; `seen` gets the loss of each step. */
export async function epoch(model, data, seen) {
  const image = new Float32Array(BATCH * PIXELS);
  const target = new Int32Array(BATCH);
  const order = shuffled(data.count);
  for (let begin = 0; begin + BATCH <= data.count; begin += BATCH) {
    for (let n = 0; n < BATCH; n++) {
      const which = order[begin + n];
      put(image, n, data.images, which, shift(), shift());
      target[n] = data.labels[which];
    }
    const {loss} = await model.run({image, target}, {entry: "train"});
    seen(loss.data[0]);
  }
}

/** Which part of the digits is read rightly. */
export async function accuracy(model, data) {
  let right = 0;
  for (let begin = 0; begin < data.count; begin += MOST) {
    const count = Math.min(MOST, data.count - begin);
    const pixels = new Float32Array(count * PIXELS);
    for (let n = 0; n < count; n++) put(pixels, n, data.images, begin + n, 0, 0);
    const {output} = await model.run({image: {data: pixels, shape: [count, 1, SIZE, SIZE]}});
    for (let n = 0; n < count; n++) {
      const likely = output.data.subarray(n * 10, n * 10 + 10);
      right += Number(likely.indexOf(Math.max(...likely)) === data.labels[begin + n]);
    }
  }
  return right / data.count;
}

/** The canvas as the digits are: in a box of 20 x 20, its center of mass in the middle. */
function drawn(canvas) {
  const {width, height} = canvas;
  const ink = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (!ink[4 * (y * width + x) + 3]) continue;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
    }
  }
  if (right < 0) return null;
  const scale = 20 / Math.max(right - left + 1, bottom - top + 1);
  const small = new OffscreenCanvas(SIZE, SIZE).getContext("2d", {willReadFrequently: true});
  const [w, h] = [(right - left + 1) * scale, (bottom - top + 1) * scale];
  small.imageSmoothingQuality = "high";
  const place = (dx, dy) => {
    small.clearRect(0, 0, SIZE, SIZE);
    small.drawImage(canvas, left, top, right - left + 1, bottom - top + 1,
                    (SIZE - w) / 2 + dx, (SIZE - h) / 2 + dy, w, h);
    const {data} = small.getImageData(0, 0, SIZE, SIZE);  // 4 bytes a pixel; ink is white
    return Float32Array.from({length: PIXELS}, (_, n) => data[4 * n + 3] / 255);
  };
  let [mass, x, y] = [0, 0, 0];
  place(0, 0).forEach((value, n) => {
    mass += value;
    x += value * (n % SIZE + 0.5);
    y += value * (Math.floor(n / SIZE) + 0.5);
  });
  return place(SIZE / 2 - x / mass, SIZE / 2 - y / mass);
}

function show(losses) {
  const top = Math.max(...losses, 1e-9);
  const points = losses.map((loss, n) =>
    `${(n / Math.max(losses.length - 1, 1) * 640).toFixed(1)},${(195 - loss / top * 190).toFixed(1)}`);
  $("line").setAttribute("points", points.join(" "));
}

/** What ends an epoch that the user stops. */
class Stopped extends Error {}

async function start() {
  const [model, train, test] = await Promise.all(
    [load("./digits.tinyedge/"), digits("train"), digits("test")]);
  const guesses = Array.from({length: 10}, () => {
    const meter = document.createElement("meter");
    const item = document.createElement("li");
    item.append(meter);
    $("guesses").append(item);
    return meter;
  });
  guesses.forEach((meter, digit) => meter.setAttribute("aria-label", `how likely it is a ${digit}`));

  async function guess() {
    const data = drawn($("draw"));
    const {output} = data ? await model.run({image: {data, shape: [1, 1, SIZE, SIZE]}}) : {};
    guesses.forEach((meter, digit) => { meter.value = output ? output.data[digit] : 0; });
  }

  let losses = [];
  let training = false;
  const controls = ["reset", "save", "load"].map($);
  const busy = now => {
    training = now;
    $("train").textContent = now ? "Stop" : "Train";
    for (const control of controls) control.disabled = now;
  };

  async function learn() {
    if (training) { training = false; return; }
    busy(true);
    say("Training: how many of 2,000 other digits are read rightly is said after each epoch.");
    try {
      while (training) {
        const begin = performance.now();
        await epoch(model, train, loss => {
          losses.push(loss);
          if (losses.length % 10 === 0) show(losses);
          if (!training) throw new Stopped();
        });
        const seconds = ((performance.now() - begin) / 1000).toFixed(1);
        say(`${(100 * await accuracy(model, test)).toFixed(2)} % of 2,000 other digits are read rightly ` +
            `(an epoch took ${seconds} s)`);
        await guess();
      }
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      say(`stopped after ${losses.length} steps`);
    } finally {
      busy(false);
    }
  }
  const told = action => () => action().catch(error => say(error.message));
  $("train").onclick = told(learn);
  $("reset").onclick = told(async () => {
    await model.reset();
    losses = [];
    show(losses);
    say("It knows nothing.");
  });
  $("save").onclick = told(async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await model.saveStates());
    link.download = "digits.safetensors";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href));
  });
  $("load").onchange = told(async () => {
    const [file] = $("load").files;
    if (!file) return;
    await model.loadStates(file);
    say(`${(100 * await accuracy(model, test)).toFixed(2)} % of 2,000 digits are read rightly`);
  });

  const canvas = $("draw");
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  Object.assign(pen, {lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "white"});
  const at = event => [event.offsetX * canvas.width / canvas.clientWidth,
                       event.offsetY * canvas.height / canvas.clientHeight];
  canvas.onpointerdown = event => {
    canvas.setPointerCapture(event.pointerId);
    pen.beginPath();
    pen.moveTo(...at(event));
  };
  canvas.onpointermove = event => {
    if (!event.buttons) return;
    pen.lineTo(...at(event));
    pen.stroke();
  };
  canvas.onpointerup = told(guess);
  $("clear").onclick = told(async () => {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    await guess();
  });

  $("train").disabled = false;
  busy(false);
  say("Ready: press Train.");
  return {model, train, test};
}

export const ready = start();
ready.catch(error => say(error.message));
