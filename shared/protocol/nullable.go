package protocol

// The contract distinguishes an absent text from an empty one and never encodes a list as null. Go's zero values do
// neither.

// OrNil returns s for a nullable member: nil if s is empty.
func OrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// OrEmpty is a list that is encoded as [] and never as null.
func OrEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
