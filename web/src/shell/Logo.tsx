/** The logo: three bars, as lanes of a timeline. */
export function Logo() {
  return (
    <span className="inline-flex items-center gap-2">
      <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden>
        <rect width="32" height="32" rx="8" fill="#0f766e" />
        <path d="M7 11h13" stroke="#fff" strokeOpacity=".55" strokeWidth="3" strokeLinecap="round" />
        <path d="M11 16h10" stroke="#fff" strokeWidth="3" strokeLinecap="round" />
        <path d="M11 21h14" stroke="#fff" strokeOpacity=".55" strokeWidth="3" strokeLinecap="round" />
        <circle cx="23.5" cy="11" r="2" fill="#fff" />
      </svg>
      <span className="max-[420px]:hidden text-[15px] font-semibold tracking-tight">Sojourn</span>
    </span>
  );
}
