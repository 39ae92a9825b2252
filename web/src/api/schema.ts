// Written by npm run types from docs/openapi.json. Do not edit.
import type { Json } from "../lib/json";
export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description The recorded lines of one attempt of an activity. */
        ActivityLogs: {
            /** @description The attempt with these lines; absent if there is none yet. */
            activity_attempt_id?: string;
            /** @description attempts with lines, and the running one, oldest first */
            attempts: components["schemas"]["LogAttempt"][];
            lines: components["schemas"]["LogLine"][];
            /** @description more lines exist */
            more: boolean;
            /** @description value of after for the following lines */
            next: number;
            /** @description the activity is open and may have another attempt */
            open: boolean;
            run_id: string;
            /** @description the attempt runs and may log more */
            running: boolean;
            task_id: string;
            workflow_id: string;
        };
        /** @description Identifies the run that was started or that exists already. */
        ActivityResponse: {
            activity_type: string;
            namespace: string;
            /** @description started_new, returned_existing_active */
            outcome: string;
            run_id: string;
            status: string;
            workflow_id: string;
        };
        /** @description Session_definition of an activity run, as in the command schedule_activity, with arguments as in input. */
        ActivitySession: {
            arguments?: Json;
            name: string;
            /** @enum {string} */
            on_lost?: "set_up" | "fail";
        };
        /** @description Session_definition of an activity run, as in the command schedule_activity, with arguments as in input. */
        ActivitySessionRequest: {
            arguments?: Json;
            name?: string;
            /** @enum {string} */
            on_lost?: "set_up" | "fail";
        };
        /** @description Limits one kind of task; null means no limit. */
        Budget: {
            max_active_leases: null | number;
            max_dispatches_per_minute: null | number;
        };
        /** @description Limits one kind of task; null means no limit. */
        BudgetRequest: {
            max_active_leases?: null | number;
            max_dispatches_per_minute?: null | number;
        };
        /** @description The workers of one build ID that serve a queue, and the operator's decisions about the build. A null build ID means workers without one. */
        BuildCohort: {
            active_worker_count: number;
            build_id: null | string;
            /** @enum {string} */
            drain_intent: "active" | "draining";
            /** Format: date-time */
            drained_at: string | null;
            draining_worker_count: number;
            /** Format: date-time */
            first_seen_at: string | null;
            /** Format: date-time */
            last_heartbeat_at: string | null;
            new_start_selected: boolean;
            /** Format: date-time */
            promoted_at: string | null;
            rollout_status: string;
            runtimes: string[];
            sdk_versions: string[];
            stale_worker_count: number;
            total_worker_count: number;
        };
        /** @description A jump of the database's clock. */
        ClockJump: {
            /**
             * Format: date-time
             * @description time at which the jump was detected, by the clock after the jump
             */
            at: string | null;
            by_seconds: number;
            /** @description forward, back */
            direction: string;
            /** @description error because of which some rows may not have been shifted */
            error?: string;
            /** @description number of rows whose leases and back-offs were shifted by the jump */
            rows: number;
        };
        /** @description An activity type of which two workers have different code under one release. */
        CodeDifference: {
            activity_type: string;
            /** @description version of the other worker's code */
            version: string;
            /** @description the other worker */
            worker_id: string;
        };
        /** @description A worker to which the app does not dispatch, with the tasks and sessions that it still has. */
        DrainedWorker: {
            active_leases: number;
            /** @description of these, workflow tasks */
            active_workflow_tasks: number;
            held_sessions: number;
            /** @enum {string} */
            state: "draining" | "drained";
            status: components["schemas"]["WorkerStatus"];
            worker_id: string;
        };
        /** @description An event in the response. Its member decoded contains the encoded members of the payload as plain JSON. */
        Event: {
            decoded?: {
                [key: string]: Json;
            };
            event_type: string;
            payload: Json;
            /** Format: date-time */
            recorded_at: string | null;
            sequence: number;
            /** Format: date-time */
            timestamp: string | null;
            /** @description with values=preview or none: the values that payload and decoded do not contain whole */
            truncated?: components["schemas"]["Truncated"];
            workflow_task_id?: string;
        };
        /**
         * @description The event types of this release. Later releases may have more.
         * @enum {string}
         */
        EventType: "ActivityCancelRequested" | "ActivityCancelled" | "ActivityCompleted" | "ActivityFailed" | "ActivityRetryScheduled" | "ActivityScheduled" | "ActivityTimedOut" | "AttachedChildEnded" | "AttachedToChild" | "AwakeableCancelRequested" | "AwakeableClosed" | "AwakeableCompleted" | "AwakeableFailed" | "AwakeableOpened" | "AwakeableTimedOut" | "CancelRequested" | "ChildCancelRequested" | "ChildRunCancelled" | "ChildRunCompleted" | "ChildRunFailed" | "ChildRunStarted" | "ChildRunTerminated" | "ChildWorkflowScheduled" | "ConditionWaitOpened" | "ConditionWaitSatisfied" | "ConditionWaitTimedOut" | "MemoUpserted" | "ParentClosePolicyApplied" | "RepairRequested" | "SearchAttributesUpserted" | "SelectionOperationCancelled" | "SelectionResolved" | "SessionEnded" | "SessionRecovered" | "SessionSetUp" | "SessionStarted" | "SideEffectRecorded" | "SignalApplied" | "SignalReceived" | "SignalSent" | "SignalWaitOpened" | "TerminateRequested" | "TimerCancelRequested" | "TimerCancelled" | "TimerFired" | "TimerScheduled" | "UpdateAccepted" | "UpdateApplied" | "UpdateCompleted" | "VersionMarkerRecorded" | "WorkflowCancellationRequested" | "WorkflowCancelled" | "WorkflowCompleted" | "WorkflowContinuedAsNew" | "WorkflowFailed" | "WorkflowStarted" | "WorkflowTerminated" | "WorkflowTimedOut";
        /** @description The failure in an event. */
        Failure: {
            code?: Json;
            /** @description {type, class, message, details, details_payload_codec, …} */
            exception?: Json;
            exception_class?: string;
            exception_type?: string;
            /** @description activity, application (a failure of the workflow), timeout, cancelled, poison, session_lost, … */
            failure_category?: string;
            failure_id?: string;
            message?: string;
            non_retryable?: boolean;
            /** @description The stack trace for display. Workflow code cannot read it, so it is not part of the exception and is not reported to other runs. */
            stack_trace?: string;
        };
        /**
         * @description The kind of object that an ID names.
         * @enum {string}
         */
        FindKind: "workflow" | "run" | "business_key" | "session" | "worker" | "schedule" | "step";
        /** @description The objects with the requested ID, and objects whose IDs begin with it. */
        FindResponse: {
            /** @description at most one of each kind, ordered by kind: workflow, run, business_key, session, worker, schedule, step */
            matches: components["schemas"]["Found"][];
            /** @description at most five of each kind, in the order of the IDs, without the matches */
            prefixes: components["schemas"]["Found"][];
        };
        /** @description A drain and its progress. */
        FleetDrainState: {
            active_leases: number;
            build_id?: string;
            by?: string;
            /**
             * Format: date-time
             * @description null: none
             */
            deadline_at: string | null;
            /** @description workers without tasks and sessions */
            drained_worker_count: number;
            /** @description the workers are evicted */
            evict: boolean;
            /** @description group of the workers' token */
            group?: string;
            held_sessions: number;
            namespace: string;
            /** @description in the response to a request: draining, evicting or resumed */
            outcome?: string;
            reason?: string;
            release?: string;
            /** Format: date-time */
            since: string | null;
            /**
             * @description Draining while one of the drain's workers has a task or a session, else drained, also if there is no worker.
             * @enum {string}
             */
            state: "draining" | "drained";
            worker_count: number;
            worker_id?: string;
            /** @description The workers, those with the most remaining work first, at most 1000. */
            workers: components["schemas"]["DrainedWorker"][];
        };
        /** @description The drains of a namespace, the oldest first. */
        FleetDrains: {
            drains: components["schemas"]["FleetDrainState"][];
            namespace: string;
        };
        /** @description The settings, and how many workers applied them. */
        FleetSettingsState: {
            /** @description number of live workers that report this revision */
            applied_worker_count: number;
            by?: string;
            /** @description Runs each call of a handler outside sessions in a new executor. */
            fresh?: boolean;
            /**
             * @description A minimum: a worker with weaker executors does not accept tasks that need an executor.
             * @enum {string}
             */
            isolation_min_level?: "none" | "process" | "confined";
            /** @enum {string} */
            log_level?: "trace" | "debug" | "info" | "warn" | "error";
            namespace: string;
            /** @description live workers that report another revision, at most 100 */
            pending: string[];
            /**
             * @description "off": sessions do not move to new workers that hold fewer of them. Absent: on.
             * @enum {string}
             */
            rebalance?: "on" | "off";
            /** @description incremented by each change; 0: never changed */
            revision: number;
            /** @description number of live workers that report no revision */
            unaware_worker_count: number;
            /** Format: date-time */
            updated_at: string | null;
            /** @description activities that run at the same time */
            worker_concurrency?: number;
            /** @description number of live workers that report a revision */
            worker_count: number;
        };
        /** @description An object that was found by its id. */
        Found: {
            /**
             * Format: date-time
             * @description start of the run, or last change of the session or worker
             */
            at?: string | null;
            id: string;
            kind: components["schemas"]["FindKind"];
            run_id?: string;
            /** @description workflow or activity; only of matches */
            run_kind?: string;
            /** @description of a step in its run */
            sequence?: number;
            /** @description of the run; only of matches */
            status?: components["schemas"]["RunStatus"];
            /** @description the run to which the object leads: the current run of a workflow id, the newest run with a business key */
            workflow_id?: string;
            workflow_type?: string;
        };
        /** @description Texts by name that accompany a request or a command, such as a trace ID or a tenant. Events and tasks contain them; a replay never compares them. */
        Headers: {
            [key: string]: string;
        };
        HistoryResponse: {
            events: components["schemas"]["Event"][];
            next_page_token: null | string;
            run_id: string;
            workflow_id: string;
        };
        /** @description Describes the caller. */
        Identity: {
            group?: string;
            identity: string;
            /** @description token, cookie, none */
            method: components["schemas"]["Method"];
            /** @description empty: all namespaces */
            namespaces: string[];
            queues: string[];
            roles: components["schemas"]["Role"][];
            token_id?: string;
        };
        /** @description What the latest attempt that ended and had sent heartbeats with details left for the attempts after it. */
        LastHeartbeat: {
            /**
             * Format: date-time
             * @description time of the last heartbeat of that attempt
             */
            at: string | null;
            /** @description of the attempt that sent it */
            attempt_number: number;
            /** @description The details of the last heartbeat that had any. If that heartbeat also had message, current, total or unit, details are an object with all of them. */
            details: Json;
        };
        /** @description One page of runs. */
        ListResponse: {
            next_page_token: null | string;
            /**
             * Format: date-time
             * @description for an incomplete response: the search covered runs started since this time; the next page has older runs
             */
            searched_to?: string | null;
            /** @description about parts of the filter that are probably a mistake */
            warnings?: components["schemas"]["Warning"][];
            workflow_count: number;
            workflows: components["schemas"]["RunView"][];
        };
        /** @description An attempt of an activity with the size of its log. */
        LogAttempt: {
            activity_attempt_id: string;
            /** @description number of the delivery: the last part of the attempt's ID */
            attempt: number;
            bytes: number;
        };
        /** @description One log record of an activity's code, or one line that it printed. */
        LogLine: {
            /**
             * Format: date-time
             * @description by the worker's clock
             */
            at?: string | null;
            /** @description The number of lines dropped at this place; such an entry has no text. */
            left_out?: number;
            /** @description debug, info, warn, error */
            level?: string;
            /** @description stdout or stderr if printed; log if logged */
            source?: string;
            text: string;
        };
        /** @description One delivery of an attempt that ended without an outcome. */
        Lost: {
            /** Format: date-time */
            at: string | null;
            delivery: number;
            /**
             * Format: date-time
             * @description time of the last heartbeat from its code
             */
            last_heartbeat_at?: string | null;
            /** @description The progress in the last heartbeat. It is set only in the latest lost delivery of a list. */
            last_heartbeat_details?: Json;
            /** @description number of tasks leased to the worker process of this delivery when the process ended */
            leased_tasks?: number;
            session_epoch?: number;
            /**
             * Format: date-time
             * @description time of the delivery's lease
             */
            started_at?: string | null;
            /**
             * @description the task is a suspect of the loss of its worker process, or blamed for it; empty: neither
             * @enum {string}
             */
            verdict?: "suspect" | "blamed";
            /** @description lease_expired, worker_restarted, worker_error, returned: … */
            why: string;
            worker_id: string;
        };
        /**
         * @description The way in which a caller authenticated.
         * @enum {string}
         */
        Method: "token" | "cookie" | "none";
        /** @description A namespace in responses. */
        NamespaceView: {
            /** @description URL of the service that decodes payloads for viewers; empty: none */
            codec_endpoint: string;
            /** Format: date-time */
            created_at: string | null;
            description: string;
            name: string;
            quotas: components["schemas"]["QuotaState"][];
            retention_days: number;
            /** @description active */
            status: string;
            /** Format: date-time */
            updated_at: string | null;
        };
        NamespacesResponse: {
            namespaces: components["schemas"]["NamespaceView"][];
        };
        /** @description The state of one app and of the cluster as this app knows it, for the dashboard's first page. */
        Overview: {
            app_id: string;
            /** @description The last jump of the database's clock that this app found since its start */
            clock_jump?: components["schemas"]["ClockJump"];
            /** @description runs, sessions, workers, each by status */
            counts: {
                [key: string]: {
                    [key: string]: number;
                };
            };
            queues: components["schemas"]["QueueView"][];
            release: string;
            /** @description no release could be read: 0.0.0 */
            release_unreadable?: boolean;
            /** @description maximum of the counts of runs, sessions, and ready or delayed tasks; the maximum plus one means "more" */
            runs_counted_up_to?: number;
            store: string;
            uptime_seconds: number;
        };
        /** @description An encoded value; null is none. */
        Payload: {
            /** @description base64 of an Avro single-object frame with the fixed recursive value schema */
            blob: string;
            /** @enum {string} */
            codec: "avro";
        } | null;
        /** @description Lists the open steps of a run, each with the reason why it waits. */
        Pending: {
            activities: components["schemas"]["PendingActivity"][];
            /** @description The first request to cancel the run. */
            cancellation?: components["schemas"]["PendingCancellation"];
            children: components["schemas"]["PendingChild"][];
            sessions: string[];
            timers: components["schemas"]["PendingTimer"][];
            updates: components["schemas"]["PendingUpdate"][];
            waits: components["schemas"]["PendingWait"][];
            workflow_task: null | components["schemas"]["PendingTask"];
        };
        /** @description An open activity. */
        PendingActivity: {
            activity_execution_id: string;
            activity_token?: string;
            activity_type: string;
            attempt_number: number;
            last_failure?: string;
            /** @description heartbeat details that the current attempt received, or the next one will receive */
            last_heartbeat?: components["schemas"]["LastHeartbeat"];
            /** Format: date-time */
            last_heartbeat_at: string | null;
            /** Format: date-time */
            lease_expires_at: string | null;
            /** @description Lists the deliveries of the current attempt that ended without an outcome, oldest first, at most 10. */
            lost_deliveries?: components["schemas"]["Lost"][];
            /** Format: date-time */
            next_attempt_at: string | null;
            /**
             * Format: date-time
             * @description when the worker returned without an outcome, and the token to report the outcome; absent: state is not pending
             */
            pending_since?: string | null;
            progress?: Json;
            /** @description rebuild of the session's state in the current attempt, as reported by the worker */
            rebuild?: components["schemas"]["Recovered"];
            /** Format: date-time */
            scheduled_at: string | null;
            sequence: number;
            session_epoch?: number;
            session_id?: string;
            /** @description stack trace of the last failure, truncated */
            stack_trace?: string;
            /** Format: date-time */
            started_at: string | null;
            /** @enum {string} */
            state: "ready" | "delayed" | "leased" | "pending";
            task_queue: string;
            wait: null | components["schemas"]["Wait"];
            why?: string;
            worker_id?: string;
        };
        /** @description A request to cancel a run that is still open. */
        PendingCancellation: {
            message: string;
            /** @description no live worker has received the request for a minute */
            needs_attention: boolean;
            /** Format: date-time */
            requested_at: string | null;
            /** @description a live worker has received the request */
            seen: boolean;
        };
        /** @description An open child workflow. former_run_id is the run that started it, if it is an earlier run of the workflow ID; Sequence then is a command sequence of that run. */
        PendingChild: {
            /** @description Sojourn only: commands of this run that attached to it */
            attached?: number[];
            attempt_number: number;
            child_call_id: string;
            /** @description Sojourn only */
            former_run_id?: string;
            parent_close_policy: string;
            run_id: string;
            sequence: number;
            workflow_id: string;
            workflow_type: string;
        };
        /** @description The open workflow task. */
        PendingTask: {
            /** @description last failure of its code */
            last_failure?: string;
            /** Format: date-time */
            lease_expires_at: string | null;
            /** @description stack trace of last_failure */
            stack_trace?: string;
            /** @enum {string} */
            state: "ready" | "delayed" | "leased" | "quarantined";
            task_id: string;
            wait: null | components["schemas"]["Wait"];
            why?: string;
            worker_id?: string;
            workflow_task_attempt: number;
        };
        /** @description An open timer. */
        PendingTimer: {
            /** Format: date-time */
            fire_at: string | null;
            sequence: number;
            timer_id: string;
        };
        /** @description An accepted update without a result. */
        PendingUpdate: {
            /** @description the handler began and completes the update when it returns */
            applied: boolean;
            update_id: string;
            update_name: string;
        };
        /** @description A signal, a condition or an awakeable that the run waits for. */
        PendingWait: {
            awakeable_id?: string;
            condition_key?: string;
            /** @description signal, condition, awakeable */
            kind: string;
            sequence: number;
            signal_name: string;
        };
        /** @description The retry policy of an activity, child or schedule, on the wire and in the store. It is never changed after its first use: replayers compare the recorded policy with their own. */
        Policy: {
            /** @description The delays before the second, third, … attempt; the last one repeats; an empty list means no delay. */
            backoff_seconds: number[];
            /** @description The maximum number of attempts, including the first; nil: unlimited. */
            max_attempts: null | number;
            /** @description Error types after which no attempt follows, compared as exact strings. */
            non_retryable_error_types: string[];
        };
        /** @description The retry policy of an activity, child or schedule, on the wire and in the store. It is never changed after its first use: replayers compare the recorded policy with their own. */
        PolicyRequest: {
            /** @description The delays before the second, third, … attempt; the last one repeats; an empty list means no delay. */
            backoff_seconds?: number[] | null;
            /** @description The maximum number of attempts, including the first; nil: unlimited. */
            max_attempts?: null | number;
            /** @description Error types after which no attempt follows, compared as exact strings. */
            non_retryable_error_types?: string[] | null;
        };
        /** @description The limit of waiting queries and its usage. */
        QueryAdmission: {
            approximate_pending_count: number;
            budget_source: string;
            lock_required: boolean;
            lock_supported: boolean;
            max_pending_per_queue: number;
            remaining_pending_capacity: number;
            status: string;
        };
        /** @description The result of a query. */
        QueryResponse: {
            query_name: string;
            result: Json;
            result_envelope: components["schemas"]["Payload"];
            run_id: string;
            /** @description run if the request named a run, else instance */
            target_scope: string;
            workflow_id: string;
            workflow_type: string;
        };
        /** @description Counts the queries that wait for a worker, and the queries leased to a worker. */
        QueryTally: {
            leased_count: number;
            ready_count: number;
        };
        /** @description The limits of a queue and their usage. */
        QueueAdmission: {
            activity_tasks: components["schemas"]["TaskAdmission"];
            query_tasks: components["schemas"]["QueryAdmission"];
            workflow_tasks: components["schemas"]["TaskAdmission"];
        };
        /** @description A leased task of a queue. */
        QueueLease: {
            activity_attempt_id?: string;
            is_expired: boolean;
            /** Format: date-time */
            lease_expires_at: string | null;
            lease_owner: string;
            run_id: string;
            session_id?: string;
            task_id: string;
            task_type: components["schemas"]["TaskKind"];
            workflow_id: string;
            workflow_task_attempt?: number;
        };
        /** @description One page of task queues. */
        QueuePage: {
            namespace: string;
            next_page_token: null | string;
            task_queues: components["schemas"]["QueueState"][];
        };
        /** @description A worker that serves a queue. */
        QueuePoller: {
            build_id: null | string;
            is_stale: boolean;
            /** Format: date-time */
            last_heartbeat_at: string | null;
            runtime: string;
            sdk_version: string;
            status: components["schemas"]["WorkerStatus"];
            worker_id: string;
        };
        /** @description The state of one task queue. Only the detail has waiting, current_leases, pollers and build_ids. */
        QueueState: {
            admission: components["schemas"]["QueueAdmission"];
            build_ids?: components["schemas"]["BuildCohort"][];
            current_leases?: components["schemas"]["QueueLease"][];
            /** @description The only group whose workers receive the queue's tasks; absent: every worker that serves the queue. group_of_namespace reports that the group is set for the namespace and not for the queue. */
            group?: string;
            group_of_namespace?: boolean;
            /** @description the queue's budgets, by workflow_tasks, activity_tasks */
            limits?: {
                [key: string]: components["schemas"]["Budget"];
            };
            name: string;
            namespace: string;
            pollers?: components["schemas"]["QueuePoller"][];
            /** @description new runs are pinned to it */
            promoted_build_id: null | string;
            stats: components["schemas"]["QueueTally"];
            /** @description the ready tasks of each kind that have waited longest, with the reasons */
            waiting?: components["schemas"]["TaskWhy"][];
        };
        /** @description Counts a queue's tasks and its pollers. */
        QueueTally: {
            activity_tasks: components["schemas"]["TaskTally"];
            /** @description age of the oldest ready task, such as "45s"; null: none */
            approximate_backlog_age: null | string;
            /** @description ready tasks of all kinds */
            approximate_backlog_count: number;
            pollers: {
                active_count: number;
                stale_count: number;
                waiting_count: number;
            };
            query_tasks: components["schemas"]["QueryTally"];
            workflow_tasks: components["schemas"]["TaskTally"];
        };
        /** @description The backlog of one queue and kind of task. */
        QueueView: {
            delayed: number;
            kind: components["schemas"]["TaskKind"];
            leased: number;
            namespace: string;
            /** Format: date-time */
            oldest_ready: string | null;
            queue: string;
            ready: number;
        };
        /**
         * @description A limit of a namespace, from this closed list.
         * @enum {string}
         */
        Quota: "open_runs" | "starts_per_second" | "stored_bytes" | "schedules";
        /** @description One quota of a namespace with its usage. */
        QuotaState: {
            /** @description namespace if the namespace has its own value, else setting */
            from: string;
            /** @description open_runs: children that wait for a quota */
            held?: number;
            limit: number;
            quota: components["schemas"]["Quota"];
            /** @description starts_per_second: starts in the last second */
            used: number;
        };
        /** @description A namespace's quotas. For an absent member the app's setting applies. */
        QuotaValuesRequest: {
            open_runs?: null | number;
            schedules?: null | number;
            starts_per_second?: null | number;
            stored_bytes?: null | number;
        };
        /** @description Reports a rebuild of a session's state inside an attempt. */
        Recovered: {
            cause?: string;
            /** @description one of the following; absent: rebuilt */
            outcome?: string;
            /** @description reason of the loss, such as crash, drained or moved */
            reason?: string;
            rebuild_activity: string;
            retries: number;
            /** @description The set-up of the session by its definition that the attempt ran; absent: none. With it alone, rebuild_activity is empty. */
            set_up?: components["schemas"]["SetUp"];
            /** @description rebuilds of another attempt that this attempt waited for */
            waited?: number;
        };
        /** @description The response to redrive. */
        RedriveReceipt: {
            command_id: string;
            command_source: string;
            /** @description accepted */
            command_status: string;
            /** @description the failed run */
            continued_from_run_id: string;
            /** @description signal_received, cancelled, terminated, cancellation_requested, repair_dispatched, repair_not_needed, archived, archive_not_needed, redriven, reset */
            outcome: string;
            reason: null | string;
            rejection_reason: null | string;
            requested_run_id: null | string;
            resolved_run_id: string;
            /** @description first command that the new run executes */
            resume_step_sequence: number;
            /** @description the request_id was used before; this is the first receipt */
            retained?: boolean;
            run_id: string;
            signal_name?: string;
            /** @description instance, run */
            target_scope: string;
            update_id?: string;
            validation_errors: string[];
            workflow_id: string;
            workflow_type: string;
        };
        /** @description The response to the reset of a run. run_id is the ID of the new run, and the outcome is reset. */
        ResetReceipt: {
            command_id: string;
            /** @description accepted */
            command_status: string;
            /** @description the run that was reset */
            continued_from_run_id: string;
            /** @description last copied event */
            event: number;
            /** @description signal_received, cancelled, terminated, cancellation_requested, repair_dispatched, repair_not_needed, archived, archive_not_needed, redriven, reset */
            outcome: string;
            /** @description the request_id was used before; this is the first receipt */
            retained?: boolean;
            run_id: string;
            signal_name?: string;
            update_id?: string;
            workflow_id: string;
            workflow_type: string;
        };
        /** @description The use of one resource of a worker. */
        ResourceUse: {
            total: string;
            /** @description by held, suspended and prepared sessions */
            used: string;
        };
        /**
         * @description The set of permissions of a token. admin includes operator, operator includes writer, and writer includes viewer. worker and completer are separate from these roles.
         * @enum {string}
         */
        Role: "viewer" | "writer" | "operator" | "admin" | "worker" | "completer";
        /** @description The operations that are possible on the run now. */
        RunActions: {
            can_archive: boolean;
            can_cancel: boolean;
            can_query: boolean;
            can_repair: boolean;
            can_signal: boolean;
            can_terminate: boolean;
            can_update: boolean;
        };
        /** @description The runs of a namespace by status, counted up to a maximum; the maximum plus one means "more". */
        RunCounts: {
            counted_up_to: number;
            runs: {
                [key: string]: number;
            };
            /** @description stuck runs: open runs that make no progress and need an operator; Runs counts them as running */
            stuck: number;
        };
        /** @description A run in the list of a workflow's runs. */
        RunItem: {
            business_key: null | string;
            /** @description first run of the chain; null in the first chain of the workflow ID */
            chain_run_id: null | string;
            /** Format: date-time */
            closed_at: string | null;
            closed_reason: null | string;
            error?: null | string;
            error_type?: string;
            is_current_run: boolean;
            run_id: string;
            run_number: number;
            /** Format: date-time */
            started_at: string | null;
            /** @enum {string} */
            status: "pending" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "terminated";
            /** @enum {string} */
            status_bucket: "running" | "completed" | "failed";
            task_queue: string;
            workflow_type: string;
        };
        /**
         * @description The stored state of a run, spelled the same in Go, SQL and JSON.
         * @enum {string}
         */
        RunStatus: "running" | "completed" | "failed" | "cancelled" | "terminated" | "timed_out" | "continued";
        /** @description The reason why a run makes no progress, and since when: its workflow task is quarantined or failed three times in a row, or one of its tasks has been ready for a minute and no live worker may lease it (for 30 seconds, if it waits for a worker with room for its session). A change is visible within 30 seconds. */
        RunStuck: {
            message: string;
            /** @description from the list of wait reasons */
            reason: components["schemas"]["WaitReason"];
            /** Format: date-time */
            since: string | null;
        };
        /** @description A run in the responses of describe and lists. */
        RunView: {
            actions?: components["schemas"]["RunActions"];
            archive_reason?: string;
            /**
             * Format: date-time
             * @description null unless archived
             */
            archived_at: string | null;
            blocked_reason?: null | string;
            business_key: null | string;
            /** @description first run of the chain of runs; absent in the first chain of the workflow ID */
            chain_run_id?: null | string;
            /** Format: date-time */
            closed_at: string | null;
            closed_reason: null | string;
            /** @description the build id that the run is pinned to, or null */
            compatibility: null | string;
            error?: null | string;
            /** @description class of the error, as named by the code */
            error_type?: string;
            /** Format: date-time */
            execution_deadline_at: string | null;
            execution_timeout_seconds: null | number;
            failure?: Json;
            history_length: number;
            input?: Json;
            input_envelope?: components["schemas"]["Payload"];
            is_current_run: boolean;
            is_terminal: boolean;
            /** @enum {string} */
            kind: "workflow" | "activity";
            /** Format: date-time */
            last_progress_at: string | null;
            memo: Json;
            namespace: string;
            output?: Json;
            output_envelope: components["schemas"]["Payload"];
            parent_run_id?: null | string;
            parent_workflow_id?: null | string;
            payload_codec: string;
            pending?: components["schemas"]["Pending"];
            /** @description of a run that timed out: run_timeout or execution_timeout; of an activity run: the timeout of its activity */
            reason?: string;
            /** @description of the run's chain; in lists the number of the run */
            run_count: number;
            /** Format: date-time */
            run_deadline_at: string | null;
            run_id: string;
            run_number: number;
            run_timeout_seconds: null | number;
            search_attributes: Json;
            /** Format: date-time */
            started_at: string | null;
            /** @enum {string} */
            status: "pending" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "terminated";
            /** @enum {string} */
            status_bucket: "running" | "completed" | "failed";
            /** @description set while the run makes no progress and needs an operator */
            stuck?: components["schemas"]["RunStuck"];
            task_queue: string;
            /** @description with values=preview or none: values that the response does not contain whole, by member */
            truncated?: components["schemas"]["Truncated"];
            /** @description wait_reason for programs */
            wait?: components["schemas"]["Wait"];
            wait_kind: null | string;
            /** @description why this run waits, for people */
            wait_reason: null | string;
            workflow_id: string;
            /** @description of an activity run, the activity type */
            workflow_type: string;
        };
        RunsResponse: {
            run_count: number;
            runs: components["schemas"]["RunItem"][];
            workflow_id: string;
        };
        /** @description What a schedule starts: a workflow or an activity run. Its workflow ID is workflow_id, by default the schedule's ID, followed by the time of the firing. */
        ScheduleAction: {
            activity_type?: string;
            /** @enum {string} */
            affinity?: "hard" | "soft";
            business_key?: string;
            /**
             * @description what a backfill does for a time whose run is open: fail (default) and use-existing skip the time, terminate-existing ends the run and starts a new one
             * @enum {string}
             */
            conflict_policy?: "fail" | "use-existing" | "terminate-existing";
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            execution_timeout_seconds?: number;
            /** @description of the session of session_id */
            fail_fast?: boolean;
            fallback_after_seconds?: number;
            /** @description of the runs */
            headers?: components["schemas"]["Headers"];
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            heartbeat_timeout?: number;
            input?: Json;
            /** @description number of blamed worker losses after which the activity fails; 0: the app's setting */
            max_blamed_losses?: number;
            memo?: Json;
            requirements?: string[];
            /** @description absent or null: one attempt */
            retry_policy?: components["schemas"]["Policy"];
            /**
             * @description whether a backfill fires again for a time whose run has closed: reject (default), allow-after-failure, allow; other firings never use a workflow ID again
             * @enum {string}
             */
            reuse_policy?: "reject" | "allow-after-failure" | "allow";
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            run_timeout_seconds?: number;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            schedule_to_close_timeout?: number;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            schedule_to_start_timeout?: number;
            search_attributes?: Json;
            session_definition?: components["schemas"]["ActivitySession"];
            session_id?: string;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            start_to_close_timeout?: number;
            task_queue?: string;
            worker_session?: components["schemas"]["SessionOptions"];
            workflow_id?: string;
            /** @description required unless activity_type is set */
            workflow_type?: string;
        };
        /** @description What a schedule starts: a workflow or an activity run. Its workflow ID is workflow_id, by default the schedule's ID, followed by the time of the firing. */
        ScheduleActionRequest: {
            activity_type?: string;
            /** @enum {string} */
            affinity?: "hard" | "soft";
            business_key?: string;
            /**
             * @description what a backfill does for a time whose run is open: fail (default) and use-existing skip the time, terminate-existing ends the run and starts a new one
             * @enum {string}
             */
            conflict_policy?: "fail" | "use-existing" | "terminate-existing";
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            execution_timeout_seconds?: number;
            /** @description of the session of session_id */
            fail_fast?: boolean;
            fallback_after_seconds?: number;
            /** @description of the runs */
            headers?: components["schemas"]["Headers"];
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            heartbeat_timeout?: number;
            input?: Json;
            /** @description number of blamed worker losses after which the activity fails; 0: the app's setting */
            max_blamed_losses?: number;
            memo?: Json;
            requirements?: string[];
            /** @description absent or null: one attempt */
            retry_policy?: components["schemas"]["PolicyRequest"];
            /**
             * @description whether a backfill fires again for a time whose run has closed: reject (default), allow-after-failure, allow; other firings never use a workflow ID again
             * @enum {string}
             */
            reuse_policy?: "reject" | "allow-after-failure" | "allow";
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            run_timeout_seconds?: number;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            schedule_to_close_timeout?: number;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            schedule_to_start_timeout?: number;
            search_attributes?: Json;
            session_definition?: components["schemas"]["ActivitySessionRequest"];
            session_id?: string;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            start_to_close_timeout?: number;
            task_queue?: string;
            worker_session?: components["schemas"]["SessionOptionsRequest"];
            workflow_id?: string;
            /** @description required unless activity_type is set */
            workflow_type?: string;
        };
        /** @description An entry of a schedule's history. */
        ScheduleEvent: {
            event_type: string;
            id: number;
            payload: {
                [key: string]: Json;
            };
            /** Format: date-time */
            recorded_at: string | null;
            sequence: number;
            workflow_instance_id: null | string;
            workflow_run_id: null | string;
        };
        /** @description One firing of a backfill. */
        ScheduleFire: {
            buffer_depth?: number;
            /** Format: date-time */
            fire_time: string | null;
            outcome: string;
            reason?: string;
            workflow_id?: string;
        };
        ScheduleHistoryResponse: {
            events: components["schemas"]["ScheduleEvent"][];
            has_more: boolean;
            namespace: string;
            /** @description the after_sequence of the next page; with newest_first its before_sequence */
            next_cursor: null | string;
            schedule_id: string;
        };
        /** @description Counts the firings that started no run at once. */
        ScheduleInfo: {
            buffered_actions: number;
            last_skip_reason: null | string;
            skipped_trigger_count: number;
        };
        /** @description Fires at a fixed interval, counted from 1970-01-01T00:00:00Z plus the offset. Both are ISO 8601 durations such as PT30M. */
        ScheduleInterval: {
            every: string;
            offset?: string;
        };
        /** @description Fires at a fixed interval, counted from 1970-01-01T00:00:00Z plus the offset. Both are ISO 8601 durations such as PT30M. */
        ScheduleIntervalRequest: {
            every: string;
            offset?: string;
        };
        /** @description The response to a command on a schedule. */
        ScheduleReceipt: {
            buffer_depth?: number;
            /** Format: date-time */
            created_at?: string | null;
            fires_attempted?: null | number;
            namespace: string;
            /** @description created, updated, paused, resumed, triggered, buffered, buffer_full, skipped, backfilled, deleted */
            outcome: string;
            reason?: string;
            results?: components["schemas"]["ScheduleFire"][];
            run_id?: string;
            schedule_id: string;
            status?: string;
            workflow_id?: string;
        };
        /** @description The times of a schedule: it fires at every time of every expression and interval. */
        ScheduleSpec: {
            /** @description five fields, or a macro such as @hourly */
            cron_expressions?: string[];
            intervals?: components["schemas"]["ScheduleInterval"][];
            /** @description time zone of the expressions; default UTC */
            timezone?: string;
        };
        /** @description The times of a schedule: it fires at every time of every expression and interval. */
        ScheduleSpecRequest: {
            /** @description five fields, or a macro such as @hourly */
            cron_expressions?: string[];
            intervals?: components["schemas"]["ScheduleIntervalRequest"][];
            /** @description time zone of the expressions; default UTC */
            timezone?: string;
        };
        ScheduleTimesResponse: {
            times: (string | null)[];
        };
        /** @description A schedule in responses. */
        ScheduleView: {
            action: components["schemas"]["ScheduleAction"];
            /** Format: date-time */
            created_at: string | null;
            failures_count: number;
            fires_count: number;
            info: components["schemas"]["ScheduleInfo"];
            jitter_seconds: number;
            /**
             * @description kind of the runs
             * @enum {string}
             */
            kind: "workflow" | "activity";
            /** Format: date-time */
            last_fire: string | null;
            /** Format: date-time */
            last_fired_at: string | null;
            latest_workflow_instance_id: null | string;
            max_runs: null | number;
            memo: Json;
            namespace: string;
            /** Format: date-time */
            next_fire: string | null;
            /** Format: date-time */
            next_fire_at: string | null;
            note: null | string;
            /** @enum {string} */
            overlap_policy: "skip" | "buffer_one" | "buffer_all" | "allow_all" | "cancel_other" | "terminate_other";
            paused: boolean;
            remaining_actions: null | number;
            schedule_id: string;
            search_attributes: Json;
            spec: components["schemas"]["ScheduleSpec"];
            /** @enum {string} */
            status: "active" | "paused" | "deleted";
            /** @description with values=preview or none: values that the response does not contain whole, by the path of the member */
            truncated?: components["schemas"]["Truncated"];
            /** Format: date-time */
            updated_at: string | null;
            /** @description or the activity type */
            workflow_type: string;
        };
        SchedulesResponse: {
            namespace: string;
            next_page_token: null | string;
            schedules: components["schemas"]["ScheduleView"][];
        };
        /** @description Lists the names and types of attributes for filters. */
        SearchAttributes: {
            custom_attributes: {
                [key: string]: string;
            };
            system_attributes: {
                [key: string]: string;
            };
        };
        /** @description One delivery of an activity in a session. */
        SessionAttempt: {
            activity_attempt_id: string;
            activity_type: string;
            /** @description absent for a lost delivery */
            attempt_number?: number;
            /** Format: date-time */
            ended_at?: string | null;
            /** @description of the session at that time */
            epoch: number;
            /**
             * Format: date-time
             * @description time of the last heartbeat from the code; set for running and lost deliveries
             */
            last_heartbeat_at?: string | null;
            /** @description progress in the last heartbeat */
            last_heartbeat_details?: Json;
            /**
             * @description running, completed, failed, cancelled, expired (the worker was lost), returned
             * @enum {string}
             */
            outcome: "running" | "completed" | "failed" | "cancelled" | "expired" | "returned";
            run_id: string;
            /** Format: date-time */
            started_at?: string | null;
            task_id: string;
            why?: string;
            worker_id: string;
            workflow_id: string;
        };
        /** @description One page of a session's attempts. It does not have attempts of runs deleted by retention. */
        SessionAttemptPage: {
            attempts: components["schemas"]["SessionAttempt"][];
            namespace: string;
            next_page_token: null | string;
            session_id: string;
        };
        /** @description One entry of a session's ownership timeline. */
        SessionEvent: {
            /** Format: date-time */
            at: string | null;
            /** @description worker, operator or run that caused the event; empty: the app, at a deadline */
            by?: string;
            epoch?: number;
            /**
             * Format: date-time
             * @description First and last of these renewals.
             */
            first_renewal?: string | null;
            idle_seconds?: number;
            /** Format: date-time */
            last_renewal?: string | null;
            /** @description For an event that ends an epoch: attempts in it (counted up to 10,000) and renewals of the lease that no attempt caused. */
            ran?: number;
            /** @description acquisitions: release of the worker */
            release?: string;
            renewals?: number;
            set_up_seconds?: number;
            /** @description acquisitions: the task that needed the session */
            task_id?: string;
            /**
             * @description All renewals of one epoch are one entry, at the time of the last renewal.
             * @enum {string}
             */
            what: "started" | "borrowed" | "returned" | "claimed" | "reclaimed" | "set_up" | "set_up_failed" | "preparing" | "prepared" | "preparation_ended" | "snapshot_requested" | "snapshot_stored" | "snapshot_lost" | "resumed" | "renewed" | "draining" | "released" | "expired" | "idle_unpinned" | "orphaned" | "failed" | "closed" | "unpinned" | "cleaned_up";
            why?: string;
            /** @description the owner before or after this event */
            worker_id?: string;
        };
        /** @description The worker that owns a session. */
        SessionHolder: {
            is_stale: boolean;
            /** Format: date-time */
            last_heartbeat_at: string | null;
            status: components["schemas"]["WorkerStatus"];
            task_queue: string;
            worker_id: string;
        };
        SessionOperated: {
            namespace: string;
            /**
             * @description draining: the session moves when its running activities have ended
             * @enum {string}
             */
            outcome: "closed" | "migrated" | "draining" | "forgotten";
            session: components["schemas"]["SessionView"];
        };
        /** @description The worker_session object: in a command, and flat next to worker_id in the create verb. Nil pointers mean the default. */
        SessionOptions: {
            /**
             * @description Sojourn only: hard (default), or soft: another worker may acquire a held session when one of its tasks has waited for the owner for fallback_after_seconds seconds.
             * @enum {string}
             */
            affinity?: "hard" | "soft";
            allow_reacquire_after_failure?: null | boolean;
            connection?: string;
            /** @description default true */
            create_if_missing?: null | boolean;
            /** @description Sojourn only: the leases of the session and of attempts in it are at most 10 s; only workers with the capability fail_fast_sessions acquire it. */
            fail_fast?: boolean;
            /** @description with soft: default 30 */
            fallback_after_seconds?: number;
            /** @description Sojourn only: the session ends after this time without an activity */
            idle_seconds?: number;
            /** @description A number of at least 1 with a default, which is 0: absent or null. Explicit numbers below 1 become -1, which requests reject. */
            lease_seconds?: number;
            /** @description A number of at least 1 with a default, which is 0: absent or null. Explicit numbers below 1 become -1, which requests reject. */
            max_concurrent_activities?: number;
            /** @description Sojourn only: the session is never released to make room for another one when its worker is at its session limit. */
            pinned?: boolean;
            queue?: string;
            /**
             * @description Sojourn only
             * @enum {string}
             */
            release_policy?: "migrate" | "finish" | "fail";
            requirements?: string[];
            /** @description Quantities by the name of the resource: those a session needs, or those a worker declares for its sessions. */
            resources?: {
                [key: string]: string;
            };
            /**
             * @description Sojourn only; a workflow starts its own sessions with start_session
             * @enum {string}
             */
            scope?: "namespace";
            session_id?: string;
            /** @description The time to live of a session in seconds. Absent: the default. null: the session lives until it is ended. */
            ttl_seconds?: number | null;
        };
        /** @description The worker_session object: in a command, and flat next to worker_id in the create verb. Nil pointers mean the default. */
        SessionOptionsRequest: {
            /**
             * @description Sojourn only: hard (default), or soft: another worker may acquire a held session when one of its tasks has waited for the owner for fallback_after_seconds seconds.
             * @enum {string}
             */
            affinity?: "hard" | "soft";
            allow_reacquire_after_failure?: null | boolean;
            connection?: string;
            /** @description default true */
            create_if_missing?: null | boolean;
            /** @description Sojourn only: the leases of the session and of attempts in it are at most 10 s; only workers with the capability fail_fast_sessions acquire it. */
            fail_fast?: boolean;
            /** @description with soft: default 30 */
            fallback_after_seconds?: number;
            /** @description Sojourn only: the session ends after this time without an activity */
            idle_seconds?: number;
            /** @description A number of at least 1 with a default, which is 0: absent or null. Explicit numbers below 1 become -1, which requests reject. */
            lease_seconds?: number;
            /** @description A number of at least 1 with a default, which is 0: absent or null. Explicit numbers below 1 become -1, which requests reject. */
            max_concurrent_activities?: number;
            /** @description Sojourn only: the session is never released to make room for another one when its worker is at its session limit. */
            pinned?: boolean;
            queue?: string;
            /**
             * @description Sojourn only
             * @enum {string}
             */
            release_policy?: "migrate" | "finish" | "fail";
            requirements?: string[];
            /** @description Quantities by the name of the resource: those a session needs, or those a worker declares for its sessions. */
            resources?: {
                [key: string]: string | number;
            };
            /**
             * @description Sojourn only; a workflow starts its own sessions with start_session
             * @enum {string}
             */
            scope?: "namespace";
            session_id?: string;
            /** @description The time to live of a session in seconds. Absent: the default. null: the session lives until it is ended. */
            ttl_seconds?: number | null;
        };
        /** @description One page of sessions, with counts over all of the namespace. */
        SessionPage: {
            /** @description total and one per status */
            metrics: {
                [key: string]: number;
            };
            namespace: string;
            next_page_token: null | string;
            sessions: components["schemas"]["SessionView"][];
        };
        /** @description A worker's settings for its sessions of the origins implicit and worker, in milliseconds. */
        SessionSettings: {
            buffer_ms: number;
            idle_ms: number;
            lease_ms: number;
            /** @description The maximum of concurrent activities in a session that sets none; 0: the worker's number of slots. */
            max_concurrent_activities?: number;
            /** @description Declares that the worker suspends the state of a session whose lease expired, and that it returns tasks under an epoch whose state it dropped. The app then lets the process resume the same epoch if no other process has acquired the session since. */
            resumes?: boolean;
        };
        SessionShown: {
            namespace: string;
            session: components["schemas"]["SessionView"];
        };
        /**
         * @description The stored state of a session.
         * @enum {string}
         */
        SessionStatus: "active" | "closed" | "expired" | "failed" | "orphaned";
        /** @description The worker that prepares a session during a hand-over. It owns the session once its set-up and the last running task at the owner have ended. */
        SessionSuccessor: {
            /**
             * Format: date-time
             * @description its heartbeats renew this lease of the preparation
             */
            lease_expires_at: string | null;
            /**
             * Format: date-time
             * @description end of its set-up; absent: the set-up still runs
             */
            prepared_at?: string | null;
            /**
             * Format: date-time
             * @description when the app chose this worker
             */
            started_at?: string | null;
            /**
             * @description EndedRebalanced: the session moves because this worker holds fewer sessions; absent: because the owner drains
             * @enum {string}
             */
            why?: "rebalanced";
            worker_id: string;
        };
        /** @description One page of a session's timeline, oldest entry first; the next page has the preceding entries. Entries for lease renewals are added to the page and do not count towards page_size. */
        SessionTimelinePage: {
            namespace: string;
            next_page_token: null | string;
            session_id: string;
            timeline: components["schemas"]["SessionEvent"][];
        };
        /** @description A session as receipts, listings and the detail route show it. */
        SessionView: {
            active_activity_count: number;
            /** @description hard, soft */
            affinity: string;
            allow_reacquire_after_failure: boolean;
            /** @description acquisitions since the session was stored */
            claims?: number;
            /** Format: date-time */
            closed_at: string | null;
            connection: null | string;
            create_if_missing: boolean;
            /** Format: date-time */
            created_at: string | null;
            /** @description implicit, worker, workflow */
            door: string;
            /** @description why the last epoch ended */
            ended_reason?: string;
            epoch: number;
            /** @description leases of at most 10 s */
            fail_fast?: boolean;
            /** @description ttl_expired, lease_expired, worker_heartbeat_stale */
            failure_reason: null | string;
            fallback_after_seconds?: number;
            /**
             * Format: date-time
             * @description soft affinity and a task waits: time from which any worker may acquire the session
             */
            fallback_at?: string | null;
            holder: null | components["schemas"]["SessionHolder"];
            idle_seconds?: number;
            /** @description worker with a short priority to acquire it */
            kept_for?: string;
            /** Format: date-time */
            last_activity_at: string | null;
            /** Format: date-time */
            last_heartbeat_at: string | null;
            /** Format: date-time */
            lease_expires_at: string | null;
            lease_owner: null | string;
            lease_seconds: number;
            /**
             * Format: date-time
             * @description workflow_id has borrowed it since then
             */
            lent_at?: string | null;
            /** Format: date-time */
            loan_expires_at?: string | null;
            max_concurrent_activities: number;
            /** @description operator who requested the migration */
            moving?: string;
            namespace: string;
            /** @description never released to make room for another session */
            pinned?: boolean;
            /** @description name of the pool of which it is a member */
            pool?: string;
            queue: null | string;
            ready_activity_count: number;
            release?: string;
            release_policy?: string;
            requirements: string[];
            /** @description Quantities by the name of the resource: those a session needs, or those a worker declares for its sessions. */
            resources?: {
                [key: string]: string;
            };
            /** @description namespace, workflow */
            scope: string;
            session_definition?: string;
            session_id: string;
            /** @description state that an owner stored and the next owner restores */
            snapshot?: components["schemas"]["SnapshotView"];
            status: components["schemas"]["SessionStatus"];
            /** @description during a hand-over: worker that sets the session up while its owner still holds it */
            successor?: components["schemas"]["SessionSuccessor"];
            /** @description newest entries, oldest first */
            timeline?: components["schemas"]["SessionEvent"][];
            /** @description page token of the timeline route for the preceding entries; absent: there are none */
            timeline_page_token?: null | string;
            /** Format: date-time */
            ttl_expires_at: string | null;
            /** @description 0: none */
            ttl_seconds: number;
            /** Format: date-time */
            updated_at: string | null;
            /** @description Quantities by the name of the resource: those a session needs, or those a worker declares for its sessions. */
            used_resources?: {
                [key: string]: string;
            };
            /** @description loans of this member so far */
            uses?: number;
            /** @description reason why its tasks wait, for programs */
            wait?: components["schemas"]["Wait"];
            /** @description reason why its tasks wait, for people */
            waiting?: string;
            workflow_id?: string;
            /** @description not renewed, to make room for another session */
            yielding?: boolean;
        };
        /** @description Reports a set-up of a session by its definition, which a worker ran in an attempt. */
        SetUp: {
            definition: string;
            /** @description rebuilt: completed; failed, cancelled, running */
            outcome: string;
            /** @description Why the worker could not restore the snapshot of the session: the state is lost. */
            restore_failed?: string;
            seconds?: number;
            /** @description The set-up's own timeout. While outcome is running, the timeouts of the attempt start_to_close and heartbeat do not apply; afterwards they count from the end of the set-up. */
            timeout_seconds?: number;
            /** @description The attempt only waits for the set-up of another attempt, or waited for it. History has no event for it. */
            waited?: boolean;
        };
        /** @description Describes the stored state of a session. */
        SnapshotView: {
            bytes: number;
            /** Format: date-time */
            expires_at: string | null;
            /** @description in the workers' snapshot directory; absent: the app stores it */
            file?: string;
            /** @description the owner that stored it */
            worker_id: string;
        };
        /** @description Identifies the run that was started or that exists already. */
        StartResponse: {
            business_key: null | string;
            namespace: string;
            /** @description started_new, returned_existing_active; with cron schedule_created, returned_existing_schedule */
            outcome: string;
            payload_codec: string;
            run_id: string;
            schedule_id?: string;
            status: string;
            warnings?: components["schemas"]["Warning"][];
            workflow_id: string;
            workflow_type: string;
        };
        /** @description The limits of one kind of task and their usage; a limit that is not set is null. */
        TaskAdmission: {
            active_worker_count: number;
            available_slot_count: number;
            budget_source: string;
            configured_slot_count: number;
            leased_count: number;
            ready_count: number;
            server_active_lease_count: number;
            /** @description limit that is reached first */
            server_budget_source: null | string;
            server_dispatch_count_this_minute: number;
            server_lock_required: boolean;
            server_lock_supported: boolean;
            server_max_active_leases_per_namespace: null | number;
            server_max_active_leases_per_queue: null | number;
            server_max_dispatches_per_minute: null | number;
            server_max_dispatches_per_minute_per_namespace: null | number;
            server_namespace_active_lease_count: number;
            server_namespace_dispatch_count_this_minute: number;
            server_remaining_active_lease_capacity: null | number;
            server_remaining_dispatch_capacity: null | number;
            server_remaining_namespace_active_lease_capacity: null | number;
            server_remaining_namespace_dispatch_capacity: null | number;
            status: string;
            /** @description throttled: the exceeded limit, for programs */
            wait?: components["schemas"]["Wait"];
            /** @description throttled: the reason */
            wait_reason?: string;
        };
        /**
         * @description The kind of a task.
         * @enum {string}
         */
        TaskKind: "workflow" | "activity" | "query" | "update_validation";
        /** @description Counts tasks of one kind. */
        TaskTally: {
            /** @description tasks that wait for their backoff */
            delayed_count: number;
            expired_lease_count: number;
            leased_count: number;
            /** Format: date-time */
            oldest_ready_at: string | null;
            ready_count: number;
        };
        /** @description The reason why an open task waits. */
        TaskWhy: {
            kind: components["schemas"]["TaskKind"];
            /** Format: date-time */
            lease_expires_at: string | null;
            /** Format: date-time */
            next_attempt_at: string | null;
            run_id: string;
            session_id?: string;
            /** @enum {string} */
            state: "ready" | "delayed" | "leased" | "quarantined";
            task_id: string;
            task_queue: string;
            /** @description of the workflow or the activity */
            type: string;
            wait: null | components["schemas"]["Wait"];
            why: string;
            worker_id?: string;
            workflow_id: string;
        };
        /** @description Headers of W3C Trace Context and W3C Baggage. */
        TraceCarrierRequest: {
            baggage?: string;
            /** @description trace ID and span ID of the caller */
            traceparent?: string;
            tracestate?: string;
        };
        /** @description The span of a caller, in the form of W3C Trace Context and W3C Baggage: events and tasks contain it, so that spans of workers belong to the trace of the caller. It never changes what the app or the code does, and a replay never compares it. The zero value is none. A value that is malformed or too large decodes as the zero value instead of an error, because a request must not fail for it. */
        TraceContextRequest: {
            carrier?: components["schemas"]["TraceCarrierRequest"];
            /** @description always durable-workflow.trace-context */
            schema?: string;
            /** @description always 1 */
            version?: number;
        };
        /** @description Maps the names of values to the values that a response does not contain whole. */
        Truncated: {
            [key: string]: components["schemas"]["TruncatedValue"];
        };
        /** @description Describes a value that a response does not contain whole. */
        TruncatedValue: {
            /** @description the app cannot decode the value: the preview is the beginning of its encoded form, in Base64 */
            encoded?: boolean;
            /** @description beginning of its JSON text, at most 4096 bytes */
            preview?: string;
            /** @description of the whole value: its encoded bytes, or its JSON text */
            size_bytes: number;
        };
        /** @description The state of an update, with the members that every command's response has. */
        Updated: {
            /** Format: date-time */
            accepted_at: string | null;
            /** Format: date-time */
            applied_at: string | null;
            /** Format: date-time */
            closed_at: string | null;
            command_id: string;
            command_source: string;
            /** @description accepted */
            command_status: string;
            failure?: components["schemas"]["Failure"];
            failure_id: null | string;
            failure_message: null | string;
            message?: null | string;
            /** @description update_accepted, update_completed, update_failed */
            outcome: string;
            /** @description update_failed if it failed */
            reason: null | string;
            /** Format: date-time */
            rejected_at: string | null;
            rejection_reason: null | string;
            requested_run_id: null | string;
            resolved_run_id: string;
            result: Json;
            result_envelope: components["schemas"]["Payload"];
            /** @description the request id was seen before */
            retained?: boolean;
            /** @description run that completed the update or has it now */
            run_id: string;
            /** @description instance, run */
            target_scope: string;
            update_id: string;
            update_name: string;
            /** @description accepted, completed, failed */
            update_status: string;
            validation_errors: string[];
            wait_for: string;
            wait_timed_out: boolean;
            wait_timeout_seconds: number;
            workflow_id: string;
            workflow_sequence: null | number;
            workflow_type: string;
        };
        /** @description The reason why a run, a task or a session does not continue. Clients should display its times in the time zone of the reader. */
        Wait: {
            /** @description token of the pending attempt */
            activity_token?: string;
            /** @description the losses for which the task was blamed */
            blamed?: number;
            /** @description build ID that the run is pinned to */
            build_id?: string;
            /** @description operator that moves the session */
            by?: string;
            /** @description text: the failure, or why the session ended */
            detail?: string;
            /** @description attempts that failed */
            failures?: number;
            /**
             * Format: date-time
             * @description soft affinity: time from which any worker may run the task
             */
            fallback_at?: string | null;
            /** @description only workers of this group may run the task */
            group?: string;
            kind: components["schemas"]["WaitKind"];
            limit?: number;
            /** @description worker processes lost during the task, since the last reset */
            losses?: number;
            /** @description the reason as a sentence for people; times in it are UTC */
            message: string;
            /** @description capabilities that the worker lacks */
            missing?: string[];
            /** @description number of further waits of this kind */
            more?: number;
            /** @description name of the workflow type, activity type, signal, condition or child; ID of the awakeable */
            name?: string;
            /** @description namespace of the exceeded limit, unless it is the queue's limit */
            namespace?: string;
            /** @description an operator must act, or the wait has lasted longer than expected for its reason */
            needs_attention: boolean;
            /** @description pool of sessions of which the run waits for a member */
            pool?: string;
            /** @description 1: the next waiter that the pool serves */
            position?: number;
            reason: components["schemas"]["WaitReason"];
            /** @description release of the app, or of the session */
            release?: string;
            /** @description Quantities by the name of the resource: those a session needs, or those a worker declares for its sessions. */
            resources?: {
                [key: string]: string;
            };
            session_id?: string;
            /**
             * Format: date-time
             * @description time since when the task is ready or running
             */
            since?: string | null;
            /** @description nearest type that live workers of the queue have registered */
            suggestion?: string;
            task_queue?: string;
            /**
             * Format: date-time
             * @description time when the wait ends or may end
             */
            until?: string | null;
            used?: number;
            worker_build_id?: string;
            /** @description number of live workers that poll the queue, if there are several and none may take the task; for worker_sessions_full the number of workers at their maximum of sessions, if the maximum is the same for all */
            worker_count?: number;
            /** @description worker that runs the task, or the closest match */
            worker_id?: string;
            worker_release?: string;
            /** @description for session_resources and session_resources_exceeded: the workers with the most room, at most 3 */
            worker_resources?: components["schemas"]["WorkerResource"][];
            /** @description task queues that the worker polls; set if the task is in another queue */
            worker_task_queues?: string[];
            /** @description of the child, or of the quarantined run */
            workflow_id?: string;
        };
        /**
         * @description The kind of step that a run waits for; it is also the contract's wait_kind.
         * @enum {string}
         */
        WaitKind: "workflow_task" | "activity" | "timer" | "signal" | "condition" | "child" | "update" | "awakeable" | "quarantined";
        /**
         * @description The reason of a wait, from this closed list.
         * @enum {string}
         */
        WaitReason: "running" | "start_delay" | "retry_backoff" | "handed_back" | "returned_unstarted" | "packages_installing" | "packages_failed" | "quarantined" | "workflow_task_failed" | "timer" | "signal" | "condition" | "child" | "update" | "awakeable" | "activity_pending" | "no_worker" | "group_offline" | "worker_busy" | "worker_full" | "worker_draining" | "release_mismatch" | "type_not_served" | "build_drained" | "build_pinned" | "capability_missing" | "session_definition_missing" | "worker_without_sessions" | "worker_sessions_full" | "session_resources" | "session_resources_exceeded" | "session_held" | "session_holder_busy" | "session_other_queue" | "session_full" | "session_moving" | "session_kept" | "session_release" | "session_lost" | "session_ended" | "session_unclaimed" | "session_pool" | "session_pool_missing" | "budget_leases" | "budget_rate" | "quota" | "suspect";
        /** @description Describes a part of a request that was accepted but is probably a mistake. */
        Warning: {
            /** @description unknown_attribute: neither registered in the namespace nor on any run of it; unknown_member: the route does not read the member; unknown_build: no worker has registered the build; name_not_allowed: the imported name is not allowed for a new run; session_missing: end_session of a session that the workflow never started */
            code: string;
            /** @description for people */
            message: string;
            /** @description the attribute, the member or the session, as the request names it */
            subject: string;
        };
        /** @description The operator's drain because of which the app does not dispatch to a worker. */
        WorkerDrain: {
            build_id?: string;
            by?: string;
            /** Format: date-time */
            deadline_at: string | null;
            evict: boolean;
            /** @description group of the workers' token */
            group?: string;
            reason?: string;
            release?: string;
            /** Format: date-time */
            since: string | null;
            worker_id?: string;
        };
        /** @description How much a worker has of a resource. */
        WorkerResource: {
            free: string;
            resource: string;
            total: string;
            worker_id: string;
        };
        /**
         * @description The state of a worker's registration as listings show it.
         * @enum {string}
         */
        WorkerStatus: "active" | "draining" | "mismatched" | "stale";
        /** @description A worker in lists. */
        WorkerView: {
            active_activity_tasks: number;
            active_leases: number;
            /** @description of these */
            active_workflow_tasks: number;
            /** @description Identify the code of the worker's activity types, as reported by the worker. */
            activity_versions?: {
                [key: string]: string;
            };
            build_id: null | string;
            capabilities: string[];
            /** @description The activity types for which another live worker of the same release and queue has different code. */
            code_differs?: components["schemas"]["CodeDifference"][];
            /** @description the operator's drain, if there is one */
            drain?: components["schemas"]["WorkerDrain"];
            /** @description reason why the release gate holds its polls; absent: it does not */
            gate?: string;
            /** @description group of the worker's token */
            group?: string;
            heartbeat_interval_seconds: number;
            held_sessions: number;
            incarnation?: string;
            isolation?: Json;
            /** Format: date-time */
            last_heartbeat_at: string | null;
            machine?: Json;
            max_concurrent_activity_tasks: number;
            max_concurrent_worker_sessions: number;
            max_concurrent_workflow_tasks: number;
            /** @description set-ups of sessions that it runs at once; absent: not declared */
            max_set_ups?: number;
            namespace: string;
            process_metrics?: Json;
            /** Format: date-time */
            registered_at: string | null;
            release?: string;
            /** @description The amounts that the worker has for sessions, and the amounts that its sessions use. */
            resources?: {
                [key: string]: components["schemas"]["ResourceUse"];
            };
            runtime: string;
            sdk_version?: string;
            /** @description The amounts that sessions of a definition use by default; "*": all sessions. */
            session_resources?: {
                [key: string]: {
                    [key: string]: string;
                };
            };
            session_settings?: components["schemas"]["SessionSettings"];
            /** @description The revision of the operators' settings that the worker reported; absent: it applies none. */
            settings_revision?: null | number;
            status: components["schemas"]["WorkerStatus"];
            supported_activity_types: string[];
            supported_workflow_types: string[];
            task_queue: string;
            task_queues: string[];
            task_slots?: Json;
            /** Format: date-time */
            updated_at: string | null;
            worker_id: string;
        };
        WorkersResponse: {
            namespace: string;
            /** @description set in paged responses if there is another page */
            next_page_token?: null | string;
            workers: components["schemas"]["WorkerView"][];
        };
        /** @description Creates or changes a namespace. Absent members keep their values. */
        create_namespace: {
            /** @description The URL of the service that decodes payloads for viewers; empty: none. Browsers and the command line call it directly, the app does not. It has https or a loopback host, and a path. */
            codec_endpoint?: null | string;
            description?: null | string;
            name: string;
            /** @description Override the quotas of the settings; -1 removes an override. */
            quotas?: components["schemas"]["QuotaValuesRequest"];
            /** @description days; default 30 */
            retention_days?: null | number;
        };
        /** @description Creates or changes a schedule. Absent members keep their values. */
        create_schedule: {
            action: components["schemas"]["ScheduleActionRequest"];
            jitter_seconds?: null | number;
            max_runs?: null | number;
            memo?: Json;
            note?: null | string;
            /**
             * @description default skip
             * @enum {null|string}
             */
            overlap_policy?: "skip" | "buffer_one" | "buffer_all" | "allow_all" | "cancel_other" | "terminate_other" | null;
            paused?: null | boolean;
            /** @description default a new ULID */
            schedule_id?: string;
            search_attributes?: Json;
            spec: components["schemas"]["ScheduleSpecRequest"];
        };
        /** @description An operator's request about workers. */
        drain_fleet: {
            build_id?: string;
            /** @description For a drain: workers that still have tasks or sessions then are ended; 0: no deadline. */
            deadline_seconds?: number;
            /** @description group of the workers' token */
            group?: string;
            reason?: string;
            release?: string;
            worker_id?: string;
        };
        /** @description The request to start an activity run. */
        run_activity: {
            activity_type: string;
            /** @enum {string} */
            affinity?: "hard" | "soft";
            business_key?: string;
            /**
             * @description as for a workflow
             * @enum {string}
             */
            conflict_policy?: "fail" | "use-existing" | "terminate-existing";
            cron?: Json;
            /**
             * @description fail (default), use-existing; not together with conflict_policy
             * @enum {string}
             */
            duplicate_policy?: "fail" | "use-existing";
            execution_timeout_seconds?: Json;
            /** @description of the session of session_id */
            fail_fast?: boolean;
            fairness_key?: string;
            fairness_weight?: number;
            fallback_after_seconds?: number;
            /** @description the activity task contains them */
            headers?: components["schemas"]["Headers"];
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            heartbeat_timeout?: number;
            idempotency_key?: Json;
            input?: Json;
            /** @description number of blamed worker losses after which the activity fails; 0: the app's setting */
            max_blamed_losses?: number;
            memo?: Json;
            namespace?: string;
            /** @enum {string} */
            payload_codec?: "avro";
            /** @description 0 first … 9 last, default 5 */
            priority?: null | number;
            request_id?: Json;
            requirements?: string[];
            /** @description absent or null: one attempt */
            retry_policy?: components["schemas"]["PolicyRequest"];
            /**
             * @description as for a workflow
             * @enum {string}
             */
            reuse_policy?: "reject" | "allow-after-failure" | "allow";
            run_timeout_seconds?: Json;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            schedule_to_close_timeout?: number;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            schedule_to_start_timeout?: number;
            search_attributes?: Json;
            session_definition?: components["schemas"]["ActivitySessionRequest"];
            session_id?: string;
            /** @description delay before the first attempt; the other timeouts begin after it */
            start_delay_seconds?: number;
            /** @description A limit in whole seconds, at least 1; absent: no limit. */
            start_to_close_timeout?: number;
            /** @description that of worker_session, or "default" */
            task_queue?: string;
            worker_session?: components["schemas"]["SessionOptionsRequest"];
            /** @description omitted or null: the app generates an ID; an empty ID is rejected */
            workflow_id?: null | string;
        };
        /** @description Replaces all settings: an absent member restores the worker's own setting. */
        set_fleet_settings: {
            /** @description Runs each call of a handler outside sessions in a new executor. */
            fresh?: boolean;
            /**
             * @description A minimum: a worker with weaker executors does not accept tasks that need an executor.
             * @enum {string}
             */
            isolation_min_level?: "none" | "process" | "confined";
            /** @enum {string} */
            log_level?: "trace" | "debug" | "info" | "warn" | "error";
            /**
             * @description "off": sessions do not move to new workers that hold fewer of them. Absent: on.
             * @enum {string}
             */
            rebalance?: "on" | "off";
            /** @description The revision that the caller has read. The app rejects the request if the stored revision differs. Absent: it is not compared. */
            revision?: null | number;
            /** @description activities that run at the same time */
            worker_concurrency?: number;
        };
        /** @description Sets the budgets of a queue, or of a namespace if - is empty. Absent budgets do not change. */
        set_task_queue_limits: {
            activity_tasks?: components["schemas"]["BudgetRequest"];
            workflow_tasks?: components["schemas"]["BudgetRequest"];
        } | Json | Json;
        /** @description A start request, with options of other systems that Sojourn does not support: they are rejected, since the caller relies on them. */
        start: {
            /** @description Pins the run to a build; default: the queue's promoted build. The contract calls the same value compatibility; a request may use either name. */
            build_id?: string;
            business_key?: string;
            compatibility?: string;
            /**
             * @description what a start does if a run of the ID is open: fail (default), use-existing returns that run, terminate-existing ends it and starts a new run
             * @enum {string}
             */
            conflict_policy?: "fail" | "use-existing" | "terminate-existing";
            /** @description creates a schedule with this ID instead of a run */
            cron?: string;
            /** @description default UTC */
            cron_timezone?: string;
            /**
             * @description fail (default), use-existing; not together with conflict_policy
             * @enum {string}
             */
            duplicate_policy?: "fail" | "use-existing";
            /** @description A timeout must be at least a second; null or an absent member means no timeout. */
            execution_timeout_seconds?: null | number;
            fairness_key?: string;
            fairness_weight?: number;
            /** @description the first event and the tasks of the run contain them */
            headers?: components["schemas"]["Headers"];
            idempotency_key?: Json;
            input?: Json;
            memo?: Json;
            namespace?: string;
            /** @description span of the caller: the first event and the tasks of the run contain it */
            observability_context?: components["schemas"]["TraceContextRequest"];
            /** @enum {string} */
            payload_codec?: "avro";
            /** @description 0 first … 9 last, default 5 */
            priority?: null | number;
            request_id?: Json;
            retry_policy?: Json;
            /**
             * @description whether the ID of a closed run may be used again: reject (default), allow-after-failure (the run failed, timed out, was cancelled or terminated), allow
             * @enum {string}
             */
            reuse_policy?: "reject" | "allow-after-failure" | "allow";
            run_timeout_seconds?: null | number;
            search_attributes?: Json;
            start_delay_seconds?: number;
            /** @description default "default" */
            task_queue?: string;
            /** @description hold the response until the run, or the run that continues it, has closed; 0: do not wait */
            wait_seconds?: number;
            workflow_execution_timeout?: Json;
            /** @description if omitted or null, the app generates an ID; an empty ID is rejected */
            workflow_id?: null | string;
            workflow_run_timeout?: Json;
            workflow_task_timeout?: Json;
            workflow_type: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
