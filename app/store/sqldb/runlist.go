package sqldb

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Runs lists the newest starts first. One condition leads: an index yields what satisfies it, and the others narrow
// that down. Where the leading one leaves a choice of values each is listed by itself, since an index has each of them
// in order, but not all together.
func (r *reader) Runs(ctx context.Context, q store.RunQuery) ([]engine.Head, error) {
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	where := conditions(q)
	lead := leading(where)
	var rows []RunModel
	for _, one := range alternatives(where, lead) {
		var some []RunModel
		if err := r.runs(ctx, q, where, lead, one).Find(&some).Error; err != nil {
			return nil, wrap(err, "runs")
		}
		rows = append(rows, some...)
	}
	slices.SortFunc(rows, func(x, y RunModel) int {
		return cmp.Or(cmp.Compare(y.StartedAt, x.StartedAt), cmp.Compare(y.RunID, x.RunID))
	})
	rows = slices.CompactFunc(rows, func(x, y RunModel) bool { return x.RunID == y.RunID })
	list := make([]engine.Head, min(len(rows), q.Limit))
	for i := range list {
		m := rows[i]
		h, err := readHead([]any{
			m.RunID, m.Namespace, m.WorkflowID, m.Type, m.Number, m.Status, m.Queue, m.StartedAt, value(
				m.ClosedAt,
			), m.LastSeq,
			value(m.DueAt), value(m.Owner), value(m.BusinessKey), m.State,
		})
		if err != nil {
			return nil, err
		}
		list[i] = h
	}
	return list, nil
}

// conditions are all conditions of a query in one form.
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
	return list
}

// mostAlternatives is how many values of a leading condition are listed one by one.
const mostAlternatives = 16

// rank says how well a condition leads: by how little its index is likely to yield. Below zero it cannot.
func rank(c store.Condition) int {
	if c.Not || len(c.Any) > 0 {
		return -1
	}
	if c.Test == store.In && len(c.Values) <= mostAlternatives {
		switch c.Field {
		case store.FieldRun:
			return 9
		case store.FieldWorkflow:
			return 8
		case store.FieldBusinessKey:
			return 7
		case store.FieldAttribute:
			return 6
		case store.FieldType:
			return 4
		case store.FieldQueue:
			return 3
		case store.FieldStatus:
			return 2
		}
	}
	switch {
	case c.Test == store.NotIn || c.Test == store.Absent || c.Test == store.Present:
	case c.Field == store.FieldAttribute:
		return 5
	case c.Field == store.FieldClosed:
		return 1
	}
	return -1
}

// leading is the condition that leads, -1 for none: then the namespace does, newest first.
func leading(where []store.Condition) int {
	best, at := -1, -1
	for i, c := range where {
		if n := rank(c); n > best {
			best, at = n, i
		}
	}
	return at
}

// alternatives are the forms of the leading condition, one for each of its values.
func alternatives(where []store.Condition, lead int) []store.Condition {
	if lead < 0 || where[lead].Test != store.In {
		return make([]store.Condition, 1)
	}
	c := where[lead]
	list := make([]store.Condition, len(c.Values))
	for i, v := range c.Values {
		list[i] = store.Condition{Field: c.Field, Name: c.Name, Test: store.In, Values: []any{v}}
	}
	return list
}

// runs puts one listing together. one replaces the leading condition when that is a choice.
func (r *reader) runs(
	ctx context.Context, q store.RunQuery, where []store.Condition, lead int, one store.Condition,
) *gorm.DB {
	first := store.Condition{}
	if lead >= 0 {
		if first = where[lead]; first.Test == store.In {
			first = one
		}
	}
	place, order := "r.started_at", "r.started_at DESC, r.run_id DESC"
	db := r.list(ctx, q.Limit).Select("r.*")
	switch {
	case first.Field == store.FieldAttribute:
		place, order = "a.started_at", "a.started_at DESC, a.run_id DESC"
		found := r.s.read.Table("run_attributes AS x").Select("x.started_at, x.run_id").
			Where("x.namespace = ? AND x.name = ?", q.Namespace, first.Name)
		found = behind(compare(found, "x.value", first), "x.started_at", "x.run_id", q)
		if first.Test != store.In {
			found = found.Distinct()
		}
		// With these words SQLite keeps the order of the join.
		db = db.Table("(?) AS a CROSS JOIN runs AS r", found.Order("x.started_at DESC, x.run_id DESC")).
			Where("r.run_id = a.run_id")
	default:
		db = db.Table("runs AS r")
		if q.Namespace != "" {
			db = db.Where("r.namespace = ?", q.Namespace)
		}
		switch first.Field {
		case "":
		case store.FieldClosed:
			// no index has these by their start, and to go through all starts is what the condition is to spare
			order = "r.started_at + 0 DESC, r.run_id DESC"
			fallthrough
		default:
			db = r.narrow(db, first)
		}
	}
	for i, c := range where {
		if i != lead {
			db = r.narrow(db, c)
		}
	}
	if q.Text != "" { // a run id is found whole: a part of one, being random, would be part of many
		db = db.Where(`(lower(r.workflow_id) LIKE ? ESCAPE '\' OR lower(r.business_key) LIKE ? ESCAPE '\' OR r.run_id IN (?, ?))`,
			like(q.Text), like(q.Text), q.Text, strings.ToUpper(q.Text))
	}
	return behind(db, place, strings.Replace(place, "started_at", "run_id", 1), q).Order(order)
}

