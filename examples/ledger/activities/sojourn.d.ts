// What a handler of Sojourn gets as its second argument. Written by `sojourn types`; it is not read when handlers run.
//
//   import type { Context } from './sojourn';
//   export async function main(input: string, ctx: Context) { … }
//
// With a type for the session state: Context<{ db?: Database }>.
//
// A session definition, in a file NAME.session.ts:
//
//   export const setUp: SetUp<string, Map<string, number>> = async (text, ctx) => { … };
//   export const tearDown: TearDown<Map<string, number>> = (counts) => counts.clear();

/** One attempt of an activity. State is the type of its session state. */
export interface Context<State extends object = Record<string, any>> {
  /** The activity's name. */
  readonly activity: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** The same in all attempts: pass it to services that detect repeated requests. */
  readonly idempotencyKey: string;
  /** IDs of the attempt, its task and its run. */
  readonly keys: Keys;
  /** Deadline of the attempt; null: none. */
  readonly deadline: Date | null;
  /** What an earlier attempt reported last; null: no attempt reported progress. */
  readonly lastHeartbeat: LastHeartbeat | null;
  /** Headers of the command that scheduled the activity; empty: it had none. */
  readonly headers: Readonly<Record<string, string>>;
  /** The session of the attempt; null outside sessions. */
  readonly session: Session<State> | null;
  /** The acquisition of the session under which the attempt runs, for writes to other stores; null outside sessions. */
  readonly fence: Fence | null;
  /** Is aborted when the attempt should stop. */
  readonly signal: AbortSignal;
  /** Whether the attempt should stop. */
  readonly cancelled: boolean;
  /** Sends a heartbeat. */
  heartbeat(): void;
  /** Sends a heartbeat with progress: any value with a JSON form. The dashboard shows it, and the next attempt finds it as lastHeartbeat. */
  progress(value: unknown): void;
  /**
   * Ends the call and leaves the attempt open: a caller of the API reports its outcome with the token keys.attempt_id. It
   * throws, so nothing after it runs.
   */
  pending(): never;
  /** Lines in the worker's log. */
  readonly log: Log;
}

/** One acquisition of a session. A store that keeps the highest epoch rejects late writes of former owners. */
export interface Fence {
  readonly namespace: string;
  readonly sessionId: string;
  /** Rises with each acquisition of the session. */
  readonly epoch: number;
}

/** The last progress of an earlier attempt. */
export interface LastHeartbeat {
  /** The value that was passed to progress(). */
  readonly details: any;
  /** When that attempt sent its last heartbeat. */
  readonly at: Date;
  /** Number of that attempt. */
  readonly attempt: number;
}

/** IDs of an attempt, its task and its run. */
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

/** State that is kept between the calls of a session while its process lives. */
export interface Session<State extends object = Record<string, any>> {
  readonly id: string;
  /** Rises whenever a worker acquires the session. */
  readonly epoch: number;
  /** Whether this is the first call of the epoch. */
  readonly isNew: boolean;
  /** Any values: models, connections, child processes. They are never stored. With a definition: what setUp returned. */
  state: State;
  /** The session's scratch folder, removed with the process. */
  readonly dir: string;
  /** Returns a member of the state. If it is missing, the session's state is lost, and the recovery policy applies. */
  require<K extends keyof State>(key: K): NonNullable<State[K]>;
  /** Returns a member of the state; make creates it once, also if calls run concurrently. */
  getOrCreate<K extends keyof State>(key: K, make: () => NonNullable<State[K]> | Promise<NonNullable<State[K]>>): Promise<NonNullable<State[K]>>;
  /** call is called when the session is closed in good order; hooks run in reverse order. */
  onClose(call: () => unknown): void;
}

export interface Log {
  (...values: unknown[]): void;
  debug(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

/** How lost session state is rebuilt: `export const recovery: Recovery = { rebuildActivity: 'index.load' };` */
export interface Recovery {
  /** The activity that rebuilds the state. It receives the first argument of the call whose state is missing. */
  rebuildActivity: string;
  /** Number of arguments of that call that the rebuild activity receives, as a list if more than 1. Default: 1. */
  rebuildArguments?: number;
  /** Number of retries of a call after a rebuild. Default: 1. */
  maxAutoRetries?: number;
  /** Whether each of several concurrent calls with missing state runs its own rebuild. Default: false, they share one. */
  parallelRebuilds?: boolean;
  /** @deprecated The opposite of parallelRebuilds. */
  singleflightPerSession?: boolean;
}

/** Sets a session up, once in each epoch. Input: the argument of the definition, or a list of several. */
export type SetUp<Input = any, State = any> = (input: Input, ctx: Context) => State | Promise<State>;

/** Releases what setUp returned, when the session is closed in good order. It has 10 seconds. */
export type TearDown<State = any> = (state: State) => unknown;

/**
 * Returns a value from which another worker restores the state: JSON values of at most 2 MiB. It is called before the
 * worker releases the session, while no call runs in it, and must not change the state.
 */
export type OnHandOver<State = any, Snapshot = any> = (state: State) => Snapshot | Promise<Snapshot>;

/** Restores what onHandOver returned, after setUp and before the first call. If it throws, the state is lost. */
export type Restore<State = any, Snapshot = any> = (state: State, snapshot: Snapshot) => unknown;

/** Options of a session definition: `export const options: SessionOptions = { setUpTimeoutSeconds: 60 };` */
export interface SessionOptions {
  /** Timeout of setUp in seconds. Default: 600. */
  setUpTimeoutSeconds?: number;
  /**
   * Effect of a failed setUp. fail_activity, the default: the attempt fails. try_another_worker: the worker releases the
   * session and returns the task, so that another worker runs setUp.
   */
  onFailure?: 'fail_activity' | 'try_another_worker';
  /**
   * How a session moves from a draining worker. release, the default: the next worker runs setUp while tasks wait.
   * prepare: the next worker runs setUp first, while another worker holds the session; ctx.fence is then null.
   */
  handOver?: 'release' | 'prepare';
}

/** Members that a thrown error may have. */
export interface Failure extends Error {
  /** false: the activity is not retried. */
  retryable?: boolean;
  /** Goes to the workflow; any value that has a JSON form, up to 8 KiB of it. */
  details?: unknown;
}
