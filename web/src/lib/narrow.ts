import { useSyncExternalStore } from "react";

// A phone: what stands below is the width at which Tailwind's "sm" begins.
const query = typeof matchMedia === "function" ? matchMedia("(max-width: 639px)") : undefined;

const subscribe = (tell: () => void) => {
  query?.addEventListener("change", tell);
  return () => query?.removeEventListener("change", tell);
};

/** Whether the page is as narrow as a phone, where the order of things is another. */
export const useNarrow = (): boolean => useSyncExternalStore(subscribe, () => query?.matches === true);
