// The page of a bundle: loads the bundle it lies in, runs it on generated inputs, pictures, the camera or .npy files, shows
// outputs as what they seem to be, and where the time goes.

import {load} from "./tinyedge.js";
import {boxesOf, element, showOutput} from "./demo_views.js";
import {inputCard} from "./demo_inputs.js";

const at = (id) => /** @type {any} */ (document.getElementById(id));

const megabytes = (bytes) =>
  bytes < 1e5 ? `${(bytes / 1e3).toFixed(1)} KB` : `${(bytes / 1e6).toFixed(1)} MB`;
const several = (count, name) =>
  `${count} ${name}${count === 1 ? "" : name.endsWith("h") ? "es" : "s"}`;
const milliseconds = (time) => `${time.toFixed(time < 10 ? 2 : 1)} ms`;
const sum = (values) => values.reduce((a, b) => a + b, 0);

let model = /** @type {any} */ (null);
let busy = false;
let live = false;
/** What is being done. */
let current = Promise.resolve();

/** Do something with the buttons off, and show what went wrong. */
function attempt(doing, work) {
  if (!busy) current = perform(doing, work);
  return current;
}

async function perform(doing, work) {
  busy = true;
  at("error").hidden = true;
  at("status").textContent = doing;
  for (const button of document.querySelectorAll("button")) button.disabled = button.id !== "live" || !live;
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

/** As Python's ascii() writes what is not ASCII. */
const plain = (text) =>
  String(text).replace(/\\(?:[xuU]([\da-f]+)|(.))/g, (_, code, other) =>
    code ? String.fromCodePoint(parseInt(code, 16)) : other,
  );

/** What the bundle was told of an input that takes pictures of any size. */
const declaredPicture = (name) =>
  [model.manifest.options?.images].flat().find((image) => image && plain(image.input) === name);

let cards = /** @type {ReturnType<typeof inputCard>[]} */ ([]);

const example = () => model.example({entry: chosenEntry(), symbols: chosenSizes()});

async function showInputs() {
  const shapes = await example(),
    entry = model.manifest.entries.find(({name}) => name === chosenEntry());
  stopLive();
  for (const card of cards) card.close();
  cards = entry.inputs.map((number) => {
    const port = model.inputs[number];
    return inputCard(port, shapes[port.name].shape, declaredPicture(port.name), (work) =>
      attempt("Reading", work),
    );
  });
  at("inputs").replaceChildren(...cards.map(({card}) => card));
  if (!cards.length)
    at("inputs").replaceChildren(element("p", {className: "quiet"}, "This entry takes no inputs."));
  at("live").hidden = true;
  showCode(shapes);
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
  const generated = await example(),
    inputs = {};
  for (const card of cards) inputs[card.name] = await card.value(generated[card.name]);
  return inputs;
}

/** Sizes for a run; pictures show theirs. */
const sizesFor = (inputs) =>
  Object.fromEntries(
    Object.entries(chosenSizes()).filter(
      ([name]) => !(inputs[name.replace(/\.(height|width)$/, "")] instanceof ImageBitmap),
    ),
  );

const optionsFor = (inputs) => ({entry: chosenEntry(), symbols: sizesFor(inputs)});

/** Take files that were dropped or pasted, after what is being done: each goes to the first input that takes its kind. */
async function takeFiles(list) {
  // The list is empty when the event is over.
  const files = [...list];
  if (!files.length) return;
  stopLive();
  while (busy) await current;
  attempt("Reading", async () => {
    const found = files.flatMap((file) => {
      const card = cards.find(({accepts}) => accepts(file));
      return card ? [{card, file}] : [];
    });
    if (!found.length) throw new Error("No input takes this file: pictures and .npy files are known.");
    for (const {card, file} of found) await card.take(file);
  });
}

// ---- outputs

async function showOutputs(outputs) {
  const labels = [model.manifest.options?.labels ?? []].flat(),
    picture = cards.find(({seen}) => seen)?.seen ?? null,
    boxes = await boxesOf(outputs, picture),
    made = [];
  for (const output of Object.values(outputs)) made.push(await showOutput(output, {labels, picture, boxes}));
  if (!made.length) made.push(element("p", {className: "quiet"}, "This entry has no outputs."));
  at("outputs").replaceChildren(...made);
}

async function showStates() {
  const made = [];
  for (const {name} of model.states) made.push(await showOutput(await model.getState(name)));
  at("states").replaceChildren(...made);
}

/** A code example for what is chosen. shapes: an example of each input. */
function showCode(shapes) {
  const entry = model.entries.find(({name}) => name === chosenEntry()),
    folder = `./${last || "model.tinyedge"}/`,
    key = (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)),
    member = (name) => (key(name) === name ? `.${name}` : `[${key(name)}]`),
    {[0]: output} = entry.outputs,
    labeled = [model.manifest.options?.labels].flat().some((each) => each?.output === output);
  const given = entry.inputs.map((name) =>
    declaredPicture(name)
      ? `${key(name)}: document.querySelector("img")`
      : `${key(name)}: new ${shapes[name].data.constructor.name}(${shapes[name].data.length})`,
  );
  const options = model.entries.length > 1 ? `, {entry: ${JSON.stringify(entry.name)}}` : "";
  // A page that is one file has nothing to import from: it is copied with its scripts.
  const loading = inOneFile
    ? ["const m = await tinyedge.load();"]
    : [`import {load} from "${folder}tinyedge.js";`, "", `const m = await load("${folder}");`];
  at("code").textContent = [
    ...loading,
    `const out = await m.run({${given.join(", ")}}${options});`,
    ...(output === undefined ? [] : [`console.log(out${member(output)}.${labeled ? "top(5)" : "data"});`]),
  ].join("\n");
}

