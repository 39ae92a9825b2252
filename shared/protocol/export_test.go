package protocol

import "time"

// Filled is a text with the members of a wait.
func Filled(w *Wait, text string) string { return w.fill(text, time.UTC) }
