import { shortcuts } from "../lib/keyboard";
import { Dialog } from "../ui/Dialog";

/** The list of keyboard shortcuts. */
export default function Shortcuts({ onClose }: { onClose: () => void }) {
  return (
    <Dialog open onClose={onClose} title="Keyboard shortcuts">
      <ul className="grid gap-1.5">
        {shortcuts.map(([keys, what]) => (
          <li key={what} className="flex items-center justify-between gap-4">
            <span className="text-soft">{what}</span>
            <span className="flex gap-1">
              {keys.map((k) => (
                <kbd key={k} className="min-w-6 rounded-md border border-line-strong bg-sunken px-1.5 py-0.5 text-center font-mono text-xs">
                  {k}
                </kbd>
              ))}
            </span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
