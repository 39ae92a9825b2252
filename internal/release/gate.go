// Package release determines the release of this program and compares the releases of app and worker.
package release

import "fmt"

// Unreadable is the release of a program whose release could not be found.
const Unreadable = "0.0.0"

// These are the reasons of a verdict that stops dispatch; programs and metrics compare them.
const (
	ReasonMismatch   = "version_mismatch"   // the two releases differ in any part
	ReasonUnreadable = "version_unreadable" // neither release could be read, and the gate is strict
)

// Verdict is the result of Gate.
type Verdict struct {
	Allowed bool
	Reason  string // empty when allowed
	Message string // text with both releases; empty if dispatch is allowed without a warning
	// Unreadable marks a pair that only matches because neither release could be read. Whether or not dispatch is
	// allowed, it must be logged as an error and shown.
	Unreadable bool
}

// Gate reports whether a worker of one release may poll and lease tasks of an app of another release: only if the
// strings are equal. Two unreadable releases (Unreadable, or empty) are equal too, unless strict. Only polls and claims
// are gated. An app accepts completions, renewals and returns from any release, so that a worker can drain.
func Gate(app, worker string, strict bool) Verdict {
	app, worker = orUnreadable(app), orUnreadable(worker)
	switch {
	case app != worker:
		return Verdict{
			Reason:  ReasonMismatch,
			Message: fmt.Sprintf("app release %s, worker release %s: deploy the same release to both", name(app), name(worker)),
		}
	case app != Unreadable:
		return Verdict{Allowed: true}
	case strict:
		return Verdict{
			Reason:     ReasonUnreadable,
			Message:    fmt.Sprintf("app release %s, worker release %s: set SOJOURN_RELEASE on both", name(app), name(worker)),
			Unreadable: true,
		}
	}
	return Verdict{
		Allowed:    true,
		Message:    fmt.Sprintf("app release %s, worker release %s: assumed equal; set SOJOURN_RELEASE on both", name(app), name(worker)),
		Unreadable: true,
	}
}

func orUnreadable(release string) string {
	if release == "" {
		return Unreadable
	}
	return release
}

// name quotes a release, which may come from the other process, or describes a missing one.
func name(release string) string {
	if release == Unreadable {
		return `"` + Unreadable + `" (unreadable)`
	}
	return fmt.Sprintf("%.100q", release)
}
