package protocol

import "time"

// Filled returns a text that contains the members of a wait.
func Filled(w *Wait, text string) string { return w.fill(text, time.UTC) }
