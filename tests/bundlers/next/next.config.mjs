// Where an app lies below its packages, Turbopack is told. Threads need an isolated page.

import {join} from "node:path";

const isolated = [
  {key: "Cross-Origin-Opener-Policy", value: "same-origin"},
  {key: "Cross-Origin-Embedder-Policy", value: "require-corp"},
];

export default {
  turbopack: {root: join(import.meta.dirname, "..", "..")},
  headers: () => [{source: "/:path*", headers: isolated}],
};
