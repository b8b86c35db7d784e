// Types of tinyedge.js. In a bundle the part between the marks names the model's own inputs and outputs.

export type DType =
  | "bool"
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "uint8"
  | "uint16"
  | "uint32"
  | "uint64"
  | "float16"
  | "float32"
  | "float64"
  /** Codes and what they mean, such as "uint16:bfloat16" or "uint8:float8_e4m3fn": callers give and get the codes. */
  | `${"int8" | "uint8" | "uint16"}:${string}`;

export type Data =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | BigUint64Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

/** The Float16Array of a newer browser, where TypeScript knows it. */
export type Float16 = typeof globalThis extends {Float16Array: {prototype: infer Array}} ? Array : never;

/**
 * What callers give for each element type. What a plain array has must be a value of the type; only floats are rounded. A
 * Uint16Array of float16 has its bits.
 */
export interface Accepted {
  bool: Uint8Array | readonly boolean[] | readonly number[];
  int8: Int8Array | readonly number[];
  int16: Int16Array | readonly number[];
  int32: Int32Array | readonly number[];
  int64: BigInt64Array | Int32Array | readonly bigint[] | readonly number[];
  uint8: Uint8Array | Uint8ClampedArray | readonly number[];
  uint16: Uint16Array | readonly number[];
  uint32: Uint32Array | readonly number[];
  uint64: BigUint64Array | Uint32Array | readonly bigint[] | readonly number[];
  float16: Float16 | Float32Array | Uint16Array | readonly number[];
  float32: Float32Array | readonly number[];
  float64: Float64Array | Float32Array | readonly number[];
}

export type Values = Accepted[keyof Accepted];

/**
 * What an input of an element type may be: values in row-major order, with their shape where the model's sizes vary, or a
 * GPU buffer on the model's device, with COPY_SRC, that holds them as the input's `storage` type. Values are read before
 * `run` returns.
 */
export type InputValue<Type extends keyof Accepted = keyof Accepted> =
  | Accepted[Type]
  | {data: Accepted[Type]; shape?: ArrayLike<number>}
  | GPUBuffer
  | {buffer: GPUBuffer; offset?: number; shape?: ArrayLike<number>};

/** What shows a picture. */
export type PictureSource =
  | HTMLImageElement
  | HTMLVideoElement
  | HTMLCanvasElement
  | OffscreenCanvas
  | ImageBitmap
  | ImageData
  | VideoFrame
  | GPUTexture;

/**
 * What an input declared by `--image` takes too: a picture as it is when `run` is called, or a part of it, in whole pixels,
 * which is turned clockwise by degrees, a multiple of 90, then mirrored. A texture is on the model's device, with
 * TEXTURE_BINDING.
 */
export type Picture =
  | PictureSource
  | {
      image: PictureSource;
      crop?: {x?: number; y?: number; width?: number; height?: number};
      rotate?: number;
      mirror?: boolean;
    };

/** Where the places of an input lie in the picture that was given, in pixels from its upper left corner. */
export interface Placement {
  /** Of a place of the input. */
  at(x: number, y: number): [x: number, y: number];
  /** The same as canvases take it, `context.setTransform(...matrix)`: what is drawn has the input's coordinates. */
  matrix: [a: number, b: number, c: number, d: number, e: number, f: number];
}

export interface Output<Array = Data, Slice extends string = string> {
  name: string;
  dtype: DType;
  shape: number[];
  /** float16 comes as a Float16Array, or as a Float32Array of the same values where the browser has none. */
  data: Array;
  /** Parts that the model names. */
  slices: Record<Slice, {data: Array; shape: number[]}>;
}

/** An output named in `keep`, which has no `data`: where it lies, until the next run. Or one that went to a buffer by `into`. */
export interface KeptOutput {
  name: string;
  dtype: DType;
  /** The element type there. */
  storage: DType;
  shape: number[];
  gpu: {buffer: GPUBuffer; offset: number; size: number};
}

