import { ZeroProvider } from "@rocicorp/zero/react";
import { createRoot } from "react-dom/client";

import { App } from "./App.jsx";
import { mutators, schema } from "./zero.js";

createRoot(document.querySelector("#root")).render(
  <ZeroProvider cacheURL={import.meta.env.VITE_CACHE_URL} schema={schema} mutators={mutators}>
    <App />
  </ZeroProvider>,
);
