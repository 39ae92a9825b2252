package read

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A page of a listing must take no longer with ten million runs than with ten thousand, for any filter. No single index
// serves all filters, and the planners' statistics are not sufficient to choose one. So this file counts, up to a
// limit, how many runs each condition matches, and chooses the index for the database.

// fewRuns is the maximum number of matching runs that are read completely and sorted.
const (
	fewRuns = 2_000
	// fewRunsFactor is a factor for fewRuns. It applies if no other condition leads and the newest runs did not fill a
	// page.
	fewRunsFactor = 5
	// maxAlternatives is the maximum number of values of the leading condition that are listed separately.
	maxAlternatives = 16
	// rangePatience is the time for which the newest runs are searched for runs within a wide range of attribute
	// values, before the whole range is read.
	rangePatience = 20 * time.Millisecond
)

// Runs lists runs by their start, newest first, by the access path that reads least:
//
//   - A condition that few runs satisfy leads: all runs of its index range are read, sorted and filtered by the others.
//   - Else the runs are walked from the newest on, by an index in this order (of the namespace, a status, one value of
//     an attribute), a window at a time, and filtered by the conditions.
//   - Times of an attribute are walked as well, from the start of the newest run with the attribute: an index groups
//     the runs that start within 71 minutes, which are then sorted.
//   - A wide range of other values is read completely if the walk does not soon fill a page.
//   - A choice of which each part has an index is listed part by part.
//
// A walk that does not finish within the time budget returns the position that it reached.
func (r *reader) Runs(ctx context.Context, q store.RunQuery) (store.RunList, error) {
	l := r.listing(ctx, q)
	f, err := l.find(conditions(q), store.RunPosition{Start: q.AfterStart, Run: q.AfterRun})
	if err != nil {
		return store.RunList{}, wrapRead(err, "runs")
	}
	list := store.RunList{Heads: make([]engine.Head, len(f.rows)), SearchedTo: f.to}
	for i, m := range f.rows {
		list.Heads[i], err = record.ReadHead([]any{
			m.RunID, m.Namespace, m.WorkflowID, m.Type, m.Number, m.Status, m.Queue, m.StartedAt, value(m.ClosedAt), m.LastSeq,
			value(m.DueAt), value(m.Owner), value(m.BusinessKey), m.State, value(m.BuildID), value(m.Suspect), value(m.Held),
			value(m.Failing), value(m.Unserved), value(m.UnservedAt), value(m.UnservedWhy),
		})
		if err != nil {
			return store.RunList{}, err
		}
	}
	return list, nil
}

// listing is the state of one listing of runs.
type listing struct {
	*reader
	ctx      context.Context
	q        store.RunQuery
	few      int
	deadline time.Time           // deadline of a walk; zero: none
	trace    func(string)        // receives every statement; nil: no trace
	extent   map[string][2]int64 // by time attribute: the first and last time partition in which its runs start
	newest   map[string]int64    // by condition on times: the time partition in which its newest run starts
	ofBoth   map[string]bool     // by attribute: whether it has both times and other values
	// Of a condition on values: whether its runs are read, instead of the values of each run.
	selective map[string]bool
}

func (r *reader) listing(ctx context.Context, q store.RunQuery) *listing {
	l := &listing{
		reader: r, ctx: ctx, q: q, few: r.few,
		extent: map[string][2]int64{}, newest: map[string]int64{}, ofBoth: map[string]bool{}, selective: map[string]bool{},
	}
	if l.q.Limit <= 0 {
		l.q.Limit = defaultLimit
	}
	if q.Budget > 0 {
		l.deadline = time.Now().Add(q.Budget)
	}
	return l
}

// readStatement reads the rows of one statement.
func (l *listing) readStatement(db *gorm.DB, rows any) error {
	if l.trace != nil {
		dry := db.Session(&gorm.Session{DryRun: true}).Find(rows)
		l.trace(dry.Explain(dry.Statement.SQL.String(), dry.Statement.Vars...))
	}
	return db.Find(rows).Error
}

// found is the result for a part of a listing: the runs before the position to. The position is zero if there are no
// more runs or the page is full.
type found struct {
	rows []RunModel
	to   store.RunPosition
}

