package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// sealedValue is an encoded payload in the JSON form of a value.
type sealedValue struct {
	Codec string `json:"sojourn.codec"`
	KeyID string `json:"key_id"`
	Data  struct {
		Type   string `json:"$type"`
		Base64 string `json:"base64"`
	} `json:"data"`
}

// sealedIn returns the encoded payload that a value consists of: the value itself, or the only element of a list of
// arguments.
func sealedIn(raw json.RawMessage) (s sealedValue, ok bool) {
	if !bytes.Contains(raw, []byte(`"sojourn.codec"`)) {
		return s, false
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		if len(list) != 1 {
			return s, false
		}
		raw = list[0]
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil && s.Codec != "" && s.Data.Type == "bytes"
}

// decodedRun returns a run whose input and output are decoded by the codec endpoint of its namespace. If that fails,
// the values stay encoded, and a line on standard error has the reason.
func (p *program) decodedRun(c *cobra.Command, v protocol.RunView) protocol.RunView {
	var encoded []sealedValue
	var members []*json.RawMessage // of v, in the order of encoded
	for _, member := range []*json.RawMessage{&v.Input, &v.Output} {
		if s, ok := sealedIn(*member); ok {
			encoded, members = append(encoded, s), append(members, member)
		}
	}
	if len(encoded) == 0 {
		return v
	}
	var about protocol.NamespaceView
	err := p.call(c, http.MethodGet, "/api/namespaces/"+url.PathEscape(v.Namespace), nil, &about)
	if err == nil && about.CodecEndpoint == "" {
		return v
	}
	var values []json.RawMessage
	if err == nil {
		values, err = decodeByEndpoint(c.Context(), about.CodecEndpoint, encoded)
	}
	if err != nil {
		fmt.Fprintf(p.err, "values are shown as stored: %v\n", err)
		return v
	}
	for i, value := range values {
		if value != nil {
			*members[i] = value
		}
	}
	return v
}

// decodeByEndpoint decodes payloads by a codec endpoint. The request contains the payloads and the viewer's access
// token for the endpoint, and nothing of Sojourn. It follows no redirects. The token is sent only to the endpoint that
// the viewer has named. Errors quote the texts of the endpoint.
func decodeByEndpoint(ctx context.Context, endpoint string, payloads []sealedValue) ([]json.RawMessage, error) {
	if err := protocol.CheckCodecEndpoint("codec_endpoint", endpoint); err != nil {
		return nil, err
	}
	type sent struct {
		Codec string `json:"sojourn.codec"`
		KeyID string `json:"key_id"`
		Data  string `json:"data"`
	}
	var in struct {
		Payloads []sent `json:"payloads"`
	}
	for _, s := range payloads {
		in.Payloads = append(in.Payloads, sent{s.Codec, s.KeyID, s.Data.Base64})
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if token := os.Getenv(config.CodecTokenVariable); token != "" {
		if trusted := os.Getenv(config.CodecEndpointVariable); trusted != endpoint {
			return nil, fmt.Errorf("the access token is not sent to codec endpoint %s; set %s to this URL if you trust it",
				endpoint, config.CodecEndpointVariable)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	direct := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := direct.Do(r)
	if err != nil {
		return nil, fmt.Errorf("codec endpoint: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	switch {
	case err != nil:
		return nil, fmt.Errorf("codec endpoint: %w", err)
	case res.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("codec endpoint %s rejected the viewer; set %s and %s: %.200q",
			endpoint, config.CodecTokenVariable, config.CodecEndpointVariable, bytes.TrimSpace(text))
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("codec endpoint %s responded %s: %.200q", endpoint, res.Status, bytes.TrimSpace(text))
	}
	var out struct {
		Values []struct {
			Value json.RawMessage `json:"value"`
			Error string          `json:"error"`
		} `json:"values"`
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("codec endpoint: %w", err)
	}
	if len(out.Values) != len(payloads) {
		return nil, errors.New("codec endpoint: the response has another number of values")
	}
	values := make([]json.RawMessage, len(payloads))
	for i, one := range out.Values {
		if values[i] = one.Value; one.Error != "" {
			return nil, fmt.Errorf("codec endpoint %s: %q", endpoint, one.Error)
		}
	}
	return values, nil
}
