// The page of a bundle: loads the bundle it lies in, runs it on generated inputs, images or .npy files, shows outputs.

import {load} from "./tinyedge.js";

const at = (id) => /** @type {any} */ (document.getElementById(id));

/** An element with properties and children; strings become text, never markup. */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const megabytes = (bytes) =>
  bytes < 1e5 ? `${(bytes / 1e3).toFixed(1)} KB` : `${(bytes / 1e6).toFixed(1)} MB`;
const several = (count, name) =>
  `${count} ${name}${count === 1 ? "" : name.endsWith("h") ? "es" : "s"}`;
const number = (value) =>
  typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(5) : String(value);

let model = /** @type {any} */ (null);
let busy = false;

/** Do something with the buttons off, and show what went wrong. */
async function attempt(doing, work) {
  if (busy) return;
  busy = true;
  at("error").hidden = true;
  at("status").textContent = doing;
  for (const button of document.querySelectorAll("button")) button.disabled = true;
  try {
    await work();
    at("status").textContent = "Ready";
  } catch (error) {
    at("status").textContent = "That did not work.";
    at("error").textContent = error.message;
    at("error").hidden = false;
  } finally {
    busy = false;
    for (const button of document.querySelectorAll("button")) button.disabled = !model;
  }
}

// ---- inputs

const chosenEntry = () => at("entry")?.value ?? model.entries[0].name;
const chosenSizes = () =>
  Object.fromEntries(
    Array.from(document.querySelectorAll("input[data-symbol]"), (/** @type {any} */ field) => [
      field.dataset.symbol,
      Number(field.value),
    ]),
  );

const SCALES = {
  "0 to 1": (value) => value / 255,
  "-1 to 1": (value) => value / 127.5 - 1,
  "0 to 255": (value) => value,
  ImageNet: (value, channel) =>
    (value / 255 - [0.485, 0.456, 0.406][channel]) / [0.229, 0.224, 0.225][channel],
};

/** Where channels, rows and columns of an image lie in a shape, or null. */
function imageAxes(shape) {
  if (shape.length < 3 || shape.length > 4 || (shape.length === 4 && shape[0] !== 1)) return null;
  const [a, b, c] = shape.slice(-3),
    colors = [1, 3];
  if (colors.includes(a)) return {channels: a, height: b, width: c, first: true};
  return colors.includes(c) ? {channels: c, height: a, width: b, first: false} : null;
}

/** A picture file scaled to an input's size; shown on the canvas as the model sees it. */
async function readImage(file, shape, scale, canvas, dtype) {
  const {channels, height, width, first} = /** @type {any} */ (imageAxes(shape));
  const picture = await createImageBitmap(file);
  Object.assign(canvas, {width, height, hidden: false});
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(picture, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height).data,
    area = width * height;
  const data =
    dtype === "uint8" ? new Uint8Array(area * channels) : new Float32Array(area * channels);
  for (let i = 0; i < area; i++) {
    for (let channel = 0; channel < channels; channel++) {
      const value =
        channels === 3
          ? pixels[4 * i + channel]
          : 0.299 * pixels[4 * i] + 0.587 * pixels[4 * i + 1] + 0.114 * pixels[4 * i + 2];
      data[first ? channel * area + i : i * channels + channel] =
        dtype === "uint8" ? value : SCALES[scale](value, channel);
    }
  }
  return {data, shape};
}

const NPY = {
  "|b1": Uint8Array,
  "|i1": Int8Array,
  "|u1": Uint8Array,
  "<i2": Int16Array,
  "<u2": Uint16Array,
  "<i4": Int32Array,
  "<u4": Uint32Array,
  "<i8": BigInt64Array,
  "<u8": BigUint64Array,
  "<f2": Uint16Array,
  "<f4": Float32Array,
  "<f8": Float64Array,
};

