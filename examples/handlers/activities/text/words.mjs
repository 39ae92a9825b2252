// The activity text.words: cuts a text into words. The file's name and folder are its name.
export default async function main(text, ctx) {
  const { state } = ctx.session; // lives as long as the session stays with this worker
  state.texts = (state.texts ?? 0) + 1;
  ctx.progress({ message: `text ${state.texts}` });
  if (ctx.cancelled) throw ctx.signal.reason;
  return { text: state.texts, words: text.toLowerCase().match(/[a-z]+/g) ?? [] };
}
