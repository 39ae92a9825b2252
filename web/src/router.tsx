import { createRootRoute, createRoute, createRouter } from "@tanstack/react-router";
import { QueuesPage } from "./queues/QueuesPage";
import { RunPage } from "./run/RunPage";
import { RunsPage } from "./runs/RunsPage";
import { SessionPage } from "./sessions/SessionPage";
import { SessionsPage } from "./sessions/SessionsPage";
import { NotFound, Shell } from "./shell/Shell";
import { WorkersPage } from "./workers/WorkersPage";

const text = (v: unknown): string | undefined => (typeof v === "string" && v !== "" ? v : typeof v === "number" ? String(v) : undefined);

/** Keeps only the named members that are texts, so that an address somebody mangled still opens. */
const only =
  <K extends string>(...names: K[]) =>
  (search: Record<string, unknown>): { [N in K]?: string } => {
    const out: { [N in K]?: string } = {};
    for (const n of names) {
      const v = text(search[n]);
      if (v !== undefined) out[n] = v;
    }
    return out;
  };

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const routes = root.addChildren([
  createRoute({ getParentRoute: () => root, path: "/", component: RunsPage, validateSearch: only("status", "type", "q", "after") }),
  createRoute({ getParentRoute: () => root, path: "/runs/$runId", component: RunPage }),
  createRoute({ getParentRoute: () => root, path: "/workers", component: WorkersPage }),
  createRoute({ getParentRoute: () => root, path: "/sessions", component: SessionsPage, validateSearch: only("status", "after") }),
  createRoute({ getParentRoute: () => root, path: "/sessions/$sessionId", component: SessionPage }),
  createRoute({ getParentRoute: () => root, path: "/queues", component: QueuesPage }),
]);

export const router = createRouter({ routeTree: routes, scrollRestoration: true, defaultPreload: false });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
