package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

const (
	schedulesPath = "/api/schedules"
	scheduleIDArg = "schedule ID"
)

func schedulePath(id string) string { return schedulesPath + "/" + url.PathEscape(id) }

func (p *program) schedulesCommand() *cobra.Command {
	return p.group("schedules", "List, create and change schedules of workflows and activities", p.listSchedules,
		&cobra.Command{Use: "describe ID", Short: "Show a schedule", Args: oneArg(scheduleIDArg), RunE: p.describeSchedule},
		p.createSchedule(), p.changeSchedule(),
		p.noteCommand("pause", "Pause a schedule"),
		p.noteCommand("resume", "Resume a schedule; missed times are not made up for"),
		p.triggerSchedule(), p.backfillSchedule(),
		&cobra.Command{
			Use: "delete ID", Short: "Delete a schedule; runs that it started continue", Args: oneArg(scheduleIDArg),
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodDelete, schedulePath(args[0]), nil, p.scheduleReceipt)
			},
		},
		&cobra.Command{
			Use: "history ID", Short: "List the past firings of a schedule", Args: oneArg(scheduleIDArg),
			RunE: p.scheduleHistory,
		},
	)
}

func (p *program) listSchedules(c *cobra.Command, _ []string) error {
	return list(p, c, listing{path: schedulesPath, member: "schedules", page: 200},
		table.Row{"schedule", "type", "status", "times", "overlap", "fired", "skipped", "last", "next"},
		func(v protocol.ScheduleView) table.Row {
			return table.Row{
				v.ScheduleID, typeOf(v.Kind, v.WorkflowType), v.Status, firingTimes(v.Spec), v.Overlap, v.Fires, v.Info.Skipped,
				stampOf(v.LastFire), stampOf(v.NextFire),
			}
		})
}

// firingTimes describes the firing times of a schedule in a few words.
func firingTimes(s protocol.ScheduleSpec) string {
	all := append([]string(nil), s.Cron...)
	for _, i := range s.Intervals {
		all = append(all, "every "+durationText(i.Every))
	}
	if s.TimeZone != "" && s.TimeZone != "UTC" {
		all = append(all, s.TimeZone)
	}
	return strings.Join(all, ", ")
}

// durationText formats an ISO duration as Go does: "1h30m" for "PT1H30M". Durations with days or months are unchanged.
func durationText(iso string) string {
	d, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(iso, "PT")))
	if err != nil {
		return iso
	}
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func (p *program) describeSchedule(c *cobra.Command, args []string) error {
	return send(p, c, http.MethodGet, schedulePath(args[0]), nil, func(v protocol.ScheduleView) error {
		return p.facts(
			fact{"schedule", v.ScheduleID},
			fact{"starts", typeWithKind(v.Kind, v.WorkflowType)},
			fact{"session", v.Action.SessionID},
			fact{"queue", v.Action.TaskQueue},
			fact{"input", jsonText(v.Action.Input)},
			fact{"times", firingTimes(v.Spec)},
			fact{"status", v.Status},
			fact{"note", stringOf(v.Note)},
			fact{"overlap", v.Overlap},
			fact{
				"fired", fmt.Sprintf("%d, failed %d, skipped %d, buffered %d", v.Fires, v.Failures, v.Info.Skipped, v.Info.Buffered),
			},
			fact{"remaining", stringOf(v.Remaining)},
			fact{"last", stampOf(v.LastFire)},
			fact{"next", stampOf(v.NextFire)},
			fact{"latest workflow", stringOf(v.Latest)},
		)
	})
}

// scheduleFlags holds the flags that define a schedule; only flags that were set are sent.
type scheduleFlags struct {
	cron, every, headers                    []string
	zone, kind, queue, input, overlap, note string
	activity, reuse, conflict               string
	limits                                  activityLimits
	jitter                                  time.Duration
	runs                                    int64
}

