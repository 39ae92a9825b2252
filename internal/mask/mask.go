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

// password finds a password in an address and in its query, also if the text is not a valid URL. It matches up to the
// last @, so that a password that contains an @ is hidden completely.
var password = regexp.MustCompile(`(://[^:/@\s]*:).*(@)|(password=)[^&\s]+`)

// URL hides the password in a URL, or in a text that contains a URL.
func URL(v string) string { return password.ReplaceAllString(v, "$1$3"+stars+"$2") }
