// The activity notes: keeps what it is told, for as long as its session stays with a worker.
export async function main(text, ctx) {
  const notes = await ctx.session.getOrCreate('notes', () => []);
  if (ctx.attempt === 1 && text === 'fragile') throw new Error('dropped'); // the second attempt does better
  notes.push(text);
  return notes;
}
