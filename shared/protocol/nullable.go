package protocol

// The contract tells a text that is not there from an empty one, and never shows a list as null. Go has neither.

// OrNil is a text as a nullable member: none when it is empty.
func OrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// OrEmpty is a list as a member that is never null.
func OrEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