/** An array file as numpy.save writes it. */
async function readNpy(file) {
  const bytes = new Uint8Array(await file.arrayBuffer()),
    view = new DataView(bytes.buffer);
  const text = (from, to) => String.fromCharCode(...bytes.subarray(from, to));
  if (text(0, 6) !== "\x93NUMPY") throw new Error(`${file.name} is no .npy file`);
  const long = bytes[6] > 1,
    start = long ? 12 : 10;
  const end = start + (long ? view.getUint32(8, true) : view.getUint16(8, true)),
    header = text(start, end);
  const type = /'descr': '([^']+)'/.exec(header)?.[1] ?? "",
    shape = /'shape': \(([^)]*)\)/.exec(header)?.[1];
  if (!NPY[type] || shape === undefined || !header.includes("'fortran_order': False")) {
    throw new Error(
      `${file.name}: a plain array in C order is needed, its header is ${header.trim()}`,
    );
  }
  return {
    data: new NPY[type](bytes.buffer.slice(end)),
    shape: shape
      .split(",")
      .filter((size) => size.trim())
      .map(Number),
  };
}

/** What the bundle was told of an input that takes pictures of any size. */
const declaredPicture = (name) =>
  [model.manifest.options?.images].flat().find((image) => image?.input === name);

/** The picture of a file as it is, shown on the canvas: the model resamples it. */
async function readPicture(file, canvas) {
  const picture = await createImageBitmap(file),
    {width, height} = picture;
  Object.assign(canvas, {width, height, hidden: false}).getContext("2d").drawImage(picture, 0, 0);
  return picture;
}

/** How each input of the entry gets its values: name -> function of the generated example. */
let sources = new Map();

async function showInputs() {
  const example = await model.example({entry: chosenEntry(), symbols: chosenSizes()}),
    entry = model.manifest.entries.find(({name}) => name === chosenEntry());
  sources = new Map();
  at("inputs").replaceChildren(
    ...entry.inputs.map((number) => {
      const port = model.inputs[number],
        {name} = port,
        {shape} = example[name];
      const declared = declaredPicture(name),
        pictured = declared || (imageAxes(shape) && /^(float|uint8$)/.test(port.dtype));
      const kind = element(
        "select",
        {},
        ...["Generated", ...(pictured ? ["Image"] : []), ".npy file"].map((value) =>
          element("option", {}, value),
        ),
      );
      const file = element("input", {type: "file", hidden: true, ariaLabel: `File for ${name}`});
      const scale = element(
        "select",
        {},
        ...Object.keys(SCALES).map((value) => element("option", {}, value)),
      );
      const scaled = element("label", {hidden: true}, "Values ", scale),
        canvas = element("canvas", {hidden: true});
      kind.addEventListener("change", () => {
        file.hidden = kind.value === "Generated";
        file.accept = kind.value === "Image" ? "image/*" : ".npy";
        file.value = "";
        scaled.hidden = kind.value !== "Image" || port.dtype === "uint8";
        canvas.hidden = true;
      });
      sources.set(name, async (generated) => {
        if (kind.value === "Generated") return generated;
        if (!file.files?.[0]) throw new Error(`Choose a file for ${name}`);
        if (kind.value === "Image" && declared) return readPicture(file.files[0], canvas);
        return kind.value === "Image"
          ? readImage(file.files[0], generated.shape, scale.value, canvas, port.dtype)
          : readNpy(file.files[0]);
      });
      return element(
        "div",
        {className: "card"},
        element("h3", {}, name),
        element("p", {className: "type"}, `${port.dtype} [${port.shape.join(", ")}]`),
        element("label", {}, "Values from ", kind),
        file,
        scaled,
        canvas,
      );
    }),
  );
  if (!sources.size)
    at("inputs").replaceChildren(element("p", {className: "quiet"}, "This entry takes no inputs."));
}