/** An output that has names for its classes, by `--labels`. */
export interface Labeled {
  /**
   * The classes with the greatest values, best first; NaN is none. row: which of the places along the output's other axes,
   * in row-major order. Where values are the numbers of classes, the one at that place. Throws for a count that is no whole
   * number from 1 on, and for a row that is not there. Outputs named in `keep` have none.
   */
  readonly top: (count?: number, row?: number) => {index: number; label: string; value: number}[];
}

/** An output that went to a texture by `into`. */
export interface PaintedOutput extends Omit<KeptOutput, "gpu"> {
  gpu: {texture: GPUTexture};
}

/**
 * Where an output goes: a buffer with COPY_DST on the model's device, from an offset that is a multiple of 4, or a texture of
 * the output's size with RENDER_ATTACHMENT.
 */
export type Destination = GPUBuffer | {buffer: GPUBuffer; offset?: number} | GPUTexture;

/** A value that the model keeps from run to run. */
export interface State<Array = Data> {
  name: string;
  dtype: DType;
  shape: number[];
  data: Array;
}

// <model>
export type Inputs = Record<string, InputValue | Picture | readonly Picture[]>;
export type Outputs = Record<string, Output<any> & Partial<Labeled> & Pick<KeptOutput, "gpu">>;
export type States = Record<string, any>;
export type EntryName = string;
export type SymbolName = string;
// </model>

export type OutputName = keyof Outputs & string;

/** Sizes by name. */
export type Sizes = [SymbolName] extends [never] ? Record<string, never> : {[Name in SymbolName]?: number};

/** What a run gives: outputs of the names Keep have no `data`, nor have those that Into sends elsewhere. */
export type Results<Keep = never, Into = {}> = {
  [Name in keyof Outputs]: NonNullable<Outputs[Name]> extends {slices: any}
    ? Name extends keyof Into
      ? Into[Name] extends GPUTexture
        ? PaintedOutput
        : KeptOutput
      : Name extends Keep
        ? KeptOutput
        : Outputs[Name]
    : Outputs[Name];
};

export interface Port {
  name: string;
  dtype: DType;
  /** The element type in GPU buffers. */
  storage: DType;
  /** Sizes; text such as "H" or "mul H 4", operators first, where they vary. */
  shape: (number | string)[];
}

export interface LoadOptions {
  /** Called as files arrive and kernels compile; `loaded` of `total` bytes. */
  onProgress?: (progress: {
    loaded: number;
    total: number;
    compiled: number;
    pipelines: number;
  }) => void;
  /** Aborting makes `load` reject with the signal's reason. */
  signal?: AbortSignal;
  /** A device to share. By default the model opens its own and destroys it in `dispose`. */
  device?: GPUDevice;
  /**
   * What to run on; a bundle needs `--fallback wasm` for the processor. By default WebGPU, and where the browser has none,
   * or only a software adapter, the processor.
   */
  backend?: "webgpu" | "wasm";
  /** The bundle's `kernels-00001.wasm` or `-00002`, compiled: where a page or a worker may compile no bytes. */
  module?: WebAssembly.Module;
  /** Which of several GPUs, for a device it opens; "high-performance" by default. */
  powerPreference?: GPUPowerPreference;
  /** Limits to ask for beyond those that the model needs, for a device it opens. */
  limits?: Record<string, number>;
  /** Fetches the files in place of the global `fetch`: to add headers, or to take them from elsewhere. */
  fetch?: (url: URL, init: RequestInit) => Promise<Response>;
  /** Addresses of files by their names, where they do not lie in the folder under these, as after a bundler. One that the bundle lacks is refused. */
  files?: Record<string, string | URL>;
  /** The SHA-256 of manifest.json in lower case hex, as the export prints it. Another manifest is refused; it has all other hashes. */
  integrity?: string;
  /**
   * What states are after a lost device: "states" has them as they were after the last run that resolved, for which each run
   * copies them to the CPU. By default they get their initial values.
   */
  recover?: "states";
}

export interface RunOptions<
  Keep extends readonly OutputName[] | true = readonly OutputName[] | true,
  Into = {[Name in OutputName]?: Destination},
  Latest extends boolean = boolean,
