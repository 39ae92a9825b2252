package history

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/payload"
)

func outlineOf(t *testing.T, d Data, keep int) (map[string]json.RawMessage, map[string]Value) {
	t.Helper()
	body, err := EncodeData(d)
	if err != nil {
		t.Fatal(err)
	}
	raw, values := OutlineOf(body, keep)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	byName := map[string]Value{}
	for _, v := range values {
		byName[v.Name] = v
	}
	return members, byName
}

func TestAnOutlineHasNoEncodedValues(t *testing.T) {
	blob := strings.Repeat("QUJD", 500)
	p := payload.Payload{Blob: blob}
	for name, d := range map[string]Data{
		"result":    &ActivityCompleted{Sequence: 3, ActivityType: "a", Result: blob, PayloadCodec: "avro"},
		"arguments": &ActivityScheduled{Sequence: 3, ActivityType: "a", Arguments: blob, PayloadCodec: "avro"},
		"output":    &WorkflowCompleted{Output: blob, PayloadCodec: "avro"},
		"value":     &SignalReceived{SignalName: "s", Value: blob, PayloadCodec: "avro"},
		"entries":   &MemoUpserted{Sequence: 3, Entries: p},
		"merged":    &MemoUpserted{Sequence: 3, Merged: p},
		"details": &ActivityFailed{Sequence: 3, Failure: Failure{
			Message: "m", Exception: json.RawMessage(`{"type":"T","details":"` + blob + `"}`),
		}},
	} {
		members, values := outlineOf(t, d, 100)
		v := values[name]
		if len(values) != 1 || !v.Encoded || v.Size != len(blob) || v.Text != blob[:100] {
			t.Errorf("%s: values %+v", name, values)
		}
		for member, raw := range members {
			if strings.Contains(string(raw), "QUJD") {
				t.Errorf("%s: the payload contains the value in %s", name, member)
			}
		}
		if _, values := outlineOf(t, d, 0); values[name].Text != "" || values[name].Size != len(blob) {
			t.Errorf("%s: without texts the values are %+v", name, values)
		}
	}
}

// Members with values are recognised by their names in every event type.
func TestMembersWithValuesAreKnownForEveryEventType(t *testing.T) {
	other := map[string]bool{"payload_codec": true}
	for name, empty := range kinds {
		raw, err := json.Marshal(empty())
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatal(err)
		}
		for member := range members {
			if strings.Contains(member, "payload") && !other[member] {
				t.Errorf("%s has the member %s: decide whether it contains an encoded value", name, member)
			}
		}
	}
}

func TestAnOutlineCutsLongMembers(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	stack := long[:16<<10]
	members, values := outlineOf(t, &WorkflowFailed{Failure: Failure{
		Message: long, Stack: stack, Exception: json.RawMessage(`{"type":"T","message":"` + long + `"}`),
	}}, 100)
	var message string
	if err := json.Unmarshal(members["message"], &message); err != nil || message != long[:maxMember] {
		t.Errorf("the message has %d bytes: %v", len(message), err)
	}
	if len(members["stack_trace"]) != len(stack)+2 || len(values) != 2 {
		t.Errorf("the stack has %d bytes, and the values are %+v", len(members["stack_trace"]), values)
	}
	for _, name := range []string{"message", "exception.message"} {
		if v := values[name]; v.Size != len(long)+2 || v.Text != "" || v.Encoded {
			t.Errorf("%s is %+v", name, v)
		}
	}
	memo := json.RawMessage(`{"a":"` + long + `"}`)
	members, values = outlineOf(t, &WorkflowStarted{WorkflowType: "w", Memo: memo}, 99)
	if v := values["memo"]; members["memo"] != nil || v.Size != len(memo) || v.Text != string(memo[:98]) {
		t.Errorf("the memo is %s and %+v", members["memo"], v)
	}
}

// The timeline shows lost deliveries, so only their progress is omitted.
func TestAnOutlineKeepsLostDeliveries(t *testing.T) {
	details := json.RawMessage(`"` + strings.Repeat("x", 10_000) + `"`)
	members, values := outlineOf(t, &ActivityCompleted{Attempt: Attempt{Lost: []Lost{
		{Delivery: 1, Worker: "w"}, {Delivery: 2, Worker: "w", HeartbeatDetails: details},
	}}}, 10)
	var lost []Lost
	if err := json.Unmarshal(members["lost_deliveries"], &lost); err != nil || len(lost) != 2 || lost[1].Delivery != 2 ||
		lost[1].HeartbeatDetails != nil {
		t.Errorf("lost deliveries are %s: %v", members["lost_deliveries"], err)
	}
	if v := values["last_heartbeat_details"]; v.Size != len(details) {
		t.Errorf("values are %+v", values)
	}
}
