import { Dialog as Base } from "@base-ui/react/dialog";
import type { ReactNode } from "react";
import { Icon } from "./Icon";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  description?: string;
  wide?: boolean;
  children: ReactNode;
}

/** A modal dialog. It traps the focus and returns it when closed; Escape closes it. */
export function Dialog({ open, onClose, title, description, wide = false, children }: Props) {
  return (
    <Base.Root open={open} onOpenChange={(now) => !now && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="fixed inset-0 z-40 bg-black/35 backdrop-blur-[1px] dark:bg-black/60" />
        <Base.Popup className={`fixed left-1/2 z-50 -translate-x-1/2 overflow-y-auto rounded-xl border border-line bg-raised p-5 shadow-card ${
            wide ? "top-[5vh] max-h-[90vh] w-[min(46rem,calc(100vw-1rem))]" : "top-[12vh] max-h-[80vh] w-[min(30rem,calc(100vw-2rem))]"
          }`}>
          <div className="flex items-start justify-between gap-4">
            <Base.Title className="min-w-0 text-base font-semibold wrap-anywhere">{title}</Base.Title>
            <Base.Close aria-label="Close" className="-mt-1 -mr-1 grid size-7 place-items-center rounded-md text-faint hover:bg-sunken hover:text-ink">
              <Icon name="close" />
            </Base.Close>
          </div>
          {description && <Base.Description className="mt-1 text-soft wrap-anywhere">{description}</Base.Description>}
          <div className="mt-4">{children}</div>
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
