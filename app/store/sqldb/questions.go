package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/clock"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A query task is useful only until its caller times out. In the history it would stay forever, and in the committer's
// batches it would delay durable writes. If several apps share a database, a worker of another app may run the query,
// so the task cannot be kept only in memory.

// questions stores query tasks in an UNLOGGED table: a crash of the database may lose them, just as their callers may
// time out. It does not use the committer but the connections for reads, since no transaction depends on query tasks.
type questions struct{ *Store }

// Questions passes query tasks between apps; nil if this process uses the database alone and needs none.
func (s *Store) Questions() store.Questions {
	if !s.cfg.Dialect.Shared {
		return nil
	}
	return questions{s}
}

const questionState = "SELECT body, until, owner, incarnation, attempt, answer IS NOT NULL FROM questions"

// Counted as reads, because these statements use the connections for reads.
func (q questions) exec(ctx context.Context, what, statement string, args ...any) (int64, error) {
	q.readings.Add(1)
	res, err := q.cfg.Reads.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, q.cfg.Dialect.WrapUnavailable(err))
	}
	return res.RowsAffected()
}

func (q questions) Ask(ctx context.Context, in store.Question, patience time.Duration, most int) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("question %s: %w", in.ID, err)
	}
	// The statement that inserts checks the limit without a lock: apps that insert at the same moment may exceed it
	// slightly, which is cheaper than waiting for each other.
	n, err := q.exec(ctx, "ask", "INSERT INTO questions (question_id, namespace, queue, kind, until, attempt, body)"+
		" SELECT $1, $2, $3, $4, "+clock.SQL+" + $5, 0, $6 WHERE (SELECT count(*) FROM questions"+
		" WHERE namespace = $2 AND queue = $3 AND kind = $4 AND owner IS NULL AND until > "+clock.SQL+") < $7",
		in.ID, in.Namespace, in.Queue, string(in.Kind), patience.Microseconds(), string(body), most)
	if err != nil {
		return err
	}
	if n == 0 {
		return store.ErrFull
	}
	q.backlog(in)
	return nil
}

// backlog notifies this app and the others that a query task waits.
func (q questions) backlog(in store.Question) {
	if q.cfg.Dispatch != nil {
		q.cfg.Dispatch.Backlog(in.Namespace, in.Queue, in.Kind)
	}
	if q.cfg.Notify != nil {
		q.cfg.Notify(Notice{Queues: []QueueKey{{in.Namespace, in.Queue, in.Kind}}})
	}
}

// Ordered by ID, which begins with the time: the task that has waited longest comes first.
func (q questions) Waiting(
	ctx context.Context, namespace, queue string, kind protocol.TaskKind, limit int,
) ([]store.Question, error) {
	q.readings.Add(1)
	rows, err := q.cfg.Reads.QueryContext(ctx, questionState+
		" WHERE namespace = $1 AND queue = $2 AND kind = $3 AND owner IS NULL AND until > "+clock.SQL+
		" ORDER BY question_id LIMIT $4", namespace, queue, string(kind), limit)
	if err != nil {
		return nil, fmt.Errorf("waiting questions: %w", q.cfg.Dialect.WrapUnavailable(err))
	}
	list, err := readQuestions(rows)
	if err != nil {
		return nil, fmt.Errorf("waiting questions: %w", q.cfg.Dialect.WrapUnavailable(err))
	}
	return list, nil
}

func (q questions) Lease(ctx context.Context, in store.Question) (bool, error) {
	// The attempt is the fence: if two apps lease a query task at the same time, one of them finds the number in use.
	n, err := q.exec(ctx, "lease a question", "UPDATE questions SET owner = $2, incarnation = $3, attempt = $4"+
		" WHERE question_id = $1 AND owner IS NULL AND attempt = $4 - 1", in.ID, in.Owner, in.Incarnation, in.Attempt)
	return n > 0, err
}

func readQuestions(rows *sql.Rows) (list []store.Question, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var body string
		var until int64
		var owner, incarnation sql.NullString
		var q store.Question
		var attempt int64
		var truncated bool
		if err := rows.Scan(&body, &until, &owner, &incarnation, &attempt, &truncated); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(body), &q); err != nil {
			return nil, err
		}
		q.Until, q.Owner, q.Incarnation, q.Attempt, q.Over = time.UnixMicro(until).UTC(), owner.String, incarnation.String,
			attempt, truncated
		list = append(list, q)
	}
	return list, rows.Err()
}