function showTable(title, text, good, head, rows) {
  at("report-title").textContent = title;
  at("report-text").textContent = text;
  at("report-text").className = good === undefined ? "quiet" : good ? "good" : "bad";
  at("timeline").hidden = true;
  at("report-head").replaceChildren(
    element("tr", {}, ...head.map((name) => element("th", {}, name))),
  );
  at("report-body").replaceChildren(
    ...rows.map((row) =>
      element(
        "tr",
        {},
        ...row.map((cell, i) => {
          const made = element("td", {}, cell instanceof Node ? cell : String(cell));
          made.dataset.head = head[i];
          if (/^\d[\d.e+-]*( \S+)?$/.test(String(cell))) made.className = "figure";
          return made;
        }),
      ),
    ),
  );
  at("report").hidden = false;
}

/** The times of so many runs, after a first one, and the last outputs. */
async function timed(which, inputs, count) {
  const options = optionsFor(inputs),
    times = [];
  let outputs = {};
  for (let i = 0; i <= count; i++) {
    const before = performance.now();
    outputs = await which.run(inputs, options);
    times.push(performance.now() - before);
  }
  const [first, ...others] = times;
  others.sort((a, b) => a - b);
  return {outputs, first, times: others, middle: others[others.length >> 1]};
}

const run = () =>
  attempt("Running", async () => {
    const {outputs, first, times, middle} = await timed(model, await givenInputs(), Number(at("runs").value));
    at("latency").textContent =
      `${several(times.length, "run")} with upload and read-back: median ${milliseconds(middle)}, ` +
      `fastest ${milliseconds(times[0])}, slowest ${milliseconds(times[times.length - 1])}; the first took ${milliseconds(first)}.`;
    await showOutputs(outputs);
    await showStates();
  });

function stopLive() {
  live = false;
  at("live").textContent = "Live";
}

