// Outputs as pictures, on a canvas or a texture, without a way back from the GPU: a file of its own, which stream.js fetches
// when it is first asked for.

/**
 * What an output is as a picture, and how its caller wants it seen. `ends`: the range, or nothing where it is looked for;
 * `colors`: red, green and blue by alpha, of 0 to 1.
 */
function lookOf({fail, chosen}, {name, shape, dtype}, options) {
  const given = chosen(options, ["range", "colors", "classes"]),
    axes = [1, ...shape].slice(-3),
    last = axes[0] > 4 && axes[2] < 5,
    [c, h, w] = last ? [axes[2], axes[0], axes[1]] : axes,
    {range = [0, dtype === "uint8" ? 255 : 1]} = given,
    {classes = c > 4 || (c < 2 && /int(16|32|64)/.test(dtype) && !given.range)} = given,
    {colors: all = classes ? Array.from({length: 64}, (_, i) => [67, 149, 221].map((n) => (n * i) & 255)) : []} =
      given,
    ends = Array.from(range === "auto" ? [] : (range ?? [])),
    colors = Array.from(all, ([r, g, b, a = 255]) => [r, g, b, 255].map((x) => (x * a) / 65025));
  if (
    shape.reduce((a, b) => a * b, 1) !== c * h * w ||
    !(h * w) ||
    (range !== "auto" && ends.length !== 2) ||
    (c > 4 && !classes) ||
    (classes && !colors.length) ||
    ![...ends, ...colors.flat()].every(Number.isFinite)
  )
    fail("run.option", `output "${name}"`, `[${shape}] cannot be painted so`, "see docs/page.md");
  return {c, h, w, planar: !last, ends, classes, colors: c < 2 || classes ? colors : []};
}

/** The shaders for it; what they read is of a storage type. cut: "saturate" where colors are of 0 to 1 before alpha. */
function codeOf({c, h, w, planar, classes, colors}, storage, cut) {
  const [, kind, bits] = storage.match(/(\D)\D*(\d+)/),
    per = 32 / bits,
    last = colors.length - 1,
    part = (k) => (k < c ? `(at(${k})-ends.x)/span` : +(k > 2)),
    value =
      kind === "f"
        ? per < 2
          ? "bitcast<f32>(v[i])"
          : "unpack2x16float(v[i/2])[i%2]"
        : `f32(extractBits(bitcast<${kind}32>(v[i/${per}]),${bits}*(i%${per}),${bits}))`,
    shown = classes
      ? c < 2
        ? `return colors[u32(max(at(0),0))%${last + 1}];`
        : `var k=0u;for(var i=1u;i<${c};i++){if(at(i)>at(k)){k=i;}}return colors[k%${last + 1}];`
      : colors.length
        ? `let t=saturate(${part(0)})*${last};let i=u32(t);return mix(colors[i],colors[min(i+1,${last})],t-f32(i));`
        : `let s=${cut}(vec4f(${(c < 2 ? [0, 0, 0, 3] : [0, 1, 2, 3]).map(part)}));return vec4f(s.rgb*s.a,s.a);`;
  return `@group(0)@binding(0)var<storage>v:array<u32>;
@group(0)@binding(1)var<storage,read_write>ends:vec2f;
const colors=array(${[[0, 0, 0, 0], ...colors].slice(last < 0 ? 0 : 1).map((color) => `vec4f(${color})`)});
var<workgroup>found:array<vec2f,256>;
var<private>q:vec2u;
fn value(i:u32)->f32{return ${value};}
fn at(k:u32)->f32{return value(${planar ? `(k*${h}+q.y)*${w}+q.x` : `(q.y*${w}+q.x)*${c}+k`});}
fn both(a:vec2f,b:vec2f)->vec2f{return vec2f(min(a.x,b.x),max(a.y,b.y));}
@compute@workgroup_size(256)fn extent(@builtin(local_invocation_index)n:u32){
var e=vec2f(value(0));
for(var i=n;i<${w * h * c};i+=256){e=both(e,vec2f(value(i)));}
found[n]=e;
workgroupBarrier();
for(var i=0;i<256;i++){e=both(e,found[i]);}
if(n==0){ends=e;}
}
@vertex fn corner(@builtin(vertex_index)i:u32)->@builtin(position)vec4f{return vec4f(vec2f(vec2u(i&1,i>>1))*4-1,0,1);}
@fragment fn paint(@builtin(position)p:vec4f)->@location(0)vec4f{
q=vec2u(p.xy);
var span=ends.y-ends.x;
if(span==0){span=1;}
${shown}
}`;
}

