// The activity notes collects texts in memory while a worker owns the session.
export async function main(text, ctx) {
  const notes = await ctx.session.getOrCreate('notes', () => []);
  if (ctx.attempt === 1 && text === 'fragile') throw new Error('dropped'); // the second attempt succeeds
  notes.push(text);
  return notes;
}
