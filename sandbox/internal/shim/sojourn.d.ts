// What a handler of Sojourn gets as its second argument. Written by `sojourn types`; it is not read when handlers run.
//
//   import type { Context } from './sojourn';
//   export async function main(input: string, ctx: Context) { … }
//
// With a type for what the session keeps: Context<{ db?: Database }>.

/** One attempt of an activity. State is what its session keeps. */
export interface Context<State extends object = Record<string, any>> {
  /** The activity's name. */
  readonly activity: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** The same in all attempts: for services that can tell two equal requests apart. */
  readonly idempotencyKey: string;
  /** Which attempt of what this is. */
  readonly keys: Keys;
  /** When the attempt has to be over; null: it has no deadline. */
  readonly deadline: Date | null;
  /** The session it runs in; null outside of one. */
  readonly session: Session<State> | null;
  /** Ends when the attempt should. */
  readonly signal: AbortSignal;
  /** Whether the attempt should end. */
  readonly cancelled: boolean;
  /** A sign of life. */
  heartbeat(): void;
  /** A sign of life that people see; any value that has a JSON form. */
  progress(value: unknown): void;
  /** Lines in the worker's log. */
  readonly log: Log;
}

/** Which attempt of what runs. */
export interface Keys {
  readonly namespace: string;
  readonly workflow_id: string;
  readonly run_id: string;
  readonly task_id: string;
  readonly task_queue: string;
  readonly worker_id: string;
  readonly attempt_id: string;
  readonly activity_execution_id: string;
}

/** What stays from one call of the session to the next, as long as its process lives. */
export interface Session<State extends object = Record<string, any>> {
  readonly id: string;
  /** Rises whenever the session changes hands. */
  readonly epoch: number;
  /** Whether this is the first call of the epoch. */
  readonly isNew: boolean;
  /** Anything: models, connections, child processes. It is never stored. */
  state: State;
  /** A folder of its own, removed with the process. */
  readonly dir: string;
  /** A member of the state; without it the session's state is lost, and the recovery policy says what happens. */
  require<K extends keyof State>(key: K): NonNullable<State[K]>;
  /** A member of the state, made once, also when calls come together. */
  getOrCreate<K extends keyof State>(key: K, make: () => NonNullable<State[K]> | Promise<NonNullable<State[K]>>): Promise<NonNullable<State[K]>>;
  /** Called when the session goes in an orderly way, the last that was added first. */
  onClose(call: () => unknown): void;
}

export interface Log {
  (...values: unknown[]): void;
  debug(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

/** How the session's state is rebuilt when it is gone: `export const recovery: Recovery = { rebuildActivity: 'index.load' };` */
export interface Recovery {
  /** The activity that rebuilds the state. It receives the first argument of the call whose state is missing. */
  rebuildActivity: string;
  /** Number of arguments of that call that the rebuild activity receives, as a list if more than 1. Default: 1. */
  rebuildArguments?: number;
  /** How often a call is tried again after a rebuild; 1 when it is left out. */
  maxAutoRetries?: number;
  /** Whether calls that find nothing at once share one rebuild; true when it is left out. */
  singleflightPerSession?: boolean;
}

/** A failure with more to say: thrown errors may have these members. */
export interface Failure extends Error {
  /** false: the activity is not tried again. */
  retryable?: boolean;
  /** Goes to the workflow; any value that has a JSON form, up to 8 KiB of it. */
  details?: unknown;
}