// conditions returns all conditions of a query as one list, with conditions that follow from them.
func conditions(q store.RunQuery) []store.Condition {
	list := slices.Clone(q.Where)
	if q.Type != "" {
		list = append(list, store.Condition{Field: store.FieldType, Test: store.In, Values: []any{q.Type}})
	}
	if len(q.Statuses) > 0 {
		c := store.Condition{Field: store.FieldStatus, Test: store.In}
		for _, s := range q.Statuses {
			c.Values = append(c.Values, string(s))
		}
		list = append(list, c)
	}
	return addImplied(list)
}

// addImplied adds equivalent conditions that an index supports, for conditions that no index supports.
func addImplied(list []store.Condition) []store.Condition {
	for i, c := range list {
		switch {
		case c.Field == store.FieldStatus && (c.Test == store.NotIn || c.Not && c.Test == store.In):
			rest := store.Condition{Field: c.Field, Test: store.In}
			for _, s := range protocol.RunStatuses {
				if !slices.Contains(c.Values, any(string(s))) {
					rest.Values = append(rest.Values, string(s))
				}
			}
			list[i] = rest
		case c.Field == store.FieldClosed && c.Test == store.Absent:
			list = append(list, store.Condition{
				Field: store.FieldStatus, Test: store.In, Values: []any{string(protocol.RunRunning)},
			})
		case c.Field == store.FieldClosed && !c.Not: // no run ends before it starts
			switch c.Test {
			case store.Less, store.AtMost:
				list = append(list, store.Condition{Field: store.FieldStarted, Test: store.AtMost, Values: c.Values})
			case store.Between:
				list = append(list, store.Condition{Field: store.FieldStarted, Test: store.AtMost, Values: c.Values[1:]})
			}
		}
	}
	return list
}

// matchesFew reports whether a condition matches few runs because of its field, so that they need not be counted: a run
// ID matches one run, and a workflow ID few.
func matchesFew(c store.Condition) bool {
	return c.Test == store.In && !c.Not && len(c.Values) <= maxAlternatives &&
		(c.Field == store.FieldRun || c.Field == store.FieldWorkflow)
}

// orderedByStart reports whether an index contains the runs of each value of a condition in the order of their start.
func orderedByStart(c store.Condition) bool {
	if isStuckCondition(c) {
		return true
	}
	if c.Not || c.Test != store.In || len(c.Values) > maxAlternatives || isTimeCondition(c) {
		return false
	}
	switch c.Field {
	case store.FieldType, store.FieldQueue, store.FieldStatus, store.FieldBusinessKey, store.FieldAttribute,
		store.FieldBuild:
		return true
	}
	return false
}

// isStuckCondition reports whether c is the condition that a run is stuck. An index contains these runs in the order of
// their start.
func isStuckCondition(c store.Condition) bool {
	return c.Field == store.FieldStuck && c.Test == store.Present && !c.Not
}

// groupedByValue reports whether an index contains the runs of a condition next to each other, but not in the order of
// their start.
func groupedByValue(c store.Condition) bool {
	if c.Not || len(c.Any) > 0 || c.Test == store.NotIn || c.Test == store.Absent || matchesFew(c) || orderedByStart(c) {
		return false
	}
	switch c.Field {
	case store.FieldAttribute:
		return true
	case store.FieldClosed, store.FieldWorkflow, store.FieldBusinessKey, store.FieldType, store.FieldQueue,
		store.FieldBuild:
		return c.Test != store.Present
	}
	return false
}

// find lists the runs that follow a position and satisfy all conditions.
func (l *listing) find(where []store.Condition, after store.RunPosition) (found, error) {
	where, err := l.replaceIsPresent(where)
	if err != nil {
		return found{}, err
	}
	lead, n, err := l.mostSelective(where)
	if err != nil {
		return found{}, err
	}
	// A quarter of few is the size of the first window of a walk, which would not read fewer runs.
	if lead >= 0 && n <= l.few && (n <= l.few/4 || !orderedByStart(where[lead])) {
		return l.readAll(where, lead, after)
	}
	if leads := leadingConditions(where); len(leads) > 0 {
		return l.walk(where, leads, after, l.deadline)
	}
	if i := slices.IndexFunc(where, func(c store.Condition) bool { return allPartsIndexed(c.Any) }); i >= 0 {
		return l.choose(where, i, after)
	}
	if lead < 0 {
		return l.walk(where, nil, after, l.deadline)
	}
	if c := where[lead]; c.Test == store.Prefix {
		if c, err = l.expandPrefix(c); err != nil {
			return found{}, err
		}
		if orderedByStart(c) {
			return l.find(slices.Concat(where[:lead], []store.Condition{c}, where[lead+1:]), after)
		}
	}
	whole, soon := l.indexOnly(where, lead), time.Now().Add(rangePatience)
	if !whole {
		if n, err = l.count(where[lead], fewRunsFactor*l.few+1); err != nil {
			return found{}, err
		}
		if whole = n <= fewRunsFactor*l.few; whole && l.byEntries(where) {
			soon = time.Now() // reading the range is cheaper than a second window of the newest runs
		}
	}
	f, err := l.walk(where, nil, after, soon)
	if err != nil || f.to == (store.RunPosition{}) {
		return f, err
	}
	if whole {
		if err := l.recordSelective(where, lead); err != nil {
			return f, err
		}
		return l.readAll(where, lead, after)
	}
	if !l.deadline.IsZero() && l.deadline.Before(soon) {
		return f, nil
	}
	rest, err := l.walk(where, nil, f.to, l.deadline)
	return l.joined(f, rest), err
}

