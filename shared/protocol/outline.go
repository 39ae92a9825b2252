package protocol

import "encoding/json"

// UnreadableItem identifies an outcome that cannot be decoded, so that it is answered in its place: the members that
// name its task, as far as they can be read, and the reason. For a workflow task it also has the [Outline], because a
// command that is not supported quarantines the run in whatever form it comes.
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

// ReadMembers decodes members of an object into pointers, each on its own. A member of another type, or with a NUL,
// stays empty, and so do all of them if raw is no object.
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
	_ = json.Unmarshal(whole.Commands, &commands) // no list has no commands
	for _, raw := range commands {
		var c struct {
			Type           json.RawMessage `json:"type"`
			WorkflowStream json.RawMessage `json:"workflow_stream"`
			ScopeID        json.RawMessage `json:"cancellation_scope_id"`
			ScopeCleanup   json.RawMessage `json:"cancellation_cleanup"`
		}
		_ = json.Unmarshal(raw, &c) // what is no object asks for nothing, and keeps its place in the list
		out := Command{WorkflowStream: c.WorkflowStream, ScopeID: c.ScopeID, ScopeCleanup: c.ScopeCleanup}
		if json.Unmarshal(c.Type, &out.Type) != nil {
			out.Type = "" // no text names no command
		}
		o.Commands = append(o.Commands, out)
	}
	return o, len(o.Commands) > 0 || len(o.Waits) > 0 || len(o.Cursors) > 0
}

// Unreadable is the item under which a completion of a workflow task that cannot be read is judged, for the reason why.
func (o Outline) Unreadable(item CompleteItem, why error) CompleteItem {
	item.Kind, item.Commands, item.StreamWaits, item.Malformed = KindWorkflow, o.Commands, o.StreamWaits, why
	return item
}