> {
  /** Which entry point; the first by default. */
  entry?: EntryName;
  /** Sizes that no input's shape gives; their maxima by default. */
  symbols?: Sizes;
  /** Outputs to leave on the GPU: names, or true for all. */
  keep?: Keep;
  /** Where outputs go, by name, instead of to the CPU. */
  into?: Into & {[Name in Exclude<keyof Into, OutputName>]: never};
  /**
   * Of the runs with it that wait for others, only the one that was asked for last is computed. The others give undefined.
   */
  latest?: Latest;
  /**
   * Aborting makes `run` reject with the signal's reason. A run that still waits for those before it is then left out; one
   * that the device has got is computed all the same, states too.
   */
  signal?: AbortSignal;
}

/** How an output is painted. */
export interface CanvasOptions {
  /** What is dark and what is bright, or the least and the greatest value that it has. 0 and 1 by default, of bytes 255. */
  range?: readonly [number, number] | "auto";
  /**
   * Colors, of 0 to 255 each with or without alpha: of one channel those from dark to bright, of classes one for each, by their
   * numbers.
   */
  colors?: readonly (readonly [number, number, number] | readonly [number, number, number, number])[];
  /**
   * Whether channels are scores of classes, of which the greatest is shown, or one channel has the numbers of classes. So by
   * default for more than four channels and for one of integers of 16 bits and more.
   */
  classes?: boolean;
}

/** What a bundle needs, by its manifest. */
export interface Requirements {
  /** Of the device; none so far. */
  features: GPUFeatureName[];
  /** Of the device, by the names of GPUSupportedLimits. */
  limits: Record<string, number>;
  /** Of the files that a load fetches, of the weights in them, and of GPU memory. */
  bytes: {fetched: number; weights: number; memory: number};
}

export interface VerifyReport {
  passed: boolean;
  /** One for each golden of the bundle; empty when it has none. */
  cases: {
    entry: string;
    seed: number;
    made: string;
    tolerance: number;
    passed: boolean;
    /** error: the greatest difference over the greatest expected value; wrong: elements that had to be equal. */
    outputs: {name: string; passed: boolean; wrong: number; error: number}[];
  }[];
}

/** Tells of a model's device: "lost" comes with it, "restored" when a run has got another one. */
export interface ModelEvents {
  lost: Event & {readonly error: TinyedgeError};
  restored: Event & {readonly states: "kept" | "initial"};
}

