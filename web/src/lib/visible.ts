import { useSyncExternalStore } from "react";

const subscribe = (fn: () => void) => {
  document.addEventListener("visibilitychange", fn);
  return () => document.removeEventListener("visibilitychange", fn);
};

/** Whether somebody may see this page: its tab is in front. */
export const useVisible = (): boolean => useSyncExternalStore(subscribe, () => !document.hidden);
