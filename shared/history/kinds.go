package history

import (
	"maps"
	"slices"
)

// Types returns the names of all event types that this build knows, sorted.
func Types() []string { return slices.Sorted(maps.Keys(kinds)) }

// kinds has a constructor for the payload struct of each event type that this build knows.
var kinds = map[string]func() Data{
	"WorkflowStarted":               func() Data { return &WorkflowStarted{} },
	"ActivityScheduled":             func() Data { return &ActivityScheduled{} },
	"ActivityRetryScheduled":        func() Data { return &ActivityRetryScheduled{} },
	"ActivityCompleted":             func() Data { return &ActivityCompleted{} },
	"ActivityFailed":                func() Data { return &ActivityFailed{} },
	"ActivityTimedOut":              func() Data { return &ActivityTimedOut{} },
	"ActivityCancelled":             func() Data { return &ActivityCancelled{} },
	"ActivityCancelRequested":       func() Data { return &ActivityCancelRequested{} },
	"TimerScheduled":                func() Data { return &TimerScheduled{} },
	"TimerFired":                    func() Data { return &TimerFired{} },
	"TimerCancelled":                func() Data { return &TimerCancelled{} },
	"TimerCancelRequested":          func() Data { return &TimerCancelRequested{} },
	"SignalReceived":                func() Data { return &SignalReceived{} },
	"SignalWaitOpened":              func() Data { return &SignalWaitOpened{} },
	"SignalApplied":                 func() Data { return &SignalApplied{} },
	"ConditionWaitOpened":           func() Data { return &ConditionWaitOpened{} },
	"ConditionWaitSatisfied":        func() Data { return &ConditionWaitSatisfied{} },
	"ConditionWaitTimedOut":         func() Data { return &ConditionWaitTimedOut{} },
	"UpdateAccepted":                func() Data { return &UpdateAccepted{} },
	"UpdateApplied":                 func() Data { return &UpdateApplied{} },
	"UpdateCompleted":               func() Data { return &UpdateCompleted{} },
	"ChildWorkflowScheduled":        func() Data { return &ChildWorkflowScheduled{} },
	"ChildRunStarted":               func() Data { return &ChildRunStarted{} },
	"ChildRunCompleted":             func() Data { return &ChildRunCompleted{} },
	"ChildRunFailed":                func() Data { return &ChildRunFailed{} },
	"ChildRunCancelled":             func() Data { return &ChildRunCancelled{} },
	"ChildRunTerminated":            func() Data { return &ChildRunTerminated{} },
	"ChildCancelRequested":          func() Data { return &ChildCancelRequested{} },
	"ParentClosePolicyApplied":      func() Data { return &ParentClosePolicyApplied{} },
	"AttachedToChild":               func() Data { return &AttachedToChild{} },
	"AttachedChildEnded":            func() Data { return &AttachedChildEnded{} },
	"AwakeableOpened":               func() Data { return &AwakeableOpened{} },
	"AwakeableCompleted":            func() Data { return &AwakeableCompleted{} },
	"AwakeableFailed":               func() Data { return &AwakeableFailed{} },
	"AwakeableTimedOut":             func() Data { return &AwakeableTimedOut{} },
	"AwakeableClosed":               func() Data { return &AwakeableClosed{} },
	"AwakeableCancelRequested":      func() Data { return &AwakeableCancelRequested{} },
	"SelectionResolved":             func() Data { return &SelectionResolved{} },
	"SelectionOperationCancelled":   func() Data { return &SelectionOperationCancelled{} },
	"SideEffectRecorded":            func() Data { return &SideEffectRecorded{} },
	"VersionMarkerRecorded":         func() Data { return &VersionMarkerRecorded{} },
	"SearchAttributesUpserted":      func() Data { return &SearchAttributesUpserted{} },
	"MemoUpserted":                  func() Data { return &MemoUpserted{} },
	"SignalSent":                    func() Data { return &SignalSent{} },
	"SessionStarted":                func() Data { return &SessionStarted{} },
	"SessionEnded":                  func() Data { return &SessionEnded{} },
	"SessionRecovered":              func() Data { return &SessionRecovered{} },
	"SessionSetUp":                  func() Data { return &SessionSetUp{} },
	"WorkflowContinuedAsNew":        func() Data { return &WorkflowContinuedAsNew{} },
	"WorkflowCompleted":             func() Data { return &WorkflowCompleted{} },
	"WorkflowFailed":                func() Data { return &WorkflowFailed{} },
	"WorkflowCancelled":             func() Data { return &WorkflowCancelled{} },
	"WorkflowTerminated":            func() Data { return &WorkflowTerminated{} },
	"WorkflowTimedOut":              func() Data { return &WorkflowTimedOut{} },
	"CancelRequested":               func() Data { return &CancelRequested{} },
	"TerminateRequested":            func() Data { return &TerminateRequested{} },
	"WorkflowCancellationRequested": func() Data { return &WorkflowCancellationRequested{} },
	"RepairRequested":               func() Data { return &RepairRequested{} },
}

// Type is "WorkflowStarted".
func (*WorkflowStarted) Type() string { return "WorkflowStarted" }

// Type is "ActivityScheduled".
func (*ActivityScheduled) Type() string { return "ActivityScheduled" }

// Type is "ActivityRetryScheduled".
func (*ActivityRetryScheduled) Type() string { return "ActivityRetryScheduled" }

// Type is "ActivityCompleted".
func (*ActivityCompleted) Type() string { return "ActivityCompleted" }

// Type is "ActivityFailed".
func (*ActivityFailed) Type() string { return "ActivityFailed" }

