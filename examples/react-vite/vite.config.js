import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  build: { target: "esnext", chunkSizeWarningLimit: 1000 },
  server: { host: "127.0.0.1" },
  preview: { host: "127.0.0.1" },
});
