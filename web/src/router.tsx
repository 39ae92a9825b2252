import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect, retainSearchParams } from "@tanstack/react-router";
import { basePath } from "./lib/base";
import { QueuePage } from "./queues/QueuePage";
import { QueuesPage } from "./queues/QueuesPage";
import { NamespacesPage } from "./namespaces/NamespacesPage";
import { RunsPage } from "./runs/RunsPage";
import { SchedulesPage } from "./schedules/SchedulesPage";
import { SessionsPage } from "./sessions/SessionsPage";
import { NotFound, Shell } from "./shell/Shell";
import { WorkersPage } from "./workers/WorkersPage";

const text = (v: unknown): string | undefined => (typeof v === "string" && v !== "" ? v : typeof v === "number" ? String(v) : undefined);

/** Keeps only the named string members, so that a mangled URL still opens. */
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

// Pages with timelines are separate chunks, so that the list of runs loads first.
const runPage = lazyRouteComponent(() => import("./run/RunPage"), "RunPage");
const schedulePage = lazyRouteComponent(() => import("./schedules/SchedulePage"), "SchedulePage");
const sessionPage = lazyRouteComponent(() => import("./sessions/SessionPage"), "SessionPage");

// Every URL contains its namespace, so that a link shows the same page to every user.
const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFound,
  validateSearch: only("namespace"),
  search: { middlewares: [retainSearchParams(["namespace"])] },
});

const ofRuns = only("status", "kind", "type", "q", "after");

// The list of runs is the first page; its own path opens it too.
const alsoRuns = (path: string) =>
  createRoute({
    getParentRoute: () => root,
    path,
    validateSearch: ofRuns,
    beforeLoad: ({ search }) => {
      throw redirect({ to: "/", search, replace: true });
    },
  });

const routes = root.addChildren([
  createRoute({ getParentRoute: () => root, path: "/", component: RunsPage, validateSearch: ofRuns }),
  alsoRuns("/runs"),
  alsoRuns("/workflows"),
  createRoute({ getParentRoute: () => root, path: "/runs/$runId", component: runPage }),
  createRoute({ getParentRoute: () => root, path: "/workers", component: WorkersPage }),
  createRoute({ getParentRoute: () => root, path: "/sessions", component: SessionsPage, validateSearch: only("status", "after") }),
  createRoute({ getParentRoute: () => root, path: "/sessions/$sessionId", component: sessionPage }),
  createRoute({ getParentRoute: () => root, path: "/queues", component: QueuesPage, validateSearch: only("after") }),
  createRoute({ getParentRoute: () => root, path: "/queues/$queue", component: QueuePage }),
  createRoute({ getParentRoute: () => root, path: "/schedules", component: SchedulesPage, validateSearch: only("after") }),
  createRoute({ getParentRoute: () => root, path: "/schedules/$schedule", component: schedulePage }),
  createRoute({ getParentRoute: () => root, path: "/namespaces", component: NamespacesPage }),
]);

export const router = createRouter({ routeTree: routes, ...(basePath && { basepath: basePath }), scrollRestoration: true, defaultPreload: "intent" });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