// Type is "ActivityTimedOut".
func (*ActivityTimedOut) Type() string { return "ActivityTimedOut" }

// Type is "ActivityCancelled".
func (*ActivityCancelled) Type() string { return "ActivityCancelled" }

// Type is "ActivityCancelRequested".
func (*ActivityCancelRequested) Type() string { return "ActivityCancelRequested" }

// Type is "TimerScheduled".
func (*TimerScheduled) Type() string { return "TimerScheduled" }

// Type is "TimerFired".
func (*TimerFired) Type() string { return "TimerFired" }

// Type is "TimerCancelled".
func (*TimerCancelled) Type() string { return "TimerCancelled" }

// Type is "TimerCancelRequested".
func (*TimerCancelRequested) Type() string { return "TimerCancelRequested" }

// Type is "SignalReceived".
func (*SignalReceived) Type() string { return "SignalReceived" }

// Type is "SignalWaitOpened".
func (*SignalWaitOpened) Type() string { return "SignalWaitOpened" }

// Type is "SignalApplied".
func (*SignalApplied) Type() string { return "SignalApplied" }

// Type is "SideEffectRecorded".
func (*SideEffectRecorded) Type() string { return "SideEffectRecorded" }

// Type is "VersionMarkerRecorded".
func (*VersionMarkerRecorded) Type() string { return "VersionMarkerRecorded" }

// Type is "SignalSent".
func (*SignalSent) Type() string { return "SignalSent" }

// Type is "SessionStarted".
func (*SessionStarted) Type() string { return "SessionStarted" }

// Type is "SessionEnded".
func (*SessionEnded) Type() string { return "SessionEnded" }

// Type is "SessionSetUp".
func (*SessionSetUp) Type() string { return "SessionSetUp" }

// Type is "SessionRecovered".
func (*SessionRecovered) Type() string { return "SessionRecovered" }

// Type is "WorkflowContinuedAsNew".
func (*WorkflowContinuedAsNew) Type() string { return "WorkflowContinuedAsNew" }

// Type is "WorkflowCompleted".
func (*WorkflowCompleted) Type() string { return "WorkflowCompleted" }

// Type is "WorkflowFailed".
func (*WorkflowFailed) Type() string { return "WorkflowFailed" }

// Type is "WorkflowCancelled".
func (*WorkflowCancelled) Type() string { return "WorkflowCancelled" }

// Type is "WorkflowTerminated".
func (*WorkflowTerminated) Type() string { return "WorkflowTerminated" }

// Type is "WorkflowTimedOut".
func (*WorkflowTimedOut) Type() string { return "WorkflowTimedOut" }

// Type is "CancelRequested".
func (*CancelRequested) Type() string { return "CancelRequested" }

// Type is "TerminateRequested".
func (*TerminateRequested) Type() string { return "TerminateRequested" }

// Type is "WorkflowCancellationRequested".
func (*WorkflowCancellationRequested) Type() string { return "WorkflowCancellationRequested" }

// Type is "RepairRequested".
func (*RepairRequested) Type() string { return "RepairRequested" }

// Type is "ConditionWaitOpened".
func (*ConditionWaitOpened) Type() string { return "ConditionWaitOpened" }

// Type is "ConditionWaitSatisfied".
func (*ConditionWaitSatisfied) Type() string { return "ConditionWaitSatisfied" }

// Type is "ConditionWaitTimedOut".
func (*ConditionWaitTimedOut) Type() string { return "ConditionWaitTimedOut" }

// Type is "UpdateAccepted".
func (*UpdateAccepted) Type() string { return "UpdateAccepted" }

// Type is "UpdateApplied".
func (*UpdateApplied) Type() string { return "UpdateApplied" }

// Type is "UpdateCompleted".
func (*UpdateCompleted) Type() string { return "UpdateCompleted" }

// Type is "ChildWorkflowScheduled".
func (*ChildWorkflowScheduled) Type() string { return "ChildWorkflowScheduled" }

// Type is "ChildRunStarted".
func (*ChildRunStarted) Type() string { return "ChildRunStarted" }

// Type is "ChildRunCompleted".
func (*ChildRunCompleted) Type() string { return "ChildRunCompleted" }

// Type is "ChildRunFailed".
func (*ChildRunFailed) Type() string { return "ChildRunFailed" }

// Type is "ChildRunCancelled".
func (*ChildRunCancelled) Type() string { return "ChildRunCancelled" }

// Type is "ChildRunTerminated".
func (*ChildRunTerminated) Type() string { return "ChildRunTerminated" }

// Type is "ChildCancelRequested".
func (*ChildCancelRequested) Type() string { return "ChildCancelRequested" }

// Type is "ParentClosePolicyApplied".
func (*ParentClosePolicyApplied) Type() string { return "ParentClosePolicyApplied" }

// Type is "AttachedToChild".
func (*AttachedToChild) Type() string { return "AttachedToChild" }

// Type is "AttachedChildEnded".
func (*AttachedChildEnded) Type() string { return "AttachedChildEnded" }

// Type is "SearchAttributesUpserted".
func (*SearchAttributesUpserted) Type() string { return "SearchAttributesUpserted" }

// Type is "MemoUpserted".
func (*MemoUpserted) Type() string { return "MemoUpserted" }

// Type is "SelectionResolved".
func (*SelectionResolved) Type() string { return "SelectionResolved" }

// Type is "SelectionOperationCancelled".
func (*SelectionOperationCancelled) Type() string { return "SelectionOperationCancelled" }
