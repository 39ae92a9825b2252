package protocol

import "encoding/base64"

// PageByName returns the part of a list, sorted by name, that follows a page token. Without a size it returns all of
// the rest: published clients read only one response for lists of workers and queues.
func PageByName[T any](all []T, name func(T) string, size int, token string) (page []T, next *string, err error) {
	after, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, nil, Refuse(ReasonInvalidPageToken, "invalid page token %q", token)
	}
	page = all
	for len(page) > 0 && name(page[0]) <= string(after) {
		page = page[1:]
	}
	if size > 0 && len(page) > size {
		page = page[:size]
		last := base64.RawURLEncoding.EncodeToString([]byte(name(page[size-1])))
		next = &last
	}
	return page, next, nil
}
