// Runs a bundle in Deno or Node: `check.mjs RUNTIME URL`, the address of its tinyedge.js and of its folder. Prints what
// it saw as JSON. In Node WebGPU is the package webgpu (Dawn); where that finds no GPU, its null backend takes all
// commands and computes nothing, so that errors can be looked at.

const [runtime, url] = globalThis.Deno ? Deno.args : process.argv.slice(2);
const {load} = await import(runtime);
const idOf = (promise) =>
  promise.then(
    () => "none",
    (error) => error.id ?? String(error),
  );
const seen = {without: globalThis.Deno ? "device.webgpu" : await idOf(load(url)), computes: true};

if (!globalThis.Deno) {
  const {create, globals} = await import("webgpu");
  Object.assign(globalThis, globals);
  let gpu = create([]);
  if (!(await gpu.requestAdapter())) {
    gpu = create(["backend=null"]);
    seen.computes = false;
  }
  Object.defineProperty(globalThis, "navigator", {value: {gpu}, configurable: true});
}

const model = await load(url),
  {device} = model,
  inputs = await model.example(),
  [name] = Object.keys(inputs);
seen.report = await model.verify();
const buffer = (usage, on = device) => on.createBuffer({size: 4096, usage}),
  {STORAGE, COPY_SRC} = GPUBufferUsage,
  gone = buffer(STORAGE | COPY_SRC),
  given = (value) => idOf(model.run({...inputs, [name]: value}));
gone.destroy();
seen.faults = {
  "without COPY_SRC": await given(buffer(STORAGE)),
  destroyed: await given(gone),
  "no buffer": await given({buffer: new ArrayBuffer(4096)}),
  right: await given(buffer(STORAGE | COPY_SRC)),
  relative: await idOf(load("./model/")),
};
seen.shared = await idOf(load(url, {device}).then((second) => second.run(inputs)));
model.dispose();
seen.disposed = await idOf(model.run(inputs));
console.log(JSON.stringify(seen));
