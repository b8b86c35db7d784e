// Threads for the kernels in WebAssembly, where the page is isolated: workers with an instance each of the bundle's module,
// on one memory. A file of its own, fetched when it is used, and the workers' script too.

const NAME = "tinyedge thread";
const MOST = 8;
// Bytes of each thread's stack, as the first one has.
const STACK = 2 ** 18;
// A thread that has nothing to do looks so many times for more before it sleeps: about 0.1 ms.
const LOOKS = 10000;

// The words that all threads see. The turn is odd while there is a launch to compute; busy: how many workers do so, for which
// the next launch waits; next: the first group that nobody has taken.
const TURN = 0,
  NEXT = 1,
  BUSY = 2,
  ASLEEP = 3,
  FAULT = 4,
  LAUNCH = 5,
  WORDS = 10;

/** Take groups of the launch until there are none. @param {Int32Array<any>} words @param {Function} call */
function compute(words, call) {
  const [, table, last, count, some] = words.subarray(LAUNCH);
  for (let i; (i = Atomics.add(words, NEXT, some)) < count; )
    call(table, last, i, Math.min(i + some, count));
}

/** What a worker does, for ever. @param {Int32Array<any>} words @param {Function[]} calls */
function serve(words, calls) {
  for (let done = 0; ; ) {
    let turn = Atomics.load(words, TURN);
    for (let i = 0; turn === done && i < LOOKS; i++) turn = Atomics.load(words, TURN);
    if (turn === done) {
      Atomics.add(words, ASLEEP, 1);
      Atomics.wait(words, TURN, done);
      Atomics.sub(words, ASLEEP, 1);
      continue;
    }
    done = turn;
    Atomics.add(words, BUSY, 1);
    // The launch stays as it is while one that saw its turn is busy.
    try {
      if (turn % 2 && Atomics.load(words, TURN) === turn) compute(words, calls[words[LAUNCH]]);
    } catch {
      Atomics.store(words, FAULT, 1);
    }
    Atomics.sub(words, BUSY, 1);
  }
}

if (self.name === NAME)
  self.onmessage = async ({data: {module, memory, at, stack, entries}}) => {
    /** @type {any} */
    const {exports} = await WebAssembly.instantiate(module, {env: {memory}});
    exports.__stack_pointer.value = stack;
    postMessage(0);
    serve(
      new Int32Array(memory.buffer, at, WORDS),
      entries.map((entry) => exports[entry]),
    );
  };

/**
 * Threads beside this one, for kernels by their entries; they have memory of `create`. Rejects where there can be none.
 * url: of this file. It does not name itself, as some bundlers follow that for ever.
 * @param {URL} url @param {WebAssembly.Module} module @param {WebAssembly.Memory} memory @param {string[]} entries
 * @param {(size: number) => number} create bytes to where they are
 */
export async function start(url, module, memory, entries, create) {
  const at = create(4 * WORDS),
    words = new Int32Array(memory.buffer, at, WORDS),
    threads = Math.min(MOST, navigator.hardwareConcurrency),
    workers = Array.from(
      {length: threads - 1},
      () => new Worker(url, {type: "module", name: NAME}),
    ),
    end = () => workers.forEach((worker) => worker.terminate());
  try {
    await Promise.all(
      workers.map(
        (worker) =>
          new Promise((resolve, reject) => {
            const stack = create(STACK) + STACK;
            worker.onmessage = resolve;
            worker.onerror = worker.onmessageerror = reject;
            worker.postMessage({module, memory, at, stack, entries});
          }),
      ),
    );
  } catch (error) {
    end();
    throw error;
  }
  return {
    threads,
    end,
    /** One launch, by all threads. */
    launch(kernel, call, table, last, count) {
      words.set([kernel, table, last, count, Math.ceil(count / (8 * threads))], LAUNCH);
      Atomics.store(words, NEXT, 0);
      Atomics.add(words, TURN, 1);
      if (Atomics.load(words, ASLEEP)) Atomics.notify(words, TURN);
      compute(words, call);
      Atomics.add(words, TURN, 1);
      while (Atomics.load(words, BUSY));
      if (Atomics.load(words, FAULT)) throw new Error("a thread failed");
    },
  };
}
