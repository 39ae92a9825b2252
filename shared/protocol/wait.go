package protocol

import (
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// A wait is structured data: programs read its reason and members, people the sentence generated from them. This file
// has the only list of reasons with their sentences; only app/engine/wait.go creates waits, from rows. go generate
// writes the same list for the dashboard.

//go:generate go run ./waitlist

// WaitKind is the kind of step that a run waits for; it is also the contract's wait_kind.
type WaitKind string

// The kinds of waits.
const (
	WaitForTask      WaitKind = "workflow_task"
	WaitForActivity  WaitKind = "activity"
	WaitForTimer     WaitKind = "timer"
	WaitForSignal    WaitKind = "signal"
	WaitForCondition WaitKind = "condition"
	WaitForChild     WaitKind = "child"
	WaitForUpdate    WaitKind = "update"
	WaitForAwakeable WaitKind = "awakeable"
	WaitForRepair    WaitKind = "quarantined"
)

// WaitReason is the reason of a wait, from this closed list.
type WaitReason string

// The reasons. A comment names data that the sentence contains in addition to the members of its [WaitRule].
const (
	WaitRunning      WaitReason = "running" // a worker has leased it, and since when
	WaitStartDelay   WaitReason = "start_delay"
	WaitBackoff      WaitReason = "retry_backoff"       // and why it failed
	WaitTaskReturned WaitReason = "handed_back"         // and what the worker lacks
	WaitUnstarted    WaitReason = "returned_unstarted"  // since when it is ready
	WaitInstalling   WaitReason = "packages_installing" // and the progress
	WaitNoPackages   WaitReason = "packages_failed"     // and the error
	WaitQuarantined  WaitReason = "quarantined"
	WaitTaskFailed   WaitReason = "workflow_task_failed" // and when the next attempt starts
	WaitTimer        WaitReason = "timer"
	WaitSignal       WaitReason = "signal"
	WaitCondition    WaitReason = "condition"
	WaitChild        WaitReason = "child"
	WaitUpdate       WaitReason = "update"
	WaitAwakeable    WaitReason = "awakeable"
	WaitPending      WaitReason = "activity_pending"

	WaitNoWorker           WaitReason = "no_worker"
	WaitGroupOffline       WaitReason = "group_offline"
	WaitWorkerBusy         WaitReason = "worker_busy"
	WaitWorkerFull         WaitReason = "worker_full"
	WaitWorkerDraining     WaitReason = "worker_draining"
	WaitReleaseMismatch    WaitReason = "release_mismatch" // and both releases
	WaitTypeNotServed      WaitReason = "type_not_served"
	WaitBuildDrained       WaitReason = "build_drained"
	WaitBuildPinned        WaitReason = "build_pinned"
	WaitCapabilityMissing  WaitReason = "capability_missing"
	WaitNoDefinition       WaitReason = "session_definition_missing"
	WaitWorkerWithout      WaitReason = "worker_without_sessions"
	WaitWorkerSessionsFull WaitReason = "worker_sessions_full"
	WaitSessionResources   WaitReason = "session_resources"          // no worker has enough resources free
	WaitSessionTooLarge    WaitReason = "session_resources_exceeded" // no worker ever has enough resources

	WaitSessionHeld WaitReason = "session_held"
	WaitSessionBusy WaitReason = "session_holder_busy"
	// and the queues that the holder serves
	WaitSessionOtherQueue WaitReason = "session_other_queue"

	WaitSessionFull      WaitReason = "session_full"
	WaitSessionMoving    WaitReason = "session_moving" // and the operator who moves it
	WaitSessionKept      WaitReason = "session_kept"
	WaitSessionRelease   WaitReason = "session_release"
	WaitSessionLost      WaitReason = "session_lost"
	WaitSessionEnded     WaitReason = "session_ended"
	WaitSessionUnclaimed WaitReason = "session_unclaimed"

	WaitPool   WaitReason = "session_pool"
	WaitNoPool WaitReason = "session_pool_missing"

	WaitBudgetLeases WaitReason = "budget_leases"
	WaitBudgetRate   WaitReason = "budget_rate"

	WaitQuota WaitReason = "quota" // since when

	WaitSuspect WaitReason = "suspect" // of a worker loss, or blamed for it
)

// Wait is the reason why a run, a task or a session does not continue. Clients should display its times in the time
// zone of the reader.
type Wait struct {
	Kind   WaitKind   `json:"kind"`
	Reason WaitReason `json:"reason"`
	// an operator must act, or the wait has lasted longer than expected for its reason
	Attention bool   `json:"needs_attention"`
	Message   string `json:"message"` // the reason as a sentence for people; times in it are UTC

	// name of the workflow type, activity type, signal, condition or child; ID of the awakeable
	Name  string `json:"name,omitempty"`
	Queue string `json:"task_queue,omitempty"` //
	// task queues that the worker polls; set if the task is in another queue
	WorkerQueues []string `json:"worker_task_queues,omitempty"`
	Group        string   `json:"group,omitempty"`     // only workers of this group may run the task
	Namespace    string   `json:"namespace,omitempty"` // namespace of the exceeded limit, unless it is the queue's limit
	Worker       string   `json:"worker_id,omitempty"` // worker that runs the task, or the closest match
	// number of live workers that poll the queue, if there are several and none may take the task; for
	// worker_sessions_full the number of workers at their maximum of sessions, if the maximum is the same for all
	Workers       int          `json:"worker_count,omitempty"`
	Session       string       `json:"session_id,omitempty"`  //
	Workflow      string       `json:"workflow_id,omitempty"` // of the child, or of the quarantined run
	Missing       []string     `json:"missing,omitempty"`     // capabilities that the worker lacks
	Build         string       `json:"build_id,omitempty"`    // build ID that the run is pinned to
	WorkerBuild   string       `json:"worker_build_id,omitempty"`
	Release       string       `json:"release,omitempty"` // release of the app, or of the session
	WorkerRelease string       `json:"worker_release,omitempty"`
	Limit         int          `json:"limit,omitempty"`
	Used          int          `json:"used,omitempty"`
	Failures      int          `json:"failures,omitempty"`   // attempts that failed
	Losses        int          `json:"losses,omitempty"`     // worker processes lost during the task, since the last reset
	Blamed        int          `json:"blamed,omitempty"`     // the losses for which the task was blamed
	By            string       `json:"by,omitempty"`         // operator that moves the session
	Since         history.Time `json:"since,omitzero"`       // time since when the task is ready or running
	Until         history.Time `json:"until,omitzero"`       // time when the wait ends or may end
	FallbackAt    history.Time `json:"fallback_at,omitzero"` // soft affinity: time from which any worker may run the task
	More          int          `json:"more,omitempty"`       // number of further waits of this kind
	Pool          string       `json:"pool,omitempty"`       // pool of sessions of which the run waits for a member
	Position      int          `json:"position,omitempty"`   // 1: the next waiter that the pool serves
	Detail        string       `json:"detail,omitempty"`     // text: the failure, or why the session ended
	// amounts that the session needs and no worker has free
	Resources Resources `json:"resources,omitempty"`
	// for session_resources and session_resources_exceeded: the workers with the most room, at most 3
	WorkerResources []WorkerResource `json:"worker_resources,omitempty"`
	// nearest type that live workers of the queue have registered
	Suggestion string `json:"suggestion,omitempty"`
	// token of the pending attempt
	Token string `json:"activity_token,omitempty"`
}

// WorkerResource is how much a worker has of a resource.
type WorkerResource struct {
	Worker string   `json:"worker_id"`
	Name   string   `json:"resource"`
	Free   Quantity `json:"free"`
	Total  Quantity `json:"total"`
}

// Room returns how much the workers have: "worker a has 8GiB of 80GiB free, worker b …".
func (w *Wait) Room() string {
	var list []string
	several := len(w.Resources) > 1
	for _, r := range w.WorkerResources {
		text := "worker " + r.Worker + " has " + r.Free.String() + " of " + r.Total.String()
		if several {
			text += " " + r.Name
		}
		list = append(list, text+" free")
	}
	if more := w.Workers - len(list); len(list) > 0 && more > 0 {
		list = append(list, strconv.Itoa(more)+" more workers have less")
	}
	return strings.Join(list, ", ")
}

// Returned is the text with which a worker returns a task for [WaitInstalling] or [WaitNoPackages]. why is shown to
// people.
func (r WaitReason) Returned(why string) string { return string(r) + ": " + why }

// ReturnedFor parses the text with which a worker returned a task. A text that [WaitReason.Returned] did not create has
// the reason [WaitTaskReturned].
func ReturnedFor(reason string) (r WaitReason, why string) {
	for _, r := range []WaitReason{WaitInstalling, WaitNoPackages} {
		if why, is := strings.CutPrefix(reason, r.Returned("")); is {
			return r, why
		}
	}
	return WaitTaskReturned, reason
}

// WaitPatience is the time after which a wait needs attention.
type WaitPatience string

// A wait with PatienceEndless never needs attention, and one with PatienceNone needs it at once.
const (
	PatienceEndless WaitPatience = "endless"
	PatienceShort   WaitPatience = "short" // 5 minutes
	PatienceBrief   WaitPatience = "brief" // 30 seconds
	PatienceNone    WaitPatience = "none"
)

// WaitForm is the grammatical form of the text of a wait.
type WaitForm string

// The forms: a complete sentence, a predicate that follows its subject, and a clause that follows the subject and a
// colon.
const (
	FormAlone     WaitForm = "alone"
	FormPredicate WaitForm = "predicate"
	FormClause    WaitForm = "clause"
)

// WaitRule is the text of a reason. {name} is replaced by a member of [Wait]. A part in [brackets] is omitted if a
// member in it is empty; of [several|alternatives] the first without an empty member is used, or else the last.
type WaitRule struct {
	Reason   WaitReason
	Patience WaitPatience
	Form     WaitForm
	Text     string
}

const (
	closest  = "[ (closest match of {workers} workers)]"
	fallback = "[; any worker may acquire the session from {fallback_at}]"
	timer    = "[; a timer fires at {until} (database clock)]"
	held     = `session {session} is held by worker {worker}`
)

// WaitRules contains every reason with its text.
var WaitRules = []WaitRule{
	{WaitRunning, PatienceEndless, FormPredicate, "is running on worker {worker}"},
	{WaitStartDelay, PatienceEndless, FormAlone, "start delayed until {until}"},
	{WaitBackoff, PatienceEndless, FormClause, "next attempt at {until}[ ({failures} failed)]"},
	{
		WaitTaskReturned, PatienceNone, FormPredicate,
		"was returned by worker {worker} and is dispatched again at {until}: {detail}",
	},
	{
		WaitUnstarted, PatienceNone, FormPredicate,
		"was returned {used} times in a row without starting[; it is leased to worker {worker} again]",
	},
	{
		WaitInstalling, PatienceShort, FormPredicate,
		"waits while worker {worker} installs packages; next attempt at {until}: {detail}",
	},
	{
		WaitNoPackages, PatienceNone, FormPredicate,
		"cannot start because worker {worker} failed to install packages; next attempt at {until}: {detail}",
	},
	{
		WaitQuarantined, PatienceNone, FormAlone,
		"{detail}. Fix or roll back the code, then run: sojourn workflow repair {workflow}",
	},
	{
		WaitTaskFailed, PatienceNone, FormAlone,
		"{detail}; failed {failures} times in a row[; next attempt at {until}]",
	},
	{WaitTimer, PatienceEndless, FormAlone, "waiting for a timer that fires at {until} (database clock)"},
	{WaitSignal, PatienceEndless, FormAlone, `waiting for signal "{name}"` + timer},
	{
		WaitCondition, PatienceEndless, FormAlone,
		`waiting for [condition "{name}"|a condition]; signals and updates re-evaluate it` + timer,
	},
	{WaitChild, PatienceEndless, FormAlone, `waiting for child workflow "{workflow}" of type "{name}"[ and {more} more]`},
	{WaitUpdate, PatienceEndless, FormAlone, "waiting for an update; nothing else is pending"},
	{
		WaitAwakeable, PatienceEndless, FormAlone,
		"waiting for awakeable {name}[ until {until} (database clock)][ and {more} more]; " +
			"to complete it run: sojourn awakeable complete {name}",
	},
	{
		WaitPending, PatienceEndless, FormPredicate,
		"is pending outside of a worker since {since}[; it times out at {until} (database clock)]; " +
			"to complete it run: sojourn activity complete {token}",
	},

	{WaitNoWorker, PatienceNone, FormClause, `[no live worker is polling queue "{queue}"|no worker is alive]`},
	{
		WaitGroupOffline, PatienceNone, FormClause,
		`queue "{queue}" is routed to group "{group}", and no live worker of the group is polling it`,
	},
	{WaitWorkerBusy, PatienceShort, FormClause, "ready; worker {worker} is busy or not polling"},
	{
		WaitWorkerFull, PatienceEndless, FormClause,
		"[" + held + ", which|ready; worker {worker}] is running its maximum of {limit} tasks" + fallback,
	},
	{
		WaitWorkerDraining, PatienceShort, FormClause,
		"[" + held + ", which is draining|worker {worker} is draining]" + fallback + closest,
	},
	{
		WaitReleaseMismatch, PatienceNone, FormClause,
		`[session {session} is held by ]worker {worker}: {detail}` + fallback + closest,
	},
	{
		WaitTypeNotServed, PatienceNone, FormAlone,
		"[" + held + `, which has not|no worker on queue "{queue}" has|worker {worker} has not] registered {task}` +
			fallback + `[; did you mean "{suggestion}"?]`,
	},
	{
		WaitBuildDrained, PatienceNone, FormClause,
		`[build {worker_build} of worker {worker}|worker {worker}, which has no build ID,] is drained on queue "{queue}"` +
			fallback + closest,
	},
	{
		WaitBuildPinned, PatienceNone, FormClause,
		"pinned to build {build}, but worker {worker} has [build {worker_build}|no build ID]" + closest,
	},
	{
		WaitCapabilityMissing, PatienceNone, FormClause,
		`[session {session} ]needs {missing}, which worker {worker} does not offer` + fallback + closest,
	},
	{
		WaitNoDefinition, PatienceNone, FormClause,
		`session {session} needs the session definition {missing}, which worker {worker} has not registered` + fallback +
			closest,
	},
	{
		WaitWorkerWithout, PatienceNone, FormClause,
		"worker {worker} accepts no sessions (max_concurrent_worker_sessions is 0)" + closest,
	},
	{
		WaitWorkerSessionsFull, PatienceBrief, FormClause,
		"[all {workers} workers hold their maximum number of sessions ({limit} each)|" +
			"worker {worker} holds its maximum number of sessions ({limit})]" +
			"; raise --worker-max-sessions or close idle sessions",
	},
	{
		WaitSessionResources, PatienceBrief, FormClause,
		"session {session} needs {resources}; {worker_resources}",
	},
	{
		WaitSessionTooLarge, PatienceNone, FormClause,
		"session {session} needs {resources}; {worker_resources}, even without sessions",
	},

	{WaitSessionHeld, PatienceShort, FormClause, held + " until {until}" + fallback},
	{WaitSessionBusy, PatienceShort, FormClause, held + ", which is busy or not polling" + fallback},
	{
		WaitSessionOtherQueue, PatienceNone, FormClause,
		held + `, which polls {worker_queues} but not queue "{queue}"` + fallback,
	},
	{
		WaitSessionFull, PatienceEndless, FormClause,
		`session {session} is running its maximum number of activities ({used})[; {detail}]` + fallback,
	},
	{
		WaitSessionMoving, PatienceShort, FormClause,
		`session {session} is being moved; its queued tasks start after the move`,
	},
	{WaitSessionKept, PatienceEndless, FormClause, `session {session} is reserved for worker {worker} until {until}`},
	{
		WaitSessionRelease, PatienceNone, FormClause,
		`session {session} is reserved for release {release} while an app of that release is alive; ` +
			"worker {worker} has [release {worker_release}|no release]" + closest,
	},
	{
		WaitPool, PatienceEndless, FormClause,
		"waiting for a session of pool {pool}[, position {position}]",
	},
	{WaitNoPool, PatienceNone, FormClause, "waiting for a session of pool {pool}, which does not exist"},
	{WaitSessionLost, PatienceNone, FormClause, `session {session} was lost ({detail}) and must not be acquired again`},
	{WaitSessionEnded, PatienceShort, FormClause, `session {session} has ended: {detail}`},
	{WaitSessionUnclaimed, PatienceShort, FormClause, `session {session} has no owner until a worker acquires it`},

	{
		WaitQuota, PatienceShort, FormAlone,
		`quota {detail} of namespace "{namespace}" is exceeded; the child workflow starts when usage falls`,
	},
	{
		WaitSuspect, PatienceEndless, FormPredicate,
		"is a suspect in lost worker processes (lost: {losses}[, blamed: {blamed}]) and waits for {detail}" +
			"[, at most until {until}]",
	},
	{
		WaitBudgetLeases, PatienceEndless, FormClause,
		`[namespace "{namespace}"|queue "{queue}"] is at its concurrency limit ({used} of {limit} {tasks} tasks leased)`,
	},
	{
		WaitBudgetRate, PatienceEndless, FormClause,
		`[namespace "{namespace}"|queue "{queue}"] is at its rate limit ({used} of {limit} {tasks} tasks this minute); ` +
			"more start at {until}",
	},
}

// WaitSubjects has the subjects that precede wait texts that are only predicates, such as "is at its rate limit".
var WaitSubjects = map[WaitKind]string{
	WaitForActivity: `[activity "{activity}"|an activity][ (and {more} more)]`,
	WaitForTask:     "workflow task",
}

// Rule returns the rule of the reason; the zero rule for an unknown reason.
func (r WaitReason) Rule() WaitRule {
	for i := range WaitRules {
		if WaitRules[i].Reason == r {
			return WaitRules[i]
		}
	}
	return WaitRule{}
}

// Say returns the whole sentence of the wait, with its subject, and its times in a zone.
func (w *Wait) Say(zone *time.Location) string {
	rule := w.Reason.Rule()
	switch subject := WaitSubjects[w.Kind]; {
	case rule.Form == FormAlone || subject == "":
		return w.fill(rule.Text, zone)
	case rule.Form == FormPredicate:
		return w.fill(subject+" "+rule.Text, zone)
	default:
		return w.fill(subject+": "+rule.Text, zone)
	}
}

// Why returns the reason without its subject.
func (w *Wait) Why(zone *time.Location) string { return w.fill(w.Reason.Rule().Text, zone) }

// fill replaces the members in a text.
func (w *Wait) fill(text string, zone *time.Location) string {
	var out strings.Builder
	for text != "" {
		before, rest, ok := strings.Cut(text, "[")
		filled, _ := w.named(before, zone)
		out.WriteString(filled)
		if !ok {
			break
		}
		inside, after, _ := strings.Cut(rest, "]")
		out.WriteString(w.firstWhole(inside, zone))
		text = after
	}
	return out.String()
}

// firstWhole fills the first of the alternatives without an empty member, else the last if there are several.
func (w *Wait) firstWhole(alternatives string, zone *time.Location) string {
	texts := strings.Split(alternatives, "|")
	for i, text := range texts {
		if filled, whole := w.named(text, zone); whole || i > 0 && i == len(texts)-1 {
			return filled
		}
	}
	return ""
}

// named replaces members in a text without brackets; whole is false if one of them is empty.
func (w *Wait) named(text string, zone *time.Location) (filled string, whole bool) {
	whole = true
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "{")
		out.WriteString(before)
		if !ok {
			return out.String(), whole
		}
		name, after, _ := strings.Cut(rest, "}")
		value := w.member(name, zone)
		out.WriteString(value)
		whole, text = whole && value != "", after
	}
}

