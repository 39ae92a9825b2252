package cli

import "time"

// SetRefusedFor sets how long the database may refuse the credentials of this process before it ends.
func SetRefusedFor(d time.Duration) { refusedFor = d }
