// The activity text.words splits a text into words. Directory and file name are the activity's name.
export default async function main(text, ctx) {
  const { state } = ctx.session; // kept while this worker owns the session
  state.texts = (state.texts ?? 0) + 1;
  ctx.progress({ message: `text ${state.texts}` });
  if (ctx.cancelled) throw ctx.signal.reason;
  return { text: state.texts, words: text.toLowerCase().match(/[a-z]+/g) ?? [] };
}