/** An output's size as a picture, and a function that records it: from a range of a buffer to a texture. */
async function painter({device, pipelined, owns, own}, output, options, format, cut = "") {
  const look = lookOf(own, output, options),
    {w, h, ends} = look,
    code = codeOf(look, output.storage, cut),
    label = "tinyedge canvas";
  // Beside the model's own pipelines, which go by number.
  pipelined[format + code] ??= (async () => {
    const entries = ["read-only-storage", "storage"].map((type, binding) => ({
        binding,
        visibility: 6, // of the fragments and of what is computed
        buffer: {type},
      })),
      layout = device.createBindGroupLayout({entries}),
      module = device.createShaderModule({label, code}),
      shared = {label, layout: device.createPipelineLayout({bindGroupLayouts: [layout]})},
      range = device.createBuffer({label, size: 16, usage: 136 /* STORAGE, COPY_DST */});
    owns.push(range);
    return {
      layout,
      range,
      extent: await device.createComputePipelineAsync({...shared, compute: {module}}),
      paint: await device.createRenderPipelineAsync({
        ...shared,
        vertex: {module},
        fragment: {module, targets: [{format}]},
      }),
    };
  })();
  const {layout, range, extent, paint} = await pipelined[format + code].catch(({message}) =>
    own.fail("run.option", `output "${output.name}"`, message, "give a canvas, or another texture"),
  );
  const record = (encoder, {buffer, offset, size}, texture) => {
    const entries = [{buffer, offset, size}, {buffer: range}].map((resource, binding) => ({binding, resource})),
      group = device.createBindGroup({layout, entries}),
      attachment = {view: texture.createView(), loadOp: "clear", storeOp: "store"};
    const add = (pass, pipeline, work) => {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      work(pass);
      pass.end();
    };
    if (ends.length) device.queue.writeBuffer(range, 0, Float32Array.from(ends));
    else add(encoder.beginComputePass(), extent, (pass) => pass.dispatchWorkgroups(1));
    add(encoder.beginRenderPass({colorAttachments: [attachment]}), paint, (pass) => pass.draw(3));
  };
  return {w, h, record};
}

/**
 * Paint an output that was kept on a canvas, which gets its size.
 * @param {any} core @param {any} output @param {any} canvas @param {any} [options]
 */
export async function toCanvas(core, output, canvas, options) {
  const {device, own} = core,
    need = (value, because, next) =>
      value || own.fail("run.option", `output "${output?.name}"`, because, next),
    kind = device.paint ? "2d" : "webgpu";
  core.check();
  const gpu = need(output?.gpu, "it is not on the GPU", "name it in keep"),
    context = need(canvas?.getContext?.(kind), "its canvas has another context, or is none", "give a canvas");
  const resize = ({w, h}) => {
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, {width: w, height: h});
  };
  if (device.paint) {
    const look = lookOf(own, output, options),
      bytes = gpu.buffer.getMappedRange(gpu.offset, gpu.size);
    resize(look);
    return device.paint(look, new (own.arrayOf(output.storage))(bytes), context);
  }
  const format = navigator.gpu.getPreferredCanvasFormat(),
    painted = await painter(core, output, options, format, "saturate");
  await own.guard(
    core,
    () => {
      resize(painted);
      if (context.getConfiguration?.()?.device !== device)
        context.configure({device, format, alphaMode: "premultiplied"});
      const encoder = device.createCommandEncoder();
      painted.record(encoder, gpu, context.getCurrentTexture());
      device.queue.submit([encoder.finish()]);
    },
    Object.assign([output.name], {kind: "output"}),
  );
}

/** Record how an output of a run comes into a texture of its size. `need`: tells what is not so. */
export async function intoTexture(run, output, texture, need) {
  const {p, shape, kept} = output,
    // Numbers of classes, too, as they are.
    options = p.dtype === "uint8" ? {} : {range: [0, 1]},
    {w, h, record} = await painter(run, {...p, shape}, options, texture.format);
  need(texture.width === w && texture.height === h, `give a texture of ${w} x ${h}`);
  record(run.encoder, kept, texture);
  output.kept = {texture};
}
