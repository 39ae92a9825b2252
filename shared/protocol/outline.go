package protocol

import "encoding/json"

// UnreadableItem returns an outcome that could not be decoded, with the error and the readable members that identify
// its task. For a workflow task it also has the [Outline], because an unsupported command quarantines the run even if
// it is malformed.
func UnreadableItem(raw json.RawMessage, why error) CompleteItem {
	item := CompleteItem{Malformed: why}
	ReadMembers(raw, map[string]any{
		"namespace": &item.Namespace, "kind": &item.Kind, "task_id": &item.TaskID, "lease_owner": &item.Owner,
		"incarnation": &item.Incarnation, "workflow_task_attempt": &item.Attempt, "activity_attempt_id": &item.AttemptID,
	})
	item.SetKind()
	if o, ok := OutlineOf(raw); ok && item.Kind == KindWorkflow {
		item = o.Unreadable(item, why)
	}
	return item
}

// ReadMembers decodes members of an object into pointers, each separately. A member of a wrong type or with a NUL stays
// empty; all stay empty if raw is not an object.
func ReadMembers(raw json.RawMessage, members map[string]any) {
	var of map[string]json.RawMessage
	_ = json.Unmarshal(raw, &of)
	for name, into := range members {
		if !hasNUL(of[name]) {
			_ = json.Unmarshal(of[name], into)
		}
	}
}

// Outline is the readable part of a malformed completion of a workflow task: the types of its commands, and the members
// of unsupported features. Only unsupported features may quarantine the run; other malformed members may come from a
// newer client, whose commands can have members of the same name with other types.
type Outline struct {
	Commands []Command
	StreamWaits
}

// OutlineOf decodes each member separately, so that a member of an unexpected type does not hide the others. ok is
// false if raw has no readable member.
func OutlineOf(raw json.RawMessage) (o Outline, ok bool) {
	var whole struct {
		Commands json.RawMessage `json:"commands"`
		StreamWaits
	}
	if json.Unmarshal(raw, &whole) != nil {
		return o, false
	}
	o.StreamWaits = whole.StreamWaits
	var commands []json.RawMessage
	_ = json.Unmarshal(whole.Commands, &commands) // without a readable list there are no commands
	for _, raw := range commands {
		var c struct {
			Type           json.RawMessage `json:"type"`
			WorkflowStream json.RawMessage `json:"workflow_stream"`
			ScopeID        json.RawMessage `json:"cancellation_scope_id"`
			ScopeCleanup   json.RawMessage `json:"cancellation_cleanup"`
		}
		_ = json.Unmarshal(raw, &c) // a value that is not an object is a command without a type
		out := Command{WorkflowStream: c.WorkflowStream, ScopeID: c.ScopeID, ScopeCleanup: c.ScopeCleanup}
		if json.Unmarshal(c.Type, &out.Type) != nil {
			out.Type = "" // without a readable text the command has no type
		}
		o.Commands = append(o.Commands, out)
	}
	return o, len(o.Commands) > 0 || len(o.Waits) > 0 || len(o.Cursors) > 0
}

// Unreadable returns the item with which the engine processes a malformed completion of a workflow task.
func (o Outline) Unreadable(item CompleteItem, why error) CompleteItem {
	item.Kind, item.Commands, item.StreamWaits, item.Malformed = KindWorkflow, o.Commands, o.StreamWaits, why
	return item
}