// indexOnly reports whether an index returns the page without reading rows of runs: the only condition is a range of an
// attribute.
func (l *listing) indexOnly(where []store.Condition, lead int) bool {
	return len(where) == 1 && l.q.Text == "" && where[lead].Field == store.FieldAttribute && groupedByValue(where[lead]) &&
		!isTimeCondition(where[lead])
}

// byEntries reports whether the index entries of attributes decide whether a run matches, so that rows of other runs
// need not be read.
func (l *listing) byEntries(where []store.Condition) bool {
	other := func(c store.Condition) bool { return c.Field != store.FieldAttribute || len(c.Any) > 0 }
	return l.q.Text == "" && !slices.ContainsFunc(where, other)
}

// recordSelective records the conditions, besides the leading one, that few runs satisfy. For these, intersecting two
// lists of index entries is faster than checking each run of one list.
func (l *listing) recordSelective(where []store.Condition, lead int) error {
	for i, c := range where {
		if i == lead || c.Field != store.FieldAttribute || !groupedByValue(c) || isTimeCondition(c) {
			continue
		}
		n, err := l.count(c, fewRunsFactor*l.few+1)
		if err != nil {
			return err
		}
		l.selective[rangeName(c)] = n <= fewRunsFactor*l.few
	}
	return nil
}

// mostSelective returns the position of the condition that the fewest runs satisfy, or -1 if there is none, and the
// number of these runs.
func (l *listing) mostSelective(where []store.Condition) (best, least int, err error) {
	best = -1
	for i, c := range where {
		var n int
		switch {
		case matchesFew(c):
			return i, 0, nil
		case walkable(c) && len(where) == 1 && l.q.Text == "":
			return i, l.few + 1, nil // the index is in the order of the list: its first entries are the page
		case orderedByStart(c), groupedByValue(c):
			n, err = l.count(c, l.few+1)
		default:
			continue
		}
		if err != nil {
			return -1, 0, err
		}
		if best < 0 || n < least {
			best, least = i, n
		}
	}
	return best, least, err
}

// leadingConditions returns the positions of the conditions by whose index a listing can be read, cheaper ones first.
func leadingConditions(where []store.Condition) (leads []int) {
	for i, c := range where {
		switch {
		case orderedByStart(c):
			leads = slices.Insert(leads, 0, i)
		case isTimeCondition(c):
			leads = append(leads, i)
		}
	}
	return leads
}

// walkable reports whether the index of a condition contains its runs, or those of one time partition, in the order of
// the list.
func walkable(c store.Condition) bool { return orderedByStart(c) || isTimeCondition(c) }

// rangeName returns the key under which facts about a range are stored.
func rangeName(c store.Condition) string { return fmt.Sprint(c.Name, c.Test, c.Values) }

// expandPrefix replaces a condition on the prefix of a text by a condition on the existing texts with that prefix,
// unless there are many.
func (l *listing) expandPrefix(c store.Condition) (store.Condition, error) {
	entries, what := l.indexOf(c)
	from := bounds(c)
	all, err := l.distinctValues(entries.Where(what+" >= ?", from[0]), what, from[1], maxAlternatives+1)
	if err != nil || len(all) > maxAlternatives {
		return c, err
	}
	is := store.Condition{Field: c.Field, Name: c.Name, Test: store.In}
	for _, text := range all {
		is.Values = append(is.Values, text)
	}
	return is, nil
}

