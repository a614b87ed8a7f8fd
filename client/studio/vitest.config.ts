// Unit tests run beside each other; the browser's tests share a machine and take turns.
import { defineConfig, mergeConfig } from "vitest/config";
import vite from "./vite.config.ts";

export default mergeConfig(
  vite,
  defineConfig({
    // One second, the default of expect.poll, is too short for a machine that does other things, too.
    test: { testTimeout: 60_000, hookTimeout: 90_000, fileParallelism: false, expect: { poll: { timeout: 20_000 } } },
  }),
);
