package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// EndpointOptions are the options of Endpoint. Codecs and Authorize are required.
type EndpointOptions struct {
	Codecs []Codec // decode the payloads
	// Authorize returns an error for a viewer who may not read payloads. The dashboard and the command line send the
	// access token that the viewer entered as "Authorization: Bearer TOKEN", and never a token or a cookie of Sojourn.
	Authorize func(r *http.Request) error
	Origins   []string // origins of the dashboards, such as https://sojourn.example.com
}

// Limits of a request to an endpoint.
const (
	maxEndpointBody     = 8 << 20
	maxEndpointPayloads = 1000
	maxEndpointValues   = 32 << 20 // bytes of the decoded values; a small payload can decompress to 12 MiB
)

// Endpoint returns the handler of a codec endpoint, which decodes payloads for the viewers of a dashboard and of the
// command line. Only its process needs the keys. Serve it with HTTPS, or on a loopback address.
//
// The handler answers POST requests with a JSON body and, for browsers, preflight requests from one of the origins:
//
//	{"payloads": [{"sojourn.codec": "sojourn.aes-256-gcm", "key_id": "k1", "data": "base64"}]}
//	{"values": [{"value": ["decoded", "arguments"]}]}
//
// A payload that cannot be decoded has the member error instead of value.
func Endpoint(o EndpointOptions) (http.Handler, error) {
	chain := codecs.Of(o.Codecs)
	if err := chain.Check(); err != nil {
		return nil, err
	}
	switch {
	case len(chain) == 0:
		return nil, errors.New("a codec endpoint has no codecs")
	case o.Authorize == nil:
		return nil, errors.New("a codec endpoint has no Authorize")
	}
	for _, origin := range o.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return nil, fmt.Errorf("origin %q of a codec endpoint is not SCHEME://HOST", origin)
		}
	}
	return &endpoint{chain, o}, nil
}

type endpoint struct {
	chain   codecs.Chain
	options EndpointOptions
}

// sealedJSON is an encoded payload in a request.
type sealedJSON struct {
	Codec string `json:"sojourn.codec"`
	KeyID string `json:"key_id"`
	Data  []byte `json:"data"`
}

// valueJSON is a decoded payload in a response.
type valueJSON struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// ServeHTTP answers one request.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Origin")
	if origin := r.Header.Get("Origin"); origin != "" {
		if !slices.Contains(e.options.Origins, origin) {
			http.Error(w, "this origin is not a dashboard of the codec endpoint; add it to Origins", http.StatusForbidden)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
	}
	switch {
	case r.Method == http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", http.MethodPost)
		h.Set("Access-Control-Allow-Headers", "authorization, content-type")
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method != http.MethodPost:
		h.Set("Allow", "POST, OPTIONS")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	// A form of another site cannot send this type, so every cross-site request of a browser has a preflight.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the content type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	if err := e.options.Authorize(r); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	e.decode(w, r)
}

func (e *endpoint) decode(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEndpointBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("the request has more than %d MiB", maxEndpointBody>>20), http.StatusRequestEntityTooLarge)
		return
	}
	var in struct {
		Payloads []sealedJSON `json:"payloads"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if len(in.Payloads) > maxEndpointPayloads {
		http.Error(w, fmt.Sprintf("more than %d payloads", maxEndpointPayloads), http.StatusBadRequest)
		return
	}
	out := struct {
		Values []valueJSON `json:"values"`
	}{make([]valueJSON, len(in.Payloads))}
	room := maxEndpointValues
	for i, one := range in.Payloads {
		value, err := e.value(one, &room)
		if err != nil {
			out.Values[i].Error = err.Error()
			continue
		}
		out.Values[i].Value = value
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the viewer may have disconnected
}

// value returns the JSON form of a decoded payload, as the API of the app shows values without a codec. room is the
// size that the values of the request may still have. After the first value that exceeds it, value decodes no other.
func (e *endpoint) value(in sealedJSON, room *int) (json.RawMessage, error) {
	errTooLarge := fmt.Errorf("the values of the request have more than %d MiB", maxEndpointValues>>20)
	if *room <= 0 {
		return nil, errTooLarge
	}
	if in.Codec == "" {
		return nil, errors.New("the payload names no codec")
	}
	p, err := payload.Seal(payload.Sealed{Codec: in.Codec, KeyID: in.KeyID, Data: in.Data}, false)
	if err == nil {
		p, err = e.chain.DecodeValue(p)
	}
	if err != nil {
		return nil, err
	}
	raw, err := payload.ToJSON(p)
	if *room -= len(raw); *room < 0 {
		return nil, errTooLarge
	}
	return raw, err
}
