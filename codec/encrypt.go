package codec

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// KeySize is the length of a key, in bytes.
const KeySize = 32

// Key is a key of AES-256.
type Key struct {
	ID     string // stored unencrypted with each payload; must not change, and no other key may have it later
	Secret []byte // KeySize random bytes
}

// maxKeyID is the maximum length of the ID of a key, in bytes.
const maxKeyID = 255

// encryption is AES-256-GCM with a random nonce of 96 bits per payload, which precedes the ciphertext. The ID of the
// key is the additional data.
type encryption struct {
	current string
	keys    map[string]cipher.AEAD
}

// Encrypt returns a codec that encrypts with AES-256-GCM. It encrypts with the current key, and decrypts with the
// current and the previous keys. Each payload has a new random nonce, so equal values have different encoded forms.
//
// To replace a key, first add the new key as a previous one to all workers and clients, then make it the current one.
// Do not encrypt more than 2^32 payloads with one key. The encryption does not bind a payload to its run: a writer of
// the database can copy encrypted payloads of the same key to another place, or replace them by unencrypted ones.
func Encrypt(current Key, previous ...Key) (Codec, error) {
	c := &encryption{current: current.ID, keys: map[string]cipher.AEAD{}}
	for _, k := range append([]Key{current}, previous...) {
		switch {
		case k.ID == "":
			return nil, errors.New("an encryption key has no ID")
		case len(k.ID) > maxKeyID:
			return nil, fmt.Errorf("the ID of an encryption key is longer than %d bytes", maxKeyID)
		case len(k.Secret) != KeySize:
			return nil, fmt.Errorf("encryption key %q has %d bytes; it must have %d", k.ID, len(k.Secret), KeySize)
		case c.keys[k.ID] != nil:
			return nil, fmt.Errorf("two encryption keys have the ID %q", k.ID)
		}
		block, err := aes.NewCipher(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("encryption key %q: %w", k.ID, err)
		}
		if c.keys[k.ID], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("encryption key %q: %w", k.ID, err)
		}
	}
	return c, nil
}

// Name returns "sojourn.aes-256-gcm".
func (c *encryption) Name() string { return "sojourn.aes-256-gcm" }

// Encode encrypts data with the current key.
func (c *encryption) Encode(data []byte) ([]byte, string, error) {
	return c.keys[c.current].Seal(nil, nil, data, []byte(c.current)), c.current, nil
}

// Decode decrypts data with the key of the given ID.
func (c *encryption) Decode(encoded []byte, keyID string) ([]byte, error) {
	key := c.keys[keyID]
	if key == nil {
		return nil, fmt.Errorf("%w %q", ErrUnknownKey, keyID)
	}
	return key.Open(nil, nil, encoded, []byte(keyID))
}
