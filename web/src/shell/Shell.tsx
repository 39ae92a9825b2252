import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation, useNavigate } from "@tanstack/react-router";
import { Fragment, lazy, Suspense, useEffect, useState, useSyncExternalStore } from "react";
import { api } from "../api/client";
import { useLive, type LiveState } from "../api/live";
import { meQuery, aboutQuery } from "../api/queries";
import { awaySince, whenAway } from "../api/request";
import { useChosenInView } from "../lib/chosen";
import { Keys, step, typing } from "../lib/keyboard";
import { setTheme, toggleZone, useTheme, useZone, type Theme } from "../lib/prefs";
import { wallTime, zoneName } from "../lib/time";
import { Icon, type IconName } from "../ui/Icon";
import { Empty, useTitle } from "../ui/Page";
import { Logo } from "./Logo";
import { NamespaceScope, useNamespace } from "./namespace";
import { KnownNamespace, NamespaceSwitch, openSwitch } from "./NamespaceSwitch";

const pages = [
  { to: "/", name: "Runs" },
  { to: "/sessions", name: "Sessions" },
  { to: "/workers", name: "Workers" },
  { to: "/queues", name: "Queues" },
  { to: "/schedules", name: "Schedules" },
  { to: "/namespaces", name: "Namespaces" },
] as const;

const Shortcuts = lazy(() => import("./Shortcuts"));

export function Shell() {
  return (
    <NamespaceScope>
      <Frame />
    </NamespaceScope>
  );
}

function Frame() {
  const [help, setHelp] = useState(false);
  const namespace = useNamespace();
  const row = useChosenInView(useLocation({ select: (l) => l.pathname }));
  useKeyboard(() => setHelp(true));
  return (
    <>
      <a href="#content" className="sr-only focus:not-sr-only focus:fixed focus:top-2 focus:left-2 focus:z-50 focus:rounded-md focus:bg-raised focus:px-3 focus:py-2">
        Skip to content
      </a>
      <header className="sticky top-0 z-30 border-b border-line bg-card/85 backdrop-blur">
        <div className="mx-auto flex max-w-[84rem] flex-wrap items-center gap-x-3 px-4 xl:gap-x-6 sm:px-6">
          <Link to="/" className="flex h-13 items-center rounded-md" aria-label="Sojourn: all runs">
            <Logo />
          </Link>
          <NamespaceSwitch />
          <nav ref={row} aria-label="Pages" className="order-last -mx-4 flex w-[calc(100%+2rem)] gap-1 overflow-x-auto border-t border-line px-3 lg:order-none lg:mx-0 lg:w-auto lg:border-0 lg:px-0">
            {pages.map((p) => (
              <Link
                key={p.to}
                to={p.to}
                activeOptions={{ exact: false, includeSearch: false }}
                className="relative flex h-11 items-center px-3 font-medium text-soft hover:text-ink lg:h-13 lg:px-2 xl:px-3 data-[status=active]:text-ink data-[status=active]:after:absolute data-[status=active]:after:inset-x-2 xl:data-[status=active]:after:inset-x-3 data-[status=active]:after:bottom-0 data-[status=active]:after:h-0.5 data-[status=active]:after:rounded-full data-[status=active]:after:bg-accent"
              >
                {p.name}
              </Link>
            ))}
          </nav>
          <div className="ml-auto flex h-13 items-center gap-1">
            <LiveDot />
            <ZoneToggle />
            <ThemeToggle />
            <button type="button" className="hidden size-8 place-items-center rounded-md text-soft hover:bg-sunken hover:text-ink sm:grid" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick={() => setHelp(true)}>
              <Icon name="help" />
            </button>
            <SignOut />
          </div>
        </div>
      </header>
      <ReleaseWarning />
      <Away />
      <main id="content" tabIndex={-1} className="mx-auto min-h-[calc(100dvh-9rem)] max-w-[84rem] px-4 py-6 outline-none sm:px-6">
        <KnownNamespace>
          {/* Pages are mounted anew for another namespace, so that they never show data of the previous one. */}
          <Fragment key={namespace}>
            <Outlet />
          </Fragment>
        </KnownNamespace>
      </main>
      <Footer />
      <Suspense>{help && <Shortcuts onClose={() => setHelp(false)} />}</Suspense>
    </>
  );
}

