package zishang

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

func TestOurClientWithItsServers(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		p := start(t, version)
		for _, namespace := range []string{"/", "/custom"} {
			c := p.dialWith(t, namespace, map[string]string{
				"token": "secret",
			}, socketio.DialOptions{OnSocket: func(s *socketio.Socket) {
				s.On("ask", func(_ context.Context, args []json.RawMessage) ([]any, error) {
					return []any{map[string]json.RawMessage{"asked": args[0]}}, nil
				})
			}})
			var auth struct {
				Token string `json:"token"`
			}
			if ask(t, c, &auth, "auth"); auth.Token != "secret" {
				t.Errorf("%s: the server was shown the token %q", namespace, auth.Token)
			}
			const text = "a task, Aufträge, 仕事 \U0001f40b"
			var echo map[string]any
			if ask(t, c, &echo, "echo", map[string]any{"text": text, "n": 7, "list": []int{1, 2}}); echo["text"] != text ||
				echo["n"] != 7.0 {
				t.Errorf("%s: echo = %v", namespace, echo)
			}
			var blob []byte
			if ask(t, c, &blob, "echo", socketio.Binary{0, 1, 254, 255}); !bytes.Equal(blob, []byte{0, 1, 254, 255}) {
				t.Errorf("%s: an attachment came back as %v", namespace, blob)
			}
			var asked struct {
				Asked string `json:"asked"`
			}
			if ask(t, c, &asked, "ask me", "why"); asked.Asked != "why" {
				t.Errorf("%s: the server asked and got %+v", namespace, asked)
			}
			large := string(bytes.Repeat([]byte("x"), 300_000))
			var back string
			if ask(t, c, &back, "echo", large); back != large {
				t.Errorf("%s: %d of %d bytes came back", namespace, len(back), len(large))
			}
		}
	})
}

func TestClientNoticesTheLossOfItsServer(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		p := start(t, version)
		c := p.dial(t, "/", nil)
		p.kill()
		select {
		case <-c.Done():
		case <-t.Context().Done():
		}
		if c.Err() == nil {
			t.Error("the connection ended without a cause")
		}
	})
}
