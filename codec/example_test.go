package codec_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/worker"
)

// Workers and clients use the same codecs. Payloads are compressed first and then encrypted.
func Example() {
	secret, err := os.ReadFile("/run/secrets/payload-key-2026-11") // 32 bytes that only this program can read
	if err != nil {
		log.Fatal(err)
	}
	encryption, err := codec.Encrypt(codec.Key{ID: "2026-11", Secret: secret})
	if err != nil {
		log.Fatal(err)
	}
	list := []codec.Codec{codec.Compress(0), encryption}

	r := worker.NewRegistry()
	r.UseCodecs(list...)

	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}, Codecs: list})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(app != nil)
}

// After a key was replaced, payloads of the previous key still decode.
func ExampleEncrypt() {
	first := codec.Key{ID: "1", Secret: make([]byte, codec.KeySize)} // use random bytes
	second := codec.Key{ID: "2", Secret: make([]byte, codec.KeySize)}
	before, err := codec.Encrypt(first)
	if err != nil {
		log.Fatal(err)
	}
	after, err := codec.Encrypt(second, first)
	if err != nil {
		log.Fatal(err)
	}
	stored, keyID, err := before.Encode([]byte("confidential"))
	if err != nil {
		log.Fatal(err)
	}
	data, err := after.Decode(stored, keyID)
	if err != nil {
		log.Fatal(err)
	}
	_, keyID, err = after.Encode(data)
	fmt.Println(string(data), keyID, err)
	// Output: confidential 2 <nil>
}

// The endpoint decodes payloads for the dashboard and the command line. Its Authorize function authenticates viewers.
func ExampleEndpoint() {
	secret, err := os.ReadFile("/run/secrets/payload-key-2026-11")
	if err != nil {
		log.Fatal(err)
	}
	encryption, err := codec.Encrypt(codec.Key{ID: "2026-11", Secret: secret})
	if err != nil {
		log.Fatal(err)
	}
	h, err := codec.Endpoint(codec.EndpointOptions{
		Codecs:  []codec.Codec{codec.Compress(0), encryption},
		Origins: []string{"https://sojourn.example.com"},
		Authorize: func(r *http.Request) error {
			// Verify the access token of the viewer, for example a JWT of the company's identity provider.
			token := os.Getenv("VIEWER_TOKEN")
			if token == "" || r.Header.Get("Authorization") != "Bearer "+token {
				return errors.New("sign in at https://login.example.com and enter the access token")
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServeTLS(":8443", "cert.pem", "key.pem", h))
}