// replaceIsPresent replaces the condition "is present" on a time attribute by a range that includes all times, because
// an index supports ranges.
func (l *listing) replaceIsPresent(where []store.Condition) ([]store.Condition, error) {
	where = slices.Clone(where)
	for i, c := range where {
		if c.Field != store.FieldAttribute || c.Test != store.Present || c.Not {
			continue
		}
		first, last, err := l.partsOf(c.Name)
		if err != nil {
			return nil, err
		}
		if first > last {
			continue
		}
		// The ORDER BY makes PostgreSQL use the index; without it PostgreSQL may scan all rows.
		var others []int
		if err := l.readStatement(l.values(c).Select("1").Order("x.value").Limit(1), &others); err != nil {
			return nil, err
		}
		if l.ofBoth[c.Name] = len(others) > 0; len(others) == 0 {
			where[i] = store.Condition{Field: c.Field, Name: c.Name, Test: store.AtLeast, Values: []any{"d"}}
		}
	}
	return where, nil
}

// indexOf returns the index of a condition, and the SQL expression that it indexes.
func (l *listing) indexOf(c store.Condition) (of *gorm.DB, what string) {
	if c.Field == store.FieldAttribute {
		return l.values(c), "x.value"
	}
	from := "runs AS x"
	if isStuckCondition(c) {
		from += l.indexHint(c)
	}
	return l.gorm.Table(from).Where("x.namespace = ?", l.q.Namespace), "x." + string(c.Field)
}

// count returns the number of entries of a condition's index, up to most. It stops where a higher count would not
// change the choice, so it never costs more than the choice can save.
func (l *listing) count(c store.Condition, most int) (int, error) {
	if isTimeCondition(c) {
		all := 0
		for _, one := range singleValues(c) {
			_, n, _, err := l.parts(one, nil, store.RunPosition{}, store.RunPosition{}, most-all)
			if all += n; err != nil || all >= most {
				return all, err
			}
		}
		return all, nil
	}
	of, what := l.indexOf(c)
	entries := addComparison(of, what, c).Select("1 AS one").Limit(most)
	var n []int
	err := l.readStatement(l.list(l.ctx, 1).Table("(?) AS y", entries).Select("count(*)"), &n)
	if err != nil || len(n) != 1 {
		return 0, err
	}
	return n[0], nil
}

// readAll reads all runs that satisfy a condition, and sorts them.
func (l *listing) readAll(where []store.Condition, lead int, after store.RunPosition) (found, error) {
	read := func(by order, until store.RunPosition) ([]RunModel, error) {
		return l.rows(where, lead, where[lead], by, after, until)
	}
	if l.indexOnly(where, lead) { // finding the bound costs an eighth of sorting the runs of all values
		until, err := l.pageBound(where[lead], after)
		if err != nil {
			return found{}, err
		}
		rows, err := read(topWithDuplicates, until)
		all := len(rows) < 2*l.q.Limit
		if f := l.joined(found{}, found{rows: rows}); err != nil || all || len(f.rows) == l.q.Limit {
			return f, err
		}
	}
	if isTimeCondition(where[lead]) {
		var rows []RunModel
		for _, one := range singleValues(where[lead]) {
			some, err := l.rows(where, lead, one, allSorted, after, store.RunPosition{})
			if err != nil {
				return found{}, err
			}
			rows = append(rows, some...)
		}
		return l.joined(found{}, found{rows: rows}), nil
	}
	rows, err := read(allSorted, store.RunPosition{})
	return found{rows: rows}, err
}

// pageBound returns a position such that at least two pages of a range's entries come before it. It derives the
// position from the entries at both ends of the range. Entries after it are skipped without sorting, which is most of
// the cost of a wide range, above all if values rise with the start times, so that each entry is newer than all earlier
// ones. It returns zero if there is no such bound.
func (l *listing) pageBound(c store.Condition, after store.RunPosition) (until store.RunPosition, err error) {
	for _, way := range []string{"DESC", "ASC"} {
		at, err := l.nth(l.endOfRange(c, way, after, 2*l.few), 2*l.q.Limit)
		if err != nil {
			return until, err
		}
		if until.Before(at) {
			until = at
		}
	}
	return until, nil
}

