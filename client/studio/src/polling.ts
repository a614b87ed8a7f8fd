// Polling: repeats a call while its component is shown and the tab is visible.
import { useEffect, useRef } from "preact/hooks";

/** Call `look` at once and `every` milliseconds after its end. A hidden tab does not look. */
export function usePolling(look: () => Promise<void>, every: number, deps: readonly unknown[]): void {
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    let timer = 0;
    let ended = false;
    const step = async () => {
      if (!document.hidden) await latest.current();
      if (!ended) timer = window.setTimeout(step, every);
    };
    const shown = () => {
      if (!document.hidden) {
        window.clearTimeout(timer);
        timer = window.setTimeout(step, 0);
      }
    };
    document.addEventListener("visibilitychange", shown);
    void step();
    return () => {
      ended = true;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [every, ...deps]);
}