/** Run on what the camera shows, again and again. */
const runLive = () =>
  attempt("Live", async () => {
    live = true;
    at("live").textContent = "Stop";
    at("live").disabled = false;
    try {
      while (live) {
        const before = performance.now(),
          inputs = await givenInputs();
        await showOutputs(await model.run(inputs, optionsFor(inputs)));
        for (const picture of Object.values(inputs)) if (picture instanceof ImageBitmap) picture.close();
        at("latency").textContent = `${milliseconds(performance.now() - before)} a picture`;
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
    } catch (error) {
      // Not of a camera that was turned off meanwhile.
      if (live) throw error;
    } finally {
      stopLive();
    }
  });

const reset = () =>
  attempt("Resetting", async () => {
    await model.reset();
    await showStates();
  });

const verify = () =>
  attempt("Verifying", async () => {
    const {passed, cases} = await model.verify();
    const text = passed
      ? "All outputs agree with the expected ones."
      : "Some outputs differ from the expected ones.";
    await showCases("Verification", "Output", text, passed, cases);
  });

/** What --debug-goldens kept of the nodes' values. */
const compareNodes = () =>
  attempt("Comparing", async () => {
    const {passed, node, cases} = await model.compare(),
      text = passed ? "All nodes agree." : `The first node that differs is ${node}.`;
    await showCases("Nodes", "Node", text, passed, cases);
  });

async function showCases(title, kind, text, passed, cases) {
  showTable(
    title,
    text,
    passed,
    ["Entry", kind, "Result", "Difference", "Allowed", "Expected by"],
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
}

// ---- where the time goes

const gigaflops = (flops, time) => (flops && time ? `${(flops / time / 1e6).toFixed(1)} GFLOP/s` : "-");

/** Launches in their order, as wide as they take long. */
function showTimeline(launches, total) {
  const slowest = Math.max(...launches.map((launch) => launch.milliseconds));
  at("timeline").replaceChildren(
    ...launches.slice(0, 1000).map(({kernel, nodes, milliseconds: time}) => {
      const bar = element("span", {title: `${nodes.join(", ") || kernel}: ${time.toFixed(3)} ms`});
      bar.style.flexGrow = String(time / (total || 1));
      bar.style.opacity = String(0.35 + (0.65 * time) / (slowest || 1));
      return bar;
    }),
  );
  at("timeline").ariaLabel = `${several(launches.length, "launch")}, as wide as they take long`;
  at("timeline").hidden = false;
}

const profile = () =>
  attempt("Profiling", async () => {
    const inputs = await givenInputs(),
      launches = await model.profile(inputs, optionsFor(inputs)),
      total = sum(launches.map((launch) => launch.milliseconds)),
      flops = sum(launches.map((launch) => launch.flops)),
      nodes = new Map();
    for (const launch of launches) {
      // What one kernel computes together has one time.
      const name = launch.nodes.join(", ") || "-",
        key = launch.nodes.length ? name : launch.kernel,
        known = nodes.get(key) ?? {name, time: 0, flops: 0, kernels: new Set()};
      known.time += launch.milliseconds;
      known.flops += launch.flops;
      known.kernels.add(launch.kernel);
      nodes.set(key, known);
    }
    const sorted = [...nodes.values()].sort((a, b) => b.time - a.time),
      most = sorted[0]?.time || 1;
    showTable(
      "Profile",
      `${several(launches.length, "launch")}, ${total.toFixed(3)} ms on the GPU, ${gigaflops(flops, total)}; the slowest nodes first.`,
      undefined,
      ["Milliseconds", "Share", "Bar", "Rate", "Nodes", "Kernels"],
      sorted
        .slice(0, 50)
        .map(({name, time, flops: operations, kernels}) => [
          time.toFixed(3),
          `${((100 * time) / (total || 1)).toFixed(1)} %`,
          element("meter", {max: most, value: time, ariaLabel: `${name}: ${time.toFixed(3)} ms`}),
          gigaflops(operations, time),
          name,
          [...kernels].join(", "),
        ]),
    );
    showTimeline(launches, total);
  });

/** The greatest difference of two arrays, over the greatest value. */
function difference(a, b) {
  let worst = 0,
    scale = 0;
  for (let i = 0; i < a.length; i++) {
    if (Object.is(a[i], b[i])) continue;
    const [x, y] = [Number(a[i]), Number(b[i])];
    worst = Math.max(worst, Number.isNaN(x - y) ? Infinity : Math.abs(x - y));
    scale = Math.max(scale, Math.abs(y));
  }
  return worst / (scale || 1);
}

/** The same inputs on the GPU and on the processor. */
const compareBoth = () =>
  attempt("Running on both", async () => {
    const inputs = await givenInputs(),
      found = [];
    for (const backend of /** @type {const} */ (["webgpu", "wasm"])) {
      const own = model.backend === backend,
        which = own ? model : await load(here, {backend});
      try {
        if (model.states.length) await which.reset();
        found.push({...(await timed(which, inputs, Number(at("runs").value))), threads: which.threads});
      } finally {
        if (!own) which.dispose();
      }
    }
    const [gpu, cpu] = found,
      rows = Object.values(gpu.outputs).map(({name, data}) => [
        name,
        difference(data, cpu.outputs[name].data).toExponential(2),
      ]);
    showTable(
      "WebGPU beside WebAssembly",
      `A run takes ${milliseconds(gpu.middle)} by WebGPU (the first ${milliseconds(gpu.first)}), ` +
        `${milliseconds(cpu.middle)} by WebAssembly on ${several(cpu.threads ?? 1, "thread")} (the first ${milliseconds(cpu.first)}).`,
      undefined,
      ["Output", "Greatest difference, of its greatest value"],
      rows,
    );
    await showStates();
  });

// ---- start

at("late").remove();

const here = new URL("./", import.meta.url);
const inOneFile = "tinyedge" in globalThis;
/** The folder as the address has it. */
const last = here.pathname.split("/").filter(Boolean).pop() ?? "";
/** Its letters; a percent sign may stand for itself. */
const shown = last.replace(/(%[\da-f]{2})+/gi, (codes) => {
  try {
    return decodeURIComponent(codes);
  } catch {
    return codes;
  }
});
const name = shown.replace(/\.(tinyedge|html?)$/, "");
if (name) at("name").textContent = document.title = name;

function showFacts() {
  const {manifest, stats} = model,
    launches = manifest.steps.filter(({op}) => op === "launch"),
    flops = sum(launches.map((step) => step.flops)),
    weights = sum(manifest.weights.map(({bytes}) => bytes));
  const where = model.backend === "wasm" ? `the processor, ${several(model.threads ?? 1, "thread")}` : "the GPU";
  at("about").textContent =
    `${manifest.tool}, on ${where}; ${several(launches.length, "launch")} of ${several(manifest.kernels.length, "kernel")}, ${megabytes(stats.bytesFetched)} fetched, ` +
    `${megabytes(stats.bufferBytes)} of memory (weights ${megabytes(weights)})` +
    (flops ? `, ${flops < 1e8 ? `${(flops / 1e6).toFixed(2)} MFLOP` : `${(flops / 1e9).toFixed(2)} GFLOP`} a run` : "");
}

attempt("Loading", async () => {
  model = await load(here, {
    onProgress: ({loaded, total, compiled, pipelines}) => {
      at("progress").value = (loaded + compiled) / (total + pipelines);
      at("status").textContent =
        `Loading: ${megabytes(loaded)} of ${megabytes(total)}, ${compiled} of ${pipelines} kernels compiled`;
    },
  });
  showFacts();
  at("loading").hidden = true;
  at("profile").hidden = !model.device.features.has("timestamp-query");
  at("nodes").hidden = !model.manifest.options?.nodes;
  at("both").hidden = model.backend === "webgpu" && !model.manifest.fallback;
  at("reset").hidden = at("kept").hidden = !model.states.length;
  showSettings();
  await showInputs();
  await showStates();
  at("main").hidden = false;
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  const does = {verify, nodes: compareNodes, profile, reset, both: compareBoth, live: () => (live ? stopLive() : runLive())};
  for (const [id, work] of Object.entries(does)) at(id).addEventListener("click", work);
  at("inputs").addEventListener("turned", () => {
    if (!busy && !at("error").hidden) {
      at("error").hidden = true;
      at("status").textContent = "Ready";
    }
    at("live").hidden = !cards.some((card) => card.live);
    if (at("live").hidden) stopLive();
  });
  at("inputs").addEventListener("pictured", (/** @type {any} */ {detail: {name, picture}}) => {
    for (const field of at("settings").querySelectorAll("input[data-symbol]")) {
      const [, input, side] = /^(.*)\.(height|width)$/.exec(field.dataset.symbol) ?? [];
      if (input === name && declaredPicture(name)) field.value = picture[side];
    }
  });
  at("copy").addEventListener("click", () =>
    attempt("Copying", () => navigator.clipboard.writeText(at("code").textContent)),
  );
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    takeFiles(event.dataTransfer?.files ?? []);
  });
  document.addEventListener("paste", (event) => takeFiles(event.clipboardData?.files ?? []));
  model.device.lost.then(({message}) => {
    at("status").textContent = `The GPU device was lost: ${message || "reload the page"}`;
  });
});
