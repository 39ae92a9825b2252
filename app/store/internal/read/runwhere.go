package read

import (
	"math"
	"strings"

	"gorm.io/gorm"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
)

// The statements of a listing of runs; runlist.go decides which of them are used.

// indexQuery returns the query that reads one index between two positions, in the order of the listing. The index is
// that of the condition one.
func (l *listing) indexQuery(
	one store.Condition, where []store.Condition, after, until store.RunPosition,
) (*gorm.DB, error) {
	var db *gorm.DB
	switch {
	case isTimeCondition(one):
		parts, _, _, err := l.parts(one, where, after, until, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		db = addComparison(l.times(one.Name).Where(startPartition+" IN ?", parts), "x.value", one)
	case one.Field == store.FieldAttribute:
		db = addComparison(l.values(one), "x.value", one)
	default:
		db = l.gorm.Table("runs AS x" + l.indexHint(one))
		if l.q.Namespace != "" {
			db = db.Where("x.namespace = ?", l.q.Namespace)
		}
		if one.Field != "" {
			db = addComparison(db, "x."+string(one.Field), one)
		}
	}
	return between(db, "x.started_at", "x.run_id", where, after, until).Select("x.started_at, x.run_id").
		Order("x.started_at DESC, x.run_id DESC"), nil
}

// endOfRange selects n entries from one end of an attribute's range, by the index of values, if they come after a
// position of the list.
func (l *listing) endOfRange(c store.Condition, way string, after store.RunPosition, most int) *gorm.DB {
	some := addComparison(l.values(c), "x.value", c).
		Select("x.started_at, x.run_id").Order("x.value " + way + ", x.started_at " + way + ", x.run_id " + way).Limit(most)
	return between(l.list(l.ctx, 1).Table("(?) AS y", some), "y.started_at", "y.run_id", nil, after, store.RunPosition{}).
		Select("y.started_at, y.run_id").Order("y.started_at DESC, y.run_id DESC")
}

// indexHint names the index that a walk uses on SQLite. SQLite has no statistics of the number of runs per value: given
// two times, it would read all runs that started between them.
func (l *listing) indexHint(one store.Condition) string {
	if l.dialect.Shared || one.Field == "" || !orderedByStart(one) {
		return ""
	}
	return " INDEXED BY " + map[store.RunField]string{
		store.FieldType: "runs_type", store.FieldQueue: "runs_queue", store.FieldStatus: "runs_status",
		store.FieldBusinessKey: "runs_business_key", store.FieldBuild: "runs_build", store.FieldStuck: "runs_stuck",
	}[one.Field]
}

// values selects the index entries of an attribute whose values are no times.
func (l *listing) values(c store.Condition) *gorm.DB {
	of := l.gorm.Table("run_attributes AS x").Where("x.namespace = ? AND x.name = ?", l.q.Namespace, c.Name)
	if c.Test == store.Present && l.ofBoth[c.Name] {
		return of
	}
	return of.Where("substr(x.value, 1, 1) <> 'd'")
}

// times selects the index entries of an attribute whose values are times. The index run_attributes_time orders them by
// the time partition in which the runs start, and within a partition by value.
func (l *listing) times(name string) *gorm.DB {
	of := "run_attributes AS x"
	if !l.dialect.Shared {
		of += " INDEXED BY run_attributes_time"
	}
	return l.gorm.Table(of).Where("x.namespace = ? AND x.name = ? AND substr(x.value, 1, 1) = 'd'", l.q.Namespace, name)
}

// A time partition is 2^partitionBits microseconds long, 71 minutes. startPartition is the SQL expression for the
// partition in which a run starts.
const (
	partitionBits  = 32
	startPartition = "(x.started_at >> 32)"
)

// isTimeCondition reports whether a condition compares an attribute with times.
func isTimeCondition(c store.Condition) bool {
	if c.Field != store.FieldAttribute || c.Not {
		return false
	}
	switch c.Test {
	case store.In, store.Less, store.AtMost, store.More, store.AtLeast, store.Between:
		key, _ := c.Values[0].(string)
		return key != "" && key[0] == 'd'
	}
	return false
}

// parts returns time partitions between two positions that contain runs for a condition on times, newest first, until
// they contain most entries together; the number of these entries; and the end position, zero if there are no further
// partitions.
func (l *listing) parts(
	c store.Condition, where []store.Condition, after, until store.RunPosition, most int,
) (list []int64, sum int, end store.RunPosition, err error) {
	first, last, err := l.partsOf(c.Name)
	if err != nil || first > last {
		return nil, 0, end, err
	}
	low, high := startBounds(where)
	if after.Run != "" {
		high = min(high, after.Start.Micros())
	}
	if until.Run != "" {
		low = max(low, until.Start.Micros())
	}
	first, last = max(first, low>>partitionBits), min(last, high>>partitionBits)
	newest, known := l.newest[rangeName(c)]
	if known {
		last = min(last, newest)
	}
	entries := addComparison(l.times(c.Name), "x.value", c).Where(startPartition + " = b.part - 1")
	entries = between(entries, "x.started_at", "x.run_id", where, after, until).Select("1 AS one").Limit(most)
	var found []struct{ Part, N int64 }
	// Each statement finds the entries of the next older partition.
	err = l.readStatement(l.list(l.ctx, math.MaxInt32).Raw(
		"WITH RECURSIVE b (part, n, behind) AS (SELECT CAST(? AS BIGINT), CAST(0 AS BIGINT), CAST(0 AS BIGINT) UNION ALL "+
			"SELECT b.part - 1, (SELECT count(*) FROM (?) AS y), b.behind + b.n FROM b WHERE b.part > ? AND b.behind + b.n < ?) "+
			"SELECT part, n FROM b WHERE n > 0 ORDER BY part DESC",
		last+1, entries, first, most,
	), &found)
	if err != nil {
		return nil, 0, end, err
	}
	for _, f := range found {
		list, sum = append(list, f.Part), sum+int(f.N)
	}
	if !known && after.Run == "" && high == math.MaxInt64 {
		l.newest[rangeName(c)] = first
		if len(list) > 0 {
			l.newest[rangeName(c)] = list[0]
		}
	}
	if sum >= most {
		if at := list[len(list)-1]; at > first {
			end = store.RunPosition{Start: history.Micros(at << partitionBits), Run: "!"} // before any run of that time
		}
	}
	return list, sum, end, nil
}

// partsOf returns the first and the last time partition that contain runs with the time attribute name.
func (l *listing) partsOf(name string) (first, last int64, err error) {
	if of, known := l.extent[name]; known {
		return of[0], of[1], nil
	}
	one := l.times(name).Select(startPartition).Limit(1).Session(&gorm.Session{})
	var found []int64
	err = l.readStatement(l.list(l.ctx, 2).Raw( //nolint:mnd // the first and the last
		"SELECT part FROM (SELECT (?) AS part UNION ALL SELECT (?)) AS s WHERE part IS NOT NULL ORDER BY part",
		one.Order(startPartition), one.Order(startPartition+" DESC"),
	), &found)
	first, last = 0, -1
	if len(found) == 2 { //nolint:mnd // the first and the last
		first, last = found[0], found[1]
	}
	l.extent[name] = [2]int64{first, last}
	return first, last, err
}

// distinctValues returns at most most different values of an expression below a given one, in descending order: each is
// found in the index from the next higher one. in has no upper bound: of two bounds, SQLite uses the constant one for
// its index.
func (l *listing) distinctValues(in *gorm.DB, what string, below any, most int) (values []string, err error) {
	next := in.Select(what).Order(what + " DESC").Limit(1).Session(&gorm.Session{})
	err = l.readStatement(l.list(l.ctx, most).Raw(
		"WITH RECURSIVE s (v, n) AS (SELECT (?), 1 UNION ALL SELECT (?), n + 1 FROM s WHERE s.v IS NOT NULL AND n < ?) "+
			"SELECT v FROM s WHERE v IS NOT NULL",
		next.Where(what+" < ?", below), next.Where(what+" < s.v"), most,
	), &values)
	return values, err
}

// order is how the rows of a page are ordered.
type order int

const (
	byIndex           order = iota // in the order of the leading condition's index
	allSorted                      // all rows that the index returns are sorted
	topWithDuplicates              // twice a page is selected before duplicates are removed: a run occurs once per value
)

// rows returns a page of the runs between two positions that satisfy all conditions. The index of the condition at lead
// is used, with the alternative one of it.
func (l *listing) rows(
	where []store.Condition, lead int, one store.Condition, by order, after, until store.RunPosition,
) (rows []RunModel, err error) {
	db, id := l.list(l.ctx, l.q.Limit).Select("r.*"), "r.run_id"
	if one.Field == store.FieldAttribute {
		id = "a.run_id" // conditions on other attributes are then checked before the run's row is read
		found, err := l.indexQuery(one, where, after, until)
		if err != nil {
			return nil, err
		}
		switch {
		case by == allSorted, isTimeCondition(one):
			found = found.Distinct()
		case by == topWithDuplicates:
			found, db = found.Limit(2*l.q.Limit), db.Limit(2*l.q.Limit)
		}
		// The words CROSS JOIN make SQLite keep the order of the join.
		db = db.Table("(?) AS a CROSS JOIN runs AS r", found).Where("r.run_id = a.run_id").
			Order("a.started_at DESC, a.run_id DESC")
	} else {
		start := "r.started_at"
		if by == allSorted { // an expression, so that no index is used for this order: it would read all runs
			start = "(r.started_at + 0)"
		}
		indexed := ""
		if by == byIndex {
			indexed = l.indexHint(one)
		}
		db = between(db.Table("runs AS r"+indexed), start, "r.run_id", where, after, until).
			Order(start + " DESC, r.run_id DESC")
		if l.q.Namespace != "" {
			db = db.Where("r.namespace = ?", l.q.Namespace)
		}
		if one.Field != "" {
			db = addComparison(db, "r."+string(one.Field), one)
		}
	}
	for i, c := range where {
		if i != lead && !onlyLimitsWalk(c) {
			db = l.narrow(db, c, id)
		}
	}
	if l.q.Text != "" { // only a complete run ID matches: a part of a random ID is contained in many IDs
		db = db.Where(`(lower(r.workflow_id) LIKE ? ESCAPE '\' OR lower(r.business_key) LIKE ? ESCAPE '\' `+
			`OR r.run_id IN (?, ?))`,
			like(l.q.Text), like(l.q.Text), l.q.Text, strings.ToUpper(l.q.Text))
	}
	return rows, l.readStatement(db, &rows)
}

// between selects the runs between two positions that start within the requested times. It uses one bound per side: of
// two bounds, SQLite uses one for its index and rereads everything between them for each page.
func between(
	db *gorm.DB, start, id string, where []store.Condition, after, until store.RunPosition,
) *gorm.DB {
	low, high := startBounds(where)
	switch at := after.Start.Micros(); {
	case after.Run != "" && at <= high:
		db = db.Where(start+" <= ? AND ("+start+" < ? OR "+id+" < ?)", at, at, after.Run)
	case high < math.MaxInt64:
		db = db.Where(start+" <= ?", high)
	}
	switch at := until.Start.Micros(); {
	case until.Run != "" && at >= low:
		db = db.Where(start+" >= ? AND ("+start+" > ? OR "+id+" >= ?)", at, at, until.Run)
	case low > math.MinInt64:
		db = db.Where(start+" >= ?", low)
	}
	return db
}

// startBounds returns the first and the last microsecond in which runs that satisfy the conditions may start.
func startBounds(where []store.Condition) (low, high int64) {
	low, high = math.MinInt64, math.MaxInt64
	for _, c := range where {
		if !onlyLimitsWalk(c) {
			continue
		}
		at := db.Int(c.Values[0])
		switch c.Test {
		case store.Less:
			high = min(high, at-1)
		case store.AtMost:
			high = min(high, at)
		case store.More:
			low = max(low, at+1)
		case store.AtLeast:
			low = max(low, at)
		case store.Between:
			low, high = max(low, at), min(high, db.Int(c.Values[1]))
		}
	}
	return low, high
}

// narrow adds a condition to a query of runs; id is the expression of the run ID.
func (l *listing) narrow(db *gorm.DB, c store.Condition, id string) *gorm.DB {
	if len(c.Any) > 0 {
		return db.Where(l.choice(c.Any, id))
	}
	if c.Field == store.FieldAttribute {
		return l.narrowAttribute(db, c, id)
	}
	if l.dialect.Shared {
		return addComparison(db, "r."+string(c.Field), c)
	}
	// SQLite has no statistics of the number of runs per value. A plus sign before the column prevents SQLite from
	// choosing the index of that column instead of the selective one.
	return addComparison(db, "+r."+string(c.Field), c)
}

// choice combines lists of conditions with OR; the conditions of one list are joined with AND.
func (l *listing) choice(lists [][]store.Condition, id string) *gorm.DB {
	any := l.gorm.Session(&gorm.Session{NewDB: true})
	for i, list := range lists {
		all := l.gorm.Session(&gorm.Session{NewDB: true})
		for _, c := range list {
			all = l.narrow(all, c, id)
		}
		if i == 0 {
			any = any.Where(all)
		} else {
			any = any.Or(all)
		}
	}
	return any
}

// narrowAttribute adds a condition on an attribute of the run.
func (l *listing) narrowAttribute(db *gorm.DB, c store.Condition, id string) *gorm.DB {
	if !c.Not && l.selective[rangeName(c)] {
		return db.Where(id+" IN (?)", addComparison(l.values(c), "x.value", c).Select("x.run_id"))
	}
	has := func() *gorm.DB {
		return l.gorm.Table("run_attributes AS y").Select("1").Where("y.run_id = "+id+" AND y.name = ?", c.Name)
	}
	// prevents SQLite from converting it to a join, and evaluates it before the run's row is read
	there := "EXISTS (? LIMIT 1)"
	if l.dialect.Shared {
		// The condition is evaluated run by run, by the key of the table. PostgreSQL would convert it to a join and
		// read all runs that have the value, for each window; with the namespace in the condition and a generic plan it
		// would even do so for each run. It does not convert a subquery with an OFFSET.
		there = "EXISTS (? OFFSET 0)"
	}
	if c.Not {
		c.Not = false
		return db.Where(there+" AND NOT "+there, has(), addComparison(has(), "y.value", c))
	}
	switch c.Test {
	case store.Present:
		return db.Where(there, has())
	case store.Absent:
		return db.Where("NOT "+there, has())
	case store.NotIn:
		return db.Where(there+" AND NOT "+there, has(), has().Where("y.value IN ?", c.Values))
	}
	return db.Where(there, addComparison(has(), "y.value", c))
}

// addComparison adds a comparison of the expression what to a query.
func addComparison(db *gorm.DB, what string, c store.Condition) *gorm.DB {
	if c.Field == store.FieldStuck { // computed from several columns
		row, _, _ := strings.Cut(strings.TrimPrefix(what, "+"), ".")
		if c.Test == store.Absent {
			return db.Where("NOT (" + record.StuckRun(row) + ")")
		}
		return db.Where(record.StuckRun(row))
	}
	if c.Not {
		return db.Where("NOT ("+negated(what, c)+")", bounds(c)...)
	}
	switch c.Test {
	case store.In:
		if len(c.Values) == 1 {
			return db.Where(what+" = ?", c.Values[0])
		}
		return db.Where(what+" IN ?", c.Values)
	case store.NotIn:
		return db.Where(what+" NOT IN ?", c.Values)
	case store.Present:
		return db.Where(what + " IS NOT NULL")
	case store.Absent:
		return db.Where(what + " IS NULL")
	case store.Between:
		return db.Where(what+" >= ? AND "+what+" <= ?", bounds(c)...)
	case store.Prefix:
		return db.Where(what+" >= ? AND "+what+" < ?", bounds(c)...)
	}
	return compareOrdered(db, what, c)
}

// bounds returns the values with which the comparison of a range is made.
func bounds(c store.Condition) []any {
	switch c.Test {
	case store.Between:
		return c.Values[:2]
	case store.Prefix:
		from, _ := c.Values[0].(string)
		return []any{from, from + "\U0010ffff"} // the highest character ends the range of this prefix
	}
	return c.Values[:1]
}

// negated returns the negation of a comparison.
func negated(what string, c store.Condition) string {
	switch c.Test {
	case store.Between:
		return what + " >= ? AND " + what + " <= ?"
	case store.Prefix:
		return what + " >= ? AND " + what + " < ?"
	}
	return what + " " + string(c.Test) + " ?"
}

// compareOrdered adds a comparison of a range. Keys of search attributes begin with their type: a value of another type
// is neither less nor greater.
func compareOrdered(db *gorm.DB, what string, c store.Condition) *gorm.DB {
	db = db.Where(what+" "+string(c.Test)+" ?", c.Values[0])
	key, text := c.Values[0].(string)
	if !text || c.Field != store.FieldAttribute || key == "" {
		return db
	}
	if c.Test == store.Less || c.Test == store.AtMost {
		return db.Where(what+" >= ?", key[:1])
	}
	return db.Where(what+" < ?", string(key[0]+1))
}
