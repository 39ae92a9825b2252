// Looks a word up in the state that words.session.mjs has set up.
export const session = 'words';

export function main(word, ctx) {
  return ctx.session.state.get(word) ?? 0;
}
