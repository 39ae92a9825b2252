import { Tooltip } from "@base-ui/react/tooltip";
import type { CSSProperties, ReactNode } from "react";

interface Props {
  content: ReactNode;
  className?: string;
  style?: CSSProperties;
  children?: ReactNode;
}

/** An element with a tooltip. The same text must also be available to keyboard users elsewhere. */
export function Tip({ content, className, style, children }: Props) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger delay={120} closeDelay={0} render={<span className={className} style={style} />}>{children}</Tooltip.Trigger>
      <Tooltip.Portal>
        <Tooltip.Positioner sideOffset={8} className="z-50">
          <Tooltip.Popup className="max-w-80 rounded-lg border border-line bg-raised px-3 py-2 text-[12.5px] break-words shadow-card">{content}</Tooltip.Popup>
        </Tooltip.Positioner>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