export interface Model extends EventTarget {
  addEventListener<Type extends keyof ModelEvents>(
    type: Type,
    listener: (event: ModelEvents[Type]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
  /** Why the device was lost, until a run has got another one. */
  readonly lost: TinyedgeError | undefined;
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** What is kept from run to run. */
  readonly states: readonly Port[];
  readonly symbols: readonly {name: string; min: number; max: number; step: number}[];
  readonly entries: readonly {name: string; inputs: string[]; outputs: string[]}[];
  /** Another one after a loss. */
  readonly device: GPUDevice;
  /** Where it runs. */
  readonly backend: "webgpu" | "wasm";
  /** How many compute a run on the processor; undefined where a GPU does. */
  readonly threads: number | undefined;
  readonly manifest: Record<string, any>;
  readonly stats: Readonly<{
    bytesFetched: number;
    bufferBytes: number;
    pipelines: number;
    bindGroups: number;
    runs: number;
    launches: number;
    passes: number;
    submits: number;
    uniformWrites: number;
  }>;
  /** Runs the model once, which updates its states. Runs asked for while another is going on happen in order, two in flight. */
  run<
    const Keep extends readonly OutputName[] | true = readonly [],
    Into extends {[Name in OutputName]?: Destination} = {},
    const Latest extends boolean = false,
  >(
    inputs: Inputs,
    options?: RunOptions<Keep, Into, Latest>,
  ): Promise<
    | Results<Keep extends readonly (infer Name)[] ? Name : OutputName, Into>
    | (Latest extends true ? undefined : never)
  >;
  /** A buffer that holds an input at its largest, to write into and to give to `run`. It goes with the model. */
  inputBuffer(name: keyof Inputs): Promise<GPUBuffer>;
  /** Paints an output that was kept on a canvas, which gets its size. */
  toCanvas(
    output: KeptOutput,
    canvas: HTMLCanvasElement | OffscreenCanvas,
    options?: CanvasOptions,
  ): Promise<void>;
  /** Generated inputs, the same everywhere for the same seed; made by `extras.js`. */
  example(options?: {
    entry?: EntryName;
    seed?: number;
    symbols?: Sizes;
  }): Promise<Record<string, {data: Values; shape: number[]}>>;
  /** Runs the bundle's goldens and compares. States are reset before and after. */
  verify(options?: {signal?: AbortSignal}): Promise<VerifyReport>;
  /**
   * The same of the values of the model's nodes, which a bundle has that was exported with `--debug-goldens`: the outputs of
   * a case are the nodes, in an order of computation. node: the first that differs. Rejects where the bundle has none.
   */
  compare(options?: {signal?: AbortSignal}): Promise<VerifyReport & {node: string | undefined}>;
  /** The GPU's time for each launch of one run; needs a device with timestamps. */
  profile(
    inputs?: Inputs | null,
    options?: Pick<RunOptions, "entry" | "symbols">,
  ): Promise<{kernel: string; nodes: string[]; flops: number; milliseconds: number}[]>;
  /** States back to their initial values, after the runs already asked for; so do the next two. */
  reset(): Promise<void>;
  /** A copy of a state, at the sizes of the last run. */
  getState<Name extends keyof States>(name: Name): Promise<State<States[Name]>>;
  /** Gives a state a value of its dtype and of its shape at the sizes of the last run. */
  setState<Name extends keyof States>(
    name: Name,
    data:
      | States[Name]
      | (States[Name] extends BigInt64Array | BigUint64Array ? readonly bigint[] : never)
      | readonly number[]
      | readonly boolean[],
  ): Promise<void>;
  /** All states as a file of the form safetensors, as they are after the runs already asked for; made by `extras.js`. */
  saveStates(): Promise<Blob>;
  /** Gives every state its value in such a file; what else it holds does not matter. */
  loadStates(file: Blob | ArrayBuffer | ArrayBufferView): Promise<void>;
  /** Frees all GPU memory. The model cannot be used afterwards. */
  dispose(): void;
}

/** Loads the bundle in a folder. Rejects with TinyedgeError, or with the signal's reason. */
export function load(url: string | URL, options?: LoadOptions): Promise<Model>;

/** What a bundle needs of a device, and how large it is: its manifest is fetched, and no device opened. */
export function requirements(
  url: string | URL,
  options?: Pick<LoadOptions, "fetch" | "files" | "integrity" | "signal">,
): Promise<Requirements>;

/** What went wrong, in a word that stays the same from version to version. */
export type ErrorId =
  | "bundle.bounds"
  | "bundle.count"
  | "bundle.expression"
  | "bundle.feature"
  | "bundle.field"
  | "bundle.file.hash"
  | "bundle.file.missing"
  | "bundle.file.size"
  | "bundle.file.text"
  | "bundle.format"
  | "bundle.index"
  | "bundle.manifest.hash"
  | "bundle.manifest.missing"
  | "bundle.manifest.size"
  | "bundle.manifest.syntax"
  | "bundle.name"
  | "bundle.overlap"
  | "bundle.requirement"
  | "bundle.target"
  | "bundle.version"
  | "device.adapter"
  | "device.float16"
  | "device.kernel"
  | "device.limits"
  | "device.lost"
  | "device.memory"
  | "device.read"
  | "device.request"
  | "device.run"
  | "device.timestamps"
  | "device.wasm"
  | "device.webgpu"
  | "load.backend"
  | "load.http"
  | "load.network"
  | "load.option"
  | "load.url"
  | "replay.count"
  | "run.disposed"
  | "run.dtype"
  | "run.entry"
  | "run.input"
  | "run.input.buffer"
  | "run.labels"
  | "run.option"
  | "run.output.buffer"
  | "run.range"
  | "run.shape"
  | "run.state"
  | "run.states"
  | "verify.nothing";

export class TinyedgeError extends Error {
  constructor(id: ErrorId, subject: string, because: string, next: string);
  readonly id: ErrorId;
  readonly subject: string;
  readonly because: string;
  readonly next: string;
}
