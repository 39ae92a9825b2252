// The activity greet: greets all whom its session has met.
export async function main(name: string, ctx: any): Promise<string> {
  const greeted = await ctx.session.getOrCreate('greeted', () => [] as string[]); // stays in memory with the session
  greeted.push(name);
  return `Hello ${greeted.join(' and ')}!`;
}
