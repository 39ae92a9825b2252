// The activity account.open: opens a journal and keeps it in the session. It is also how the journal comes back.
import type { Context } from '../sojourn';
import { Journal, type State } from './_journal';

export async function main({ file }: { file: string }, ctx: Context<State>): Promise<number> {
  const journal = await Journal.open(file);
  ctx.session!.state.journal = journal;
  ctx.session!.onClose(() => journal.close());
  return journal.balances.size;
}
