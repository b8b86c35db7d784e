// Outputs as pictures, on a canvas or a texture, without a way back from the GPU.

import {fail} from "./errors.js";
import {chosen} from "./given.js";
import {guard} from "./replay.js";
import {arrayOf, product} from "./types.js";

/**
 * What an output is as a picture, and how its caller wants it seen. `ends`: the range, or nothing where it is looked for;
 * `colors`: red, green and blue by alpha, of 0 to 1.
 */
function lookOf({name, shape, dtype}, options) {
  const given = chosen(options, ["range", "colors", "classes"]),
    axes = [1, ...shape].slice(-3),
    last = axes[0] > 4 && axes[2] < 5,
    [c, h, w] = last ? [axes[2], axes[0], axes[1]] : axes,
    {range = [0, dtype === "uint8" ? 255 : 1]} = given,
    {classes = c > 4 || (c < 2 && /int(16|32|64)/.test(dtype) && !given.range)} = given,
    {colors: all = Array.from({length: classes && 64}, (_, i) => [67, 149, 221].map((n) => (n * i) & 255))} = given,
    ends = Array.from(range === "auto" ? [] : (range ?? [])),
    // What is no list is one of no color, which is told below, as is what is none.
    colors = Array.from(all?.length >= 0 ? all : [0], (each) => {
      const [r, g, b, a = 255] = Array.from(each ?? [], (x) => (x >= 0 && x <= 255 ? x : NaN));
      return [r, g, b, 255].map((x) => (x * a) / 65025);
    });
  if (
    product(shape) !== c * h * w ||
    !(h * w) ||
    (range !== "auto" && ends.length !== 2) ||
    (classes ? !colors.length : c > 4) ||
    ![...ends, ...colors.flat()].every(Number.isFinite)
  )
    fail(
      "run.option",
      `output "${name}"`,
      `[${shape}] cannot be painted`,
      "see docs/page.md; colors: lists of bytes",
    );
  return {c, h, w, planar: !last, ends, classes, colors: c < 2 || classes ? colors : []};
}

/**
 * The shaders for it; what they read is of a storage type. `look`: the colors, then the range, which `extent` finds.
 * cut: "saturate" where colors are of 0 to 1 before alpha.
 */
function codeOf({c, h, w, planar, classes, colors: {length: n}}, storage, cut) {
  const [, kind, bits] = storage.match(/(\D)\D*(\d+)/),
    per = 32 / bits,
    part = (k) => (k < c ? `(at(${k})-low)/select(span,1,span==0)` : +(k > 2));
  return `@group(0)@binding(0)var<storage>v:array<u32>;
@group(0)@binding(1)var<storage,read_write>look:array<vec4f>;
var<workgroup>found:array<vec2f,128>;
var<private>q:vec2u;
fn value(i:u32)->f32{return ${
    kind > "f"
      ? `f32(extractBits(bitcast<${kind}32>(v[i/${per}]),${bits}*(i%${per}),${bits}))`
      : per < 2
        ? "bitcast<f32>(v[i])"
        : "unpack2x16float(v[i/2])[i%2]"
  };}
fn at(k:u32)->f32{return value(${planar ? `(k*${h}+q.y)*${w}+q.x` : `(q.y*${w}+q.x)*${c}+k`});}
@compute@workgroup_size(128)fn extent(@builtin(local_invocation_index)n:u32){
var e=vec2f(value(0));
e.x=-e.x;
for(var i=n;i<${w * h * c};i+=128){e=max(e,vec2f(-value(i),value(i)));}
found[n]=e;
workgroupBarrier();
for(var i=0;i<128;i++){e=max(e,found[i]);}
if(n==0){look[${n}]=vec4f(-e.x,e.y,0,0);}
}
@vertex fn corner(@builtin(vertex_index)i:u32)->@builtin(position)vec4f{return vec4f(vec2f(vec2u(i&1,i>>1))*4-1,0,1);}
@fragment fn paint(@builtin(position)p:vec4f)->@location(0)vec4f{
q=vec2u(p.xy);
let low=look[${n}].x;
let span=look[${n}].y-low;
${
    classes
      ? `var k=${c < 2 ? "u32(max(at(0),0))" : "0u"};for(var i=1u;i<${c};i++){if(at(i)>at(k)){k=i;}}return look[k%${n}];`
      : n
        ? `let t=saturate(${part(0)})*${n - 1};let i=u32(t);return mix(look[i],look[min(i+1,${n - 1})],fract(t));`
        : `let s=${cut}(vec4f(${(c < 2 ? [0, 0, 0, 3] : [0, 1, 2, 3]).map(part)}));return vec4f(s.rgb*s.a,s.a);`
  }
}`;
}

