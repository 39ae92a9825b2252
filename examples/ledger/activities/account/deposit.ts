// The activity account.deposit: adds to an account, once, however often it is tried.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context, Recovery } from '../sojourn';
import type { State } from './_journal';

interface Deposit {
  file: string; // of the journal, for account.open
  account: string;
  amount: number;
  slow?: number; // milliseconds between the write and the response, for experiments
}

// If the journal is missing, because its process died or the session moved to another worker, account.open runs with the
// argument of the deposit, and then the deposit is repeated.
export const recovery: Recovery = { rebuildActivity: 'account.open' };

export async function main({ account, amount, slow = 0 }: Deposit, ctx: Context<State>): Promise<number> {
  const journal = ctx.session!.require('journal');
  if (await journal.add({ key: ctx.idempotencyKey, account, amount, process: process.pid })) await sleep(slow);
  return journal.balances.get(account)!;
}
