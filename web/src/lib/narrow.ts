import { useSyncExternalStore } from "react";

// The width of a phone: below the breakpoint "sm" of Tailwind.
const query = typeof matchMedia === "function" ? matchMedia("(max-width: 639px)") : undefined;

const subscribe = (tell: () => void) => {
  query?.addEventListener("change", tell);
  return () => query?.removeEventListener("change", tell);
};

/** Whether the page is as narrow as a phone; its parts then have another order. */
export const useNarrow = (): boolean => useSyncExternalStore(subscribe, () => query?.matches === true);