function useKeyboard(showHelp: () => void): void {
  const navigate = useNavigate();
  useEffect(() => {
    const keys = new Keys();
    const search = async () => {
      const field = () => document.querySelector<HTMLInputElement>("[data-search]");
      if (!field()) await navigate({ to: "/" });
      requestAnimationFrame(() => field()?.select());
    };
    const press = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
      if (typing(e.target)) {
        if (e.key === "Escape") (e.target as HTMLElement).blur();
        return;
      }
      if (document.querySelector("[role=dialog]")) return;
      const action = keys.press(e.key, performance.now());
      if (!action) return;
      if (action === "leave") return;
      e.preventDefault();
      switch (action) {
        case "search":
          return void search();
        case "next":
          return step(1);
        case "previous":
          return step(-1);
        case "help":
          return showHelp();
        case "zone":
          return toggleZone();
        case "namespace":
          return openSwitch();
        case "runs":
          return void navigate({ to: "/" });
        default:
          return void navigate({ to: `/${action}` });
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [navigate, showHelp]);
}

const liveLooks: Record<LiveState, { text: string; dot: string; title: string }> = {
  live: { text: "Live", dot: "bg-good", title: "Changes appear immediately" },
  connecting: { text: "Connecting", dot: "breathe bg-idle", title: "Connecting; until then the page is refreshed every 5 s" },
  reconnecting: { text: "Reconnecting", dot: "breathe bg-idle", title: "Connection lost; the page is refreshed every 5 s" },
};

function LiveDot() {
  const look = liveLooks[useLive()];
  return (
    <span role="status" data-live={look.text} title={look.title} className="flex h-8 items-center justify-end gap-2 px-2 text-[13px] text-soft sm:w-30 lg:max-xl:w-auto">
      <span className={`size-2 rounded-full ${look.dot}`} aria-hidden />
      <span className="max-sm:sr-only lg:max-xl:sr-only">{look.text}</span>
    </span>
  );
}

function ZoneToggle() {
  const zone = useZone();
  const name = zoneName(zone);
  return (
    <button
      type="button"
      onClick={toggleZone}
      aria-label={`Times in ${zone === "utc" ? "UTC" : `local time, ${name}`}; switch to ${zone === "utc" ? "local time" : "UTC"}`}
      title="UTC or local time (u)"
      className="h-8 min-w-14 rounded-md px-2 text-[13px] text-soft hover:bg-sunken hover:text-ink"
    >
      {name}
    </button>
  );
}

const themes: Record<Theme, { next: Theme; icon: IconName; name: string }> = {
  system: { next: "light", icon: "system", name: "system" },
  light: { next: "dark", icon: "sun", name: "light" },
  dark: { next: "system", icon: "moon", name: "dark" },
};

function ThemeToggle() {
  const theme = useTheme();
  const look = themes[theme];
  return (
    <button
      type="button"
      data-theme-toggle={theme}
      onClick={() => setTheme(look.next)}
      aria-label={`Theme: ${look.name}; switch to ${themes[look.next].name}`}
      title={`Theme: ${look.name}`}
      className="grid size-8 place-items-center rounded-md text-soft hover:bg-sunken hover:text-ink"
    >
      <Icon name={look.icon} />
    </button>
  );
}

function SignOut() {
  const client = useQueryClient();
  const me = useQuery(meQuery);
  const out = useMutation({ mutationFn: api.signOut, onSuccess: () => client.resetQueries() });
  // Without sign-in there is no cookie to delete.
  if (!me.data || me.data.method === "none") return null;
  return (
    <button
      type="button"
      className="grid size-8 place-items-center rounded-md text-soft hover:bg-sunken hover:text-ink"
      aria-label={`Sign out ${me.data.identity}`}
      title={`Sign out ${me.data.identity} (${(me.data.roles ?? []).join(", ")})`}
      onClick={() => out.mutate()}
    >
      <Icon name="out" />
    </button>
  );
}

/** A notice that the app is not responding, with the time of the data on the page. */
function Away() {
  const since = useSyncExternalStore(whenAway, awaySince);
  const zone = useZone();
  if (since === null) return null;
  return (
    <p role="alert" data-away className="bg-warn-soft px-4 py-2 text-center text-warn">
      The app is not responding. Showing data as of {wallTime(since, zone)}.
    </p>
  );
}

/** A warning that version checks between app and workers have no effect, because the release is unknown. */
function ReleaseWarning() {
  const { data } = useQuery(aboutQuery(useNamespace()));
  if (!data?.release_unreadable) return null;
  return (
    <p role="alert" className="bg-bad-soft px-4 py-2 text-center text-bad">
      The app could not determine its release and uses {data.release}. It accepts every worker whose release is also unknown.
    </p>
  );
}

function Footer() {
  const { data } = useQuery(aboutQuery(useNamespace()));
  return (
    <footer className="mx-auto flex min-h-12 max-w-[84rem] flex-wrap gap-x-5 gap-y-1 px-4 pb-6 text-xs text-faint sm:px-6">
      {data && (
        <>
          <span>Release {data.release}</span>
          <span>Database {data.store}</span>
          <span>App {data.app_id}</span>
        </>
      )}
    </footer>
  );
}

export function NotFound() {
  useTitle("Not found");
  return (
    <Empty title="Page not found">
      <Link to="/" className="btn mt-4">
        All runs
      </Link>
    </Empty>
  );
}