function showSettings() {
  const fields = model.symbols
    .filter(({min, max}) => min < max)
    .map(({name, min, max, step}) => {
      // Of a picture, what the model makes of it: the greatest one takes long to generate.
      const [, input, side] = /^(.*)\.(height|width)$/.exec(name) ?? [],
        value = Math.min(max, declaredPicture(input)?.[side] ?? max);
      const field = element("input", {type: "number", min, max, step, value, required: true});
      field.dataset.symbol = name;
      const steps = step > 1 ? ` in steps of ${step}` : "";
      return element("label", {}, `${name} (${min} to ${max}${steps}) `, field);
    });
  if (model.entries.length > 1) {
    const entry = element(
      "select",
      {id: "entry"},
      ...model.entries.map(({name}) => element("option", {}, name)),
    );
    fields.unshift(element("label", {}, "Entry ", entry));
  }
  at("settings").replaceChildren(...fields);
  at("settings").addEventListener("change", () => at("form").reportValidity() && showInputs());
}

async function givenInputs() {
  const example = await model.example({entry: chosenEntry(), symbols: chosenSizes()}),
    inputs = [];
  for (const [name, source] of sources) inputs.push([name, await source(example[name])]);
  return Object.fromEntries(inputs);
}

/** Sizes for a run; pictures show theirs. */
const sizesFor = (inputs) =>
  Object.fromEntries(
    Object.entries(chosenSizes()).filter(
      ([name]) => !(inputs[name.replace(/\.(height|width)$/, "")] instanceof ImageBitmap),
    ),
  );

// ---- outputs

function showOutput({name, dtype, shape, data}) {
  const values = Array.from(data, Number),
    finite = values.filter(Number.isFinite);
  const low = finite.reduce((a, b) => Math.min(a, b), Infinity),
    high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  const strange = values.length - finite.length;
  const top = [...values.keys()]
    .filter((i) => Number.isFinite(values[i]))
    .sort((a, b) => values[b] - values[a])
    .slice(0, 5);
  const place = (i) => {
    const index = [];
    for (const size of [...shape].reverse()) {
      index.unshift(i % size);
      i = Math.floor(i / size);
    }
    return index.join(", ");
  };
  return element(
    "div",
    {className: "card"},
    element("h3", {}, name),
    element("p", {className: "type"}, `${dtype} [${shape.join(", ")}]`),
    element(
      "p",
      {className: "quiet"},
      finite.length
        ? `from ${number(low)} to ${number(high)}${strange ? `; ${strange} not finite` : ""}`
        : `${values.length} values, none finite`,
    ),
    element(
      "table",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", {}, "Index"),
          element("th", {className: "number"}, "Value"),
          element("th", {}, ""),
        ),
      ),
      element(
        "tbody",
        {},
        ...top.map((i) =>
          element(
            "tr",
            {},
            element("td", {}, place(i)),
            element("td", {className: "number"}, number(values[i])),
            element(
              "td",
              {},
              element("meter", {
                min: Math.min(low, 0),
                max: Math.max(high, 0) || 1,
                value: values[i],
                ariaLabel: number(values[i]),
              }),
            ),
          ),
        ),
      ),
    ),
  );
}

async function showStates() {
  const values = await Promise.all(model.states.map(({name}) => model.getState(name)));
  at("states").replaceChildren(...values.map(showOutput));
}

function showTable(title, text, good, head, rows) {
  at("report-title").textContent = title;
  at("report-text").textContent = text;
  at("report-text").className = good === undefined ? "quiet" : good ? "good" : "bad";
  at("report-head").replaceChildren(
    element("tr", {}, ...head.map((name) => element("th", {}, name))),
  );
  at("report-body").replaceChildren(
    ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell))))),
  );
  at("report").hidden = false;
}