/** An output's size as a picture, and a function that records it: from a range of a buffer to a texture. */
async function painter({device, owns}, output, options, format, cut = "") {
  const look = lookOf(output, options),
    {w, h, ends, colors} = look,
    code = codeOf(look, output.storage, cut),
    label = "tinyedge canvas",
    shared = {label, layout: "auto"};
  // Beside what the model owns, which goes by number.
  const [buffer, extent, paint] = await (owns[format + code] ??= (async () => {
    const module = device.createShaderModule({label, code}),
      usage = 136, // STORAGE, COPY_DST
      buffer = device.createBuffer({label, size: 16 * colors.length + 16, usage});
    owns.push(buffer);
    return [
      buffer,
      await device.createComputePipelineAsync({...shared, compute: {module, entryPoint: "extent"}}),
      await device.createRenderPipelineAsync({
        ...shared,
        vertex: {module, entryPoint: "corner"},
        fragment: {module, entryPoint: "paint", targets: [{format}]},
      }),
    ];
  })()).catch(({message}) => fail("run.option", `output "${output.name}"`, message, "give another texture"));
  const record = (encoder, gpu, texture) => {
    const begin = (pass, pipeline) => {
      const entries = [gpu, {buffer}].map((resource, binding) => ({binding, resource}));
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({layout: pipeline.getBindGroupLayout(0), entries}));
      return pass;
    };
    device.queue.writeBuffer(buffer, 0, Float32Array.from([...colors.flat(), ...ends]));
    if (!ends.length) {
      const pass = begin(encoder.beginComputePass(), extent);
      pass.dispatchWorkgroups(1);
      pass.end();
    }
    const attachment = {view: texture.createView(), loadOp: "clear", storeOp: "store"},
      pass = begin(encoder.beginRenderPass({colorAttachments: [attachment]}), paint);
    pass.draw(3);
    pass.end();
  };
  return {w, h, record};
}

/** None of what is no canvas, and of one that has another kind of context or gave it away. */
function contextOf(canvas, kind) {
  try {
    return canvas.getContext(kind);
  } catch {}
}

/**
 * Paint an output that was kept on a canvas, which gets its size.
 * @param {any} core @param {any} output @param {any} canvas @param {any} [options]
 */
export async function toCanvas({core}, output, canvas, options) {
  const {device} = core,
    need = (value, because, next) => value || fail("run.option", `output "${output?.name}"`, because, next);
  core.check();
  const gpu = need(output?.gpu, "it is not on the GPU", "name it in keep"),
    kind = device.paint ? "2d" : "webgpu",
    context = need(contextOf(canvas, kind), "its canvas has another context, or is none", "give a canvas");
  const resize = ({w, h}) => {
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, {width: w, height: h});
  };
  if (device.paint) {
    const look = lookOf(output, options),
      bytes = gpu.buffer.getMappedRange(gpu.offset, gpu.size);
    resize(look);
    return device.paint(look, new (arrayOf(output.storage))(bytes), context);
  }
  const format = navigator.gpu.getPreferredCanvasFormat(),
    painted = await painter(core, output, options, format, "saturate");
  await guard(
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
