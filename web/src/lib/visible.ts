import { useSyncExternalStore } from "react";

const subscribe = (fn: () => void) => {
  document.addEventListener("visibilitychange", fn);
  return () => document.removeEventListener("visibilitychange", fn);
};

/** Whether the tab of this page is visible. */
export const useVisible = (): boolean => useSyncExternalStore(subscribe, () => !document.hidden);
