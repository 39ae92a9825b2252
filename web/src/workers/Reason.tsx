/** The field for the reason of an operation on workers. */
export function Reason({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <label className="mt-3 block">
      <span className="label">Reason (shown to others and recorded in the audit log)</span>
      <input className="field mt-1" maxLength={1000} value={value} onChange={(e) => onChange(e.target.value)} />
    </label>
  );
}