// walk reads the runs of a condition in the order of the list; without a condition, all runs of the namespace. If
// several conditions can lead, it uses for each window the condition whose window ends furthest back, because this
// skips most runs that do not satisfy the others.
func (l *listing) walk(
	where []store.Condition, leads []int, after store.RunPosition, deadline time.Time,
) (f found, err error) {
	if len(leads) == 0 {
		leads = []int{-1}
	}
	lead := leads[0]
	// Windows grow: a filter that many runs satisfy is answered by the first window, and a filter that few runs satisfy
	// does not need thousands of statements.
	for size := max(l.few/4, 1); ; {
		began := time.Now()
		var end store.RunPosition
		if l.filters(where, lead) || lead >= 0 && isTimeCondition(where[lead]) {
			var there bool
			if after, there, err = l.skipTo(where, after); err != nil || !there {
				return found{rows: f.rows}, err
			}
			if lead, end, err = l.furthestWindow(where, leads, after, size); err != nil {
				return f, err
			}
		}
		var rows []RunModel
		for _, one := range alternatives(where, lead) {
			some, err := l.rows(where, lead, one, byIndex, after, end)
			if err != nil {
				return f, err
			}
			rows = append(rows, some...)
		}
		f = l.joined(f, found{rows, end})
		now := time.Now()
		if f.to == (store.RunPosition{}) || !deadline.IsZero() && now.After(deadline) {
			return f, nil
		}
		after = end
		next := min(4*size, 8*l.few)
		if !deadline.IsZero() {
			next = min(next, fitting(size, now.Sub(began), deadline.Sub(now)))
		}
		size = max(next, l.few/4, 1)
	}
}

// fitting returns how many runs can be read within a time, if reading a number of runs took another time.
func fitting(runs int, took, in time.Duration) int {
	return int(min(float64(runs)*float64(in)/float64(max(took, 1)), math.MaxInt32))
}

// furthestWindow returns the end of the window of n runs that reaches furthest back in the list, and its condition. A
// window that contains all remaining runs has no end.
func (l *listing) furthestWindow(
	where []store.Condition, leads []int, after store.RunPosition, size int,
) (lead int, end store.RunPosition, err error) {
	for i, one := range leads {
		to, err := l.window(where, alternatives(where, one), after, size)
		if err != nil {
			return lead, end, err
		}
		if i == 0 || to.Before(end) {
			lead, end = one, to
		}
		if end == (store.RunPosition{}) {
			break
		}
	}
	return lead, end, nil
}

// skipTo returns how far a listing may jump: to the first run after a position that satisfies every condition whose
// index contains its runs in order. A search for runs of an old build, for example, then does not read the newer runs
// of other builds. skip returns false if there is no such run.
func (l *listing) skipTo(where []store.Condition, after store.RunPosition) (store.RunPosition, bool, error) {
	for i, c := range where {
		if !walkable(c) {
			continue
		}
		var first store.RunPosition
		for _, one := range alternatives(where, i) {
			at, err := l.first(one, where, after, first)
			if err != nil {
				return after, false, err
			}
			if first.Before(at) {
				first = at
			}
		}
		if first == (store.RunPosition{}) {
			return after, false, nil
		}
		first.Run += "~" // a position directly before the run, so that the run is included
		if after == (store.RunPosition{}) || first.Before(after) {
			after = first
		}
	}
	return after, true, nil
}

// first returns the position of the first run of a walk between two positions, or zero if there is no run between them.
func (l *listing) first(
	one store.Condition, where []store.Condition, after, until store.RunPosition,
) (store.RunPosition, error) {
	if isTimeCondition(one) { // the first time partition with runs contains it
		_, _, end, err := l.parts(one, where, after, until, 1)
		if err != nil {
			return end, err
		}
		if until.Before(end) {
			until = end
		}
	}
	way, err := l.indexQuery(one, where, after, until)
	if err != nil {
		return store.RunPosition{}, err
	}
	return l.nth(way, 1)
}

// nth returns the position of the nth index entry of a walk, or zero if there are fewer.
func (l *listing) nth(way *gorm.DB, n int) (store.RunPosition, error) {
	var at []struct {
		StartedAt int64
		RunID     string
	}
	if err := l.readStatement(way.Limit(1).Offset(n-1), &at); err != nil || len(at) == 0 {
		return store.RunPosition{}, err
	}
	return store.RunPosition{Start: history.Micros(at[0].StartedAt), Run: at[0].RunID}, nil
}

