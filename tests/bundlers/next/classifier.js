"use client";

import {useEffect, useState} from "react";
import {load} from "./model.tinyedge/index.js";

/** Loads the model where the page runs, and shows what it gives. */
export default function Classifier() {
  const [said, say] = useState("loading");
  useEffect(() => {
    const run = async () => {
      const made = [];
      for (const backend of ["webgpu", "wasm"]) {
        const model = await load({backend});
        const {passed} = await model.verify();
        const {y} = await model.run({x: Float32Array.of(1, 2, 3, 4)});
        made.push([passed, [...y.data], model.threads]);
      }
      return made;
    };
    globalThis.done = run();
    globalThis.done.then(() => say("done"), ({message}) => say(message));
  }, []);
  return <p>{said}</p>;
}