func (s *scheduleFlags) register(p *program, c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&s.cron, "cron", nil, "cron expression with five fields, or a shorthand such as @hourly; may be repeated")
	f.StringArrayVar(&s.every, "every", nil, "interval between firings, such as 30m; may be repeated")
	f.StringVar(&s.zone, "timezone", "", "time zone of the cron expressions; default: UTC")
	f.StringVar(&s.kind, "type", "", "type of the workflow to start")
	f.StringVar(&s.activity, "activity", "", "type of the activity to start, instead of a workflow")
	s.limits.flags(c)
	f.StringVar(&s.queue, "queue", "", "task queue of the started run; default: default")
	f.StringVar(&s.input, "input", "", inputHelp)
	headerFlag(c, &s.headers)
	f.StringVar(
		&s.overlap, "overlap", "", "overlap policy: skip, buffer_one, buffer_all, allow_all, cancel_other or terminate_other; default: skip",
	)
	f.StringVar(
		&s.reuse, "reuse-policy", "",
		"whether a backfill fires again for a time whose run has closed: reject, allow-after-failure or allow; "+
			"default: reject",
	)
	f.StringVar(
		&s.conflict, "conflict-policy", "",
		"what a backfill does for a time whose run is open: fail, use-existing (both skip the time) or "+
			"terminate-existing; default: fail",
	)
	f.DurationVar(&s.jitter, "jitter", 0, "maximum random delay of each firing")
	f.Int64Var(&s.runs, "max-runs", 0, "number of firings after which the schedule ends")
	f.StringVar(&s.note, "note", "", "note, shown to other operators")
	offerFlag(c, "type", flagOf(p.workflowTypes))
	offerFlag(c, "activity", flagOf(p.activityTypes))
}

// nameCronFlag names the flag of a cron expression that the app rejected.
func (s *scheduleFlags) nameCronFlag(err error) error {
	refused, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		return err
	}
	for i, text := range s.cron {
		if wrong := refused.Fields[fmt.Sprintf("spec.cron_expressions.%d", i)]; len(wrong) > 0 {
			return fmt.Errorf("--cron %q: %s", text, strings.Join(wrong, "; "))
		}
	}
	return err
}

func (s *scheduleFlags) request(p *program, c *cobra.Command) (in protocol.ScheduleRequest, err error) {
	given := c.Flags().Changed
	if given("cron") || given("every") || given("timezone") {
		in.Spec = &protocol.ScheduleSpec{Cron: s.cron, TimeZone: s.zone}
		for _, e := range s.every {
			d, err := time.ParseDuration(e)
			n, wrong := seconds("every", d)
			if err != nil || wrong != nil || n == 0 {
				return in, usageError{fmt.Errorf("--every must be a whole number of seconds, such as 90s or 2h, not %q", e)}
			}
			in.Spec.Intervals = append(in.Spec.Intervals, protocol.ScheduleInterval{Every: fmt.Sprintf("PT%dS", n)})
		}
	}
	if in.Action, err = s.action(p, c); err != nil {
		return in, err
	}
	if given("jitter") {
		n, err := seconds("jitter", s.jitter)
		if err != nil {
			return in, err
		}
		in.Jitter = &n
	}
	for name, to := range map[string]**string{"overlap": &in.Overlap, "note": &in.Note} {
		if given(name) {
			v := map[string]string{"overlap": s.overlap, "note": s.note}[name]
			*to = &v
		}
	}
	if given("max-runs") {
		in.MaxRuns = &s.runs
	}
	return in, nil
}

// action returns the schedule's action, or nil if no flag concerns it.
func (s *scheduleFlags) action(p *program, c *cobra.Command) (*protocol.ScheduleAction, error) {
	a := &protocol.ScheduleAction{WorkflowType: s.kind, ActivityType: s.activity, TaskQueue: s.queue}
	a.ReusePolicy, a.ConflictPolicy = s.reuse, s.conflict
	if err := s.limits.apply(c, &a.ActivityOptions); err != nil {
		return nil, err
	}
	limited := !reflect.ValueOf(a.ActivityOptions).IsZero()
	switch given := c.Flags().Changed; {
	case limited && s.activity == "":
		return nil, usageError{errors.New("--session, --affinity, timeouts and retries apply to activities only; set --activity")}
	case s.kind != "" && s.activity != "":
		return nil, usageError{errors.New("a schedule starts a workflow (--type) or an activity (--activity), not both")}
	case s.kind == "" && s.activity == "" &&
		(given("queue") || given("input") || given("header") || given("reuse-policy") || given("conflict-policy")):
		return nil, usageError{
			errors.New("--queue, --input, --header, --reuse-policy and --conflict-policy require --type or --activity"),
		}
	case s.kind == "" && s.activity == "":
		return nil, nil
	}
	var err error
	if a.Headers, err = headers(s.headers); err != nil {
		return nil, err
	}
	a.Input, err = p.arguments(c, s.input)
	return a, err
}

