// The build: fixed names and no source maps, so that the same sources give the same committed files.
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";
import { licenses } from "./licenses.mjs";

const built = fileURLToPath(new URL("../../server/gradwire_server/web/static", import.meta.url));
const arrange = fileURLToPath(new URL("src/graph/arrange.ts", import.meta.url));
const contract = fileURLToPath(new URL("../typescript/src/gen/gradwire/v1", import.meta.url));
const sdk = fileURLToPath(new URL("../typescript/src", import.meta.url));
const folder = {
  entryFileNames: "studio/[name].js",
  chunkFileNames: "studio/[name].js",
  assetFileNames: "studio/[name][extname]",
};

export default defineConfig({
  base: "./",
  resolve: { alias: { "#contract": contract, "#arrange": arrange, "#sdk": sdk }, dedupe: ["@bufbuild/protobuf"] },
  plugins: [licenses("studio/LICENSES.txt") as Plugin],
  worker: { format: "es", rolldownOptions: { output: folder } },
  build: {
    outDir: process.env.STUDIO_OUT ?? built,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    rolldownOptions: { input: { studio: fileURLToPath(new URL("index.html", import.meta.url)) }, output: folder },
  },
  server: { fs: { allow: ["..", "../.."] } },
});
