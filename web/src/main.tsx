import "./app.css";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import { router } from "./router";
import { Gate } from "./shell/Gate";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1000, // data of pages that are not shown receive no hints and may be outdated
      refetchOnWindowFocus: false, // api/live.ts fetches the shown queries when the page becomes visible
      // A rejected request would be rejected again; a lost connection may recover.
      retry: (failures, error) => failures < 2 && (!(error instanceof ApiError) || error.status === 0 || error.status >= 500),
      retryDelay: (n) => 400 * 2 ** n,
    },
  },
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <Gate>
        <RouterProvider router={router} />
      </Gate>
    </QueryClientProvider>
  </StrictMode>,
);