// member returns the value for a name in a text; empty if there is none.
func (w *Wait) member(name string, zone *time.Location) string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	at := func(t history.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.In(zone).Format(time.RFC3339)
	}
	switch name {
	case "activity", "name":
		return w.Name
	case "task":
		if w.Kind == WaitForActivity {
			return `activity "` + w.Name + `"`
		}
		return `workflow "` + w.Name + `"`
	case "suggestion":
		return w.Suggestion
	case "tasks":
		return strings.TrimSuffix(string(w.Kind), "_task")
	case "queue":
		return w.Queue
	case "worker_queues":
		return strings.Join(w.WorkerQueues, ", ")
	case "group":
		return w.Group
	case "namespace":
		return w.Namespace
	case "worker":
		return w.Worker
	case "workers":
		return number(w.Workers)
	case "session":
		return w.Session
	case "workflow":
		return w.Workflow
	case "missing":
		return strings.Join(w.Missing, ", ")
	case "resources":
		return strings.NewReplacer("=", " ", ",", ", ").Replace(w.Resources.String())
	case "worker_resources":
		return w.Room()
	case "build":
		return w.Build
	case "worker_build":
		return w.WorkerBuild
	case "release":
		return w.Release
	case "worker_release":
		return w.WorkerRelease
	case "limit":
		return number(w.Limit)
	case "pool":
		return w.Pool
	case "position":
		return number(w.Position)
	case "used":
		return number(w.Used)
	case "failures":
		return number(w.Failures)
	case "losses":
		return number(w.Losses)
	case "blamed":
		return number(w.Blamed)
	case "more":
		return number(w.More)
	case "detail":
		return w.Detail
	case "token":
		return w.Token
	case "since":
		return at(w.Since)
	case "until":
		return at(w.Until)
	case "fallback_at":
		return at(w.FallbackAt)
	}
	return ""
}
