// Command encryption is a program whose payloads the app cannot read: a worker, a client and a codec endpoint.
package main

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Letters is the typed name of the workflow.
const Letters workflow.Name[Letter, string] = "letter"

// Letter is the confidential argument of the workflow.
type Letter struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

func main() {
	list, err := Codecs(os.Getenv("LETTER_KEYS"))
	if err != nil {
		log.Fatal(err)
	}
	switch arg := append(os.Args, "")[1]; arg {
	case "send":
		err = send(list, strings.Join(os.Args[2:], " "))
	case "endpoint":
		err = serve(list)
	default:
		sojourn.Main(func(r *worker.Registry) { Register(r, list...) })
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Codecs returns the codecs for keys like "2:HEX,1:HEX": each key with its ID, the current one first.
func Codecs(keys string) ([]codec.Codec, error) {
	var all []codec.Key
	for text := range strings.SplitSeq(keys, ",") {
		id, secret, _ := strings.Cut(text, ":")
		raw, err := hex.DecodeString(secret)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", id, err)
		}
		all = append(all, codec.Key{ID: id, Secret: raw})
	}
	encryption, err := codec.Encrypt(all[0], all[1:]...)
	if err != nil {
		return nil, err
	}
	return []codec.Codec{codec.Compress(0), encryption}, nil
}

// Register registers the workflow and the codecs of its payloads.
func Register(r *worker.Registry, list ...codec.Codec) {
	r.UseCodecs(list...)
	worker.Register(r, Letters, Deliver)
	r.Activity("seal", Seal)
}

// Deliver seals a letter and waits until it is collected.
func Deliver(ctx workflow.Context, letter Letter) (string, error) {
	sealed, err := workflow.Execute[string](ctx, "seal", letter)
	if err != nil {
		return "", err
	}
	var by string
	if err := workflow.Signal(ctx, "collect").Receive(ctx, &by); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, collected by %s", sealed, by), nil
}

// Seal folds a letter.
func Seal(_ context.Context, letter Letter) (string, error) {
	return fmt.Sprintf("to %s: %s", letter.To, letter.Text), nil
}

// send starts the workflow with encrypted arguments, sends it an encrypted signal and prints the result.
func send(list []codec.Codec, text string) error {
	ctx := context.Background()
	app, err := client.New(client.Options{URLs: []string{"http://127.0.0.1:7700"}, Codecs: list})
	if err != nil {
		return err
	}
	run, err := client.Start(ctx, app, Letters, Letter{To: "Anna", Text: text}, client.StartOptions{})
	if err != nil {
		return err
	}
	if err := run.Signal(ctx, "collect", "a neighbour"); err != nil {
		return err
	}
	result, err := run.Result(ctx)
	fmt.Println(run.ID, result)
	return err
}

// serve runs the codec endpoint for the dashboard on this machine.
func serve(list []codec.Codec) error {
	h, err := Endpoint(list, os.Getenv("LETTER_VIEWER"), "http://127.0.0.1:7700")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/decode", h)
	fmt.Println("decodes at http://127.0.0.1:8090/decode")
	return http.ListenAndServe("127.0.0.1:8090", mux) //nolint:gosec // a program to be read: without timeouts
}

// Endpoint returns the codec endpoint for viewers who know a password.
func Endpoint(list []codec.Codec, password, dashboard string) (http.Handler, error) {
	return codec.Endpoint(codec.EndpointOptions{
		Codecs: list, Origins: []string{dashboard},
		Authorize: func(r *http.Request) error {
			given := []byte(r.Header.Get("Authorization"))
			if password == "" || subtle.ConstantTimeCompare(given, []byte("Bearer "+password)) != 1 {
				return errors.New("enter the password of LETTER_VIEWER")
			}
			return nil
		},
	})
}
