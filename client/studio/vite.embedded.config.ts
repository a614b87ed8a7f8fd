// The build of the graph that a notebook embeds: one script and one style, in the Python client.
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";
import { licenses } from "./licenses.mjs";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));

export default defineConfig({
  resolve: {
    alias: { "#contract": path("../typescript/src/gen/gradwire/v1"), "#arrange": path("src/graph/arrange.here.ts") },
    dedupe: ["@bufbuild/protobuf"],
  },
  plugins: [licenses("LICENSES.txt") as Plugin],
  build: {
    outDir: process.env.STUDIO_EMBEDDED_OUT ?? path("../gradwire/_graph/embedded"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    rolldownOptions: {
      input: { graph: path("src/graph/embedded.tsx") },
      output: { format: "iife", entryFileNames: "[name].js", assetFileNames: "[name][extname]" },
    },
  },
});
