// The definition "words": the owner of the session reads a text once and counts its words.
export const options = { setUpTimeoutSeconds: 60, onFailure: 'try_another_worker', handOver: 'prepare' };

export async function setUp(text, ctx) {
  const counts = new Map();
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts; // ctx.session.state of the handlers in the session
}

export function tearDown(counts) {
  counts.clear();
}