func (p *program) createSchedule() *cobra.Command {
	var s scheduleFlags
	var paused bool
	c := &cobra.Command{
		Use: "create ID", Short: "Create a schedule", Args: oneArg(scheduleIDArg),
		Example: "  sojourn schedules create nightly --cron '0 2 * * *' --timezone Europe/Berlin --type report --input '[\"all\"]'\n" +
			"  sojourn schedules create warm --every 5m --activity load --session gpu --max-attempts 3 --backoff 10s",
		RunE: func(c *cobra.Command, args []string) error {
			in, err := s.request(p, c)
			if err != nil {
				return err
			}
			if in.Spec == nil || in.Action == nil {
				return usageError{fmt.Errorf("%s requires --type or --activity, and --cron or --every", c.CommandPath())}
			}
			in.ID = args[0]
			if paused {
				in.Paused = &paused
			}
			return s.nameCronFlag(send(p, c, http.MethodPost, schedulesPath, in, p.scheduleReceipt))
		},
	}
	s.register(p, c)
	c.Flags().BoolVar(&paused, "paused", false, "create the schedule paused")
	return c
}

func (p *program) changeSchedule() *cobra.Command {
	var s scheduleFlags
	c := &cobra.Command{
		Use: "update ID", Short: "Change a schedule; values without a flag are kept", Args: oneArg(scheduleIDArg),
		Long: "Change a schedule; values without a flag are kept.\n\n" +
			"The times (--cron, --every, --timezone) are replaced together, and so is the action\n" +
			"(--type or --activity, --queue, --input and the options of an activity).",
		RunE: func(c *cobra.Command, args []string) error {
			in, err := s.request(p, c)
			if err != nil {
				return err
			}
			return s.nameCronFlag(send(p, c, http.MethodPut, schedulePath(args[0]), in, p.scheduleReceipt))
		},
	}
	s.register(p, c)
	return c
}

func (p *program) noteCommand(verb, short string) *cobra.Command {
	var note string
	c := &cobra.Command{
		Use: verb + " ID", Short: short, Args: oneArg(scheduleIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			in := map[string]string{}
			if note != "" {
				in["note"] = note
			}
			return send(p, c, http.MethodPost, schedulePath(args[0])+"/"+verb, in, p.scheduleReceipt)
		},
	}
	c.Flags().StringVar(&note, "note", "", "note, shown to other operators")
	return c
}

func overlapBody(overlap string) map[string]string {
	in := map[string]string{}
	if overlap != "" {
		in["overlap_policy"] = overlap
	}
	return in
}

const overlapHelp = "overlap policy of this firing; default: the schedule's"

func (p *program) triggerSchedule() *cobra.Command {
	var overlap string
	c := &cobra.Command{
		Use: "trigger ID", Short: "Fire a schedule now", Args: oneArg(scheduleIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			return send(p, c, http.MethodPost, schedulePath(args[0])+"/trigger", overlapBody(overlap), p.scheduleReceipt)
		},
	}
	c.Flags().StringVar(&overlap, "overlap", "", overlapHelp)
	return c
}

func (p *program) backfillSchedule() *cobra.Command {
	var overlap string
	c := &cobra.Command{
		Use: "backfill ID FROM TO", Short: "Fire a schedule for its times in a past interval",
		Args:    exactArgs(scheduleIDArg, "start time", "end time"),
		Example: "  sojourn schedules backfill nightly 2026-11-01T00:00:00Z 2026-11-08T00:00:00Z",
		RunE: func(c *cobra.Command, args []string) error {
			in := overlapBody(overlap)
			in["start_time"], in["end_time"] = args[1], args[2]
			return send(p, c, http.MethodPost, schedulePath(args[0])+"/backfill", in, p.scheduleReceipt)
		},
	}
	c.Flags().StringVar(&overlap, "overlap", "", overlapHelp)
	return c
}

func (p *program) scheduleReceipt(r protocol.ScheduleReceipt) error {
	text := r.Outcome + " " + r.ScheduleID
	for _, more := range []string{r.WorkflowID, r.Reason} {
		if more != "" {
			text += ", " + more
		}
	}
	if r.Attempted != nil {
		text += fmt.Sprintf(", %d firings", *r.Attempted)
	}
	if err := p.printf("%s", text); err != nil {
		return err
	}
	for _, f := range r.Results {
		if err := p.printf("  %s %s %s", stamp(f.At), f.Outcome, f.WorkflowID+f.Reason); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) scheduleHistory(c *cobra.Command, args []string) error {
	return list(p, c, listing{
		path: schedulePath(args[0]) + "/history", member: "events", query: url.Values{"limit": {"1000"}},
	},
		table.Row{"sequence", "at", "event", "workflow"},
		func(e protocol.ScheduleEvent) table.Row {
			return table.Row{e.Sequence, stamp(e.At), e.Type, stringOf(e.WorkflowID)}
		})
}
