package activity

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Options configure an activity. The zero value runs the activity in the worker's process without recovery.
type Options struct {
	// Isolated runs the activity in a sandbox executor instead of the worker's own process.
	Isolated bool
	// Recovery makes the worker rebuild lost session state within the attempt. nil: the workflow receives the loss as
	// an error.
	Recovery *SessionRecoveryPolicy
}

// Isolated are the options of an activity that runs in a sandbox executor.
var Isolated = Options{Isolated: true}

// SessionErrorKind is the kind of error that triggers a recovery policy.
type SessionErrorKind string

// Lost is the only kind: an error that matches ErrSessionLost.
const Lost SessionErrorKind = "lost"

// SessionRecoveryPolicy makes the worker rebuild a session's state when the activity reports that the state is lost.
// The worker then runs the activity again, in the same attempt, session and epoch. The rebuild activity itself is not
// recovered.
type SessionRecoveryPolicy struct {
	OnError         SessionErrorKind // kind of error that triggers the policy; empty: Lost
	RebuildActivity string           // registered name of the rebuild activity
	MaxAutoRetries  int              // maximum number of retries of the activity after a rebuild; 0: 1
	// RebuildArguments is the number of the activity's arguments that a rebuild activity in another language receives;
	// 0: 1. A rebuild activity in Go receives as many arguments as it has parameters.
	RebuildArguments int
	// ParallelRebuilds lets each activity that finds the state missing run its own rebuild. By default, activities of
	// one session that find the state missing at the same time share one rebuild.
	ParallelRebuilds bool
	// SingleflightPerSession overrides ParallelRebuilds.
	//
	// Deprecated: rebuilds are shared by default.
	SingleflightPerSession bool
}

// Shared reports whether activities of one session that find the state missing at the same time share one rebuild.
func (p SessionRecoveryPolicy) Shared() bool { return p.SingleflightPerSession || !p.ParallelRebuilds }

// Check returns an error if the policy is invalid.
func (p SessionRecoveryPolicy) Check() error {
	switch {
	case p.OnError != "" && p.OnError != Lost:
		return errors.New("recovery policy: OnError is " + string(p.OnError) + ", want " + string(Lost))
	case p.RebuildActivity == "":
		return errors.New("recovery policy: RebuildActivity is empty")
	case p.MaxAutoRetries < 0:
		return errors.New("recovery policy: MaxAutoRetries is negative")
	case p.RebuildArguments < 0:
		return errors.New("recovery policy: RebuildArguments is negative")
	}
	return nil
}

// ParseRecovery parses the recovery policy of a handler in another language: an object with the members of a
// SessionRecoveryPolicy, spelled in the style of that language (rebuildActivity or rebuild_activity). By default,
// concurrent activities of a session share one rebuild.
func ParseRecovery(name string, raw []byte) (*SessionRecoveryPolicy, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, errors.New("the recovery policy is not an object")
	}
	p := &SessionRecoveryPolicy{}
	for member, value := range members {
		var err error
		switch strings.ToLower(strings.ReplaceAll(member, "_", "")) {
		case "onerror":
			err = json.Unmarshal(value, &p.OnError)
		case "rebuildactivity":
			err = json.Unmarshal(value, &p.RebuildActivity)
		case "maxautoretries":
			err = json.Unmarshal(value, &p.MaxAutoRetries)
		case "rebuildarguments":
			err = json.Unmarshal(value, &p.RebuildArguments)
		case "singleflightpersession":
			err = json.Unmarshal(value, &p.SingleflightPerSession)
			p.ParallelRebuilds = !p.SingleflightPerSession
		case "parallelrebuilds":
			err = json.Unmarshal(value, &p.ParallelRebuilds)
		default:
			err = errors.New("unknown member")
		}
		if err != nil {
			return nil, fmt.Errorf("recovery policy: %s: %w", member, err)
		}
	}
	if p.RebuildActivity == name {
		return nil, errSelf
	}
	return p, p.Check()
}

// errSelf reports a policy whose rebuild activity is the activity itself.
var errSelf = errors.New("recovery policy: an activity cannot be its own rebuild activity")

// Retries returns the maximum number of retries of the activity after a rebuild.
func (p SessionRecoveryPolicy) Retries() int { return max(1, p.MaxAutoRetries) }

// Merge merges options; later options have precedence.
func Merge(opts ...Options) Options {
	var all Options
	for _, o := range opts {
		all.Isolated = all.Isolated || o.Isolated
		if o.Recovery != nil {
			all.Recovery = o.Recovery
		}
	}
	return all
}