func (q questions) Question(ctx context.Context, id string) (store.Question, error) {
	q.readings.Add(1)
	rows, err := q.cfg.Reads.QueryContext(ctx, questionState+" WHERE question_id = $1", id)
	if err != nil {
		return store.Question{}, fmt.Errorf("question %s: %w", id, q.cfg.Dialect.WrapUnavailable(err))
	}
	list, err := readQuestions(rows)
	switch {
	case err != nil:
		return store.Question{}, fmt.Errorf("question %s: %w", id, q.cfg.Dialect.WrapUnavailable(err))
	case len(list) == 0:
		return store.Question{}, fmt.Errorf("question %s: %w", id, store.ErrNotFound)
	}
	return list[0], nil
}

func (q questions) Unlease(ctx context.Context, id string, attempt int64) error {
	// Only if the query task has no reply and no other worker has leased it.
	n, err := q.exec(ctx, "give a question back", "UPDATE questions SET owner = NULL, incarnation = NULL"+
		" WHERE question_id = $1 AND owner IS NOT NULL AND answer IS NULL AND (attempt = $2 OR $2 = 0)", id, attempt)
	if err != nil || n == 0 {
		return err
	}
	in, err := q.Question(ctx, id)
	if err == nil {
		q.backlog(in)
	}
	return err
}

func (q questions) Settle(ctx context.Context, in store.Question, r store.Reply) (bool, error) {
	answer, err := json.Marshal(r)
	if err != nil {
		return false, fmt.Errorf("answer to question %s: %w", in.ID, err)
	}
	// Only the worker that leased the query task may reply, once, and only while the caller still waits.
	n, err := q.exec(ctx, "answer a question",
		"UPDATE questions SET answer = $4 WHERE question_id = $1 AND owner = $2 AND attempt = $3"+
			" AND answer IS NULL AND until > "+clock.SQL, in.ID, in.Owner, in.Attempt, string(answer))
	if err != nil || n == 0 {
		return false, err
	}
	if q.cfg.Dispatch != nil {
		q.cfg.Dispatch.Changed(store.Changed{Answers: []string{in.ID}})
	}
	if q.cfg.Notify != nil {
		q.cfg.Notify(Notice{Answers: []string{in.ID}})
	}
	return true, nil
}

func (q questions) Reply(ctx context.Context, id string) (r store.Reply, answered bool, err error) {
	q.readings.Add(1)
	var answer sql.NullString
	err = q.cfg.Reads.QueryRowContext(ctx, "SELECT answer FROM questions WHERE question_id = $1", id).Scan(&answer)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false, fmt.Errorf("question %s: %w", id, store.ErrNotFound) // a crash of the database lost it
	}
	if err == nil && answer.Valid {
		err = json.Unmarshal([]byte(answer.String), &r)
	}
	if err != nil {
		err = fmt.Errorf("question %s: %w", id, q.cfg.Dialect.WrapUnavailable(err))
	}
	return r, answer.Valid, err
}

// Query tasks with a reply do not count, even if their callers have not fetched the reply yet.
func (q questions) CountUnanswered(
	ctx context.Context, namespace string, kind protocol.TaskKind,
) (counts map[string]protocol.QueryTally, err error) {
	q.readings.Add(1)
	rows, err := q.cfg.Reads.QueryContext(ctx,
		"SELECT queue, count(*) FILTER (WHERE owner IS NULL), count(*) FILTER (WHERE owner IS NOT NULL) FROM questions"+
			" WHERE namespace = $1 AND kind = $2 AND answer IS NULL AND until > "+clock.SQL+" GROUP BY queue", namespace,
		string(kind))
	if err != nil {
		return nil, fmt.Errorf("count questions: %w", q.cfg.Dialect.WrapUnavailable(err))
	}
	defer func() { err = q.cfg.Dialect.WrapUnavailable(errors.Join(err, rows.Close())) }()
	counts = map[string]protocol.QueryTally{}
	for rows.Next() {
		var queue string
		var t protocol.QueryTally
		if err := rows.Scan(&queue, &t.Ready, &t.Leased); err != nil {
			return nil, fmt.Errorf("count questions: %w", err)
		}
		counts[queue] = t
	}
	return counts, rows.Err()
}

func (q questions) Forget(ctx context.Context, id string) error {
	_, err := q.exec(ctx, "forget a question", "DELETE FROM questions WHERE question_id = $1", id)
	return err
}