// behind leaves what comes after the last item of the page before.
func behind(db *gorm.DB, start, id string, q store.RunQuery) *gorm.DB {
	if q.AfterRun == "" {
		return db
	}
	at := q.AfterStart.Micros()
	return db.Where("("+start+" < ? OR ("+start+" = ? AND "+id+" < ?))", at, at, q.AfterRun)
}

// plainBuild is the build id in a run's state on PostgreSQL, which refuses to look into a document when any text of it,
// a memo's say, has an escape for NUL or for half a character. A build id has neither.
const plainBuild = `(regexp_replace(r.state, '\\u(0000|d[89a-f][0-9a-f]{2})', '\ufffd', 'gi')::json ->> 'build_id')`

// narrow adds a condition on the runs at hand.
func (r *reader) narrow(db *gorm.DB, c store.Condition) *gorm.DB {
	if len(c.Any) > 0 {
		return db.Where(r.choice(c.Any))
	}
	switch c.Field {
	case store.FieldAttribute:
		return r.narrowAttribute(db, c)
	case store.FieldBuild:
		if r.s.cfg.Dialect.Shared {
			return compare(db, plainBuild, c)
		}
		return compare(db, "json_extract(r.state, '$.build_id')", c)
	}
	return compare(db, "r."+string(c.Field), c)
}

// choice is a group of conditions: of one list all of them.
func (r *reader) choice(lists [][]store.Condition) *gorm.DB {
	any := r.s.read.Session(&gorm.Session{NewDB: true})
	for i, list := range lists {
		all := r.s.read.Session(&gorm.Session{NewDB: true})
		for _, c := range list {
			all = r.narrow(all, c)
		}
		if i == 0 {
			any = any.Where(all)
		} else {
			any = any.Or(all)
		}
	}
	return any
}

// narrowAttribute asks for values among those of the run at hand.
func (r *reader) narrowAttribute(db *gorm.DB, c store.Condition) *gorm.DB {
	has := func() *gorm.DB {
		return r.s.read.Table("run_attributes AS y").Select("1").Where("y.run_id = r.run_id AND y.name = ?", c.Name)
	}
	if c.Not {
		c.Not = false
		return db.Where("EXISTS (?) AND NOT EXISTS (?)", has(), compare(has(), "y.value", c))
	}
	switch c.Test {
	case store.Present:
		return db.Where("EXISTS (?)", has())
	case store.Absent:
		return db.Where("NOT EXISTS (?)", has())
	case store.NotIn:
		return db.Where("EXISTS (?) AND NOT EXISTS (?)", has(), has().Where("y.value IN ?", c.Values))
	}
	return db.Where("EXISTS (?)", compare(has(), "y.value", c))
}

// compare adds a comparison of one expression.
func compare(db *gorm.DB, what string, c store.Condition) *gorm.DB {
	if c.Not {
		return db.Where("NOT ("+opposite(what, c)+")", bounds(c)...)
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
	return ordered(db, what, c)
}

// bounds are what a comparison by order is with.
func bounds(c store.Condition) []any {
	switch c.Test {
	case store.Between:
		return c.Values[:2]
	case store.Prefix:
		from, _ := c.Values[0].(string)
		return []any{from, from + "\U0010ffff"} // no character comes after this one, so between them is all that begins so
	}
	return c.Values[:1]
}

// opposite is the comparison of one expression that Not turns around.
func opposite(what string, c store.Condition) string {
	switch c.Test {
	case store.Between:
		return what + " >= ? AND " + what + " <= ?"
	case store.Prefix:
		return what + " >= ? AND " + what + " < ?"
	}
	return what + " " + string(c.Test) + " ?"
}

// ordered is a comparison by order. Keys of search attributes begin with their kind, and what is of another kind is
// neither more nor less.
func ordered(db *gorm.DB, what string, c store.Condition) *gorm.DB {
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
