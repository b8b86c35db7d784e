// node build.mjs BUNDLER FOLDER: builds FOLDER/main.js, which imports a bundle as a package, into FOLDER/dist/main.js, with the
// settings that a user of the bundler would begin with. Vite and Parcel build FOLDER/index.html.

import {readFileSync, writeFileSync} from "node:fs";
import {join} from "node:path";

const [bundler, folder] = process.argv.slice(2),
  main = join(folder, "main.js"),
  dist = join(folder, "dist");

const builds = {
  async vite() {
    const {build} = await import("vite");
    await build({root: folder, base: "./", logLevel: "warn"});
  },
  async webpack() {
    const {default: webpack} = await import("webpack");
    await new Promise((resolve, reject) =>
      webpack(
        {
          mode: "production",
          context: folder,
          entry: "./main.js",
          output: {path: dist, filename: "main.js"},
          performance: {hints: false},
        },
        (error, stats) => {
          const faults = error ?? (stats.hasErrors() || stats.hasWarnings() ? stats.toString() : "");
          if (faults) reject(new Error(String(faults)));
          else resolve(undefined);
        },
      ),
    );
  },
  async rollup() {
    const {rollup} = await import("rollup"),
      {importMetaAssets} = await import("@web/rollup-plugin-import-meta-assets"),
      built = await rollup({input: main, plugins: [importMetaAssets()]});
    await built.write({dir: dist, format: "es"});
  },
  // It leaves addresses as they are: docs/page.md has a script with a plugin.
  async esbuild() {
    const text = readFileSync(new URL("../../docs/page.md", import.meta.url), "utf-8"),
      [block] = text.match(/^    \/\/ build\.mjs\n(?:    .*\n|\n)+/m) ?? [],
      script = join(folder, "build.mjs");
    writeFileSync(script, block.replaceAll(/^    /gm, ""));
    process.chdir(folder);
    await import(script);
  },
  // Its rules for names make a script of a manifest, unless they say otherwise.
  async parcel() {
    const {Parcel} = await import("@parcel/core"),
      config = join(folder, ".parcelrc"),
      transformers = {"**/manifest*.json": ["@parcel/transformer-raw"]};
    // What it takes for the name of a file is a pattern.
    process.chdir(folder);
    writeFileSync(config, JSON.stringify({extends: "@parcel/config-default", transformers}));
    await new Parcel({
      entries: "index.html",
      config,
      mode: "production",
      shouldDisableCache: true,
      cacheDir: join(folder, ".parcel-cache"),
      defaultTargetOptions: {distDir: dist, publicUrl: "./"},
    }).run();
  },
};

await builds[bundler]();