// filters reports whether the conditions exclude some of the runs that a walk reads.
func (l *listing) filters(where []store.Condition, lead int) bool {
	for i, c := range where {
		if i != lead && !onlyLimitsWalk(c) {
			return true
		}
	}
	return l.q.Text != ""
}

// onlyLimitsWalk reports whether a condition does nothing but limit the start and the end of a walk.
func onlyLimitsWalk(c store.Condition) bool {
	switch c.Test {
	case store.Less, store.AtMost, store.More, store.AtLeast, store.Between:
		return c.Field == store.FieldStarted && !c.Not
	}
	return false
}

// window returns the position up to which a walk reads the next size runs, or zero if fewer remain. With several
// indexes it returns the earliest of their positions.
func (l *listing) window(
	where, ways []store.Condition, after store.RunPosition, size int,
) (end store.RunPosition, err error) {
	for _, one := range ways {
		at, err := l.last(one, where, after, end, size)
		if err != nil {
			return end, err
		}
		if end.Before(at) { // the position of the previous index is a bound for the next one
			end = at
		}
	}
	return end, nil
}

// last returns the position of the last of the next size runs in one index between two positions, or the beginning of
// its time partition; zero if there are fewer runs.
func (l *listing) last(
	one store.Condition, where []store.Condition, after, until store.RunPosition, size int,
) (store.RunPosition, error) {
	if isTimeCondition(one) {
		_, _, end, err := l.parts(one, where, after, until, size)
		return end, err
	}
	way, err := l.indexQuery(one, where, after, until)
	if err != nil {
		return store.RunPosition{}, err
	}
	return l.nth(way, size)
}

// alternatives returns the conditions on single values of which the leading condition consists.
func alternatives(where []store.Condition, lead int) []store.Condition {
	if lead < 0 {
		return make([]store.Condition, 1)
	}
	return singleValues(where[lead])
}

// singleValues splits a condition on several values into conditions on one value each. A condition on a range stays
// whole: for a list of times, PostgreSQL would read a whole time partition.
func singleValues(c store.Condition) []store.Condition {
	if c.Test != store.In {
		return []store.Condition{c}
	}
	list := make([]store.Condition, len(c.Values))
	for i, v := range c.Values {
		list[i] = store.Condition{Field: c.Field, Name: c.Name, Test: store.In, Values: []any{v}}
	}
	return list
}

// choose lists each part of a choice (conditions joined with OR) separately. One statement with the whole choice could
// use no index, although there may be an index for each part.
func (l *listing) choose(where []store.Condition, at int, after store.RunPosition) (all found, err error) {
	rest := slices.Delete(slices.Clone(where), at, at+1)
	var rows []RunModel
	for _, part := range where[at].Any {
		f, err := l.find(addImplied(slices.Concat(rest, part)), after)
		if err != nil {
			return all, err
		}
		rows = append(rows, f.rows...)
		if all.to.Before(f.to) {
			all.to = f.to
		}
	}
	if to := all.to; to != (store.RunPosition{}) { // there may be more runs after that position
		rows = slices.DeleteFunc(rows, func(m RunModel) bool { return position(m).Before(to) })
	}
	return l.joined(found{}, found{rows, all.to}), nil
}

// allPartsIndexed reports whether a choice can be listed part by part: each part must have a condition with an index.
func allPartsIndexed(parts [][]store.Condition) bool {
	for _, part := range parts {
		led := func(c store.Condition) bool {
			return matchesFew(c) || orderedByStart(c) || groupedByValue(c) || allPartsIndexed(c.Any)
		}
		if !slices.ContainsFunc(part, led) {
			return false
		}
	}
	return len(parts) > 0 && len(parts) <= maxAlternatives
}

// joined returns f with the runs of the next part of the listing, behind. It adds each run once, and ends when the page
// is full.
func (l *listing) joined(f, behind found) found {
	slices.SortFunc(behind.rows, func(x, y RunModel) int { return position(y).Compare(position(x)) })
	behind.rows = slices.CompactFunc(behind.rows, func(x, y RunModel) bool { return x.RunID == y.RunID })
	f = found{append(f.rows, behind.rows...), behind.to}
	if len(f.rows) >= l.q.Limit {
		f = found{rows: f.rows[:l.q.Limit]}
	}
	return f
}

// position returns the position of a run in listings.
func position(m RunModel) store.RunPosition {
	return store.RunPosition{Start: history.Micros(m.StartedAt), Run: m.RunID}
}
