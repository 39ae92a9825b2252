package codecs_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// reversing is a codec that reverses bytes. Like many codecs, it panics if encoded data is too short.
type reversing struct{}

func (reversing) Name() string { return "reversing" }

func (reversing) Encode(data []byte) (encoded []byte, keyID string, err error) {
	encoded = []byte("reversed")
	for i := range data {
		encoded = append(encoded, data[len(data)-1-i])
	}
	return encoded, "", nil
}

func (reversing) Decode(encoded []byte, _ string) ([]byte, error) {
	encoded, _, _ = reversing{}.Encode(encoded[len("reversed"):])
	return encoded[len("reversed"):], nil
}

type panicking struct{ reversing }

func (panicking) Encode([]byte) (encoded []byte, keyID string, err error) { panic("no key") }

func encoded(t *testing.T, args ...any) payload.Payload {
	t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Data that makes a codec panic may come from any client. It must not end the worker.
func TestAPanicOfACodecIsAnError(t *testing.T) {
	short, err := payload.Seal(payload.Sealed{Codec: "reversing", Data: []byte{1}}, true)
	if err != nil {
		t.Fatal(err)
	}
	p, err := codecs.Chain{reversing{}}.DecodeArgs(short)
	if err == nil || !strings.Contains(err.Error(), "the codec panicked") || p != short {
		t.Errorf("decoded: %v", err)
	}
	value := encoded(t, 1)
	p, err = codecs.Chain{panicking{}}.EncodeArgs(value)
	if err == nil || !strings.Contains(err.Error(), "the codec panicked: no key") || p != value {
		t.Errorf("encoded: %v", err)
	}
}

// The arguments of a definition are stored with the session, and no event contains them.
func TestTheArgumentsOfASessionDefinitionAreEncoded(t *testing.T) {
	definition := &protocol.SessionDefinition{Name: "vault", Arguments: encoded(t, "s3cret")}
	given := definition.Arguments
	chain := codecs.Chain{reversing{}}
	commands, err := chain.EncodeCommands([]protocol.Command{
		{Type: protocol.ScheduleActivity, SessionDefinition: definition},
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := commands[0].SessionDefinition.Arguments
	if !payload.IsSealed(sent.Blob) || definition.Arguments != given {
		t.Errorf("sent %v, changed the command of the caller: %v", sent, definition.Arguments != given)
	}
	if back, err := chain.DecodeArgs(sent); err != nil || back != given {
		t.Errorf("decoded %v, %v", back, err)
	}
}
