package sqlite

import (
	"fmt"
	"time"
)

// LimitPages makes connections that are opened from now on refuse to let the file grow beyond n pages, until restore is
// called.
func LimitPages(n int) (restore func()) {
	before := pragmas
	pragmas = append(pragmas[:len(pragmas):len(pragmas)], fmt.Sprintf("max_page_count(%d)", n))
	return func() { pragmas = before }
}

// CheckFor makes Open wait this long for the check of a file, until restore is called.
func CheckFor(d time.Duration) (restore func()) {
	before := checkTime
	checkTime = d
	return func() { checkTime = before }
}
