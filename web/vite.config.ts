import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

// Emptying dist removes the committed .gitkeep, without which the Go package does not compile. It is restored after each build.
function keepDist(): Plugin {
  return {
    name: "keep-dist",
    apply: "build",
    closeBundle() {
      const keep = fileURLToPath(new URL("dist/.gitkeep", import.meta.url));
      writeFileSync(keep, "Kept so that the Go package compiles before the dashboard is built.\n");
    },
  };
}

const app = process.env.SOJOURN_APP_URL ?? "http://127.0.0.1:7700";

export default defineConfig({
  base: "./", // the app says below which path it stands: see web/serve.go
  plugins: [react(), tailwindcss(), keepDist()],
  build: { target: "es2022", sourcemap: false, chunkSizeWarningLimit: 700, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { "/api": { target: app, ws: true } } },
  test: { testTimeout: 60_000, include: ["src/**/*.test.{ts,tsx}"], env: { TZ: "Europe/Berlin" } },
});
