// Package mask removes secrets from logs, errors and listings.
package mask

import "regexp"

const stars = "********"

// All hides all of a text.
func All(v string) string {
	if v == "" {
		return ""
	}
	return stars
}

// password finds a password in an address and in its query, also where the whole does not parse as a URL. It takes
// everything up to the last @, so that a password with an @ in it is hidden whole.
var password = regexp.MustCompile(`(://[^:/@\s]*:).*(@)|(password=)[^&\s]+`)

// URL hides the password inside an address, or inside a text that quotes one.
func URL(v string) string { return password.ReplaceAllString(v, "$1$3"+stars+"$2") }
