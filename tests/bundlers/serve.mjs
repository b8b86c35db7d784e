// Vite's own server of FOLDER, at a free port, whose address it prints; until its input ends. The package that is named
// is left as it lies in node_modules, as docs/page.md says.
//     node serve.mjs FOLDER PACKAGE

import {createServer} from "vite";

const [root, name] = process.argv.slice(2);
const server = await createServer({
  root,
  configFile: false,
  logLevel: "error",
  optimizeDeps: {exclude: [name]},
  server: {host: "127.0.0.1", port: 0, hmr: false},
});
await server.listen();
console.log(server.resolvedUrls.local[0]);
process.stdin.on("end", () => server.close().then(() => process.exit())).resume();
