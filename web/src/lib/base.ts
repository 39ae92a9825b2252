// The path prefix of the app, such as "/sojourn", or "" at the root of its host. The app writes it into the page.
const meta = typeof document === "undefined" ? null : document.querySelector<HTMLMetaElement>('meta[name="base-path"]');

export const basePath: string = meta?.content ?? "";
