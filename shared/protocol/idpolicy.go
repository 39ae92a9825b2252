package protocol

// Values of reuse_policy: whether the workflow ID of a closed run may be used again.
const (
	ReuseReject       = "reject"
	ReuseAfterFailure = "allow-after-failure" // the newest run failed, timed out, was cancelled or terminated
	ReuseAllow        = "allow"
)

// Values of conflict_policy: what a start does if a run of its workflow ID is open. duplicate_policy has the first two.
const (
	ConflictFail              = "fail"
	ConflictUseExisting       = "use-existing"
	ConflictTerminateExisting = "terminate-existing"
)

// HeaderIdempotencyKey is the header of a start whose repetition returns the run that it started.
const HeaderIdempotencyKey = "Idempotency-Key"

// MaxIdempotencyKey is the maximum length of the header's value in bytes.
const MaxIdempotencyKey = 255

// checkIDPolicies checks the policies for the workflow ID of a start.
func checkIDPolicies(duplicate, conflict string) error {
	if duplicate != "" && conflict != "" {
		return Invalid("conflict_policy", "cannot be combined with duplicate_policy; send only conflict_policy")
	}
	return nil
}
