package engine

import (
	"fmt"
	"strings"
)

// reset resets the run of a script. The run of the script is then the new run.
func (s *stage) reset(drop bool, point ResetPoint) string {
	s.resets++
	id := fmt.Sprintf("%s%02d", testRun[:24], s.resets)
	r, err := PrepareReset(&s.run.Head, s.history, point, drop, id, "")
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error(), s.run.ID, "RUN") + "\n"
	}
	if s.run.Activities.Any(func(a Activity) bool {
		return s.run.staysOpenAfterClose(a) && a.SessionID != "" && a.Seq > r.commands
	}) {
		return "skipped: a stage has only one run, and its sessions would count the activity of the earlier one\n"
	}
	was, next, err := r.Decide(s.run, s.environment(), "ops", s.now)
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error(), s.run.ID, "RUN") + "\n"
	}
	out := s.take(was)
	return out + "resets to event " + fmt.Sprint(r.Point) + "\n" + s.take(next)
}
