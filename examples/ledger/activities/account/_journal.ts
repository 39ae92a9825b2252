import { open, type FileHandle } from 'node:fs/promises';

/** One deposit. Its key is that of the activity, the same in all attempts. */
export interface Entry {
  key: string;
  account: string;
  amount: number;
  process: number; // that wrote it
}

/** A small database: a file of entries, kept open, and the balances they add up to. */
export class Journal {
  readonly balances = new Map<string, number>();
  private readonly taken = new Set<string>(); // keys

  private constructor(private readonly file: FileHandle) {}

  static async open(path: string): Promise<Journal> {
    const journal = new Journal(await open(path, 'a+'));
    const text = await journal.file.readFile('utf8');
    // What a process wrote of a line before it was killed is no entry: nobody was told that it is one.
    await journal.file.truncate(Buffer.byteLength(text.slice(0, text.lastIndexOf('\n') + 1)));
    for (const line of text.split('\n').slice(0, -1)) journal.count(JSON.parse(line) as Entry);
    return journal;
  }

  /** Adds an entry, unless its key is there already, and says whether it did. */
  async add(entry: Entry): Promise<boolean> {
    if (this.taken.has(entry.key)) return false;
    await this.file.appendFile(`${JSON.stringify(entry)}\n`);
    await this.file.datasync();
    this.count(entry);
    return true;
  }

  close(): Promise<void> {
    return this.file.close();
  }

  private count({ key, account, amount }: Entry): void {
    this.taken.add(key);
    this.balances.set(account, (this.balances.get(account) ?? 0) + amount);
  }
}

/** What the session of a ledger keeps. */
export interface State {
  journal?: Journal;
}