const run = () =>
  attempt("Running", async () => {
    const inputs = await givenInputs(),
      options = {entry: chosenEntry(), symbols: sizesFor(inputs)},
      times = [];
    let outputs = {};
    const once = async () => {
      const before = performance.now();
      outputs = await model.run(inputs, options);
      return performance.now() - before;
    };
    const first = await once();
    for (let i = Number(at("runs").value); i--;) times.push(await once());
    times.sort((a, b) => a - b);
    const middle = times[times.length >> 1],
      milliseconds = (time) => `${time.toFixed(time < 10 ? 2 : 1)} ms`;
    at("latency").textContent =
      `${several(times.length, "run")} with upload and read-back: median ${milliseconds(middle)}, ` +
      `fastest ${milliseconds(times[0])}, slowest ${milliseconds(times[times.length - 1])}; the first took ${milliseconds(first)}.`;
    at("outputs").replaceChildren(...Object.values(outputs).map(showOutput));
    if (!Object.keys(outputs).length)
      at("outputs").replaceChildren(
        element("p", {className: "quiet"}, "This entry has no outputs."),
      );
    await showStates();
  });

const reset = () =>
  attempt("Resetting", async () => {
    await model.reset();
    await showStates();
  });

const verify = () =>
  attempt("Verifying", async () => {
    const {passed, cases} = await model.verify();
    const text = !cases.length
      ? "This bundle has no expected outputs."
      : passed
        ? "All outputs agree with the expected ones."
        : "Some outputs differ from the expected ones.";
    showTable(
      "Verification",
      text,
      cases.length ? passed : undefined,
      ["Entry", "Output", "Result", "Difference", "Allowed", "Expected by"],
      cases.flatMap((one) =>
        one.outputs.map((o) => [
          one.entry,
          o.name,
          o.passed ? "agrees" : "differs",
          o.wrong ? `${o.wrong} elements` : o.error.toExponential(2),
          one.tolerance,
          one.made,
        ]),
      ),
    );
    at("report").scrollIntoView({block: "nearest"});
    await showStates();
  });

const profile = () =>
  attempt("Profiling", async () => {
    const inputs = await givenInputs(),
      options = {entry: chosenEntry(), symbols: sizesFor(inputs)},
      launches = await model.profile(inputs, options);
    const total = launches.reduce((sum, {milliseconds}) => sum + milliseconds, 0);
    launches.sort((a, b) => b.milliseconds - a.milliseconds);
    showTable(
      "Profile",
      `${several(launches.length, "launch")}, ${total.toFixed(3)} ms on the GPU; the slowest first.`,
      undefined,
      ["Milliseconds", "Share", "Kernel", "Nodes"],
      launches
        .slice(0, 50)
        .map(({kernel, nodes, milliseconds}) => [
          milliseconds.toFixed(3),
          `${((100 * milliseconds) / (total || 1)).toFixed(1)} %`,
          kernel,
          nodes.join(", "),
        ]),
    );
  });

// ---- start

at("late").remove();

const folder = new URL("./", import.meta.url);
const name = decodeURIComponent(folder.pathname.split("/").filter(Boolean).pop() ?? "").replace(
  /\.tinyedge$/,
  "",
);
if (name) at("name").textContent = document.title = name;

attempt("Loading", async () => {
  model = await load(folder, {
    onProgress: ({loaded, total, compiled, pipelines}) => {
      at("progress").value = (loaded + compiled) / (total + pipelines);
      at("status").textContent =
        `Loading: ${megabytes(loaded)} of ${megabytes(total)}, ${compiled} of ${pipelines} kernels compiled`;
    },
  });
  const {manifest, stats} = model;
  const launches = manifest.steps.filter(({op}) => op === "launch").length;
  at("about").textContent =
    `${manifest.tool}; ${several(launches, "launch")} of ${several(stats.pipelines, "kernel")}, ${megabytes(stats.bytesFetched)} fetched, ` +
    `${megabytes(stats.bufferBytes)} of GPU memory`;
  at("loading").hidden = true;
  at("profile").hidden = !model.device.features.has("timestamp-query");
  at("reset").hidden = at("kept").hidden = !model.states.length;
  showSettings();
  await showInputs();
  await showStates();
  at("main").hidden = false;
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  at("verify").addEventListener("click", verify);
  at("profile").addEventListener("click", profile);
  at("reset").addEventListener("click", reset);
  model.device.lost.then(({message}) => {
    at("status").textContent = `The GPU device was lost: ${message || "reload the page"}`;
  });
});
